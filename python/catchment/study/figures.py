"""The charts of a report, as SVG. Each is empty if there is nothing to draw."""

import collections
import math
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

from .answer import seconds_of
from .axis import Axis, Look, Unit, look_of, round_up
from .charts import ChartRow, Curve, CurvePoint, Histogram, LineChart, draw, draw_histograms, draw_rows
from .comparison import AlgorithmFacts, Comparison, runs_of
from .findings import Findings, momentum_of
from .run_result import RunResult, TestScore, best_accuracy, first_reached
from .statistics import Spread, spread_of, total
from .text import bytes_text, plural, rounded, short

_TICKS = 5
_MAX_COLUMNS = 60
_POINTS = 60  # of a curve of accuracy
_OVER = {  # words of the title, and of the x axis
    "seconds": ("time", "seconds of training"),
    "samples": ("samples", "samples trained, all workers together"),
}


def _best_of_all(comparison: Comparison) -> float:
    return max((best_accuracy(run) for run in comparison.runs), default=0.0)


def lowest_shown(comparison: Comparison, findings: Findings) -> float:
    """Returns the lowest accuracy that the charts of accuracy show: there is enough space below the target to
    show how each algorithm reaches it, and low accuracies are cut off."""
    best = _best_of_all(comparison)
    lowest = min([best, *(score.accuracy for run in comparison.runs for score in run.scores)])
    return max(0.0, lowest - 0.005, best - max(0.08, 5 * (best - findings.target)))


def accuracy_over(x: str, runs: Sequence[RunResult]) -> List[CurvePoint]:
    """Returns one curve from the runs of several seeds, whose scores have different times.

    Accuracy over a score's `x` (seconds, samples): each run is a straight line between its scores, and stays
    at its last one; the curve is their mean, its band from the lowest to the highest, once all runs have a
    score. Empty without scores.
    """
    if not runs or not all(run.scores for run in runs):
        return []
    series = [[(getattr(score, x), score) for score in run.scores] for run in runs]
    begin = max([0.0, *(scores[0][0] for scores in series)])
    end = max([0.0, *(scores[-1][0] for scores in series)])
    places = [begin + (end - begin) * i / _POINTS for i in range(_POINTS + 1)]
    return [CurvePoint(at, *spread_of(_interpolate(one, at) for one in series)[1:]) for at in places]


def _interpolate(scores: Sequence[Tuple[float, TestScore]], at: float) -> float:
    """Returns the accuracy at `at`, which is not before the first score; after the last one it is
    constant."""
    after = next((i for i, score in enumerate(scores) if score[0] >= at), len(scores))
    if after in (0, len(scores)):
        return scores[min(after, len(scores) - 1)][1].accuracy
    (x, before), (later_x, later) = scores[after - 1 : after + 1]
    return before.accuracy + (at - x) / (later_x - x) * (later.accuracy - before.accuracy)


def _curves(
    comparison: Comparison, points_of: Callable[[str], List[CurvePoint]], markers: bool
) -> List[Curve]:
    """Returns the curves of the algorithms that have points."""
    curves = [
        Curve(facts.name, look_of(i), points_of(facts.name), markers)
        for i, facts in enumerate(comparison.algorithms)
    ]
    return [curve for curve in curves if curve.points]


def accuracy_chart(comparison: Comparison, findings: Findings, workers: int, x: str) -> str:
    """Returns the accuracy over seconds or samples."""
    over, label = _OVER[x]
    curves = _curves(comparison, lambda name: accuracy_over(x, runs_of(comparison, name, workers)), False)
    x_high = max((curve.points[-1].x for curve in curves), default=0)
    if x_high <= 0:
        return ""
    best, low = _best_of_all(comparison), lowest_shown(comparison, findings)
    title = "Test accuracy over %s, %s" % (over, plural(workers, "worker"))
    chart = LineChart(title, "test accuracy", curves, label, Unit.PERCENT, 0, x_high, low)
    chart.y_high, chart.target = min(1.0, best + 0.05 * (best - low)), findings.target
    return draw(chart)


def over_workers(
    c: Comparison, findings: Findings, field: str, title: str, y: str, by_ratio: bool = False
) -> str:
    """Returns a standing's values over the number of workers, without those with which a run has none. With
    an axis of ratios not for one number."""
    speed_up = field == "speed-up"  # the throughput divided by the mean with one worker

    def points_of(name: str) -> List[CurvePoint]:
        standings = [standing for standing in findings.standings if standing.algorithm == name]
        values = [spread_of(getattr(one, "throughputs" if speed_up else field)) for one in standings]
        alone = next((spread.mean for one, spread in zip(standings, values) if one.workers == 1), 0.0)
        unit = alone if speed_up else 1.0
        return [
            CurvePoint(standing.workers, mean / unit, low / unit, high / unit)
            for standing, (n, mean, low, high) in zip(standings, values)
            if n > 0 and n >= standing.runs and unit > 0
        ]

    curves = _curves(c, points_of, True)
    if not curves or (by_ratio and len(c.workers) < 2):
        return ""
    if speed_up:
        ends = [CurvePoint(n, n, n, n) for n in (0, c.workers[-1])]
        curves.append(Curve("ideal", Look("#888888", "2 4"), ends))
    points = [point for curve in curves for point in curve.points]
    best = max(point.high for point in points)
    chart = LineChart(title, y, curves, "workers", x_ticks=c.workers, x_logarithmic=by_ratio)
    chart.x_low, chart.x_high = c.workers[0] / 1.05 if by_ratio else 0, c.workers[-1] * 1.05
    chart.y_high = round_up(best, _TICKS)
    if field == "accuracies":
        lowest = min([best - 0.01, *(point.low for point in points)])
        ticks = Axis(lowest, best, 0, 1).ticks(_TICKS)
        step = ticks[1] - ticks[0]
        chart.y_unit, chart.y_low = Unit.PERCENT, max(0.0, step * math.floor(lowest / step + 1e-9))
        chart.y_high = step * math.ceil(best / step - 1e-9)
    return draw(chart)


# Returns the note of a row, and the spread or the parts.
Fill = Callable[[AlgorithmFacts, List[RunResult]], Tuple[str, Spread, Sequence[float]]]


def _row_chart(
    c: Comparison, title: str, x: str, fill: Fill, parts: Sequence[str] = (), to: float = 0
) -> str:
    """Draws a row for each algorithm and number of workers with runs that are done; to 1: of shares."""
    rows: List[ChartRow] = []
    for workers in c.workers:
        for i, facts in enumerate(c.algorithms):
            runs = runs_of(c, facts.name, workers)
            if runs:
                rows.append(ChartRow(plural(workers, "worker"), facts.name, look_of(i), *fill(facts, runs)))
    high = to or round_up(max((row.spread.high + total(row.parts) for row in rows), default=0), _TICKS)
    return draw_rows(title, x, rows, high, Unit.PERCENT if to else Unit.NUMBER, parts)


def _means(runs: Sequence[RunResult], fields: str) -> Iterator[float]:
    return (total(getattr(run, field) for run in runs) / len(runs) for field in fields.split())


def time_to_target(comparison: Comparison, findings: Findings) -> str:
    def fill(_: AlgorithmFacts, runs: List[RunResult]) -> Any:
        crossings = {run.seed: first_reached(run.scores, findings.target) for run in runs}
        spread = spread_of([crossing[0] for _, crossing in sorted(crossings.items()) if crossing])
        note = seconds_of(spread) if spread.n else "not reached"
        some = ", in %d of %s" % (spread.n, plural(len(runs), "run"))
        return note + (some if 0 < spread.n < len(runs) else ""), spread, ()

    title = "Time to %.1f %% test accuracy" % (100 * findings.target)
    x = "seconds of training; mean, and from the fastest to the slowest seed"
    return _row_chart(comparison, title, x, fill) if findings.target > 0 else ""


def workers_time(comparison: Comparison) -> str:
    def fill(_: AlgorithmFacts, runs: List[RunResult]) -> Any:
        seconds = list(_means(runs, "compute_seconds push_seconds pull_seconds data_seconds"))
        everything = total(seconds)
        parts = [part / everything if everything > 0 else 0 for part in seconds]
        return "%.0f %% computing" % (100 * parts[0]), Spread(), parts

    title, x = "Where the workers' time went", "share of the time of all workers' training threads"
    names = ["computing", "sending", "waiting for weights", "waiting for data"]
    return _row_chart(comparison, title, x, fill, names, to=1)


def bytes_on_the_wire(comparison: Comparison) -> str:
    def fill(_: AlgorithmFacts, runs: List[RunResult]) -> Any:
        samples, pushed, pulled = _means(runs, "samples bytes_pushed bytes_pulled")
        parts = [size / max(1.0, samples) / 1000 for size in (pushed, pulled)]
        return "%s + %s a run" % (bytes_text(pushed), bytes_text(pulled)), Spread(), parts

    title, x = "Bytes on the wire", "kilobytes for each sample trained (payload)"
    return _row_chart(comparison, title, x, fill, ["pushed to the servers", "pulled from them"])


def momentum_bars(comparison: Comparison) -> str:
    def fill(facts: AlgorithmFacts, runs: List[RunResult]) -> Any:
        given, implicit = momentum_of(facts, runs[0].momentum, *_means(runs, "staleness_mean"))
        words = "steered" if facts.closed_loop else "none" if given is None else "%.2f" % given
        note = words + (" (implicit: not modelled)" if implicit is None else " + %.2f" % implicit)
        return note, Spread(), [max(0.0, given or 0), implicit or 0]

    title = "Momentum: given to the optimizer, and added by staleness"
    return _row_chart(comparison, title, "momentum", fill, ["given", "implicit"])


def staleness_distributions(comparison: Comparison) -> str:
    """For the largest number of workers."""
    workers, histograms, p99 = comparison.workers[-1], [], 1.0
    for i, facts in enumerate(comparison.algorithms):
        runs = runs_of(comparison, facts.name, workers)
        counts: Dict[int, int] = collections.Counter()
        for value, count in sorted(pair for run in runs for pair in run.staleness.items()):
            counts[value] += count
        everything = sum(counts.values())
        if everything > 0:
            mean = sum(value * count for value, count in counts.items()) / everything
            note = "mean %.2f, 99 of 100 at most %s" % (mean, short(rounded(*_means(runs, "staleness_p99"))))
            shares = {value: count / everything for value, count in counts.items()}
            histograms.append(Histogram(facts.name, note, look_of(i), shares))
            p99 = max([p99, *(run.staleness_p99 for run in runs)])
    title = "Staleness of contributions, " + plural(workers, "worker")
    x_label = "updates of the center between a worker's fetch and the application of its contribution"
    high = min(_MAX_COLUMNS, int(p99) + 1)
    return draw_histograms(title, x_label, high, histograms) if histograms else ""
