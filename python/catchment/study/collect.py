"""Collects the results of a comparison's runs, and writes its report."""

import re
from typing import List, Optional, Sequence, Tuple

from . import core, files
from .command_line import Stream
from .comparison import AlgorithmFacts, Comparison, LeftOutPair, this_machine
from .directory import CompareDirectory, RunOutcome, summary_of
from .errors import Refused
from .options import CompareOptions, budget_text, straggler_text
from .plan import ComparePlan, PlannedRun
from .processes import shell_command
from .run_result import RunResult, read_result, text_or_empty
from .text import plural

# An argument that is an absolute path, whose last name is the second group.
_ABSOLUTE = re.compile(r"(?s)\A(--out=)?/.*?([^/]*)/?\Z")


def facts_of(name: str, job: core.Job) -> AlgorithmFacts:
    """Returns the settings of a complete job, as the algorithm `name` of a report."""
    keys = ("synchronous", "optimizer", "implicit", "open_loop_minimum", "closed_loop")
    return AlgorithmFacts(name, *(job.facts[key] for key in keys))


def set_rates(job: core.Job, result: RunResult) -> None:
    """Sets the learning rate and the momentum of a complete job."""
    result.learning_rate, result.momentum = job.facts["learning_rate"], job.facts["momentum"]


def collect_run(directory: CompareDirectory, run: PlannedRun) -> RunResult:
    """Reads the result of a run from its directory. One that is not done has the reason, and no results."""
    result = RunResult(run.algorithm, run.workers, run.seed, run.directory)
    set_rates(run.job, result)
    path = directory.path_of(run)
    summary = summary_of(path)
    if summary is None:
        result.reason = "it did not write summary.json"
        return result
    result.reason = text_or_empty(summary, "reason")
    outcome = directory.outcome_of(run)
    result.diverged, result.done = outcome is RunOutcome.DIVERGED, outcome is RunOutcome.DONE
    if result.done:
        read_result(summary, files.text_or_empty_of(path + "/metrics.jsonl"), result)
    return result


def score_of(run: RunResult) -> Optional[Tuple[float, float]]:
    """Returns the accuracy of a run and its loss, negated, by which runs are ranked; only the loss counts if
    targets are real numbers. None if the run is not done or has neither."""
    if not run.done or (run.accuracy is None and run.loss is None):
        return None
    return run.accuracy or 0, -(run.loss or 0)


def reported_command(command: str, args: Sequence[str]) -> str:
    """Returns the command line for a report. Absolute paths of the job file and of --out, which another
    machine does not have, are shortened to their last names."""
    return shell_command(command, [_ABSOLUTE.sub(r"\1\2", arg) for arg in args])


def conclude(comparison: Comparison, directory: str, out: Stream) -> None:
    """Writes the report of a comparison whose runs have ended, and names the runs that diverged, which is a
    result. Refused if all runs have failed, and, after the report, if some have."""
    from .page import write_report  # Its charts would slow down the start of commands.

    runs = comparison.runs
    diverged = [
        "%s with %s, seed %d" % (run.algorithm, plural(run.workers, "worker"), run.seed)
        for run in runs
        if run.diverged
    ]
    failed = len(runs) - len(diverged) - sum(run.done for run in runs)
    if failed == len(runs):
        raise Refused("no run has finished, so there is nothing to report")
    out.write("\n")
    write_report(comparison, directory, out)
    everything = plural(len(runs), "run")
    if diverged:
        out.write("\n%d of %s diverged: %s\n" % (len(diverged), everything, "; ".join(diverged)))
    if failed:
        raise Refused(
            "%d of %s failed and are not in the report; the same command repeats them" % (failed, everything)
        )


def collect(options: CompareOptions, directory: CompareDirectory, plan: ComparePlan) -> Comparison:
    """Returns the content of the report."""
    job = plan.runs[0].job
    of_algorithm = {run.algorithm: run.job for run in reversed(plan.runs)}
    left_out: List[LeftOutPair] = [LeftOutPair(*one) for one in plan.left_out]
    return Comparison(
        command=reported_command("catchment compare", options.args),
        version=core.version_line(),
        job_name=job.facts["name"],
        job=job.text,
        budget=budget_text(options.budget),
        stragglers=[straggler_text(straggler) for straggler in options.stragglers],
        servers=options.servers,
        threads=options.threads,
        seeds=options.seeds,
        wanted_target=options.target,
        algorithms=[facts_of(name, of_algorithm[name]) for name in options.algorithms],
        workers=options.workers,
        machine=this_machine() if options.launcher == "local" else None,
        runs=[collect_run(directory, run) for run in plan.runs],
        left_out=left_out,
    )
