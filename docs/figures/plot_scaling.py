#!/usr/bin/env python3
"""Draws a figure of simulated or measured runs against their number of workers, as an SVG file, and prints
its numbers as a table.

    docs/figures/plot_scaling.py OUT.svg "TITLE" WHAT [--minibatch=N] [--mark=TEXT:SAMPLES...] \
        LABEL=DIR:ALGORITHM[,DIR:ALGORITHM...] [LABEL=...]

DIR is the --out directory of `catchment simulate`, `compare` or `report`, or a pattern such as 'out-lars-*'.
If several directories of a line have runs with the same number of workers, the directory with the best mean
counts. WHAT is one of

    speedup            samples a second over those of one worker with the same seed
    test_accuracy      of the final weights
    test_error         1 - test_accuracy, on a logarithmic axis
    seconds_to_target  until the accuracy of --target was reached; a run that never reached it has no point

Each point is the mean over the seeds; the bar is from the lowest to the highest. A cross marks a number of
workers with which a run diverged or did not reach the target, and the table says how many did.
LABEL=@1:1,60:30 draws given points, WORKERS:VALUE, instead of runs. Needs nothing but Python.
"""
import glob
import json
import math
import pathlib
import statistics
import sys

import line_figure

AXES = {"speedup": "samples a second, over those of one worker", "test_accuracy": "test accuracy",
        "test_error": "test error, logarithmic", "seconds_to_target": "seconds to the target"}
SHARES = ("test_accuracy", "test_error")
ERROR_TICKS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1)
FEWER_IS_BETTER = ("test_error", "seconds_to_target")


def values_of(what, directory, algorithm):
    """Returns {workers: [value or None, one for each seed]} of the runs of an algorithm."""
    runs = json.loads(pathlib.Path(directory, "report.json").read_text())["runs"]
    runs = [run for run in runs if run["algorithm"] == algorithm]
    if not runs:
        sys.exit(f"{directory} has no runs of {algorithm}")
    alone = {run["seed"]: run["samples_per_second"] for run in runs if run["workers"] == 1}
    values = {}
    for run in sorted(runs, key=lambda run: (run["workers"], run["seed"])):
        if what == "speedup":
            value = run["samples_per_second"] / alone[run["seed"]]
        elif what == "test_error" and run["done"]:
            value = 1 - run["test_accuracy"]
        else:
            value = run.get(what)
        values.setdefault(run["workers"], []).append(value if run["done"] else None)
    return values


def merge(what, values, others):
    """Adds the values of other runs. Of two with the same number of workers, the one with more runs that are
    done remains, and of two with equally many, the one with the better mean."""
    def rank(seeds):
        there = [value for value in seeds if value is not None]
        mean = statistics.fmean(there) if there else 0
        return len(there), -mean if what in FEWER_IS_BETTER else mean

    for workers, seeds in others.items():
        if workers not in values or rank(seeds) > rank(values[workers]):
            values[workers] = seeds


def text_of(what, value):
    if what in SHARES:
        return f"{100 * value:.2f}"
    return f"{value:.2f}" if what == "seconds_to_target" and value < 10 else f"{value:.1f}"


def table(what, lines):
    """Returns the figure's numbers in Markdown, a row for each line of the figure."""
    counts = sorted({workers for _, values in lines for workers in values})
    rows = ["| | " + " | ".join(map(str, counts)) + " |", "| --- |" + " ---: |" * len(counts)]
    for label, values in lines:
        cells = []
        for workers in counts:
            seeds = values.get(workers, [])
            there = [value for value in seeds if value is not None]
            cell = text_of(what, statistics.fmean(there)) if there else ""
            missing = len(seeds) - len(there)
            if missing:
                cell += f"{' ' if cell else ''}({'none' if not there else f'{len(there)} of {len(seeds)}'})"
            cells.append(cell)
        rows.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def y_axis(what, values):
    """Returns the lowest and the highest value of the y axis."""
    if what == "test_accuracy":
        low = math.floor(20 * min(values, default=0)) / 20
        return low if low > 0.5 else 0, 1
    if what == "test_error":
        return max(1e-3, 0.9 * min(values, default=0.01)), 1
    return 0, 1.03 * max(values, default=1)


def draw(title, what, lines, x_title, marks):
    counts = sorted({workers for _, values in lines for workers in values})
    finite = [v for _, values in lines for seeds in values.values() for v in seeds if v is not None]
    low, high = y_axis(what, finite)
    linear = what == "speedup"
    first, last = (0, counts[-1]) if linear else (math.log2(counts[0]), math.log2(counts[-1]))
    logarithmic = what == "test_error"
    figure = line_figure.Figure(
        title, AXES[what] + "; bars: lowest and highest seed", x_title,
        lambda workers: ((workers if linear else math.log2(workers)) - first) / (last - first or 1),
        (lambda value: math.log(value / low) / math.log(high / low)) if logarithmic else
        (lambda value: (value - low) / (high - low)))
    ticks = [tick for tick in ERROR_TICKS
             if low <= tick <= high] if logarithmic else line_figure.ticks(low, high, 6)
    figure.y_axis(ticks, line_figure.percent if what in SHARES else "{:g}".format)
    figure.x_axis(line_figure.ticks(0, counts[-1], 6) if linear else counts)
    if linear:
        end = min(high, counts[-1])
        figure.line([(0, 0), (end, end)], "#999", dots=False, style=' stroke-dasharray="4 4"')
        figure.note(0.45 * end, 0.45 * end, "linear", anchor="end")
    for text, at in marks:
        figure.line([(at, low), (at, high)], "#999", dots=False, style=' stroke-dasharray="4 4"')
        figure.note(at, low, "&#160;" + text)
    for i, (label, values) in enumerate(lines):
        colour = line_figure.COLOURS[i % len(line_figure.COLOURS)]
        points = []
        for workers, seeds in values.items():
            there = [value for value in seeds if value is not None]
            if there:
                points.append((workers, statistics.fmean(there)))
                figure.bar(workers, min(there), max(there), colour,
                           0 if linear else 3 * (i - (len(lines) - 1) / 2))
            if len(there) < len(seeds):
                figure.cross(workers, i, colour)
        figure.line(points, colour)
        figure.label(points[-1] if points else None, [label], colour)
    if any(value is None for _, values in lines for seeds in values.values() for value in seeds):
        figure.explain_crosses("a run diverged" if what != "seconds_to_target" else "a run missed the target")
    return figure


def main():
    if len(sys.argv) < 5 or any("=" not in line for line in sys.argv[4:]):
        sys.exit(__doc__.strip())
    out, title, what = sys.argv[1:4]
    if what not in AXES:
        sys.exit(f"{what}: expected one of {', '.join(AXES)}")
    lines, marks, minibatch = [], [], None
    for label, source in (argument.split("=", 1) for argument in sys.argv[4:]):
        if label == "--minibatch":
            minibatch = int(source)
            continue
        if label == "--mark":
            text, at = source.rsplit(":", 1)
            marks.append((text, float(at)))
            continue
        if source.startswith("@"):
            values = {int(w): [float(v)] for w, v in (point.split(":") for point in source[1:].split(","))}
        else:
            values = {}
            for runs in source.split(","):
                pattern, algorithm = runs.rsplit(":", 1)
                for directory in sorted(glob.glob(pattern)) or [pattern]:
                    merge(what, values, values_of(what, directory, algorithm))
        lines.append((label, {workers * (minibatch or 1): seeds for workers,
                              seeds in sorted(values.items())}))
    draw(title, what, lines, "samples in an update" if minibatch else "workers", marks).write(out)
    print(table(what, lines))


if __name__ == "__main__":
    main()
