#!/usr/bin/env python3
"""Compares `catchment simulate` with runs of `catchment compare` on this machine,
and prints the table of docs/results/simulation.md.

    CATCHMENT_DATA=/data tests/simulation/check_against_runs.py OUT_DIR [JOB...]

JOB: synthetic (steps of 50 ms that sleep, log-normal with sigma 0.3) or mnist_mlp
(examples/mnist_mlp.textproto, every worker made 30 times slower, so that eight of them do not share two
processors; three seeds). Default: both. They take about 5 and 15 minutes. The simulation of synthetic knows
the job alone; that of mnist_mlp takes the time of a step from the measured run with the same algorithm,
number of workers and seed (--from). CATCHMENT: the command, default bazel-bin/cli/catchment.

Exit code: 0 if samples a second and the mean and the 99th percentile of the staleness are within 10 % of the
measured ones, or one version, and the accuracy within the spread over seeds; 1 otherwise.
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ALGORITHMS = ["sync", "sync_backup", "downpour", "ssp", "easgd", "local_sgd"]
WORKERS = [1, 2, 4, 8]
NETWORK = "10Gbit:50us"
BATCH = 64
SYNTHETIC = """name: "synthetic_50ms"
model { synthetic { parameters: 100000 step_ms: 50 spread: 0.3 } }
data { synthetic { samples: 1000000 } }
batch_size: 64
"""
SLOWER = 30
TOLERANCE = 0.1
LEAST_ACCURACY = 0.005  # of a difference that counts


def run(command, log):
    with open(log, "a") as file:
        return subprocess.run(command, stdout=file, stderr=subprocess.STDOUT).returncode


def summary(directory, algorithm, workers, seed):
    try:
        result = json.loads(
            (directory / f"runs/{algorithm}-{workers}-workers-seed-{seed}/summary.json").read_text()
        )
    except FileNotFoundError:
        return None
    return result if result["phase"] == "DONE" else None


class Case:
    def __init__(self, name, out, steps, seeds):
        self.name, self.steps, self.seeds = name, steps, seeds
        self.out = out / name
        self.out.mkdir(parents=True, exist_ok=True)
        self.catchment = os.environ.get("CATCHMENT", "bazel-bin/cli/catchment")

    def budget(self, workers):
        return f"--budget=samples:{BATCH * self.steps * (workers if self.name == 'synthetic' else 1)}"

    def job(self, workers):
        if self.name == "synthetic":
            path = self.out / "job.textproto"
            path.write_text(SYNTHETIC)
            return [str(path)]
        return ["examples/mnist_mlp.textproto"]

    def measure(self, algorithm, workers):
        slower = [] if self.name == "synthetic" else [f"--straggler={w}:{SLOWER}x" for w in range(workers)]
        directory = self.out / f"measured-{algorithm}-{workers}"
        run(
            [
                self.catchment,
                "compare",
                *self.job(workers),
                f"--algorithms={algorithm}",
                f"--workers={workers}",
                f"--seeds={self.seeds}",
                self.budget(workers),
                *slower,
                f"--out={directory}",
            ],
            self.out / "log",
        )
        return [summary(directory, algorithm, workers, seed) for seed in range(1, self.seeds + 1)]

    def simulate(self, algorithm, workers):
        measured = self.out / f"measured-{algorithm}-{workers}"
        results = []
        for seed in range(1, self.seeds + 1):
            source = []
            if self.name != "synthetic":
                source = [f"--from={measured}/runs/{algorithm}-{workers}-workers-seed-{seed}"]
            directory = self.out / f"simulated-{algorithm}-{workers}-{seed}"
            run(
                [
                    self.catchment,
                    "simulate",
                    *self.job(workers),
                    f"--algorithms={algorithm}",
                    f"--workers={workers}",
                    f"--seed={seed}",
                    self.budget(workers),
                    f"--network={NETWORK}",
                    *source,
                    f"--out={directory}",
                    "--overwrite",
                ],
                self.out / "log",
            )
            results.append(summary(directory, algorithm, workers, seed))
        return results


def mean(runs, key):
    return statistics.fmean(one[key] for one in runs)


def cell(measured, simulated, form):
    return f"{form.format(measured)} / {form.format(simulated)}"


def compare(measured, simulated):
    """Returns the cells of a row, and what is too far apart."""
    cells, wrong = [], []
    for key, form, least in (
        ("samples_per_second", "{:,.0f}", 0),
        ("staleness_mean", "{:.2f}", 1),
        ("staleness_p99", "{:.0f}", 1),
    ):
        a, b = mean(measured, key), mean(simulated, key)
        cells.append(cell(a, b, form))
        if abs(a - b) > max(TOLERANCE * a, least):
            wrong.append(key)
    if measured[0]["test_accuracy"] is None:
        return cells + [""], wrong
    a = [one["test_accuracy"] for one in measured]
    b = [one["test_accuracy"] for one in simulated]
    cells.append(cell(statistics.fmean(a), statistics.fmean(b), "{:.4f}"))
    spread = max(max(a) - min(a), max(b) - min(b), LEAST_ACCURACY)
    if abs(statistics.fmean(a) - statistics.fmean(b)) > spread:
        wrong.append("test_accuracy")
    return cells, wrong


def main():
    out = Path(sys.argv[1])
    names = sys.argv[2:] or ["synthetic", "mnist_mlp"]
    failed = False
    for name in names:
        case = Case(name, out, *((200, 1) if name == "synthetic" else (300, 3)))
        print(f"\n{name}, measured / simulated\n")
        print("| algorithm | workers | samples/s | staleness, mean | p99 | accuracy | |")
        print("| --- | ---: | ---: | ---: | ---: | ---: | --- |", flush=True)
        for algorithm in ALGORITHMS:
            for workers in WORKERS:
                measured, simulated = case.measure(algorithm, workers), case.simulate(algorithm, workers)
                if None in measured and None in simulated:
                    continue  # the algorithm does not support this number of workers, or diverges in both
                if None in measured or None in simulated:
                    cells, wrong = ["", "", "", ""], ["a run is missing"]
                else:
                    cells, wrong = compare(measured, simulated)
                failed |= bool(wrong)
                print(f"| {algorithm} | {workers} | {' | '.join(cells)} | {', '.join(wrong)} |", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
