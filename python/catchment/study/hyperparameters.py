"""The learning rate and the momentum of a job, wherever its algorithm has them, and what a search tries."""

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .core import Job
from .text import float32, short

_MOMENTA = (0.0, float32(0.9))
# Shares of the largest step. More of them would leave each trial too short a run to tell them apart.
_STEPS = (0.05, 0.1, 0.25, 0.5, 1)
_LARGEST_OVER_MIDDLE = 4


class Hyperparameters(NamedTuple):
    learning_rate: float
    momentum: Optional[float] = None  # None: the optimizer has none


# The results of searches by algorithm and number of workers.
FoundHyperparameters = Dict[Tuple[str, int], Hyperparameters]


class SearchSpace(NamedTuple):
    """The values that a search tries. A step is learning_rate / (1 - momentum), how far one gradient moves
    the weights in total."""

    own: Hyperparameters  # those of the complete job, which are tried as well
    learning_rate: Optional[float]  # a value that is given, for every momentum
    largest_step: float  # otherwise: this times 1, 0.5, 0.25, 0.1 and 0.05
    momenta: List[Optional[float]]


def hyperparameters_of(job: Job) -> Hyperparameters:
    """Returns those of a complete job."""
    return Hyperparameters(job.facts["learning_rate"], job.facts["momentum"])


def space_of(facts: Any) -> SearchSpace:
    """Returns the space for an algorithm; `facts` is the `space` of its job. The steps are the same for all
    algorithms with the same kind of optimizer, around the job's own if it has one, otherwise around 0.5 with
    SGD, and around the default with other kinds; beside them is that of the job or its preset. Only if the
    preset limits the step by the number of workers, the largest is the limit."""
    momenta: List[Optional[float]] = list(_MOMENTA)
    if not facts["has_momentum"]:
        momenta = [None]
    elif facts["set"]["momentum"] is not None:
        momenta = [facts["set"]["momentum"]]
    step, given = facts["usual_step"], facts["given"]
    if given["learning_rate"] is not None:
        step = given["learning_rate"]
        momentum = given["momentum"] if given["momentum"] is not None else momenta[-1]
        if momenta[-1] is not None and momentum is not None:
            step /= float32(1 - momentum)
    largest = _LARGEST_OVER_MIDDLE * step
    if facts["limit"] is not None:
        largest = min(largest, facts["limit"])
    return SearchSpace(Hyperparameters(**facts["own"]), facts["set"]["learning_rate"], largest, momenta)


def search_grid(space: SearchSpace) -> List[Hyperparameters]:
    """Returns the points of the space: those of the job, then the others from the smallest step."""
    grid = [space.own]
    for momentum in space.momenta:
        rest = float32(1 - (momentum or 0))
        rates = [_rounded(space.largest_step * share * rest) for share in _STEPS]
        if space.learning_rate is not None:
            rates = [space.learning_rate]
        for rate in rates:
            is_own = momentum == space.own.momentum and _rounded(rate) == _rounded(space.own.learning_rate)
            if not is_own:
                grid.append(Hyperparameters(rate, momentum))
    return grid


def _rounded(rate: float) -> float:
    """0.005, not 0.004999999: rates have four digits, as reports show them."""
    return float32(float(short(rate, 4)))


def describe(hyperparameters: Hyperparameters) -> str:
    """Returns "learning rate 0.03, momentum 0.6"."""
    rate = "learning rate " + short(hyperparameters.learning_rate)
    momentum = hyperparameters.momentum
    return rate if momentum is None else "%s, momentum %s" % (rate, short(momentum))
