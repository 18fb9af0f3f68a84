"""`catchment report DIR...`: the report of runs that have ended: of one machine or of several, of `catchment
train`, of daemons that were started by hand, or of a cluster."""

import os
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Set

from . import collect, core, files, processes
from .command_line import Stream
from .comparison import Comparison
from .errors import Refused
from .options import Straggler, straggler_text
from .page import write_report
from .run_directory import claim_names
from .run_result import RunResult, read_run, text_or_empty
from .text import plural

# Fields that do not distinguish runs in a report: they have a place of their own there, or do not change the
# training.
_IGNORED = ("workers", "seed", "name", "algorithm.preset", "model.initial_weights", "evaluation.keep_best")
Fields = Dict[str, str]  # value by path, "optimizer.learning_rate"


def _is_ignored(path: str) -> bool:
    if path in _IGNORED or path.endswith(".directory"):
        return True
    return path.startswith(("faults.", "checkpoint.")) and path != "faults.stragglers"


def _fields_of_preset(job: core.Job) -> Fields:
    """Returns the fields of the job with the algorithm and the optimizer that its preset sets."""
    preset = "algorithm.preset=" + job.preset
    try:
        return dict(core.edit(job, [preset], clear=["algorithm", "optimizer"], fields=True).fields)
    except core.DoorError:
        return {}


def _short_path(path: str, paths: Set[str]) -> str:
    """Returns the end of a path that distinguishes it from all others: "learning_rate"."""
    parts = path.split(".")
    for i in range(len(parts) - 1, 0, -1):
        end = ".".join(parts[i:])
        if sum(("." + other).endswith("." + end) for other in paths) == 1:
            return end
    return path


def name_jobs(jobs: Sequence[core.Job]) -> List[str]:
    """Returns a name for each job: its preset, and each other field whose value differs between the jobs,
    except the number of workers, the seed, the job's name and the paths of files: ["sync", "downpour,
    learning_rate 0.01"]. A field of the algorithm or the optimizer counts only if it differs from the
    preset's. The jobs are complete, and have their fields."""
    pairs = {pair for job in jobs for pair in job.fields.items()}
    differing = sorted({path for path, value in pairs if any(job.fields.get(path) != value for job in jobs)})
    named: List[Fields] = []
    for job in jobs:
        preset = _fields_of_preset(job)
        values = {path: job.fields.get(path, "") for path in differing if not _is_ignored(path)}
        own = ("algorithm.", "optimizer.")
        named.append({p: v for p, v in values.items() if not (p.startswith(own) and v == preset.get(p, ""))})
    paths = {path for one in named for path in one}
    names = []
    for job, one in zip(jobs, named):
        shorts = [(_short_path(path, paths), value) for path, value in one.items()]
        words = ["%s %s" % pair if pair[1] else "without " + pair[0] for pair in shorts]
        names.append(", ".join([job.preset, *words]))
    return names


class FoundRun(NamedTuple):
    """A run's directory, with its contents."""

    job: core.Job
    result: RunResult
    servers: int


def _read_run(directory: str) -> FoundRun:
    result = RunResult(directory=directory)
    try:
        summary = read_run(directory, result)
    except Refused as error:
        raise Refused("%s holds no run that has ended: %s" % (directory, error.message)) from None
    job, phase = core.job_of_run(directory, fields=True), text_or_empty(summary, "phase")
    result.workers, result.seed = int(job.json.get("workers", 0)), int(job.json.get("seed", 0))
    result.done = phase in ("DONE", "STOPPED")
    result.reason = result.reason if result.done else result.reason or phase
    collect.set_rates(job, result)
    servers = summary.get("servers")
    return FoundRun(job, result, servers if type(servers) is int else 0)


def _runs_in(directory: str) -> List[str]:
    """Returns the directories of runs that a directory stands for."""
    if not os.path.isdir(directory):
        raise Refused("%s is not a directory; give the --out of a run" % directory)
    if os.path.exists(directory + "/summary.json"):
        return [directory]
    paths = ["%s/runs/%s" % (directory, name) for name in files.names_in(directory + "/runs")]
    runs = [path for path in paths if os.path.exists(path + "/summary.json")]
    if runs:
        return runs
    words = "%s contains neither a summary.json, which a run writes at its end, nor the runs/ of a comparison"
    raise Refused(words % directory)


def _name(runs: Sequence[FoundRun]) -> None:
    """Names the algorithms. Refuses runs that train different models, or have all in common."""
    seen: Dict[Any, str] = {}
    model = dict(runs[0].job.json["model"], initial_weights=None)
    for one in runs:
        if dict(one.job.json["model"], initial_weights=None) != model:
            words = "%s and %s train different models, whose scores cannot be compared"
            raise Refused(words % (one.result.directory, runs[0].result.directory))
    for one, name in zip(runs, name_jobs([one.job for one in runs])):
        run, kind = one.result, (name, plural(one.result.workers, "worker"), one.result.seed)
        run.algorithm = name
        if kind in seen:
            words = (
                "%s are the same job (%s, %s) with the same seed, %d; leave one out, or run it with another"
            )
            raise Refused(words % ("%s and %s" % (seen[kind], run.directory), *kind) + " seed")
        seen[kind] = run.directory


def _budget_of(job: core.Job) -> str:
    kind = next((kind for kind in ("samples", "updates") if kind in job.json), "epochs")
    return "%s:%d" % (kind, int(job.json.get(kind, 0)))


def _stragglers_of(job: core.Job) -> List[str]:
    listed = job.json.get("faults", {}).get("stragglers", [])
    return [straggler_text(Straggler(one.get("worker", 0), one.get("slowdown_factor", 0))) for one in listed]


def collect_runs(directories: Sequence[str]) -> Comparison:
    """Reads the runs in `directories`: the --out of a run, or of a comparison, which stands for all its runs.
    Refused if a directory holds no run, if runs train different models, and if they have everything in
    common, their seed included."""
    found = [_read_run(one) for directory in directories for one in _runs_in(directory)]
    _name(found)

    def common(otherwise: Any, get: Callable[[FoundRun], Any]) -> Any:
        """Returns what all runs have, or `otherwise`."""
        return get(found[0]) if all(get(one) == get(found[0]) for one in found) else otherwise

    job, runs = found[0].job, [one.result for one in found]
    jobs = {one.result.algorithm: one.job for one in reversed(found)}
    names = dict.fromkeys(run.algorithm for run in runs)
    facts, workers = (
        [collect.facts_of(name, jobs[name]) for name in names],
        sorted({run.workers for run in runs}),
    )
    about = "", core.version_line(), job.facts["name"], job.text, common("", lambda one: _budget_of(one.job))
    comparison = Comparison(*about, facts, workers, runs, threads=0, seeds=len({run.seed for run in runs}))
    comparison.stragglers = common([], lambda one: _stragglers_of(one.job))
    comparison.servers = common(0, lambda one: one.servers)
    comparison.run = runs[0].directory if len(runs) == 1 else ""
    return comparison


def report(options: Any, args: Sequence[str], out: Stream) -> None:
    """Writes the report of a command line (report.py)."""
    comparison = collect_runs(options.directories)
    comparison.command = processes.shell_command("catchment report", args)
    comparison.wanted_target = options.target
    if not (comparison.run or any(one.done or one.diverged for one in comparison.runs)):
        raise Refused("no run has finished, so there is nothing to report")
    files.create_directory(options.out)
    claim_names(options.out, ["report.html", "report.json"])
    write_report(comparison, options.out, out)
