"""Measures whether computing or reading limits a ResNet-18 on JPEG images, with 1 and 2 threads that read.

Trains examples/resnet18_images.textproto (random crops of 224 x 224) with one worker on generated images with
sides of 333 to 500 pixels, in 1,000 classes. Prints how long the worker waited for minibatches, relative to
the time of its steps, and how long an image took to read, decode and resize.
"""

import subprocess
import tempfile

import jobs

CLASSES = 1000
BATCH = 16
FLAGS = dict(images=2 * CLASSES, samples=8 * BATCH, threads=2, stage=False)


def run(args):
    with tempfile.TemporaryDirectory() as data, tempfile.TemporaryDirectory() as copy:
        subprocess.run(
            [
                jobs.program(args, "tests/benchmarks/write_images"),
                f"{data}/train",
                str(CLASSES),
                str(max(1, args.images // CLASSES)),
                "333",
                "500",
            ],
            check=True,
        )
        for loader_threads in (1, 2):
            summary, _ = jobs.train(
                args,
                *([f"--stage={copy}/{loader_threads}"] if args.stage else []),
                example="resnet18_images",
                threads=args.threads,
                batch_size=BATCH,
                samples=args.samples,
                data__image_folder=f"{{train: 'train' directory: '{data}' classes: {CLASSES}}}",
                data__loader_threads=loader_threads,
            )
            steps = sum(summary[part + "_seconds"] for part in ("compute", "push", "pull"))
            yield dict(
                loader_threads=loader_threads,
                samples_per_s=round(summary["samples_per_second"], 2),
                waited_of_step_time=round(summary["data_seconds"] / steps, 4),
                ms_per_image=round(1000 * summary["read_seconds"] / args.samples, 2),
                kb_per_image=round(summary["bytes_read"] / args.samples / 1000, 1),
            )
