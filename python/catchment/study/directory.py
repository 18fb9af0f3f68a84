"""The directory of a comparison (--out):

compare.json   the record of the options and the job, written first, and of the runs' data
runs/NAME/     the output of one run, as written by `catchment train`, without checkpoints
search/NAME/   likewise, of the searches for learning rates
squeue.log     on Slurm: what squeue printed last
kubectl.log    on Kubernetes: what kubectl printed last
report.json, report.html
best.textproto the best job of `catchment tune`
command.lock   held by the command that uses the directory
catchment.claim these names, which belong to Catchment
"""

import contextlib
import difflib
import enum
import os
import sys
from typing import Any, Dict, List, NamedTuple, Optional

from . import core, files, run_directory
from .command_line import Stream
from .core import Job
from .errors import Refused
from .options import SITE_FLAGS, SLURM_FLAGS, CompareOptions, budget_text, straggler_text
from .plan import PlannedRun
from .run_result import has_diverged, number, text_or_empty
from .text import count, rounded, short, to_json

MANIFESTS = "/manifests"
_MANIFEST_FILES = r"run\.yaml|job\.textproto|kustomization\.yaml"
_RECORD = "/compare.json"
_RUNS = ("runs", "search")
_FILES = "compare.json initial.safetensors report.json report.html best.textproto squeue.log kubectl.log"
_NAMES = (*_FILES.split(), *_RUNS)
_KEYS = "algorithms workers seeds budget straggler search servers threads device"  # of a record
_MOST_CHANGES = 3  # of the data, in one command


def compare_record(options: CompareOptions, given: Job) -> Dict[str, Any]:
    """Returns everything that determines the runs, so not --target, which affects only the report."""
    record = {key: getattr(options, key, None) for key in _KEYS.split()}
    record["budget"] = budget_text(options.budget)
    record["straggler"] = [straggler_text(straggler) for straggler in options.stragglers]
    if options.launcher == "slurm":
        record.update(launcher="slurm", **{key: getattr(options, key) for key in SLURM_FLAGS})
    elif options.launcher == "kubectl":
        record.update(launcher="kubectl", **options.given_flags(SITE_FLAGS), overlay=options.overlay)
    if options.program:
        record["program"] = options.program
    record["job"] = given.text
    return record


def describe_difference(before: Dict[str, Any], now: Dict[str, Any]) -> str:
    """Returns the first difference of two records, a flag or a line of the job; empty if there is none."""
    for key in [*now, *(key for key in before if key not in now)]:
        old, new = before.get(key), now.get(key)
        if old == new:
            continue
        if key == "job" and isinstance(old, str) and isinstance(new, str):
            return _job_difference(old.split("\n"), new.split("\n"))
        return "--%s is %s, but was %s" % (key, _value(new), _value(old))
    return ""


def _value(value: Any) -> str:
    return "none" if value is None else to_json(value)


def _job_difference(before: List[str], now: List[str]) -> str:
    """Returns the first line in which two jobs differ: changed, added or removed."""
    changes = difflib.SequenceMatcher(None, before, now, autojunk=False).get_opcodes()
    _, old, old_end, new, new_end = next(change for change in changes if change[0] != "equal")
    if old == old_end:
        return "the job has `%s`, which it did not have" % now[new].strip()
    if new == new_end:
        return "the job no longer has `%s`" % before[old].strip()
    return "the job has `%s`, but had `%s`" % (now[new].strip(), before[old].strip())


class RunData(NamedTuple):
    """The data that a run was trained on, as its workers have reported them; 0 or empty: unknown."""

    train_samples: int = 0
    test_samples: int = 0
    data_checksum: str = ""

    def difference(self, now: "RunData") -> str:
        """Returns "300 training samples, which were 600"; empty if nothing that is known of both differs."""
        for name, new, old in zip(("training", "test"), now[:2], self[:2]):
            if new and old and new != old:
                return "%s %s samples, which were %s" % (count(new), name, count(old))
        differ = self.data_checksum and now.data_checksum and self.data_checksum != now.data_checksum
        return "as many samples, with other contents" if differ else ""


def read_data(of: Any) -> RunData:
    """Reads the data from the record of a comparison."""
    of = of if isinstance(of, dict) else {}
    checksum = of.get("data_checksum")
    train, test = (int(number(of, key) or 0) for key in ("train_samples", "test_samples"))
    return RunData(train, test, checksum if isinstance(checksum, str) else "")


def data_of(summary: Dict[str, Any]) -> RunData:
    """Returns the data of the run with this summary.json."""
    data, epochs = read_data(summary), number(summary, "epochs") or 0
    if data.train_samples == 0 and epochs > 0:  # Earlier versions have only counted epochs.
        data = data._replace(train_samples=rounded((number(summary, "samples") or 0) / epochs))
    return data


class RunOutcome(enum.Enum):
    NONE = 0  # there is no result of the run's job
    DONE = 1  # it ended at its budget
    DIVERGED = 2


def time_is_up(seconds: float) -> str:
    """Returns the reason in the summary of a run that was stopped after its time."""
    return "the budget of %s s is spent" % short(seconds)


def summary_of(path: str) -> Optional[Dict[str, Any]]:
    """Returns the summary in the directory of a run; None if there is none."""
    with contextlib.suppress(Refused):
        return files.read_summary(path + "/summary.json")
    return None


def _is_of_job(text: str, job: str) -> bool:
    """Returns whether a run's job is the planned one, also if an earlier version, which did not have all of
    the fields, has written it."""
    if text == job or not text:
        return text == job
    with contextlib.suppress(Refused):
        return core.parse_job(text).text == job
    return False


def outcome_of(run: PlannedRun, path: str) -> RunOutcome:
    """Returns the outcome of a run from its directory."""
    summary = summary_of(path)
    if summary is None or not _is_of_job(files.text_or_empty_of(path + "/job.textproto"), run.job.text):
        return RunOutcome.NONE
    if has_diverged(summary):
        return RunOutcome.DIVERGED
    phase, reason = (text_or_empty(summary, key) for key in ("phase", "reason"))
    stopped = run.seconds > 0 and phase == "STOPPED" and reason == time_is_up(run.seconds)
    return RunOutcome.DONE if phase == "DONE" or stopped else RunOutcome.NONE


def is_comparison(path: str) -> bool:
    """Returns whether the directory has the record of a comparison."""
    with contextlib.suppress(Refused):
        return {"algorithms", "job"} <= set(files.read_summary(path + _RECORD))
    return False


class CompareDirectory:
    """Refused if it contains another comparison, naming the difference, or is in use."""

    def __init__(self, path: str, overwrite: bool, record: Dict[str, Any]) -> None:
        self.path = path
        self._last = RunData()  # of the run that has ended last, also in an earlier command
        self._change = ""  # of the data, which take_change has not returned
        self._changes = 0
        # An earlier version has left no record of its names.
        lock = run_directory.lock_directory(path, "catchment compare", _NAMES, is_comparison(path))
        self.close = lock.close
        try:
            self._prepare(overwrite, record)
        except BaseException:
            lock.close()
            raise

    @staticmethod
    def check(path: str) -> None:
        """Refuses files that are not Catchment's. Changes nothing."""
        run_directory.check_claim(path, _NAMES, is_comparison(path))

    def path_of(self, run: PlannedRun) -> str:
        return "%s/%s" % (self.path, run.directory)

    @property
    def initial_weights(self) -> str:
        """The initial weights of all runs, if a program described its model."""
        return self.path + "/initial.safetensors"

    @property
    def data_changed(self) -> bool:
        """Returns True if the data have changed since the runs before, which are done again."""
        return bool(self._change)

    def outcome_of(self, run: PlannedRun) -> RunOutcome:
        """Returns the outcome of a run. A run on other data than those of the last run that has ended counts
        as NONE, and is done again."""
        path = self.path_of(run)
        other = self._last.difference(data_of(summary_of(path) or {}))
        return RunOutcome.NONE if other else outcome_of(run, path)

    def has(self, run: PlannedRun) -> bool:
        """Returns whether a run has an outcome. Deletes its checkpoints then: it may have ended without a
        command that waited for it."""
        if self.outcome_of(run) is RunOutcome.NONE:
            return False
        run_directory.delete_run_checkpoints(self.path_of(run))
        return True

    def note_end(self, run: PlannedRun) -> None:
        """Compares the data of a run that has ended with those of the runs before, and records them."""
        summary = summary_of(self.path_of(run))
        if summary is None or outcome_of(run, self.path_of(run)) is RunOutcome.NONE:
            return
        data = data_of(summary)
        change = self._last.difference(data)
        if not change and self._last.train_samples > 0:
            return
        self._change = change or self._change
        self._last = data
        try:
            record = files.read_summary(self.path + _RECORD)
            self._write_record({**record, "data": data._asdict()})
        except Refused as error:
            # Without it the next command would only compare with the runs that it executes.
            sys.stderr.write(error.message + "\n")

    def take_change(self, out: Stream) -> bool:
        """Returns data_changed, and forgets the change after printing it. Refused if the data go on
        changing."""
        change, self._change = self._change, ""
        if not change:
            return False
        self._changes += 1
        if self._changes > _MOST_CHANGES:
            remedy = "give all runs the same data, and repeat the command"
            raise Refused("the data differ from run to run (%s): %s" % (change, remedy))
        out.write("the data have changed: %s; runs of the old data are done again\n" % change)
        return True

    def _prepare(self, overwrite: bool, record: Dict[str, Any]) -> None:
        if overwrite:
            for runs in _RUNS:
                _delete_runs("%s/%s" % (self.path, runs))
            for file in _FILES.split():
                files.delete("%s/%s" % (self.path, file))
        path = self.path + _RECORD
        if not os.path.exists(path):
            return self._write_record(record)
        try:
            before = files.read_summary(path)
            self._last = read_data(before.pop("data", None))
            difference = describe_difference(before, record)
        except Refused:
            difference = "its compare.json is damaged"
        if difference:
            ways = "choose another --out, or start again with --overwrite (deletes it)"
            raise Refused("%s holds another comparison: %s; %s" % (self.path, difference, ways))
        return None

    def _write_record(self, record: Dict[str, Any]) -> None:
        files.write_atomically(self.path + _RECORD, to_json(record, 2) + "\n")


def _delete_runs(path: str) -> None:
    """Deletes the runs in a directory, and the directory if nothing else is in it."""
    run_directory.refuse_link(path)
    for name in files.names_in(path):
        run = "%s/%s" % (path, name)
        if os.path.isdir(run) and not os.path.islink(run):
            _delete_manifests(run + MANIFESTS)
            run_directory.delete_run(run)
    files.delete_inside(path, "")


def _delete_manifests(path: str) -> None:
    """Deletes the files in the directory of a run's manifests, unless it is a link to that of others."""
    if not os.path.islink(path):
        files.delete_inside(path, _MANIFEST_FILES)
