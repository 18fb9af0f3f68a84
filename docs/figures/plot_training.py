#!/usr/bin/env python3
"""Draws test accuracy over epochs of finished runs, from their metrics.jsonl, as an SVG file.

    docs/figures/plot_training.py OUT.svg "TITLE" LABEL=DIR [LABEL=DIR ...]

DIR is the --out directory of `catchment train`. Needs nothing but Python.
"""
import json
import math
import os
import sys

import line_figure


def evaluations(directory):
    """Returns (epochs, accuracy) of every evaluation, and the summary."""
    points = []
    with open(os.path.join(directory, "metrics.jsonl")) as lines:
        for line in map(json.loads, lines):
            point = (line["epochs"], line["test_accuracy"])
            if point[1] is not None and (not points or points[-1][1] != point[1]):
                points.append(point)
    with open(os.path.join(directory, "summary.json")) as file:
        return points, json.load(file)


def draw(title, runs):
    longest = max(points[-1][0] for _, points, _ in runs)
    accuracies = [accuracy for _, points, _ in runs for _, accuracy in points]
    low, high = math.floor(min(accuracies) * 200 - 1e-9) / 200, math.ceil(max(accuracies) * 200 + 1e-9) / 200
    figure = line_figure.Figure(title, "test accuracy", "epochs, over all workers together",
                                lambda epochs: epochs / longest,
                                lambda accuracy: (accuracy - low) / (high - low))
    figure.x_axis(line_figure.ticks(0, longest, 6))
    figure.y_axis(line_figure.ticks(low, high, 5), line_figure.percent)
    for (label, points, summary), colour in zip(runs, line_figure.COLOURS):
        figure.line(points, colour)
        last = points[-1][1]
        figure.label(points[-1], [f"{label} {100 * last:.2f} %",
                                  f'mean staleness {summary["staleness_mean"]:.2g} updates'], colour)
    return figure


def main():
    if len(sys.argv) < 4 or any("=" not in run for run in sys.argv[3:]):
        sys.exit(__doc__.strip())
    runs = [(label, *evaluations(directory)) for label, directory in (a.split("=", 1) for a in sys.argv[3:])]
    draw(sys.argv[2], runs).write(sys.argv[1])


if __name__ == "__main__":
    main()
