"""The kinds of charts in a report, drawn as SVG."""

import collections
import dataclasses
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from .axis import Axis, Look, Unit, look_of
from .markup import Svg, stroke, text_width
from .statistics import Spread
from .text import short

_GRID, _FRAME, _LEVEL = stroke("#dddddd"), stroke("#888888"), stroke("#555555", 1, "4 3")
_BORDER = "#555555"


class CurvePoint(NamedTuple):
    x: float
    y: float
    low: float
    high: float


class Curve(NamedTuple):
    name: str
    look: Look
    points: Sequence[CurvePoint]
    markers: bool = False  # draws a marker at each point
    band: bool = True  # of the range


class Mark(NamedTuple):
    """An event on the x axis: a vertical line with a marker on it, or a marker at its foot."""

    x: float
    look: Look
    text: str  # shown where the pointer is
    line: bool = True


@dataclasses.dataclass
class LineChart:
    """Curves over a common axis, each with a band of the range over the seeds."""

    title: str
    y_label: str
    curves: Sequence[Curve]
    x_label: str = ""  # with its unit
    y_unit: Unit = Unit.NUMBER
    x_low: float = 0
    x_high: float = 1
    y_low: float = 0
    y_high: float = 1
    x_ticks: Sequence[float] = ()  # empty: round numbers
    x_logarithmic: bool = False  # needs x_ticks, and x_low above 0
    target: Optional[float] = None  # a dashed horizontal line
    marks: Sequence[Mark] = ()


_WIDTH, _PLOT_HEIGHT, _PLOT_RIGHT = 480, 220, 456
_PLOT_LEFT = 64  # of the plot, unless the labels of the y axis are wider
_LABEL_Y = 14  # the baseline of the y axis's name, which is written upwards
_LABEL_GAP, _TICK_SIZE, _TICKS, _TITLE, _BOTTOM = 6, 11, 5, 26, 44
_LEVEL_LABEL = 12  # the space for the label of a level
_LEGEND_ROW, _LEGEND_SAMPLE, _LEGEND_LETTER, _LEGEND_GAP = 18, 31, 6, 12


def draw(chart: LineChart) -> str:
    y = Axis(chart.y_low, chart.y_high, 0, 1)
    labels = [y.label(tick, _TICKS, chart.y_unit) for tick in y.ticks(_TICKS)]
    # There is enough space for the labels of the y axis between the plot and the axis's name.
    widest = max((text_width(label, _TICK_SIZE) for label in labels), default=0)
    left = max(_PLOT_LEFT, _LABEL_Y + 2 * _LABEL_GAP + widest)
    places = _legend_places(chart, left)
    top = _TITLE + _LEGEND_ROW * (places[-1][1] + 1) + 8
    svg = Svg(_WIDTH, top + _PLOT_HEIGHT + _BOTTOM, chart.title)
    x = Axis(chart.x_low, chart.x_high, left, _PLOT_RIGHT, chart.x_logarithmic)
    y = Axis(chart.y_low, chart.y_high, top + _PLOT_HEIGHT, top)
    svg.text(left, 16, chart.title, "start", 13, "#000000")
    for curve, (at, row) in zip(chart.curves, places):
        _draw_legend(curve, at, _TITLE + _LEGEND_ROW * (0.5 + row), svg)
    _draw_axes(chart, x, y, top, left, svg)
    if chart.target is not None:
        height = y.at(chart.target)
        svg.line(left, height, _PLOT_RIGHT, height, _LEVEL)
        # Below the line where the legend is above it.
        baseline = height - 4 if height - top > _LEVEL_LABEL else height + _LEVEL_LABEL
        svg.text(left + 5, baseline, "target", "start", _TICK_SIZE, _BORDER)
    svg.begin_clip(left, top - 4, _PLOT_RIGHT - left + 4, _PLOT_HEIGHT + 8)
    for curve in chart.curves:
        _draw_curve(curve, x, y, svg)
    for mark in chart.marks:
        at, bottom = x.at(mark.x), top + _PLOT_HEIGHT
        svg.begin_hint(mark.text)
        if mark.line:
            svg.line(at, top, at, bottom, stroke(mark.look.color, 1, mark.look.dashes))
        svg.marker(at, top + 4 if mark.line else bottom - 4, mark.look.marker, mark.look.color)
        svg.end_hint()
    svg.end_clip()
    return svg.finish()


def _legend_places(chart: LineChart, left: float) -> List[Tuple[float, int]]:
    """Returns the position and the row of each entry of the legend, whose rows are as long as the plot is
    wide."""
    places = []
    x, row = left, 0
    for curve in chart.curves:
        width = _LEGEND_SAMPLE + _LEGEND_LETTER * len(curve.name)
        if x + width > _WIDTH and x > left:
            x, row = left, row + 1
        places.append((x, row))
        x += width + _LEGEND_GAP
    return places


def _draw_legend(curve: Curve, x: float, y: float, svg: Svg) -> None:
    svg.line(x, y, x + 26, y, stroke(curve.look.color, 2, curve.look.dashes))
    if curve.markers:
        svg.marker(x + 13, y, curve.look.marker, curve.look.color)
    svg.text(x + _LEGEND_SAMPLE, y + 4, curve.name, "start", 11)


def _draw_axes(chart: LineChart, x: Axis, y: Axis, top: float, left: float, svg: Svg) -> None:
    bottom = top + _PLOT_HEIGHT
    for tick in y.ticks(_TICKS):
        svg.line(left, y.at(tick), _PLOT_RIGHT, y.at(tick), _GRID)
        svg.text(left - _LABEL_GAP, y.at(tick) + 4, y.label(tick, _TICKS, chart.y_unit), "end", _TICK_SIZE)
    for tick in chart.x_ticks or x.ticks(_TICKS):
        svg.line(x.at(tick), bottom, x.at(tick), bottom + 4, _FRAME)
        label = short(tick) if chart.x_ticks else x.label(tick, _TICKS, Unit.NUMBER)
        # The label of the last tick would leave the picture if it were centred.
        middle = min(x.at(tick), _WIDTH - text_width(label, _TICK_SIZE) / 2)
        svg.text(middle, bottom + 17, label, "middle", _TICK_SIZE)
    svg.line(left, bottom, _PLOT_RIGHT, bottom, _FRAME)
    svg.line(left, top, left, bottom, _FRAME)
    svg.text((left + _PLOT_RIGHT) / 2, bottom + 36, chart.x_label, "middle")
    svg.vertical_text(_LABEL_Y, top + _PLOT_HEIGHT / 2, chart.y_label)


def _draw_curve(curve: Curve, x: Axis, y: Axis, svg: Svg) -> None:
    points, look = curve.points, curve.look
    line = [(x.at(point.x), y.at(point.y)) for point in points]
    band = [(x.at(point.x), y.at(point.high)) for point in points]
    if curve.band:
        svg.area(band + [(x.at(point.x), y.at(point.low)) for point in reversed(points)], look.color, 0.18)
    svg.path(line, stroke(look.color, 2, look.dashes))
    for px, py in line if curve.markers else ():
        svg.marker(px, py, look.marker, look.color)


class ChartRow(NamedTuple):
    """A row for an algorithm and a number of workers: a mean with its range, or a bar of several parts."""

    group: str  # the heading above the first row of each group
    name: str
    look: Look  # the marker of the mean
    note: str  # drawn at the right
    spread: Spread = Spread()  # n 0: it is not drawn
    parts: Sequence[float] = ()  # the parts of a bar, from the left, each at least 0


# The layout of charts with rows and of histograms.
_WIDE, _LEFT, _RIGHT, _MIDDLE, _ROWS_BOTTOM = 960, 170, 690, 430, 46
_ROWS_TITLE, _LEGEND, _ROW, _HEADING, _PART_COLUMN, _ROW_TICKS = 26, 22, 19, 22, 190, 6


Rows = Sequence[ChartRow]


def draw_rows(title: str, x_label: str, rows: Rows, high: float, unit: Unit, parts: Sequence[str]) -> str:
    """Draws rows over an axis from 0 to `high`. `parts` are the names in the legend of bars."""
    top = _ROWS_TITLE + (_LEGEND if parts else 0)
    groups = [""] + [row.group for row in rows]
    begins = [row.group != before for row, before in zip(rows, groups)]
    bottom = top + _ROW * len(rows) + _HEADING * sum(begins) + 4
    svg, x = _begin_wide(title, bottom), Axis(0, high, _LEFT, _RIGHT)
    looks = [look_of(i) for i in range(len(parts))]
    fills = [svg.pattern(look.color, look.pattern) for look in looks]
    for i, name in enumerate(parts):
        svg.rectangle(_LEFT + _PART_COLUMN * i, _ROWS_TITLE + 2, 14, 12, fills[i], _BORDER)
        svg.text(_LEFT + _PART_COLUMN * i + 19, _ROWS_TITLE + 12, name, "start", 11)
    for tick in x.ticks(_ROW_TICKS):
        svg.line(x.at(tick), top, x.at(tick), bottom, _GRID)
        svg.text(x.at(tick), bottom + 16, x.label(tick, _ROW_TICKS, unit), "middle", 11)
    svg.line(_LEFT, bottom, _RIGHT, bottom, _FRAME)
    svg.line(_LEFT, top, _LEFT, bottom, _FRAME)
    svg.text(_MIDDLE, bottom + 36, x_label, "middle")
    y = top + _ROW / 2
    for row, is_first in zip(rows, begins):
        if is_first:
            svg.text(16, y + 16 - _ROW / 2, row.group, "start", 12, "#000000")
            y += _HEADING
        _draw_row(row, fills, x, y, svg)
        y += _ROW
    return svg.finish()


def _begin_wide(title: str, bottom: float) -> Svg:
    svg = Svg(_WIDE, bottom + _ROWS_BOTTOM, title)
    svg.text(16, 16, title, "start", 13, "#000000")
    return svg


def _draw_row(row: ChartRow, fills: Sequence[str], x: Axis, y: float, svg: Svg) -> None:
    svg.text(_LEFT - 8, y + 4, row.name, "end", 11)
    if row.spread.n > 0:
        mean, low, high = map(x.at, row.spread[1:])
        whisker = stroke(row.look.color, 2)
        svg.line(low, y, high, y, whisker)
        for end in (low, high):
            svg.line(end, y - 4, end, y + 4, whisker)
        svg.marker(mean, y, row.look.marker, row.look.color)
    total = 0.0
    for part, fill in zip(row.parts, fills):
        begin, total = x.at(total), total + part
        if part > 0:
            svg.rectangle(begin, y - 6, x.at(total) - begin, 12, fill, _BORDER)
    svg.text(_RIGHT + 8, y + 4, row.note, "start", 11)


class Histogram(NamedTuple):
    name: str
    note: str  # drawn at the right
    look: Look
    shares: Dict[int, float]  # the share of each value, ascending


_HISTOGRAM_TITLE, _HISTOGRAM_ROW, _HISTOGRAM_TICKS = 30, 62, 10
_BAR = 46  # the height of the row's largest share


def draw_histograms(title: str, x_label: str, high: int, histograms: Sequence[Histogram]) -> str:
    """Draws distributions of whole numbers below each other on a common axis, with one column for each
    number; the last one, `high`, includes all higher values."""
    bottom = _HISTOGRAM_TITLE + _HISTOGRAM_ROW * len(histograms)
    svg, x = _begin_wide(title, bottom), Axis(-0.6, high + 0.6, _LEFT, _RIGHT)
    for i, histogram in enumerate(histograms):
        _draw_histogram(histogram, x, high, _HISTOGRAM_TITLE + _HISTOGRAM_ROW * (i + 1), svg)
    wanted = min(_HISTOGRAM_TICKS, high + 1)
    for tick in x.ticks(wanted):
        if tick == int(tick):
            label = x.label(tick, wanted, Unit.NUMBER) + ("+" if tick == high else "")
            svg.text(x.at(tick), bottom + 16, label, "middle", 11)
    svg.text(_MIDDLE, bottom + 36, x_label, "middle")
    return svg.finish()


def _draw_histogram(histogram: Histogram, x: Axis, high: int, bottom: float, svg: Svg) -> None:
    shares: Dict[int, float] = collections.defaultdict(float)
    for value, share in histogram.shares.items():
        shares[min(value, high)] += share
    largest = max(shares.values())
    fill = svg.pattern(histogram.look.color, histogram.look.pattern)
    for value, share in shares.items():
        height, left = _BAR * share / largest, x.at(value - 0.4)
        svg.rectangle(left, bottom - height, x.at(value + 0.4) - left, height, fill, _BORDER)
        if share == largest:
            svg.text(x.at(value), bottom - height - 3, "%.0f %%" % (100 * share), "middle", 10)
    svg.line(_LEFT, bottom, _RIGHT, bottom, _FRAME)
    svg.text(_LEFT - 8, bottom - 8, histogram.name, "end", 11)
    svg.text(_RIGHT + 8, bottom - 8, histogram.note, "start", 11)
