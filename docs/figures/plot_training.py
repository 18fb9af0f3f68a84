#!/usr/bin/env python3
"""Draws test accuracy over epochs of finished runs, from their metrics.jsonl, as an SVG file.

    docs/figures/plot_training.py OUT.svg "TITLE" LABEL=DIR [LABEL=DIR ...]

DIR is the --out directory of `catchment train`. Needs nothing but Python.
"""
import json
import math
import os
import sys

# Okabe and Ito's palette: the colours stay apart for the colour-blind.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"]
WIDTH, HEIGHT = 780, 380
LEFT, RIGHT, TOP, BOTTOM = 70, 210, 56, 55


def evaluations(directory):
    """(epochs, accuracy) of every evaluation, and the summary."""
    points = []
    with open(os.path.join(directory, "metrics.jsonl")) as lines:
        for line in map(json.loads, lines):
            point = (line["epochs"], line["test_accuracy"])
            if point[1] is not None and (not points or points[-1][1] != point[1]):
                points.append(point)
    with open(os.path.join(directory, "summary.json")) as file:
        return points, json.load(file)


def ticks(low, high, count):
    """Round numbers from low to high, about `count` of them."""
    raw = (high - low) / count
    power = 10 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def apart(positions, distance):
    """The positions, ascending, moved so that neighbours are `distance` apart."""
    placed = []
    for position in positions:
        placed.append(max(position, placed[-1] + distance) if placed else position)
    return placed


def draw(title, runs):
    longest = max(points[-1][0] for _, points, _ in runs)
    accuracies = [accuracy for _, points, _ in runs for _, accuracy in points]
    low, high = math.floor(min(accuracies) * 200 - 1e-9) / 200, math.ceil(max(accuracies) * 200 + 1e-9) / 200
    x = lambda epochs: LEFT + epochs / longest * (WIDTH - LEFT - RIGHT)
    y = lambda accuracy: TOP + (high - accuracy) / (high - low) * (HEIGHT - TOP - BOTTOM)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
           'font-family="Helvetica, Arial, sans-serif" font-size="13" fill="#222">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{LEFT}" y="24" font-size="15" font-weight="bold">{title}</text>']
    for value in ticks(low, high, 5):
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" '
                   'stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{100 * value:.4g} %</text>')
    for value in ticks(0, longest, 6):
        out.append(f'<text x="{x(value):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{value:g}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 14}" text-anchor="middle">'
               'epochs, over all workers together</text>')
    out.append(f'<text x="{LEFT}" y="42" fill="#555">test accuracy</text>')
    order = sorted(range(len(runs)), key=lambda i: -runs[i][1][-1][1])
    label_y = dict(zip(order, apart([y(runs[i][1][-1][1]) for i in order], 34)))
    for i, (label, points, summary) in enumerate(runs):
        colour = COLOURS[i % len(COLOURS)]
        line = " ".join(f"{x(e):.1f},{y(a):.1f}" for e, a in points)
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        out += [f'<circle cx="{x(e):.1f}" cy="{y(a):.1f}" r="3.5" fill="{colour}"/>' for e, a in points]
        at = label_y[i]
        out.append(f'<text x="{WIDTH - RIGHT + 12}" y="{at:.1f}" fill="{colour}" font-weight="bold">{label} '
                   f'{100 * points[-1][1]:.2f} %</text>')
        out.append(f'<text x="{WIDTH - RIGHT + 12}" y="{at + 15:.1f}" fill="#555" font-size="12">'
                   f'mean staleness {summary["staleness_mean"]:.2g} updates</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    if len(sys.argv) < 4 or any("=" not in run for run in sys.argv[3:]):
        sys.exit(__doc__.strip())
    runs = [(label, *evaluations(directory)) for label, directory in (a.split("=", 1) for a in sys.argv[3:])]
    with open(sys.argv[1], "w") as file:
        file.write(draw(sys.argv[2], runs))


if __name__ == "__main__":
    main()
