"""Measures how much of twice one worker's speed two workers on two cores keep,
with a server on the same cores.

    two_workers.py CATCHMENT [--json=FILE] [--models=mnist_cnn,mnist_mlp] [--rounds=3]

CATCHMENT is bazel-bin/cli/catchment. Asynchronous (preset downpour), every step pushes its gradient and
fetches weights, minibatches of 128, one thread a worker. One worker and two take turns, with a server each
time; the median round counts.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
# The default of a job. With all processors busy, each further block costs more than its overlap with
# computing brings.
BLOCK_KIB = 1024
SAMPLES = dict(mnist_cnn=40000, mnist_mlp=800000)  # of one worker: some 20 seconds


def samples_per_second(catchment, model, workers):
    with tempfile.TemporaryDirectory() as out:
        command = [
            catchment,
            "train",
            os.path.join(ROOT, "examples", model + ".textproto"),
            f"--workers={workers}",
            "--threads=1",
            "--evaluator=false",
            "--json",
            f"--out={out}/out",
        ]
        for setting in (
            "algorithm.preset=downpour",
            "batch_size=128",
            f"block_kib={BLOCK_KIB}",
            f"samples={SAMPLES[model] * workers}",
            "checkpoint.every_updates=0",
        ):
            command += ["--set", setting]
        done = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        return json.loads(done.stdout)["samples_per_second"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("catchment")
    parser.add_argument("--json")
    parser.add_argument("--models", default=",".join(SAMPLES))
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    rows = []
    for model in args.models.split(","):
        rounds = [
            [samples_per_second(args.catchment, model, workers) for workers in (1, 2)]
            for _ in range(args.rounds)
        ]
        kept = statistics.median(two / (2 * one) for one, two in rounds)
        one, two = (statistics.median(column) for column in zip(*rounds))
        rows.append(
            dict(
                model=model,
                one_worker_samples_per_s=round(one, 1),
                two_workers_samples_per_s=round(two, 1),
                kept=round(kept, 3),
            )
        )
        print(
            f"{model:10} one worker {one:9.1f} samples/s, two {two:9.1f}: {kept:.2f} of twice one", flush=True
        )
    if args.json:
        with open(args.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
