"""Statistics of a few runs with different seeds."""

import ctypes
import functools
import math
from typing import Dict, Iterable, NamedTuple, Union

BySeed = Dict[int, float]  # a value for each seed, in ascending order of the seeds

_CONFIDENCE = 0.95
_TERMS = 400  # of the continued fraction
# Python's own lgamma has other last digits, which a report would have, too.
_lgamma = ctypes.CDLL("libm.so.6").lgamma
_lgamma.argtypes, _lgamma.restype = [ctypes.c_double], ctypes.c_double


class Spread(NamedTuple):
    n: int = 0
    mean: float = 0.0
    low: float = 0.0  # the smallest
    high: float = 0.0  # the largest


def total(values: Iterable[float]) -> float:
    """Returns the sum from the first to the last; sum() of Python 3.12 corrects its rounding errors."""
    result = 0.0
    for value in values:
        result += value
    return result


def spread_of(values: Union[Iterable[float], BySeed]) -> Spread:
    listed = list(values.values() if isinstance(values, dict) else values)
    return Spread(len(listed), total(listed) / len(listed), min(listed), max(listed)) if listed else Spread()


class Ratio(NamedTuple):
    """The ratio of values to a base, seed by seed: the geometric mean of the ratios, with its 95 % interval
    by the paired t-test on their logarithms.

    Runs of one seed begin with the same weights, take the samples in the same order, and run one after
    another on the machine, so an effect of the seed or of the time of day on both is not counted as noise.
    """

    value: float = 1.0
    low: float = 1.0
    high: float = 1.0
    has_interval: bool = False  # at least two seeds
    pairs: int = 1  # from which the two were chosen by their results

    @property
    def beyond_noise(self) -> bool:
        """Returns True if the interval does not contain 1."""
        return self.has_interval and (self.low > 1 or self.high < 1)


def ratio_of(values: BySeed, base: BySeed, pairs: int = 1) -> Ratio:
    """Computes the ratio over the seeds that both have; 1 without an interval if there are none. No value is
    negative; if one is 0, the ratio is 0 or infinite, or not a number.

    If the two were chosen from `pairs` pairs by the same results, the level of the interval is corrected as
    by Bonferroni: all intervals of these pairs together contain the true ratios in 95 % of comparisons.
    """
    ratios = [_log_ratio(value, base[seed]) for seed, value in values.items() if seed in base]
    if not ratios:
        return Ratio(pairs=pairs)
    n, mean = len(ratios), spread_of(ratios).mean
    value = _exp(mean)
    if n < 2:
        return Ratio(value, value, value, pairs=pairs)
    error = math.sqrt(total((ratio - mean) * (ratio - mean) for ratio in ratios) / (n - 1) / n)
    half = error * student_t_quantile(1 - (1 - _CONFIDENCE) / pairs, n - 1)
    return Ratio(value, _exp(mean - half), _exp(mean + half), True, pairs)


def _log_ratio(value: float, base: float) -> float:
    if value == 0 or base == 0:
        return 0.0 if value == base else math.inf if value > 0 else -math.inf
    return math.log(value / base)


def _exp(x: float) -> float:
    return math.inf if x > 709.78 else math.exp(x)


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Returns the continued fraction of the incomplete beta function (Abramowitz and Stegun 26.5.8), from its
    tail: with so many terms the remainder is below 1e-12 wherever x < (a + 1) / (a + b + 2)."""
    tail = 1.0
    for n in range(_TERMS, 0, -1):
        m = n // 2
        if n % 2 == 0:
            d = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        else:
            d = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        tail = 1 + d / tail
    return 1 / tail


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Returns I_x(a, b), for x in [0, 1]."""
    if x <= 0 or x >= 1:
        return 0 if x <= 0 else 1
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    logarithm = _lgamma(a + b) - _lgamma(a) - _lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(logarithm) / a * _beta_fraction(a, b, x)


def student_t_cdf(t: float, dof: float) -> float:
    """Returns P(T <= t) of Student's t distribution with `dof` degrees of freedom, above 0 and not
    necessarily whole."""
    outside = _incomplete_beta(dof / 2, 0.5, dof / (dof + t * t))
    return 1 - outside / 2 if t > 0 else outside / 2


@functools.lru_cache(maxsize=None)
def student_t_quantile(confidence: float, dof: float) -> float:
    """Returns t with P(|T| <= t) = confidence; confidence in (0, 1)."""
    wanted = 0.5 + confidence / 2
    low, high = 0.0, 1.0
    while student_t_cdf(high, dof) < wanted and high < 1e12:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        if student_t_cdf(middle, dof) < wanted:
            low = middle
        else:
            high = middle
    return (low + high) / 2
