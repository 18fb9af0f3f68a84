"""The findings of a comparison: the target, the algorithm that reached it first, and whether the difference
is statistically significant."""

import dataclasses
import math
from typing import List, NamedTuple, Optional, Sequence, Tuple

from .comparison import AlgorithmFacts, Comparison, runs_of
from .run_result import RunResult, best_accuracy, first_reached
from .statistics import BySeed, Ratio, Spread, ratio_of, spread_of

MEASURES = ("seconds_to_target", "samples_to_target", "errors")
_TARGET_STEP = 0.005
# Replaces an error rate of 0, which has no logarithm. It is less than half a sample of any test set.
_SMALLEST_ERROR = 1e-7


@dataclasses.dataclass
class Standing:
    """One algorithm with one number of workers, over its seeds."""

    algorithm: str
    synchronous: bool
    workers: int
    runs: int  # the number of runs that are done
    learning_rate: float
    momentum: Optional[float]  # None: the optimizer has none
    seconds: BySeed = dataclasses.field(init=False)  # until the target, of the runs that reached it
    samples: BySeed = dataclasses.field(init=False)  # likewise
    accuracies: BySeed = dataclasses.field(init=False)  # at the end; empty if targets are real numbers
    losses: BySeed = dataclasses.field(init=False)  # at the end, of the test set
    throughputs: BySeed = dataclasses.field(init=False)  # samples per second

    @property
    def reaching(self) -> int:
        """The number of runs that reached the target."""
        return len(self.seconds)

    @property
    def reached(self) -> bool:
        return self.reaching == self.runs

    def rank(self) -> Tuple[float, ...]:
        """Returns what orders standings with the same workers: those that reached the target in all runs by
        the mean of the seconds, before the others by accuracy or, without accuracies, by loss."""
        if self.reached:
            return 0, spread_of(self.seconds).mean
        if self.accuracies:
            return 1, -spread_of(self.accuracies).mean, 0, 0
        return 1, 0, not self.losses, spread_of(self.losses).mean


class Duel(NamedTuple):
    """The best synchronous algorithm compared with the best other one."""

    measure: str  # of MEASURES
    workers: int
    synchronous: str
    asynchronous: str
    synchronous_values: Spread  # seconds, samples or shares of the test set
    asynchronous_values: Spread
    # Synchronous over asynchronous. Below 1 the synchronous one is better: lower is better in all measures.
    ratio: Ratio

    @property
    def winner(self) -> Optional[str]:
        """Returns "synchronous" or "asynchronous"; None if neither is significantly better."""
        if not self.ratio.beyond_noise:
            return None
        return "synchronous" if self.ratio.value < 1 else "asynchronous"


@dataclasses.dataclass
class Findings:
    target: float  # test accuracy; 0: there are no scores
    target_given: bool
    workers: int  # the largest number, to which the answer refers
    standings: List[Standing]  # ordered by workers, then by rank
    duels: List[Duel] = dataclasses.field(default_factory=list)
    # The seconds of the second algorithm, and of the best synchronous one, over those of the first, with the
    # most workers. None if there is no such algorithm.
    lead: Optional[Ratio] = None
    lead_over_synchronous: Optional[Ratio] = None

    def with_workers(self, workers: int) -> List[Standing]:
        return [standing for standing in self.standings if standing.workers == workers]


def choose_target(comparison: Comparison) -> float:
    """Returns --target, or the highest multiple of 0.5 % that at least half of the algorithms reach in every
    run with the most workers."""
    if all(run.accuracy is None and not run.scores for run in comparison.runs):
        return 0
    if comparison.wanted_target > 0:
        return comparison.wanted_target
    reached = []
    for facts in comparison.algorithms:
        best = [best_accuracy(run) for run in runs_of(comparison, facts.name, comparison.workers[-1])]
        reached.append(min([1.0, *best]) if best else 0.0)
    half = sorted(reached, reverse=True)[(len(reached) + 1) // 2 - 1]
    return math.floor(half / _TARGET_STEP + 1e-9) * _TARGET_STEP


def find(comparison: Comparison) -> Findings:
    """Returns all findings."""
    target = choose_target(comparison)
    findings = Findings(target, comparison.wanted_target > 0, comparison.workers[-1], [])
    for workers in comparison.workers:
        standings = [_standing(comparison, facts, workers, target) for facts in comparison.algorithms]
        findings.standings += sorted((one for one in standings if one.runs > 0), key=Standing.rank)
    kinds = [(measure, workers) for measure in MEASURES for workers in comparison.workers]
    duels = [_duel(findings.with_workers(workers), measure) for measure, workers in kinds]
    findings.duels = [duel for duel in duels if duel]
    _find_lead(findings)
    return findings


def _standing(comparison: Comparison, facts: AlgorithmFacts, workers: int, target: float) -> Standing:
    runs = runs_of(comparison, facts.name, workers)
    last = runs[-1] if runs else RunResult()
    runs.sort(key=lambda run: run.seed)
    crossings = [(run.seed, first_reached(run.scores, target)) for run in runs if target > 0]
    standing = Standing(*facts[:2], workers, len(runs), last.learning_rate, last.momentum)
    standing.seconds = {seed: crossing[0] for seed, crossing in crossings if crossing}
    standing.samples = {seed: crossing[1] for seed, crossing in crossings if crossing}
    standing.accuracies = {run.seed: run.accuracy for run in runs if run.accuracy is not None}
    standing.losses = {run.seed: run.loss for run in runs if run.loss is not None}
    standing.throughputs = {run.seed: run.samples_per_second for run in runs}
    return standing


def _values(standing: Standing, measure: str) -> BySeed:
    """Returns the values of a measure; empty if the algorithm has not reached the target in every run."""
    if measure == "errors":
        return {seed: max(1 - share, _SMALLEST_ERROR) for seed, share in standing.accuracies.items()}
    values = standing.seconds if measure == "seconds_to_target" else standing.samples
    return values if standing.reached else {}


def _duel(standings: Sequence[Standing], measure: str) -> Optional[Duel]:
    """Returns the duel of the best of both families; None if one has no candidate."""
    families: Tuple[List[Tuple[Standing, BySeed]], ...] = ([], [])  # that do not wait, and that do
    for standing in standings:
        values = _values(standing, measure)
        if values:
            families[standing.synchronous].append((standing, values))
    if not all(families):
        return None
    best = [min(family, key=lambda one: spread_of(one[1]).mean) for family in families]
    (other, theirs), (waiting, ours) = best
    ratio = ratio_of(ours, theirs, len(families[0]) * len(families[1]))
    names, spreads = (waiting.algorithm, other.algorithm), (spread_of(ours), spread_of(theirs))
    return Duel(measure, waiting.workers, *names, *spreads, ratio)


def _find_lead(findings: Findings) -> None:
    reached = [standing for standing in findings.with_workers(findings.workers) if standing.reached]
    if len(reached) < 2:
        return
    winner, n = reached[0], len(reached)
    findings.lead = ratio_of(reached[1].seconds, winner.seconds, n * (n - 1) // 2)
    waiting = [standing for standing in reached if standing.synchronous]
    if waiting and not winner.synchronous:
        pairs = len(waiting) * (n - len(waiting))
        findings.lead_over_synchronous = ratio_of(waiting[0].seconds, winner.seconds, pairs)


Momentum = Tuple[Optional[float], Optional[float]]  # given, and implicit


def momentum_of(facts: AlgorithmFacts, given: Optional[float], staleness_mean: float) -> Momentum:
    """Returns the momentum with which a run trained: the given one (None: the optimizer has none, or a closed
    loop sets it), and the implicit one (None: the model does not apply to the algorithm). `given` is that of
    the optimizer.

    With mean staleness tau, asynchrony adds tau / (1 + tau), in the model of Mitliagkas et al. 2016
    (arXiv:1605.09774): 1 - 1/g with g = 1 + tau workers whose times are exponential.
    """
    added = max(0.0, staleness_mean) / (1 + max(0.0, staleness_mean))
    given = None if facts.closed_loop else given
    if facts.open_loop_minimum is not None and given is not None:
        given = min(max(given - added, facts.open_loop_minimum), given)
    return given, added if facts.implicit else None
