#!/usr/bin/env python3
"""Draws the momentum that asynchrony adds, measured and predicted, as an SVG file.

    bazel run -c opt //tests/conformance:measure_implicit_momentum > measured.json
    docs/figures/plot_implicit_momentum.py measured.json OUT.svg

Needs nothing but Python.
"""
import json
import math
import sys

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 360, 70, 30, 56, 55
MEASURED, PREDICTED = "#D55E00", "#0072B2"


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    rows = json.load(open(sys.argv[1]))
    most = math.log2(max(row["workers"] for row in rows))

    def x_of(workers):
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log2(workers) / most

    def y_of(momentum):
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - momentum)

    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
           f'font-size="13"><rect width="100%" height="100%" fill="white"/>',
           f'<text x="{LEFT}" y="28" font-size="16">Momentum that asynchrony adds to plain SGD</text>']
    for fifths in range(6):
        y = y_of(fifths / 5)
        svg.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>'
                   f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{fifths / 5:.1f}</text>')
    curve = " ".join(f"{x_of(2 ** (k / 20)):.1f},{y_of(1 - 2 ** (-k / 20)):.1f}" for k in range(int(20 * most) + 1))
    svg.append(f'<polyline points="{curve}" fill="none" stroke="{PREDICTED}" stroke-width="2"/>')
    for row in rows:
        x, y = x_of(row["workers"]), y_of(row["a"])
        svg.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{MEASURED}"/>'
                   f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{row["workers"]}</text>')
    svg.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">workers</text>')
    svg.append(f'<text x="{LEFT}" y="46" fill="#555">momentum, which has no unit</text>'
               f'<text x="{x_of(4) + 24:.1f}" y="{y_of(0.72):.1f}" fill="{PREDICTED}">line: predicted, 1 - 1/workers</text>'
               f'<text x="{x_of(4) + 24:.1f}" y="{y_of(0.66):.1f}" fill="{MEASURED}">dots: measured, mean of '
               f'{rows[0]["runs"]:,} runs</text>')
    with open(sys.argv[2], "w") as file:
        file.write("\n".join(svg) + "\n</svg>\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
