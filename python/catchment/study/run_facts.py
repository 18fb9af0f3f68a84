"""The facts that the page of one run shows: of a running job by its reports (docs/doors.md), of a run that
has ended by the files in its directory.

Units: seconds of training; shares of 1.
"""

import contextlib
import dataclasses
import os
import statistics
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from . import core, files
from .errors import Failed
from .history import Event, RunHistory
from .processes import shell_command
from .run_result import dicts, number, text_or_empty
from .text import bytes_text, count, duration, one_line, percent, plural, rounded, seconds, short

_ENDS = {"DONE": "Done", "STOPPED": "Stopped", "FAILED": "Failed"}
# Words for what is wrong with a worker, the worst first, by the codes of warnings.
_WRONG = {
    "no_progress": "stuck",
    "heartbeat_late": "silent",
    "straggler": "slow",
    "staleness_high": "stale",
    "contributions_late": "late",
    "non_finite": "not finite",
}
_ORDER = ["lost", *_WRONG.values()]
_FAR = 2  # times the median: slow, or stale
FOUND_AT_END = ("straggler", "workers_missing")  # codes of warnings about what _findings() finds
_AFTER_LOSS = "See the events and the lost workers' logs for the reason."
_SLOW = "Check the load of its machine and its --threads, or move it to another machine."


class Figure(NamedTuple):
    name: str
    value: str
    note: str = ""


@dataclasses.dataclass
class Worker:
    index: int
    wrong: List[str] = dataclasses.field(default_factory=list)  # the worst first; empty: nothing
    rate: Optional[float] = None  # samples a second
    shares: Dict[str, float] = dataclasses.field(default_factory=dict)  # of its time, by phase
    staleness: Optional[float] = None
    staleness_p99: Optional[float] = None
    applied: Optional[float] = None
    refused: float = 0
    heartbeat: Optional[float] = None
    process: str = ""
    device: str = ""


class Server(NamedTuple):
    number: int
    values: Dict[str, Any]


class Advice(NamedTuple):
    found: str
    why: str = ""
    advice: str = ""


@dataclasses.dataclass
class RunFacts:
    name: str
    phase: str
    outcome: str  # a sentence
    history: RunHistory
    share: Optional[float] = None  # of the budget
    seconds: float = 0
    figures: List[Figure] = dataclasses.field(default_factory=list)
    workers: List[Worker] = dataclasses.field(default_factory=list)
    servers: List[Server] = dataclasses.field(default_factory=list)
    warnings: List[Advice] = dataclasses.field(default_factory=list)
    events: List[Event] = dataclasses.field(default_factory=list)
    command: str = ""  # that repeats the run
    resume: str = ""  # the command that continues it; empty: it is done, or has no checkpoint
    job: str = ""


def of_report(report: Dict[str, Any], history: RunHistory) -> RunFacts:
    """Returns the facts of a report of `catchment status --door`."""
    status = report["status"]
    share = None if status["percent"] is None else status["percent"] / 100
    workers = [_worker_of(one, status) for one in status["workers"]]
    for one in workers:
        if one.rate is None:  # no step has ended since the last report
            one.rate = next((point.value for point in history.rates.get(one.index, [])[-1:]), None)
            one.shares = _mean_shares(history, one.index)
    present = {worker.index for worker in workers}
    workers += [Worker(index, ["lost"]) for index in sorted(_lost(history)) if index not in present]
    times = {event.text: event.seconds for event in history.events}
    return RunFacts(
        one_line(report["job"]),
        status["phase"],
        _outcome(status, share),
        history,
        share,
        status["wall_seconds"],
        _figures(status, number(report["line"], "samples_per_second"), len(present)),
        judged(workers, ended=False),
        [Server(one["shard"], one) for one in status["shards"]],
        warnings_of(report),
        [Event(times.get(text), text) for text in map(one_line, status["events"])],
    )


def warnings_of(report: Dict[str, Any], without: Sequence[str] = ()) -> List[Advice]:
    """Returns the warnings of a report, `without` those with some codes."""
    warnings = (one for one in report["status"]["warnings"] if one["code"] not in without)
    return [Advice(*(one_line(one[key]) for key in Advice._fields)) for one in warnings]


def of_directory(directory: str, warnings: Sequence[Advice] = ()) -> RunFacts:
    """Returns the facts of a run that has ended. Refused without a summary. `warnings`: of its last report,
    without those of FOUND_AT_END."""
    summary = files.read_summary(directory + "/summary.json")
    history = RunHistory()
    history.add_metrics(files.text_or_empty_of(directory + "/metrics.jsonl"))
    total, text = None, files.text_or_empty_of(directory + "/job.textproto")
    with contextlib.suppress(Failed):
        job = core.job_of_run(directory)
        total, text = job.facts["total_samples"], job.text
    samples, servers = number(summary, "samples"), number(summary, "servers")
    share = samples / total if samples is not None and total else None
    workers = judged(_recorded_workers(summary, history), ended=True)
    job_file, split = os.path.join(directory, "job.textproto"), "--servers=%d" % (servers or 1)
    on = number(summary, "last_checkpoint") and text_or_empty(summary, "phase") != "DONE"
    return RunFacts(
        text_or_empty(summary, "job") or os.path.basename(os.path.abspath(directory)),
        text_or_empty(summary, "phase"),
        _outcome(summary, share),
        history,
        share,
        number(summary, "wall_seconds") or 0,
        _figures(summary, number(summary, "samples_per_second")),
        workers,
        [Server(int(number(one, "shard") or 0), one) for one in dicts(summary.get("per_shard"))],
        [*_findings(summary, history, workers), *warnings],
        history.events,
        shell_command("catchment train", [job_file, split, "--out=again"]) if text else "",
        shell_command("catchment train", [job_file, split, "--out=" + directory, "--resume"])
        if text and on
        else "",
        text,
    )


def _outcome(values: Dict[str, Any], share: Optional[float]) -> str:
    """Returns what became of the run: "Stopped at 2 % of its budget by Ctrl-C"."""
    phase, reason = text_or_empty(values, "phase"), text_or_empty(values, "reason")
    early, left = text_or_empty(values, "ended_early"), number(values, "seconds_left")
    part = "" if share is None else " at %s %% of its budget" % short(100 * share, 2)
    if phase in _ENDS:
        whole = phase == "DONE" and not early
        trained = number(values, "wall_seconds")
        sentence = "Done" if whole else _ENDS[phase] + part
        reason = reason or early
        if whole and trained is not None:
            sentence += " after %s of training" % seconds(trained)
    else:
        sentence = phase.capitalize() + (part.replace(" at", ":", 1) if phase == "TRAINING" else "")
        if phase == "TRAINING" and left is not None:
            sentence += ", %s left" % seconds(left)
    sentence = sentence or "It is not known how the run has ended"
    if reason.startswith("SIG"):
        return "%s by %s" % (sentence, reason.replace("SIGINT to", "Ctrl-C of", 1))
    return sentence + (": " + reason if reason else "")


def _figures(values: Dict[str, Any], rate: Optional[float], present: Optional[int] = None) -> List[Figure]:
    def known(key: str) -> Optional[float]:
        return number(values, key)

    def of_best(words: str) -> str:
        return "best " + words if (known("evaluations_since_best") or 0) > 0 else ""

    accuracy, loss = known("test_accuracy"), known("test_loss")
    figures = []
    if accuracy is not None:
        best = known("best_test_accuracy") or 0  # It may be that of the lowest loss.
        note = of_best(percent(best)) if best > accuracy else ""
        figures.append(Figure("test accuracy", percent(accuracy), note))
    if loss is not None:
        figures.append(Figure("test loss", short(loss, 4), of_best(short(known("best_test_loss") or 0, 4))))
    train_loss = known("train_loss")
    if loss is None and train_loss is not None:
        figures.append(Figure("training loss", short(train_loss, 4), "last seconds"))
    if rate:
        note = "last seconds" if present is not None else "over the whole run"
        figures.append(Figure("samples a second", count(rounded(rate)), note))
    samples, total = known("samples"), known("total_samples")
    if samples is not None:
        note = "of %s" % count(int(total)) if total else "epoch %s" % short(known("epochs") or 0, 3)
        figures.append(Figure("samples trained", count(int(samples)), note))
    figures.append(Figure("time", seconds(known("wall_seconds") or 0), _updates(known("updates"))))
    staleness, p99 = known("staleness_mean"), known("staleness_p99")
    if staleness is not None:
        figures.append(
            Figure("staleness", "%.2f" % staleness, "" if p99 is None else "99th percentile %s" % short(p99))
        )
    expected = known("workers") if present is None else known("planned_workers")
    algorithm = text_or_empty(values, "preset") or text_or_empty(values, "algorithm")
    if expected is not None:
        number_of = count(int(expected)) if present is None else "%d of %d" % (present, int(expected))
        figures.append(Figure("workers", number_of, algorithm))
    recoveries = known("recoveries")
    if recoveries:
        again = "%s computed again" % plural(int(known("updates_computed_again") or 0), "update")
        figures.append(Figure("recoveries", count(int(recoveries)), again))
    pushed, pulled = known("bytes_pushed"), known("bytes_pulled")
    if pushed and pulled:
        figures.append(Figure("on the wire", bytes_text(pushed + pulled), "both ways"))
    return figures


def _updates(updates: Optional[float]) -> str:
    return "" if updates is None else plural(int(updates), "update")


def _worker_of(one: Dict[str, Any], status: Dict[str, Any]) -> Worker:
    """Returns the worker of an entry of a status."""
    codes = [warning["code"] for warning in status["warnings"] if warning["worker"] == one["worker"]]
    worker = Worker(one["worker"], [_WRONG.get(code, code.replace("_", " ")) for code in codes])
    worker.process = one_line("%s:%s" % (one["host"], one["pid"]))
    worker.device, worker.heartbeat = one_line(one["device"]), number(one, "seconds_since_heartbeat")
    worker.rate, worker.shares = number(one, "samples_per_second"), shares_of(one)
    return _with_pushes(worker, one)


def shares_of(values: Dict[str, Any]) -> Dict[str, float]:
    return {key: number(values, key + "_share") or 0 for key in ("compute", "push", "pull", "data")}


def _with_pushes(worker: Worker, values: Dict[str, Any]) -> Worker:
    worker.staleness, worker.staleness_p99 = (
        number(values, "staleness_mean"),
        number(values, "staleness_p99"),
    )
    worker.applied = number(values, "pushes_applied")
    worker.refused = sum(number(values, key) or 0 for key in ("pushes_late", "pushes_non_finite"))
    return worker


def _recorded_workers(summary: Dict[str, Any], history: RunHistory) -> List[Worker]:
    """Returns the workers of a run that has ended, with their mean rates."""
    pushes = {one.get("worker"): one for one in dicts(summary.get("per_worker"))}
    lost, workers = _lost(history), []
    indices = {index for index in pushes if type(index) is int} | set(history.rates) | lost
    for index in sorted(indices):
        series = history.rates.get(index, [])
        rate = statistics.mean(point.value for point in series) if series else None
        worker = Worker(index, ["lost"] if index in lost else [], rate, _mean_shares(history, index))
        workers.append(_with_pushes(worker, pushes.get(index, {})))
    return workers


def _mean_shares(history: RunHistory, worker: int) -> Dict[str, float]:
    shares = history.shares.get(worker, {})
    return {phase: share / sum(shares.values()) for phase, share in shares.items() if share > 0}


def _lost(history: RunHistory) -> Set[int]:
    """Returns the workers that were lost and have not been seen again."""
    times: Dict[int, float] = {}
    for event in history.events:
        if event.kind == "recovered":  # what was after a checkpoint, to which the job went back, is undone
            times = {worker: lost_at for worker, lost_at in times.items() if lost_at <= (event.seconds or 0)}
        elif event.worker is not None:
            times[event.worker] = event.seconds or 0

    def is_back(worker: int, lost_at: float) -> bool:
        series = history.rates.get(worker, [])
        return any(point.seconds > lost_at for point in series[-1:])

    return {worker for worker, lost_at in times.items() if not is_back(worker, lost_at)}


def judged(workers: List[Worker], ended: bool) -> List[Worker]:
    """Returns the workers in the order of what is wrong with them. Also marks those that are more than twice
    as stale as the median and, of a run that has ended, those that computed more than twice as long for a
    sample: while it trains, rates are those of a second, and warnings are of longer times."""
    stale = {one.index: one.staleness for one in workers if one.staleness is not None}
    words = {"slow": _far(_compute_seconds(workers)) if ended else set(), "stale": _far(stale, 1.0)}
    for one in workers:
        one.wrong += [word for word, far in words.items() if one.index in far and word not in one.wrong]

    def rank(word: str) -> int:
        return _ORDER.index(word) if word in _ORDER else len(_ORDER)

    def key(one: Worker) -> Tuple[int, int]:
        one.wrong.sort(key=rank)
        return (rank(one.wrong[0]) if one.wrong else len(_ORDER) + 1), one.index

    return sorted(workers, key=key)


def _far(values: Dict[int, float], least: float = 0) -> Set[int]:
    """Returns the workers whose values are more than twice the median, and above `least`."""
    limit = max(_FAR * statistics.median_low(values.values()), least) if len(values) > 1 else 0
    return {worker for worker, value in values.items() if value > limit > 0}


def _compute_seconds(workers: Sequence[Worker]) -> Dict[int, float]:
    """Returns the time that each worker computes for a sample."""
    return {one.index: one.shares.get("compute", 0) / one.rate for one in workers if one.rate}


def _findings(summary: Dict[str, Any], history: RunHistory, workers: Sequence[Worker]) -> List[Advice]:
    """Returns what a run that has ended shows to have gone wrong."""
    found = []
    lost = sum(event.kind == "lost" for event in history.events)
    if lost:
        which = plural(lost, "worker") + (" was" if lost == 1 else " were")
        found.append(Advice(which + " lost", "", _AFTER_LOSS))
    computed = _compute_seconds(workers)
    for worker in sorted(_far(computed)):
        median = statistics.median_low(computed.values())
        words = worker, duration(computed[worker]), short(computed[worker] / median, 3), duration(median)
        found.append(Advice("worker %d computed %s a sample, %s times the median of %s" % words, "", _SLOW))
    again = number(summary, "updates_computed_again") or 0
    if number(summary, "recoveries"):
        times = "once" if summary["recoveries"] == 1 else "%d times" % summary["recoveries"]
        found.append(Advice("the job recovered " + times, "%s computed again" % _updates(again)))
    refused = number(summary, "pushes_non_finite") or 0
    if refused:
        found.append(Advice("%s refused, since they were not finite" % plural(int(refused), "contribution")))
    return found
