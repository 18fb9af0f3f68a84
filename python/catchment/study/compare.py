"""`catchment compare JOB --algorithms=... --out=DIR`: trains a job with several algorithms and reports.

See also plan.py (which runs), launchers (where they train), directory.py (their results) and findings.py
(what the results show).
"""

import contextlib
import os

from .collect import conclude
from .command_line import Stream, Streams
from .core import Door, Job
from .directory import CompareDirectory, compare_record
from .errors import Refused
from .hyperparameters import describe, hyperparameters_of
from .launchers import make_launcher
from .launchers.slurm import check_no_jobs
from .options import CompareOptions
from .plan import make_plan, plan_searches
from .processes import SignalWaiter
from .runs import carry_out, cost_in_words, label_of
from .text import one_line, plural


def given_job(options: CompareOptions, door: Door, signals: SignalWaiter) -> Job:
    """Returns the job of the file and the program, with the overrides."""
    weights = os.path.abspath(options.out + "/initial.safetensors")
    job = door.job(signals, set=options.set, complete=False, initial_weights=weights)
    external = job.json.get("data", {}).get("external")
    if external is not None and int(external.get("test_samples", 0)) == 0:
        raise Refused(
            "data.external.test_samples: is 0, but runs are compared by their test scores; pass a test set "
            "to join()"
        )
    return job


def compare(options: CompareOptions, streams: Streams) -> int:
    """Compares, and returns the exit code."""
    with SignalWaiter() as signals, contextlib.closing(Door(options.job, options.program)) as door:
        launcher = make_launcher(options, signals)
        CompareDirectory.check(options.out)
        given = given_job(options, door, signals)
        if options.dry_run:
            _print_plan(options, given, streams.out)
            return 0
        if options.overwrite:
            check_no_jobs(options.out)
        directory = CompareDirectory(options.out, options.overwrite, compare_record(options, given))
        # All runs begin with the same weights, also those after an interruption of the command.
        if given.described and not os.path.exists(directory.initial_weights):
            door.ask({"copy_weights": directory.initial_weights})
        door.close()
        with contextlib.closing(directory):
            comparison = carry_out(options, given, directory, launcher, streams)
            conclude(comparison, directory.path, streams.out)
    return 0


def _print_plan(options: CompareOptions, given: Job, out: Stream) -> None:
    plan, searches = make_plan(options, given, {}), plan_searches(options, given)
    for one in plan.runs:
        out.write("%s: %s\n" % (label_of(one), describe(hyperparameters_of(one.job))))
    for left in plan.left_out:
        workers, reason = plural(left.workers, "worker"), one_line(left.reason)
        out.write("%s, %s: left out: %s\n" % (left.algorithm, workers, reason))
    words = plural(len(plan.runs), "run")
    if searches:
        rates, cost = cost_in_words(searches)
        words += ", after searches for %s, which replace those above and cost as much as %s" % (rates, cost)
    out.write(words + "; nothing was started\n")
