"""Measures whether computing or reading limits a ResNet-18 on JPEG images, with 1 and 2 threads that read.

    images.py CATCHMENT WRITE_IMAGES [--json=FILE] [--images=2000] [--samples=128] [--threads=2] [--stage]

CATCHMENT is bazel-bin/cli/catchment, WRITE_IMAGES bazel-bin/tests/benchmarks/write_images. Trains
examples/resnet18_images.textproto (random crops of 224 x 224) with one worker on generated images with sides
of 333 to 500 pixels, in 1,000 classes. Prints how long the worker waited for minibatches, relative to the
time of its steps, and how long an image took to read, decode and resize.
"""

import argparse
import json
import os
import subprocess
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
CLASSES = 1000
BATCH = 16


def train(args, data, loader_threads):
    with tempfile.TemporaryDirectory() as out:
        command = [
            args.catchment,
            "train",
            os.path.join(ROOT, "examples", "resnet18_images.textproto"),
            "--workers=1",
            f"--threads={args.threads}",
            "--evaluator=false",
            "--json",
            f"--out={out}/out",
        ]
        if args.stage:
            command.append(f"--stage={out}")
        for setting in (
            f"data.image_folder={{train: 'train' directory: '{data}' classes: {CLASSES}}}",
            f"data.loader_threads={loader_threads}",
            f"batch_size={BATCH}",
            f"samples={args.samples}",
            "checkpoint.every_updates=0",
        ):
            command += ["--set", setting]
        done = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("catchment")
    parser.add_argument("write_images")
    parser.add_argument("--json")
    parser.add_argument("--images", type=int, default=2 * CLASSES)
    parser.add_argument("--samples", type=int, default=8 * BATCH)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--stage", action="store_true")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as data:
        subprocess.run(
            [
                args.write_images,
                f"{data}/train",
                str(CLASSES),
                str(max(1, args.images // CLASSES)),
                "333",
                "500",
            ],
            check=True,
        )
        for loader_threads in (1, 2):
            run = train(args, data, loader_threads)
            steps = sum(run[part + "_seconds"] for part in ("compute", "push", "pull"))
            rows.append(
                dict(
                    loader_threads=loader_threads,
                    samples_per_s=round(run["samples_per_second"], 2),
                    waited_of_step_time=round(run["data_seconds"] / steps, 4),
                    ms_per_image=round(1000 * run["read_seconds"] / args.samples, 2),
                    kb_per_image=round(run["bytes_read"] / args.samples / 1000, 1),
                )
            )
            print(
                "{loader_threads} loader threads: {samples_per_s} samples/s, waited for data "
                "{waited_of_step_time} of the steps' time; an image of {kb_per_image} KB took "
                "{ms_per_image} ms".format(**rows[-1]),
                flush=True,
            )
    if args.json:
        with open(args.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
