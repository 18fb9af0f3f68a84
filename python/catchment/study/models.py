"""Models of a cluster, as the flags of `catchment simulate` describe it: the time of a step, the network,
slow workers, and failures.

Units: seconds, bytes. The parsers refuse other texts with the accepted forms.
"""

import functools
import math
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple, TypeVar

from . import text
from .errors import Refused
from .words import parts_of

Model = TypeVar("Model")

_FORMS = parts_of("help/simulate.txt")
_TIMES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_BANDWIDTHS = {"Kbit": 1e3, "Mbit": 1e6, "Gbit": 1e9, "Tbit": 1e12}
_SHAPES = {"constant": 0, "lognormal": 1, "exponential": 0, "gamma": 1}  # how many numbers follow the mean


class Distribution(NamedTuple):
    """The distribution of a positive time, or 0. `mean` is its mean in every form."""

    kind: str = "constant"
    mean: float = 0
    shape: float = 0  # lognormal: sigma, of the logarithm; gamma: its shape

    def __str__(self) -> str:
        mean = "%s:%sms" % (self.kind, text.short(1000 * self.mean))
        return mean + ":" + text.short(self.shape) if _SHAPES[self.kind] else mean


class NetworkModel(NamedTuple):
    """Every process has a link to one switch, the same in both directions."""

    bytes_per_second: float = 1.25e9  # of each link in each direction; 0: unlimited
    latency: float = 50e-6  # from one process to another

    def __str__(self) -> str:
        rate = self.bytes_per_second
        bandwidth = text.short(rate * 8e-9) + "Gbit" if rate > 0 else "unlimited"
        return "%s:%sus" % (bandwidth, text.short(1e6 * self.latency))


class StragglerModel(NamedTuple):
    """Slow workers, or slow steps."""

    text: str  # as given
    times: float  # the factor of a step's time
    worker: Optional[int] = None  # one worker
    share: float = 0  # or the share of the workers, the last ones
    of_steps: bool = False  # the share is of the steps of all workers

    def slow_workers(self, workers: int) -> List[Tuple[int, float]]:
        """Returns the workers, of so many, that are slow, with the factor."""
        slow = 0 if self.of_steps else min(text.rounded(self.share * workers), workers)
        numbers = range(workers - 1, workers - 1 - slow, -1) if self.worker is None else [self.worker]
        return [(number, self.times) for number in numbers if number < workers]


class FailureModel(NamedTuple):
    """Workers fail at random, and come back."""

    mean_seconds: float = 0  # between two failures of a worker, exponentially distributed; 0: none
    away_seconds: float = 0  # until it is back
    hangs: bool = False  # its connections stay open until then, but nothing comes from it


class QuadraticModel(NamedTuple):
    """The gradient of a quadratic function in place of the model's."""

    condition: float = 1  # the ratio of the largest curvature, 1, to the smallest
    noise: float = 0  # standard deviation of each value of a minibatch's gradient
    # The training samples in an epoch, if the job does not state them; 0: those of its data.
    epoch_samples: int = 0


def usual_start(step: Distribution) -> Distribution:
    """Returns the additional time of first steps of workers of which nothing is known: exponential, with the
    mean of a step, so that their beginnings are as far apart as if they had trained for long."""
    return Distribution("exponential", step.mean)


def straggler_change(faults: Mapping[str, Any], slow: Iterable[Tuple[int, float]]) -> str:
    """Returns the override of a job's faults with other slow workers."""
    straggler = "stragglers {worker: %d slowdown_factor: %r}"
    others = ["%s: %s" % (key, value) for key, value in faults.items() if key != "stragglers"]
    words = others + [straggler % (worker, text.float32(times)) for worker, times in slow]
    return "faults={%s}" % " ".join(words)


def slow_workers(faults: Mapping[str, Any]) -> List[Tuple[int, float]]:
    """Returns those of a job, with their factors."""
    stragglers = faults.get("stragglers", [])
    return [(one.get("worker", 0), text.float32(one.get("slowdown_factor", 0))) for one in stragglers]


class _NotATime(ValueError):
    """A text that is not a time. Others are a ValueError, KeyError or TypeError."""


def _parser(parse: Callable[..., Model]) -> Callable[[str], Model]:
    """Makes a parser of a function parse_NAME of the parts between colons; NAME of help/simulate.txt has the
    forms that it takes."""

    @functools.wraps(parse)
    def parser(given: str) -> Model:
        takes = "takes " + " ".join(_FORMS[parse.__name__[len("parse_") :]].split())
        try:
            return parse(*given.split(":"))
        except _NotATime as error:
            raise Refused("%s; %s" % (error, takes)) from None
        except (ValueError, KeyError, TypeError):
            raise Refused(takes) from None

    return parser


def _finite(number: Optional[float], above: float = -math.inf) -> float:
    if number is None or not above < number < math.inf:
        raise ValueError
    return number


def _number(given: str, above: float = -math.inf) -> float:
    return _finite(text.parse_number(given), above)


def _with_unit(given: str, units: Dict[str, float]) -> float:
    unit = given.lstrip("0123456789.")
    return _number(given[: len(given) - len(unit)]) * units[unit]


def _time(given: str) -> float:
    try:
        return _with_unit(given, _TIMES)
    except (ValueError, KeyError):
        reason = "is not a time; a time is a number with ns, us, ms, s, m or h, such as 120ms"
        raise _NotATime('"%s" %s' % (given, reason)) from None


@_parser
def parse_distribution(kind: str, mean: str, *shape: str) -> Distribution:
    if len(shape) != _SHAPES[kind]:
        raise ValueError
    return Distribution(kind, _finite(_time(mean), above=0), *(_number(one, above=0) for one in shape))


def parse_start(given: str) -> Distribution:
    """Parses the additional time of each worker's first step: none (a mean of 0), or a distribution."""
    try:
        return Distribution() if given == "none" else parse_distribution(given)
    except Refused as error:
        raise Refused(error.message + "; or none") from None


@_parser
def parse_network(bandwidth: str, latency: str) -> NetworkModel:
    bits = 0 if bandwidth == "unlimited" else _finite(_with_unit(bandwidth, _BANDWIDTHS), above=0)
    return NetworkModel(bits / 8, _time(latency))


@_parser
def parse_straggler(who: str, factor: str) -> StragglerModel:
    given, worker = who + ":" + factor, text.parse_whole(who, bits=33)
    times = _number(factor[:-1])
    if times < 1 or factor[-1:] != "x":
        raise ValueError
    if worker is not None and worker >= 0:
        return StragglerModel(given, times, worker)
    share, _, of_what = who.partition("%")
    percent = _number(share, above=0)
    if percent > 100 or "%" not in who or of_what not in ("", "steps"):
        raise ValueError
    return StragglerModel(given, times, None, percent / 100, bool(of_what))


@_parser
def parse_failures(mean: str, away: str, *hang: str) -> FailureModel:
    if hang not in ((), ("hang",)):
        raise ValueError
    return FailureModel(_finite(_with_unit(mean, _TIMES), above=0), _with_unit(away, _TIMES), bool(hang))


@_parser
def parse_quadratic(name: str, condition: str, noise: str) -> QuadraticModel:
    model = QuadraticModel(_number(condition), _number(noise))
    if name != "quadratic" or model.condition < 1 or model.noise < 0:
        raise ValueError
    return model
