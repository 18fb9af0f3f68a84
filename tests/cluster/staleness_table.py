#!/usr/bin/env python3
"""Shows what staleness does, and what each compensation does about it: trains one job with every constant
delay and every compensation, and writes the table and the picture of docs/results/staleness.md.

    bazel build -c opt //cli:catchment && CATCHMENT_DATA=/data tests/cluster/staleness_table.py OUT_DIR

examples/mnist_mlp.textproto with one worker, asynchronous, learning rate 0.01, momentum 0.9, batches of 64, 3
epochs. A delay is algorithm.consistency.asynchronous.emulated_delay: each push is applied that number of
versions late. Takes about ten minutes on 2 cores.
CATCHMENT: the command, default bazel-bin/cli/catchment.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

DELAYS = [0, 2, 4, 8, 16]
COMPENSATIONS = {
    "none": "none {}",
    "inverse": "inverse {}",
    "power": "power {}",
    "exponential": "exponential {}",
    "DC-ASGD": "delay_compensated {}",
    "DC-ASGD, adaptive": "delay_compensated { adaptive: true }",
    "gap-aware": "gap_aware {}",
    "momentum, open loop": "open_loop_momentum {}",
    "momentum, closed loop": "closed_loop_momentum {}",
}
# Okabe and Ito's palette, and grey: the colours stay apart for the colour-blind.
COLOURS = ["#000000", "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#F0C000", "#CC79A7", "#D55E00", "#888888"]
DASHES = ["none", "8 3", "2 2"]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 800, 380, 70, 230, 56, 55


def accuracy(catchment, out, delay, compensation):
    command = [
        catchment,
        "train",
        "examples/mnist_mlp.textproto",
        f"--out={out}",
        "--overwrite",
        "--json",
        "--workers=1",
        "--set=algorithm.preset=downpour",
        "--set=optimizer.learning_rate=0.01",
        "--set=optimizer.momentum=0.9",
        f"--set=algorithm.consistency.asynchronous.emulated_delay={delay}",
        f"--set=algorithm.compensation={{{compensation}}}",
    ]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        # Weights that become NaN end a job; that is a result too.
        print(run.stderr[-500:], file=sys.stderr)
        return None
    return json.loads(run.stdout)["test_accuracy"]


def markdown(table):
    lines = [
        "| compensation | " + " | ".join(f"delay {d}" for d in DELAYS) + " |",
        "| --- |" + " ---: |" * len(DELAYS),
    ]
    for name, row in table.items():
        cells = ["diverges" if value is None else f"{value:.3f}" for value in row]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def picture(table):
    plot_width, plot_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x_of(delay):
        return LEFT + plot_width * delay / DELAYS[-1]

    def y_of(value):
        return TOP + plot_height * (1 - value)

    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
        f'font-size="13"><rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="28" font-size="16">'
        "Test accuracy after 3 epochs with gradients that are late</text>",
    ]
    for tenths in range(0, 11, 2):
        y = y_of(tenths / 10)
        svg.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="#dddddd"/>'
            f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{10 * tenths} %</text>'
        )
    for delay in DELAYS:
        svg.append(f'<text x="{x_of(delay)}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{delay}</text>')
    svg.append(
        f'<text x="{LEFT + plot_width / 2}" y="{HEIGHT - 12}" text-anchor="middle">'
        "delay of every push, versions</text>"
    )
    # The line of a compensation whose job diverges ends before that delay, which has a cross on the axis.
    scores = {
        name: [(delay, value) for delay, value in zip(DELAYS, row) if value is not None]
        for name, row in table.items()
    }
    ends = sorted(
        (y_of(line[-1][1] if len(line) == len(DELAYS) else 0), name) for name, line in scores.items()
    )
    label_y, at = {}, 0.0
    for y, name in ends:  # labels must not lie on each other
        at = max(y, at + 16)
        label_y[name] = at
    over = max(0.0, at - (HEIGHT - BOTTOM))
    for i, (name, line) in enumerate(scores.items()):
        colour, dashes = COLOURS[i], DASHES[i % len(DASHES)]
        lost = [delay for delay, value in zip(DELAYS, table[name]) if value is None]
        points = [(x_of(delay), y_of(value)) for delay, value in line]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        y = label_y[name] - over
        svg.append(
            f'<polyline points="{path}" fill="none" '
            f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/>'
        )
        svg += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
        if lost:
            svg.append(
                f'<text x="{x_of(lost[0]):.1f}" y="{HEIGHT - BOTTOM + 5}" text-anchor="middle" '
                f'fill="{colour}">&#215;</text>'
            )
        svg.append(
            f'<line x1="{WIDTH - RIGHT + 10}" x2="{WIDTH - RIGHT + 36}" y1="{y:.1f}" y2="{y:.1f}" '
            f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/>'
        )
        words = name + (f" (diverges at {lost[0]})" if lost else "")
        svg.append(f'<text x="{WIDTH - RIGHT + 42}" y="{y + 4:.1f}" fill="{colour}">{words}</text>')
    return "\n".join(svg) + "\n</svg>\n"


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    out = Path(sys.argv[1]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    os.chdir(Path(__file__).resolve().parents[2])
    catchment = os.environ.get("CATCHMENT", "bazel-bin/cli/catchment")
    table = {}
    for name, compensation in COMPENSATIONS.items():
        table[name] = [accuracy(catchment, out / "run", delay, compensation) for delay in DELAYS]
        print(f"{name}: {table[name]}", flush=True)
    (out / "staleness.json").write_text(
        json.dumps({"delays": DELAYS, "test_accuracy": table}, indent=1) + "\n"
    )
    (out / "staleness.table.md").write_text(markdown(table))
    (out / "staleness.svg").write_text(picture(table))
    print(markdown(table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
