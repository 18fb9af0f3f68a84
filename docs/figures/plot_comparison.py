#!/usr/bin/env python3
"""Draws the test accuracy over time of a comparison's runs with one number of workers, as an SVG file, with
the target and by how much the first algorithm reached it sooner than the second.

    docs/figures/plot_comparison.py out-compare/report.json OUT.svg "TITLE"

Lines: the runs, one for each seed; dots: when each reached the target. Needs nothing but Python.
"""
import json
import statistics
import sys

import line_figure


def curve(run):
    """Returns (seconds, accuracy) of each evaluation."""
    return [(point["seconds"], point["test_accuracy"]) for point in run["series"]]


def draw(title, report):
    target, answer = report["target"]["test_accuracy"], report["answer"]
    runs = [run for run in report["runs"] if run["workers"] == answer["workers"]]
    longest = max(seconds for run in runs for seconds, _ in curve(run))
    low, high = 0.9, 0.99
    figure = line_figure.Figure(title, "test accuracy, a line for each seed", "seconds of training",
                                lambda seconds: seconds / longest,
                                lambda accuracy: (accuracy - low) / (high - low))
    figure.x_axis(line_figure.ticks(0, longest, 6))
    figure.y_axis([0.9, 0.92, 0.94, 0.96, 0.98], line_figure.percent)
    reached = {}
    for colour, algorithm in zip(line_figure.COLOURS, dict.fromkeys(run["algorithm"] for run in runs)):
        own = [run for run in runs if run["algorithm"] == algorithm]
        for run in own:
            figure.line([point for point in curve(run) if point[1] >= low], colour, dots=False)
            figure.dot(run["seconds_to_target"], target, colour)
        reached[algorithm] = statistics.fmean(run["seconds_to_target"] for run in own)
        end = max((curve(run)[-1] for run in own), key=lambda point: point[0])
        figure.label(end, [algorithm,
                           f"{line_figure.percent(target)} after {reached[algorithm]:.0f} s (mean)"], colour)
    figure.line([(0, target), (longest, target)], "#555", dots=False,
                style=' stroke-dasharray="4 4" opacity="0.6"')
    figure.note(0, target, f"target: {line_figure.percent(target)}")
    first, second, ratio = answer["first"], answer["second"], answer["second_over_first"]["value"]
    middle = (reached[first] + reached[second]) / 2
    figure.note(middle, 0.98, f"{second} needs {ratio:.1f} times as long to {line_figure.percent(target)}",
                colour="#222", anchor="middle")
    return figure


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__.strip())
    with open(sys.argv[1], encoding="utf-8") as file:
        report = json.load(file)
    draw(sys.argv[3], report).write(sys.argv[2])


if __name__ == "__main__":
    main()
