"""Successive halving: assigns shares of the budget to the trials of a search, and decides which continue and
when.

Everything here is a function of its arguments: it reads no clock, draws no random numbers and starts nothing,
so that a search that was interrupted repeats its decisions.

Sources: Jamieson and Talwalkar 2016, "Non-stochastic best arm identification and hyperparameter optimization"
(arXiv:1502.07943); Li et al. 2020, "A system for massively parallel hyperparameter tuning"
(arXiv:1810.05934), for ASHA.
"""

import dataclasses
import functools
import math
from typing import List, NamedTuple, Optional, Sequence, Tuple

from .errors import Refused
from .text import parse_number

# The better of two scores is the larger one, by the first number and among equal ones by the second.
TrialScore = Tuple[float, float]

# One in HALVING_FACTOR trials of a rung continues in the next, with HALVING_FACTOR times the share of the
# budget.
HALVING_FACTOR = 3
MAX_DIMENSIONS = 8


class Rung(NamedTuple):
    """A round of a search, in which each remaining trial starts over with this share of the full budget."""

    trials: int = 1
    share: float = 1


def plan_rungs(trials: int) -> List[Rung]:
    """Returns the rungs of a search with so many trials, at least 1. The last one has the share 1 and fewer
    than HALVING_FACTOR trials. All rungs cost about the same."""
    numbers = []
    while trials > 0:
        numbers.append(trials)
        trials //= HALVING_FACTOR
    share, rungs = 1.0, []
    for number in reversed(numbers):
        rungs.append(Rung(number, share))
        share /= HALVING_FACTOR
    return rungs[::-1]


def cost_of(rungs: Sequence[Rung]) -> float:
    """Returns the cost of all runs, in full budgets."""
    # sum() of newer versions of Python compensates rounding errors.
    return functools.reduce(lambda cost, rung: cost + rung.trials * rung.share, rungs, 0.0)


def plan_rungs_that_cost(trials: int, cost: float) -> List[Rung]:
    """Returns the rungs up to the one that leaves a single trial, with their shares scaled so that all cost
    `cost` full budgets: for a search that is followed by runs of the setting that it finds."""
    rungs = plan_rungs(trials)
    if len(rungs) > 1 and rungs[-1].trials == 1:
        rungs.pop()
    scale = cost / cost_of(rungs)
    return [Rung(rung.trials, rung.share * scale) for rung in rungs]


def best_trials(trials: Sequence[int], scores: Sequence[Optional[TrialScore]], keep: int) -> List[int]:
    """Returns the `keep` best of `trials`, from the best to the worst; of equal ones the first are better.
    Those without a score, or with one that is not finite, are never kept, so there may be fewer."""
    scored = [
        (trial, score) for trial, score in zip(trials, scores) if score and all(map(math.isfinite, score))
    ]
    return [trial for trial, _ in sorted(scored, key=lambda one: one[1], reverse=True)[:keep]]


@dataclasses.dataclass
class RungResult:
    """The outcome of one rung."""

    rung: Rung
    trials: List[int] = dataclasses.field(default_factory=list)  # numbers from 0
    # One of each; None: it failed, diverged or has not ended.
    scores: List[Optional[TrialScore]] = dataclasses.field(default_factory=list)
    ended: int = 0  # of the trials


class HalvingResult(NamedTuple):
    rungs: List[RungResult]  # of those that had trials
    best: int  # the trial with the best score of the last rung that has any; -1: no trial has a score


class TrialRun(NamedTuple):
    """A run of a trial with the share of a rung, which counts from 0."""

    trial: int
    rung: int


class Halving:
    """A search: begin what next_runs() returns, and report() the end of each, in any order, until nothing is
    open and nothing is next.

    Trials continue when all of their rung have ended, or `at_once` (ASHA): as soon as a trial is among the
    best of one in HALVING_FACTOR of those that have ended. No run waits then, and a few continue that are not
    among the best in the end. `kept` is a trial that takes the last of several places in the next rung if it
    is not among the best, so that the result is at least as good in the last rung; -1: none. It too needs a
    score to continue.
    """

    def __init__(self, rungs: Sequence[Rung], at_once: bool, kept: int = -1) -> None:
        self._rungs = [RungResult(rung) for rung in rungs]
        self._at_once, self._kept = at_once, kept

    def next_runs(self) -> List[TrialRun]:
        """Returns the runs that may begin now, each of them once."""
        runs = []
        for number, rung in enumerate(self._rungs):
            new = [trial for trial in self._candidates(number) if trial not in rung.trials]
            rung.trials += new
            rung.scores += [None] * len(new)
            runs += [TrialRun(trial, number) for trial in new]
        return runs

    def report(self, run: TrialRun, score: Optional[TrialScore]) -> None:
        """Ends a run; without a score it has failed or diverged, and its trial does not continue."""
        rung = self._rungs[run.rung]
        rung.scores[rung.trials.index(run.trial)] = score
        rung.ended += 1

    def share_of(self, rung: int) -> float:
        return self._rungs[rung].rung.share

    def result(self) -> HalvingResult:
        rungs = [rung for rung in self._rungs if rung.trials]
        best = [trial for rung in rungs for trial in best_trials(rung.trials, rung.scores, 1)]
        return HalvingResult(rungs, best[-1] if best else -1)

    def _candidates(self, number: int) -> List[int]:
        """Returns the trials that may run in a rung."""
        places = self._rungs[number].rung.trials
        if number == 0:
            return list(range(places))
        below = self._rungs[number - 1]
        if self._at_once:
            places = below.ended // HALVING_FACTOR
        elif below.ended < len(below.trials):
            return []
        order = best_trials(below.trials, below.scores, len(below.trials))
        best = order[:places]
        if not best or self._kept not in order or self._kept in best:
            return best
        return [*(best[:-1] if len(best) > 1 else best), self._kept]


@dataclasses.dataclass
class SearchDimension:
    """A dimension of a search: values that are listed, or a range."""

    path: str  # of the job's field
    choices: List[str] = dataclasses.field(default_factory=list)  # empty: the range
    low: float = 0
    high: float = 1
    logarithmic: bool = False  # equal ratios are equally likely
    whole: bool = False  # whole numbers


def parse_dimension(text: str) -> SearchDimension:
    """Reads "PATH=log:LOW..HIGH", "PATH=LOW..HIGH" or "PATH=A,B,C", in which commas within brackets separate
    nothing."""
    path, _, values = text.partition("=")
    if not path or not values:
        raise Refused("takes PATH=log:LOW..HIGH, PATH=LOW..HIGH or PATH=A,B,...")
    dimension = SearchDimension(path, logarithmic=values.startswith("log:"))
    if dimension.logarithmic:
        values = values[len("log:") :]
    first, dots, second = values.partition("..")
    low, high = parse_number(first), parse_number(second)
    if dots and low is not None and high is not None:
        dimension.low, dimension.high = low, high
        _check_range(dimension)
        return dimension
    if dimension.logarithmic:
        raise Refused("takes two numbers after log:, such as log:0.001..1")
    dimension.choices = _split_choices(values)
    for choice in dimension.choices:
        if not choice:
            raise Refused("has an empty value; separate values by single commas")
        if dimension.choices.count(choice) > 1:
            raise Refused("lists %s twice" % choice)
    if len(dimension.choices) > 1:
        return dimension
    other = _other_range(values)
    if other:
        forms = "%s=%s, or %s=log:%s for equal ratios" % (path, other, path, other)
        raise Refused("a range is written with two points: " + forms)
    raise Refused("has one value, which leaves nothing to search; use --set for it")


def _check_range(dimension: SearchDimension) -> None:
    low, high = dimension.low, dimension.high
    if not math.isfinite(low) or not math.isfinite(high) or low >= high:
        raise Refused("%s has an empty range; the first number must be smaller" % dimension.path)
    if dimension.logarithmic and low <= 0:
        raise Refused(
            "%s has a logarithmic range that does not start above 0; leave out log:, or start above 0"
            % dimension.path
        )


def _split_choices(text: str) -> List[str]:
    """Splits at the commas that are not within brackets, braces or quotes."""
    choices, depth, quote = [""], 0, ""
    for c in text:
        if quote:
            quote = "" if c == quote else quote
        elif c in "\"'":
            quote = c
        elif c in "[{":
            depth += 1
        elif c in "]}":
            depth -= 1
        elif c == "," and depth == 0:
            choices.append("")
            continue
        choices[-1] += c
    return choices


def _other_range(text: str) -> str:
    """Returns LOW..HIGH for two numbers with another sign between them, such as 0.001-1; empty for other
    texts."""
    for i in range(1, len(text)):
        end = next((at for at in range(i, len(text)) if text[at] not in "-:~ to"), len(text))
        # A minus may belong to the number that follows.
        for high in range(i + 1, end + 1):
            rest = text[high:]
            if parse_number(text[:i]) is not None and parse_number(rest) is not None and rest[0] != " ":
                return "%s..%s" % (text[:i].strip(), rest.strip())
    return ""
