#!/usr/bin/env python3
"""Draws the test loss over time of the algorithms that examples/python/gpt_two_sites.py has compared, as an
SVG file, with the time in which one learner was gone.

    docs/figures/plot_two_sites.py OUT/two_sites.json FIGURE.svg

Needs nothing but Python.
"""
import json
import math
import statistics
import sys

import line_figure


def draw(results):
    runs = [run for run in results["runs"] if run["points"]]
    longest = max(run["points"][-1][0] for run in runs)
    losses = [loss for run in runs for _, loss in run["points"]]
    low, high = math.floor(2 * min(losses)) / 2, math.ceil(2 * max(losses)) / 2
    link = results["link"]
    title = f"Two sites with a link of {link['mbit']:g} Mbit/s and {link['delay_ms']:g} ms" if link else "Two sites without a link"
    figure = line_figure.Figure(title, "test loss", "seconds of training", lambda seconds: seconds / longest,
                                lambda loss: (loss - low) / (high - low))
    figure.x_axis(line_figure.ticks(0, longest, 6))
    figure.y_axis(line_figure.ticks(low, high, 6), lambda loss: f"{loss:g}")
    gone, back = (statistics.fmean(run[key] for run in runs) for key in ("killed", "back"))
    for at in (gone, back):
        figure.line([(at, low), (at, high)], "#555", dots=False,
                    style=' stroke-dasharray="4 4" opacity="0.4"')
    figure.note(gone, high, "a learner is killed, and comes back")
    for colour, run in zip(line_figure.COLOURS, runs):
        figure.line(run["points"], colour)
        figure.label(run["points"][-1], [run["algorithm"], f"test loss {run['points'][-1][1]:.2f}",
                                         f"{run['samples']} samples",
                                         f"learners waited {line_figure.percent(round(run['waited'], 3))}"],
                     colour)
    return figure


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    with open(sys.argv[1], encoding="utf-8") as file:
        draw(json.load(file)).write(sys.argv[2])


if __name__ == "__main__":
    main()
