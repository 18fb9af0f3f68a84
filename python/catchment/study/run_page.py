"""The page of one run: while it trains the content that the browser of `catchment watch` fetches, and when it
has ended its report. Its words are in page.html."""

import collections
import math
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from .axis import Look, Unit, look_of, round_up
from .charts import Curve, CurvePoint, LineChart, Mark, draw
from .history import MARKED, Point, RunHistory
from .markup import Html, escape_xml, fragment, html_command, html_figure, html_page, html_table
from .run_facts import RunFacts, Worker
from .run_result import number, text_or_empty
from .text import bytes_text, count, plural, rounded, seconds, short

_TICKS = 5
_LATELY = "training, last seconds"
# Each with its title, the label and the unit of its y axis, and its curves: names, looks and series.
_CHARTS: Any = (
    ("Accuracy", "", Unit.PERCENT, (("test set", 0, "test_accuracy"), (_LATELY, 1, "train_accuracy"))),
    ("Loss", "", Unit.NUMBER, (("test set", 0, "test_loss"), (_LATELY, 1, "train_loss"))),
    ("Samples a second", "", Unit.NUMBER, (("all workers", 2, "samples_per_second"),)),
    ("Staleness of pushes", "updates, mean", Unit.NUMBER, (("since the start", 3, "staleness_mean"),)),
)
_ZOOMED = ("Accuracy", "Loss")
_SETTLED = 1 / 3  # of the time: then the curves show what changes
_MARKS = dict(
    zip(MARKED, (Look("#D55E00", "", 3), Look("#CC79A7", "4 3", 1), Look("#888888", "", 2)))
)  # by kind
_SHOWN_WORKERS = 12  # healthy ones; more are folded
_SHOWN_EVENTS, _MOST_EVENTS = 12, 100
_LAST = ", of which the last %d are here"
_MARKERS = 60  # the most points of a curve with markers
# The parts of the bar of a worker's time, and their phases.
_PARTS = (("computing", ("compute",)), ("waiting", ("push", "pull")), ("data", ("data",)))
_SPARK_WIDTH, _SPARK_HEIGHT = 90, 16


def run_content(facts: RunFacts) -> str:
    """Returns the content of the page's body."""
    bar = "" if facts.share is None else fragment("bar", share="%.4f" % min(1.0, facts.share))
    parts = [
        fragment(
            "run",
            title=escape_xml(facts.name),
            phase=escape_xml(facts.phase),
            bar=bar,
            outcome=escape_xml(facts.outcome),
            figures="".join(map(_figure, facts.figures)),
        ),
        _warnings(facts),
        _charts(facts),
        _workers(facts),
        _servers(facts),
        _events(facts),
    ]
    if facts.command:
        resume = fragment("resume", command=html_command(facts.resume)) if facts.resume else ""
        parts.append(
            fragment("repeat", resume=resume, command=html_command(facts.command), job=escape_xml(facts.job))
        )
    return "".join(parts)


def run_page(facts: RunFacts) -> str:
    """Returns the report of a run that has ended, as a file."""
    return html_page(facts.name, run_content(facts))


def live_page(title: str, content_url: str) -> str:
    """Returns the page whose script shows what is at `content_url`, and updates what changes in it, until the
    server ends. A response replaces $nonce."""
    return html_page(title, fragment("live", content=content_url, nonce="$nonce"))


def _figure(figure: Tuple[str, str, str]) -> str:
    return fragment("tile", **{key: escape_xml(one) for key, one in zip(("title", "value", "note"), figure)})


def _section(title: str, body: str) -> str:
    return '<section data-key="%s"><h2>%s</h2>\n%s</section>\n' % (title, title, body) if body else ""


def _warnings(facts: RunFacts) -> str:
    items = [
        "<li><b>%s</b> %s</li>\n"
        % (escape_xml(one.found), escape_xml(" ".join((one.why, one.advice)).strip()))
        for one in facts.warnings
    ]
    return _section("Warnings", '<ul class="warnings">\n%s</ul>\n' % "".join(items) if items else "")


# --------------------------------------------------------------------------------------------------- charts


def _charts(facts: RunFacts) -> str:
    series = facts.history.series
    lasts = [series[key][-1].seconds for key in ("samples_per_second", "test_loss") if series[key]]
    end = max([facts.seconds, *lasts])
    marks = [
        Mark(
            mark.seconds,
            _MARKS[mark.kind],
            "%s: %s" % (seconds(mark.seconds), mark.text),
            mark.kind != "checkpoint",
        )
        for mark in facts.history.marks
        if mark.seconds is not None
    ]
    charts = [
        _chart(title, label, unit, end, curves, series, marks) for title, label, unit, curves in _CHARTS
    ]
    if not any(charts):
        return ""
    kinds = {mark.kind for mark in facts.history.marks}
    legend = "".join(fragment("legend_" + kind).strip() for kind in MARKED if kind in kinds)
    return _section(
        "Over time", html_figure(charts, "") + ('<p class="legend">%s</p>\n' % legend if legend else "")
    )


def _chart(
    title: str,
    label: str,
    unit: Unit,
    end: float,
    of: Any,
    series: Dict[str, List[Point]],
    marks: Sequence[Mark],
) -> str:
    curves = []
    for name, look, key in of:
        points = [CurvePoint(x, y, y, y) for x, y in series[key]]
        if points:
            markers = look == 0 and len(points) <= _MARKERS
            curves.append(Curve(name, look_of(look), points, markers, band=False))
    if not any(point.y for curve in curves for point in curve.points):
        return ""
    chart = LineChart(title, label, curves, "training time (s)", unit, marks=marks)
    chart.x_high = round_up(end, _TICKS)
    values = [point.y for curve in curves for point in curve.points]
    if title in _ZOOMED:
        chart.y_low, chart.y_high = zoomed(curves, 1.0 if unit is Unit.PERCENT else math.inf)
    else:
        chart.y_high = round_up(max(0.0, *values), _TICKS)
    return draw(chart)


def zoomed(curves: Sequence[Curve], most: float) -> Tuple[float, float]:
    """Returns the range of the y axis, at most 0 to `most`: that of the values after the first third of the
    time, with some space, so that a curve that has begun far away is not flat from then on."""
    points = [point for curve in curves for point in curve.points]
    first, last = min(point.x for point in points), max(point.x for point in points)
    settled = [point.y for point in points if point.x >= first + _SETTLED * (last - first)]
    low, high = min(settled), max(settled)
    space = 0.08 * (high - low) or 0.05 * abs(high) or 0.05
    return max(0.0, low - space), min(most, high + space)


# -------------------------------------------------------------------------------------- workers and servers


def _number(value: Optional[float], words: Callable[[float], str]) -> str:
    return "" if value is None else words(value)


def _bar(shares: Dict[str, float]) -> Html:
    """Returns the bar of a worker's time, of the shares by phase."""
    parts = [(name, sum(shares.get(phase, 0.0) for phase in phases)) for name, phases in _PARTS]
    words = ", ".join("%s %.0f %%" % (name, 100 * share) for name, share in parts)
    spans = "".join(
        '<i class="%s" style="width:%.0f%%"></i>' % (name, 100 * share)
        for name, share in parts
        if share >= 0.005
    )
    return Html('<span class="bar" title="%s">%s</span>' % (words, spans) if spans else "")


def _spark(points: Sequence[Point], high: float, begin: float, end: float) -> Html:
    """Returns a small curve of a worker's rate, on axes from `begin` to `end` and from 0 to `high`, which all
    workers have in common."""
    if len(points) < 2 or high <= 0 or end <= begin:
        return Html("")
    across, up = _SPARK_WIDTH / (end - begin), (_SPARK_HEIGHT - 2) / high
    places = ["%.0f,%.0f" % (across * (x - begin), _SPARK_HEIGHT - 1 - up * y) for x, y in points]
    return Html(fragment("spark", points=" ".join(places)).strip())


def _columns(history: RunHistory) -> Sequence[Tuple[str, Callable[[Worker], str]]]:
    """Returns the columns of workers that follow their numbers, with their cells."""
    points = [point for series in history.rates.values() for point in series]
    high = max((point.value for point in points), default=0)
    begin = min((point.seconds for point in points), default=0)
    end = max((point.seconds for point in points), default=0)
    return (
        (
            "state",
            lambda one: Html("<b>%s</b>" % escape_xml(", ".join(one.wrong)) if one.wrong else ""),
        ),
        ("samples/s", lambda one: _number(one.rate, lambda rate: count(rounded(rate)))),
        ("over time", lambda one: _spark(history.rates.get(one.index, ()), high, begin, end)),
        ("its time", lambda one: _bar(one.shares)),
        ("staleness", lambda one: _number(one.staleness, lambda mean: "%.2f" % mean)),
        ("p99", lambda one: _number(one.staleness_p99, short)),
        ("applied", lambda one: _number(one.applied, lambda n: count(int(n)))),
        ("not applied", lambda one: count(int(one.refused)) if one.refused else ""),
        ("heartbeat", lambda one: _number(one.heartbeat, lambda age: "%.1f s ago" % age)),
        ("process", lambda one: one.process),
    )


def _workers(facts: RunFacts) -> str:
    workers = facts.workers
    if not workers:
        return ""
    listed = [(column, list(map(words, workers))) for column, words in _columns(facts.history)]
    columns = [
        ("worker", [str(one.index) for one in workers]),
        *(column for column in listed if any(column[1])),
    ]
    rows = list(zip(*(cells for _, cells in columns)))
    head = [column for column, _ in columns]
    wrong = sum(bool(one.wrong) for one in workers)
    folded = wrong if len(workers) - wrong > _SHOWN_WORKERS else len(workers)

    def table(begin: int, end: int) -> str:
        keys = ["w%d" % one.index for one in workers[begin:end]]
        return html_table([head, *rows[begin:end]], 1, keys, "workers") if keys else ""

    body = fragment("time_legend", devices=escape_xml(_devices(workers)))
    body += table(0, folded)
    if folded < len(workers):
        summary = _summary_of(workers[folded:])
        body += fragment(
            "folded", key="healthy", summary=escape_xml(summary), table=table(folded, len(workers))
        )
    return _section("Workers", body)


def _devices(workers: Sequence[Worker]) -> str:
    devices = sorted({one.device for one in workers if one.device})
    return "" if not devices else "Devices: %s." % "; ".join(devices[:4] + ["..."] * (len(devices) > 4))


def _summary_of(workers: Sequence[Worker]) -> str:
    """Returns the line that stands for healthy workers."""
    words = [plural(len(workers), "worker") + " with nothing wrong"]
    rates = [one.rate for one in workers if one.rate is not None]
    staleness = [one.staleness for one in workers if one.staleness is not None]
    if rates:
        words.append("%s to %s samples/s" % (count(rounded(min(rates))), count(rounded(max(rates)))))
    if staleness:
        words.append("staleness %.2f to %.2f" % (min(staleness), max(staleness)))
    return ", ".join(words)


_SERVER_TEXTS = (("address", "address"), ("could not save", "save_error"))
_SERVER_NUMBERS: Sequence[Tuple[str, str, Callable[[float], str]]] = (
    ("parameters", "parameters", lambda n: count(int(n))),
    ("version", "version", lambda n: count(int(n))),
    ("in", "bytes_pushed", bytes_text),
    ("out", "bytes_pulled", bytes_text),
    ("applied", "pushes_applied", lambda n: count(int(n))),
    ("late", "pushes_late", lambda n: count(int(n)) if n else ""),
    ("not finite", "pushes_non_finite", lambda n: count(int(n)) if n else ""),
    ("staleness", "staleness_mean", lambda mean: "%.2f" % mean),
)


def _servers(facts: RunFacts) -> str:
    values = [one.values for one in facts.servers]
    columns = [(name, [text_or_empty(one, key) for one in values]) for name, key in _SERVER_TEXTS]
    columns[1:1] = [
        (name, [_number(number(one, key), words) for one in values]) for name, key, words in _SERVER_NUMBERS
    ]
    columns = [column for column in columns if any(column[1])]
    head = ["server", *(name for name, _ in columns)]
    rows = [[str(one.number), *(cells[i] for _, cells in columns)] for i, one in enumerate(facts.servers)]
    table = html_table([head, *rows], 2, ["s%s" % row[0] for row in rows])
    return _section("Servers", table if columns else "")


def _events(facts: RunFacts) -> str:
    """Returns the last events, and the earlier losses and recoveries; the others are folded."""
    seen: Dict[str, int] = collections.Counter()
    shown: List[Tuple[str, List[str]]] = []
    folded: List[Tuple[str, List[str]]] = []
    for i, event in enumerate(facts.events):
        seen[event.text] += 1
        key = "e%s%d" % (event.text, seen[event.text])
        row = ["" if event.seconds is None else seconds(event.seconds), event.text]
        is_shown = i >= len(facts.events) - _SHOWN_EVENTS or event.kind in ("lost", "recovered")
        (shown if is_shown else folded).append((key, row))

    def table(events: Sequence[Tuple[str, List[str]]]) -> str:
        return html_table(
            [["at", "event"], *(row for _, row in events)], 2, [key for key, _ in events], "events"
        )

    body = table(shown[-_MOST_EVENTS:]) if shown else ""
    if folded:
        summary = plural(len(folded), "earlier event") + _LAST % _MOST_EVENTS * (len(folded) > _MOST_EVENTS)
        body += fragment("folded", key="earlier", summary=summary, table=table(folded[-_MOST_EVENTS:]))
    return _section("Events", body)
