"""The axes and colours of charts."""

import enum
import math
from typing import List, NamedTuple

from .text import count, rounded


class Unit(enum.Enum):
    NUMBER = 0
    PERCENT = 1


class Axis:
    """The positions of values, and the round numbers along it.

    Maps the values low..high to the pixels start..end. If `logarithmic`, equal ratios have equal distances,
    values are above 0, and there are no round numbers.
    """

    def __init__(self, low: float, high: float, start: float, end: float, logarithmic: bool = False) -> None:
        self.low, self.high = low, high if high > low else low + 1
        self._start, self._end = start, end
        self._logarithmic = logarithmic

    def at(self, value: float) -> float:
        if self._logarithmic:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self._start + share * (self._end - self._start)

    def ticks(self, wanted: int) -> List[float]:
        """Returns multiples of 1, 2 or 5 times a power of ten, about `wanted` of them."""
        step = self._step(wanted)
        ticks, i = [], math.ceil(self.low / step - 1e-9)
        while i * step <= self.high + 1e-9 * step:
            ticks.append(i * step)
            i += 1
        return ticks

    def label(self, tick: float, wanted: int, unit: Unit) -> str:
        """Returns a tick's label, with the digits that all ticks need: "0.5", "120,000", "97.5 %"."""
        scale = 100 if unit is Unit.PERCENT else 1
        decimals = max(0, -math.floor(math.log10(scale * self._step(wanted)) + 1e-9))
        if unit is Unit.PERCENT:
            return "%.*f %%" % (decimals, scale * tick)
        return "%.*f" % (decimals, tick) if decimals > 0 else count(rounded(tick))

    def _step(self, wanted: int) -> float:
        rough = (self.high - self.low) / wanted
        power = math.pow(10, math.floor(math.log10(rough)))
        return next((n * power for n in (1.0, 2.0, 5.0) if n * power >= rough * 0.999), 10 * power)


def round_up(value: float, wanted: int) -> float:
    """Returns the next tick of an axis 0..value of about `wanted` ticks, so that the highest value has a line
    above it."""
    if value <= 0:
        return 1
    step = Axis(0, value, 0, 1).ticks(wanted)[1]
    return step * math.ceil(value / step - 1e-9)


class Look(NamedTuple):
    """The appearance of a series: colours, and without colour dashes, markers or stripes, distinguish
    them."""

    color: str
    dashes: str = ""
    marker: int = 0  # Svg.marker
    pattern: int = 0  # Svg.pattern


# Source: Okabe and Ito 2008, "Color Universal Design"; without yellow, which is too light on paper.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("", "7 3", "2 2.5", "8 3 2 3", "12 4")


def look_of(index: int) -> Look:
    """Returns the appearance of the n-th series of a chart."""
    return Look(_COLORS[index % len(_COLORS)], _DASHES[index % len(_DASHES)], index % 4, index % 4)
