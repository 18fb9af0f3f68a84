"""The runs of a comparison. All jobs are checked before the first run."""

import contextlib
import dataclasses
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from . import core
from .core import Job
from .errors import Refused
from .halving import Rung, plan_rungs_that_cost
from .hyperparameters import FoundHyperparameters, Hyperparameters, describe, search_grid, space_of
from .options import CompareOptions
from .text import float32, rounded

# The number of evaluations of a run if its job does not set it, and their shortest interval.
_EVALUATIONS = 15
MIN_EVALUATION_EPOCHS = float32(1e-6)
# A budget in samples that no run in seconds reaches, so that the learning rate is constant.
_ENDLESS_SAMPLES = 10**12
# The cost of a search, in runs of the whole budget.
_SEARCH_COST = 1


@dataclasses.dataclass
class PlannedRun:
    directory: str  # within --out: "runs/downpour-4-workers-seed-2"
    algorithm: str
    workers: int
    seed: int
    seconds: float  # the limit of training; 0: the job's budget
    job: Job  # complete and valid
    trial: str = ""  # in a search: a description of the trial


class LeftOut(NamedTuple):
    """The error of an algorithm that does not support that number of workers."""

    algorithm: str
    workers: int
    reason: str


class ComparePlan(NamedTuple):
    # Ordered by seed, then by workers, then by algorithm, so that a change of the machine's speed affects all
    # algorithms equally.
    runs: List[PlannedRun]
    left_out: List[LeftOut]


class PlannedSearch(NamedTuple):
    """A search for the learning rate and the momentum of an algorithm with a number of workers, which costs
    as much as one run of the whole budget."""

    algorithm: str
    workers: int
    # At least two that the algorithm supports. The first, of the job or its preset, is in every rung.
    trials: List[Hyperparameters]
    rungs: List[Rung]


def first_seed(given: Job) -> int:
    return int(given.json.get("seed", 1))


def _search_seed(options: CompareOptions, given: Job) -> int:
    """A search has another seed than the runs that it is for."""
    return first_seed(given) + options.seeds


def _of_algorithm(options: CompareOptions, given: Job, algorithm: str) -> Dict[str, Any]:
    """Returns the request for the job with an algorithm. The file's settings are those of its own preset, but
    --set changes every algorithm."""
    if given.preset == algorithm:
        return dict(text=given.text, clear=[], set=[])
    sets = [one for one in options.set if one.startswith(("algorithm.", "algorithm="))]
    return dict(text=given.text, clear=["algorithm"], set=[*sets, "algorithm.preset=" + algorithm])


def _budget(options: CompareOptions, given: Job, request: Dict[str, Any], share: float) -> List[str]:
    """Returns the overrides for a share of the budget, and for the interval of evaluations."""
    if options.budget.seconds > 0:
        return ["samples=%d" % _ENDLESS_SAMPLES, "optimizer.schedule={decay: CONSTANT}"]
    sets = ["samples=%d" % options.budget.samples] if options.budget.samples > 0 else []
    whole = core.DOOR.job(**{**request, "set": request["set"] + sets}, servers=options.servers)
    facts = whole.facts
    if share < 1 and not facts["knows_budget"]:
        raise Refused(
            "epochs: a search uses a fraction of the budget, but the number of rows of data.table is unknown "
            "until a worker has read them; give the budget in samples, or add --search=none"
        )
    if share < 1:
        sets.append("samples=%d" % max(1, rounded(facts["total_samples"] * share)))
    # If the number of samples is unknown, so is that of epochs; the default interval is one epoch.
    is_given = "every_epochs" in given.json.get("evaluation", {})
    if not is_given and (facts["knows_samples"] or not facts["knows_budget"]):
        epochs = facts["epochs"] if facts["knows_samples"] else whole.json["epochs"]
        every = max(MIN_EVALUATION_EPOCHS, float32(share * epochs / _EVALUATIONS))
        sets.append("evaluation.every_epochs=%.9g" % every)
    return sets


def _make_job(
    options: CompareOptions,
    given: Job,
    algorithm: str,
    workers: int,
    seed: int,
    share: float,
    hyperparameters: Optional[Hyperparameters] = None,
    space: Optional[Sequence[str]] = None,
) -> Job:
    request = _of_algorithm(options, given, algorithm)
    # No run is resumed: an interrupted run is repeated from its start.
    checkpoint = ["checkpoint.every_updates=0", "checkpoint.every_seconds=0"]
    request["set"] += ["workers=%d" % workers, "seed=%d" % seed, *checkpoint]
    request["stragglers"] = [one for one in options.stragglers if one.worker < workers]
    request["set"] += _budget(options, given, request, share)
    rates = hyperparameters._asdict() if hyperparameters else None
    job = core.DOOR.job(**request, hyperparameters=rates, space=space, servers=options.servers)
    return options.finish_job(job) if options.finish_job else job


def _supported(options: CompareOptions, given: Job, algorithm: str, workers: int) -> List[Hyperparameters]:
    """Returns the points that the algorithm supports with so many workers. Some do not support every
    momentum."""
    seed = _search_seed(options, given)
    try:
        space = _make_job(options, given, algorithm, workers, seed, 1, space=options.set).space
    except Refused:
        return []
    supported = []
    for point in search_grid(space_of(space)):
        with contextlib.suppress(Refused):
            _make_job(options, given, algorithm, workers, seed, 1, point)
            supported.append(point)
    return supported


def make_plan(options: CompareOptions, given: Job, found: FoundHyperparameters) -> ComparePlan:
    """Returns the runs of a comparison. `given` is the job of the file and the overrides. Each algorithm
    replaces its `algorithm`, unless it is the job's preset, with the changes of --set; the job's optimizer is
    used for all. `found` has the results of searches. Refuses an algorithm that supports none of the numbers
    of workers."""
    plan = ComparePlan([], [])
    first = first_seed(given)
    for seed in range(first, first + options.seeds):
        for workers in options.workers:
            for algorithm in options.algorithms:
                rates = found.get((algorithm, workers))
                try:
                    job = _make_job(options, given, algorithm, workers, seed, 1, rates)
                except Refused as error:
                    if seed == first:
                        plan.left_out.append(LeftOut(algorithm, workers, error.message))
                    continue
                directory = "runs/%s-%d-workers-seed-%d" % (algorithm, workers, seed)
                plan.runs.append(PlannedRun(directory, algorithm, workers, seed, options.budget.seconds, job))
    for algorithm in options.algorithms:
        if all(run.algorithm != algorithm for run in plan.runs):
            raise Refused("%s supports none of --workers:\n%s" % (algorithm, plan.left_out[-1].reason))
    return plan


def job_with_share(options: CompareOptions, given: Job, workers: int, seed: int, share: float) -> Job:
    """Returns the job of one run with the algorithm of `given`, complete and valid, with this share of the
    budget."""
    return _make_job(options, given, given.preset, workers, seed, share)


def plan_searches(options: CompareOptions, given: Job) -> List[PlannedSearch]:
    """Returns the searches of a comparison: none with --search=none, for a synthetic model, which learns
    nothing, and if --set leaves nothing to search. Refused if the share of a budget cannot be computed."""
    searches: List[PlannedSearch] = []
    if options.search == "none" or "synthetic" in given.json.get("model", {}):
        return searches
    for workers in options.workers:
        for algorithm in options.algorithms:
            trials = _supported(options, given, algorithm, workers)
            if len(trials) < 2:
                continue
            rungs = plan_rungs_that_cost(len(trials), _SEARCH_COST)
            search = PlannedSearch(algorithm, workers, trials, rungs)
            plan_trial(options, given, search, 0, 0, rungs[0].share)
            searches.append(search)
    return searches


def plan_trial(
    options: CompareOptions, given: Job, search: PlannedSearch, trial: int, rung: int, share: float
) -> PlannedRun:
    """Returns the run of a trial. Its seed is the one after those of the report. Its learning rate does not
    decay: the whole run has hardly lowered it by then, and short runs that end with a low rate prefer a
    higher one than long runs do."""
    algorithm, workers, seed = search.algorithm, search.workers, _search_seed(options, given)
    tried = search.trials[trial]
    job = _make_job(options, given, algorithm, workers, seed, share, tried)
    job = core.edit(job, constant_rate=True, servers=options.servers)
    directory = "search/%s-%d-workers-trial-%d-rung-%d" % (algorithm, workers, trial + 1, rung + 1)
    seconds = options.budget.seconds * share
    return PlannedRun(directory, algorithm, workers, seed, seconds, job, describe(tried))


def untuned_rates(options: CompareOptions, given: Job) -> str:
    """Returns a sentence that says which learning rates are not the result of a search; empty if all are."""
    head = "Learning rates come from the job and the presets and were not tuned"
    if options.search == "none":
        return head + " (--search=none), so they may explain a difference."
    if "synthetic" in given.json.get("model", {}):
        return head + ", since model.synthetic does not learn."
    for algorithm in options.algorithms:
        request = _of_algorithm(options, given, algorithm)
        request["set"].append("workers=%d" % options.workers[-1])
        try:
            space = core.DOOR.job(**request, space=options.set).space
        except Refused:
            continue
        if space_of(space).learning_rate is not None:
            return "The learning rate comes from --set and was not tuned, so it may explain a difference."
    return ""
