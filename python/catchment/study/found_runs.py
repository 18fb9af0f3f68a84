"""The runs under directories, whatever state they are in: `catchment runs` and `catchment diff`."""

import contextlib
import os
from typing import Any, Dict, Iterator, NamedTuple, Optional

from catchment import _run_files

from . import core, files
from .errors import Failed
from .run_result import number, text_or_empty

# Any of these is in the directory of a run.
_MARKS = ("metrics.jsonl", "summary.json", "master.lock")


class FoundRun(NamedTuple):
    directory: str
    job: str
    preset: str
    workers: Optional[int]
    phase: str  # of its summary, or RUNNING, UNFINISHED, DAMAGED
    reason: str
    test_accuracy: Optional[float]
    test_loss: Optional[float]
    wall_seconds: Optional[float]
    samples: Optional[float]
    updates: Optional[float]
    samples_per_second: Optional[float]
    staleness_mean: Optional[float]
    build: str


def is_run(directory: str) -> bool:
    return any(os.path.isfile(os.path.join(directory, name)) for name in _MARKS)


def find_runs(directory: str) -> Iterator[str]:
    """Returns the directories of runs in a directory and below it, in order. Links are not followed."""
    if is_run(directory):
        yield directory
        return
    for name in files.names_in(directory):
        path = os.path.join(directory, name)
        if os.path.isdir(path) and not os.path.islink(path) and not name.startswith("."):
            yield from find_runs(path)


def read_found(directory: str) -> FoundRun:
    """Returns what the run has left: of one without a summary what its last line of metrics has."""
    summary: Dict[str, Any] = {}
    phase, reason = "RUNNING" if _run_files.master_runs(directory) else "UNFINISHED", ""
    if phase != "RUNNING" and os.path.lexists(directory + "/summary.json"):
        try:
            summary = files.read_summary(directory + "/summary.json")
            phase, reason = text_or_empty(summary, "phase"), text_or_empty(summary, "reason")
        except Failed as error:
            phase, reason = "DAMAGED", error.message
    values = summary or _run_files.last_row(directory + "/metrics.jsonl") or {}
    job, preset, workers = (
        text_or_empty(summary, "job"),
        text_or_empty(summary, "algorithm"),
        summary.get("workers"),
    )
    if not summary:
        with contextlib.suppress(Failed):
            settings = core.job_of_run(directory)
            job, preset, workers = settings.facts["name"], settings.preset, settings.json.get("workers")
    scores: Dict[str, Any] = {key: number(values, key) for key in FoundRun._fields[6:13]}
    return FoundRun(
        directory,
        job,
        preset,
        workers if type(workers) is int else None,
        phase or "DAMAGED",
        reason or ("" if phase else "summary.json has no phase"),
        build=text_or_empty(summary, "build"),
        **scores,
    )
