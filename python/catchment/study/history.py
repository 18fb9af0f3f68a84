"""The history of one run: its measurements over time, and its events.

Units: seconds of training.
"""

import math
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .run_result import dicts, json_lines, number
from .text import one_line

# The most points of a series, and of a worker's, and the most marks. Beyond that every second one is dropped.
MAX_POINTS, MAX_WORKER_POINTS, MAX_MARKS = 400, 40, 60
MAX_EVENTS = 1000  # that are kept, the last ones
MARKED = ("lost", "recovered", "checkpoint")  # kinds of events that curves are marked with
_OF_TRAINING = ("train_loss", "train_accuracy", "staleness_mean", "samples_per_second")
_SCORES = ("test_loss", "test_accuracy")
_PHASES = ("compute", "push", "pull", "data")


class Point(NamedTuple):
    seconds: float
    value: float


class Event(NamedTuple):
    seconds: Optional[float]  # None: it is not known
    text: str
    kind: str = ""
    worker: Optional[int] = None  # that was lost


class RunHistory:
    """A job's measurements over time. If the job goes back to a checkpoint, those after the checkpoint are
    dropped; events stay."""

    def __init__(self) -> None:
        self.series: Dict[str, List[Point]] = {key: [] for key in _OF_TRAINING + _SCORES}
        self.rates: Dict[int, List[Point]] = {}  # samples a second by worker
        self.shares: Dict[int, Dict[str, float]] = {}  # of a worker's time, summed over lines
        self.events: List[Event] = []
        self.marks: List[Event] = []  # of MARKED, in order of time

        self._reported: Dict[str, Any] = {}  # the status of the last report

    def add_metrics(self, lines: str) -> None:
        """Adds the lines of metrics.jsonl; incomplete ones are left out."""
        for row in json_lines(lines):
            self.add(row, trains=True)
            self.add_workers(row.get("worker_rates"), row)
            self.add_events(row.get("events"))

    def add(self, row: Dict[str, Any], trains: bool) -> None:
        """`trains`: the job trains, so that the values of the last seconds are meaningful."""
        # Before the first report of a worker all are 0.
        means = trains and (number(row, "train_loss") or number(row, "samples_per_second"))
        for key in _OF_TRAINING if means else ():
            if key != "samples_per_second" or row.get(key):
                _add_point(self.series[key], row, key, number(row, "wall_seconds"), MAX_POINTS)
        for key in _SCORES:
            # Lines and reports repeat a score until there is a new one.
            series, seconds = self.series[key], number(row, "tested_at_seconds")
            if not series or series[-1].seconds != seconds:
                _add_point(series, row, key, seconds, MAX_POINTS)

    def add_workers(self, workers: Any, row: Dict[str, Any]) -> None:
        """Adds the rates of workers and the shares of their time: `worker_rates` of a line of metrics, or
        `workers` of a status."""
        for one in dicts(workers):
            worker, rate = one.get("worker"), number(one, "samples_per_second")
            if type(worker) is not int or rate is None:
                continue
            series = self.rates.setdefault(worker, [])
            seconds = number(row, "wall_seconds")
            _add_point(series, one, "samples_per_second", seconds, MAX_WORKER_POINTS)
            shares = self.shares.setdefault(worker, dict.fromkeys(_PHASES, 0.0))
            for phase in _PHASES:
                shares[phase] += number(one, phase + "_share") or 0.0

    def add_report(self, report: Dict[str, Any]) -> None:
        """Adds a report (docs/doors.md) of a job whose metrics cannot be read, with the events since the
        report before. A worker was lost if its process is not in the report of a job that trains."""
        status, line = report["status"], report["line"]
        trains = status["phase"] == "TRAINING"
        self.add(line, trains)
        self.add_workers(status["workers"], line)
        before, self._reported = self._reported or status, status
        fresh = _fresh(list(map(one_line, before["events"])), list(map(one_line, status["events"])))
        kinds: Dict[str, Tuple[str, Optional[int]]] = {}

        def mark(kind: str, words: str, otherwise: str, worker: Optional[int] = None) -> None:
            kinds[next((text for text in fresh if words in text), otherwise)] = kind, worker

        members = {_name(one): one["worker"] for one in before["workers"]}
        for name in members.keys() - set(map(_name, status["workers"])) if trains else ():
            mark("lost", name, name + " is gone", members[name])
        for kind, key, words in (
            ("recovered", "recoveries", "; went back to "),
            ("checkpoint", "last_checkpoint", "checkpoint %s is saved" % status["last_checkpoint"]),
        ):
            if (status[key] or 0) > (before[key] or 0):
                mark(kind, words, "%s: %d" % (kind, status[key]))
        for text in [*fresh, *(text for text in kinds if text not in fresh)]:
            self.add_event(Event(number(line, "wall_seconds"), text, *kinds.get(text, ("", None))))

    def add_events(self, events: Any) -> None:
        """Adds the `events` of a line of metrics."""
        for one in dicts(events):
            kind, worker = one.get("kind"), one.get("worker")
            self.add_event(
                Event(
                    number(one, "wall_seconds"),
                    one_line(str(one.get("event", ""))),
                    kind if kind in MARKED else "",
                    worker if type(worker) is int else None,
                )
            )

    def add_event(self, event: Event) -> None:
        self.events.append(event)
        del self.events[:-MAX_EVENTS]
        if event.kind and event.seconds is not None:
            self.marks = [mark for mark in self.marks if (mark.seconds or 0) <= event.seconds]
            self.marks.append(event)
            if len(self.marks) > MAX_MARKS:
                self._thin_marks()

    def _thin_marks(self) -> None:
        """Drops every second checkpoint."""
        checkpoints = [mark for mark in self.marks if mark.kind == "checkpoint"]
        dropped = set(map(id, checkpoints[1::2] or self.marks[: MAX_MARKS // 2]))
        self.marks = [mark for mark in self.marks if id(mark) not in dropped]


def _name(worker: Dict[str, Any]) -> str:
    """Returns the name that a worker of a status has in events."""
    return one_line("worker %d (%s:%s)" % (worker["worker"], worker["host"], worker["pid"]))


def _fresh(before: List[str], events: List[str]) -> List[str]:
    """Returns those of the last events of a log that were not yet the last ones before."""
    known = next(n for n in range(len(before), -1, -1) if before[len(before) - n :] == events[:n])
    return events[known:]


def _add_point(
    series: List[Point], row: Dict[str, Any], key: str, seconds: Optional[float], most: int
) -> None:
    value = number(row, key)
    if seconds is None or value is None or not (math.isfinite(value) and math.isfinite(seconds)):
        return
    while series and series[-1].seconds >= seconds:
        series.pop()
    series.append(Point(seconds, value))
    if len(series) > most:
        del series[1::2]
