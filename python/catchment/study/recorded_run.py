"""Reads the inputs of a simulation from a finished run: the time of a step, the additional time of first
steps, and the time of an exchange. Errors name what the run's files lack, after "--from=DIRECTORY: "."""

import collections
import math
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from . import core, files
from .errors import Refused
from .models import Distribution, NetworkModel
from .run_result import json_lines, number
from .statistics import total


class _Interval(NamedTuple):
    """A worker's progress between two lines of metrics."""

    line: int  # at its end
    seconds: float  # of a step
    steps: float


# Between a worker's consecutive intervals: relative to the worker's mean step; and its variance relative to
# that of a step, 1 / m for the mean of an interval with m steps.
_Difference = Tuple[float, float]


class RecordedRun:
    """A finished run in a directory."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.summary = self._needed("a finished run is", files.read_summary, directory + "/summary.json")
        self.job = self._needed("the job of the run is", core.job_of_run, directory)
        self._batch = self.job.json["batch_size"]

    def step(self) -> Distribution:
        """Returns the distribution of a step's time: constant, or log-normal if steps differ. Its mean is the
        computing time of all workers for each step (summary.json); its spread is that of the workers' means
        over the intervals of metrics.jsonl, scaled to one step, without what all workers have in common."""
        compute = self._positive("compute_seconds")
        # The seconds are those since the servers' last start. Runs of earlier releases do not have the
        # samples since then.
        samples = self._positive("computed_samples" if "computed_samples" in self.summary else "samples")
        mean, deviation = compute * self._batch / samples, _deviation(self._intervals())
        if deviation < 0.01:
            return Distribution("constant", mean)
        return Distribution("lognormal", mean, math.sqrt(math.log(1 + deviation * deviation)))

    def steps_by_worker(self) -> Dict[int, float]:
        """Returns the mean time of a step of each worker; nothing of a run too short for two lines."""
        return {worker: _mean_step(intervals) for worker, intervals in self._intervals().items()}

    def start(self) -> Optional[Distribution]:
        """Returns by how much the first steps of workers took longer: exponential, with the standard
        deviation between the workers as its mean. It is what a worker computed in its first interval beyond
        as many steps of its later intervals, without the spread that these steps have anyway. None if that
        explains all, or if fewer than two workers have two intervals."""
        workers = [intervals for intervals in self._intervals().values() if len(intervals) > 1]
        if len(workers) < 2:
            return None
        steps = [(first.steps, first.seconds, _mean_step(later)) for first, *later in workers]
        deviation = _deviation(self._intervals())
        longer = [count * (seconds - step) for count, seconds, step in steps]
        by_chance = total(count * (deviation * step) * (deviation * step) for count, _, step in steps)
        whole, n = total(longer), len(workers)
        variance = (total(one * one for one in longer) - whole * whole / n) / (n - 1) - by_chance / n
        return Distribution("exponential", math.sqrt(variance)) if variance > 0 else None

    def network(self) -> NetworkModel:
        """Returns a network without a limit to bandwidth on which an exchange takes the run's median round
        trip. Refuses a run whose round trips contain waiting for other workers."""
        if self.job.facts["synchronous"]:
            raise self._refused(
                "the run is synchronous, so its round trips include waiting for other workers; give "
                "--network, such as --network=10Gbit:50us"
            )
        return NetworkModel(0, 0.5e-6 * self._positive("round_trip_p50_us"))

    def _refused(self, reason: str) -> Refused:
        return Refused("--from=%s: %s" % (self.directory, reason))

    def _needed(self, what: str, read: Any, path: str) -> Any:
        try:
            return read(path)
        except Refused as error:
            raise self._refused("%s needed: %s" % (what, error.message)) from None

    def _positive(self, key: str) -> float:
        value = number(self.summary, key)
        if value is None or value <= 0:
            raise self._refused("its summary.json has no %s above 0" % key)
        return value

    def _intervals(self) -> Dict[int, List[_Interval]]:
        path = self.directory + "/metrics.jsonl"
        metrics = self._needed("the metrics of the run are", files.read_text, path)
        workers: Dict[int, List[_Interval]] = collections.defaultdict(list)
        last = 0.0
        rows = (row for row in json_lines(metrics) if "worker_rates" in row)
        for line, row in enumerate(rows, 1):
            now = number(row, "wall_seconds") or 0.0
            for rates in row["worker_rates"]:
                rate, share = number(rates, "samples_per_second"), number(rates, "compute_share")
                if rate is None or share is None or rate <= 0 or now <= last:
                    continue
                interval = _Interval(line, share * self._batch / rate, rate * (now - last) / self._batch)
                workers[rates.get("worker", 0)].append(interval)
            last = now
        return dict(sorted(workers.items()))


def _mean_step(intervals: List[_Interval]) -> float:
    return total(one.steps * one.seconds for one in intervals) / total(one.steps for one in intervals)


def _deviation(workers: Dict[int, List[_Interval]]) -> float:
    """Returns the relative standard deviation of one step, from the intervals between lines of metrics.

    Differences between consecutive intervals (Allan's variance) are free of what slows a worker down for
    longer, such as other processes on its machine, which is not a property of single steps. What all workers
    have in common at a time, such as the load of a machine that they share, makes none wait for another: it
    is subtracted if several workers trained.
    """
    differences: Dict[Tuple[int, int], List[_Difference]] = collections.defaultdict(list)
    for intervals in workers.values():
        mean = _mean_step(intervals)
        # The first and the last interval contain the beginning and the end of training.
        for a, b in zip(intervals[1:-2], intervals[2:-1]):
            difference = (b.seconds - a.seconds) / mean, 1 / a.steps + 1 / b.steps
            differences[a.line, b.line].append(difference)
    groups = [differences[lines] for lines in sorted(differences)]
    freedom = sum(map(len, groups))
    apart = freedom - len(groups)
    if apart > 0:
        return math.sqrt(_squares(groups, centered=True) / apart)
    return math.sqrt(_squares(groups, centered=False) / freedom) if freedom > 0 else 0


def _squares(groups: List[List[_Difference]], centered: bool) -> float:
    """Returns the weighted sum of the squares, without the mean of each group if `centered`."""
    result = 0.0
    for group in groups:
        weights = total(1 / variance for _, variance in group)
        mean = total(value / variance / weights for value, variance in group) if centered else 0
        for value, variance in group:
            result += (value - mean) * (value - mean) / variance
    return result
