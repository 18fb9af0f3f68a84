#!/usr/bin/env python3
"""python/catchment/study/options.py."""

import os
import tempfile
import unittest

import reference
from catchment.study.errors import Usage
from catchment.study.options import (
    SITE_FLAGS,
    CompareBudget,
    CompareOptions,
    budget_text,
    compare_command_line,
    straggler_text,
)

IMAGE = "--image=registry.example/catchment:0.1.0"
KUBECTL = ["--launcher=kubectl", IMAGE]

VALUES = [
    ([], dict(workers=[1, 2, 4], seeds=3, threads=1, search="halving", launcher="local")),
    (["--algorithms=easgd"], dict(algorithms=["sync", "downpour", "easgd"])),
    (["--workers=8,2"], dict(workers=[2, 8])),
    (["--target=0.97"], dict(target=0.97)),
    (["--budget=samples:120000"], dict(budget=CompareBudget(samples=120000))),
    (["--budget=samples:1e5"], dict(budget=CompareBudget(samples=100000))),
    (["--budget=seconds:2.5"], dict(budget=CompareBudget(seconds=2.5))),
    (["--straggler=1:4x", "--straggler=3:1.5"], dict(stragglers=[(1, 4.0), (3, 1.5)])),
    (["--search=none"], dict(search="none")),
    (["--set=algorithm.preset=sync"], dict(set=["algorithm.preset=sync"])),
    (
        ["--launcher=slurm", "--nodes=4", "--gpus-per-node=2", "--partition=main", "--workers=2,8"],
        dict(launcher="slurm", nodes=4, gpus_per_node=2, partition="main"),
    ),
    (["--device=CPU"], dict(device="CPU")),
]

MISTAKES = [
    ("--set=checkpoint.every_updates=9", "runs write no checkpoints"),
    ("--set=checkpoint={every_updates: 9}", "runs write no checkpoints"),
    ("--set=algorithm.preset=dana", "those of --algorithms"),
    ("--search=grid", "--search=grid: takes halving or none"),
    ("--launcher=pbs", "--launcher=pbs: takes local, slurm or kubectl"),
    ("--gpus-per-node=2", "--gpus_per_node: is for runs on Slurm"),
    ("--partition=main", "--partition: is for runs on Slurm"),
    ("--launcher=slurm|--device=cpu", "--set device=CPU"),
    ("--launcher=slurm|--stall_seconds=5", "SBATCH_TIMELIMIT"),
    (
        "--launcher=slurm|--gpus_per_node=2|--workers=3",
        "3 workers cannot be divided equally between at most 1 node with 2 GPUs each",
    ),
    ("|".join(KUBECTL) + "|--data_claim=Data", "--data_claim=Data: "),
    ("|".join(KUBECTL) + "|--nodes=2", "--nodes: is for runs on Slurm"),
    ("|".join(KUBECTL) + "|--budget=seconds:5", "with --launcher=kubectl a run ends after samples"),
    ("|".join(KUBECTL) + "|--program=train.py", "--program: is not supported with --launcher=kubectl"),
    (IMAGE, "--image: is for runs on Kubernetes; add --launcher=kubectl"),
    ("--overlay=x", "--overlay: is for runs on Kubernetes; add --launcher=kubectl"),
    ("--one_node", "--one_node: is for runs on Kubernetes; add --launcher=kubectl"),
    ("--algorithms=easgd,downpuor", "did you mean downpour?"),
    ("--algorithms=async", "did you mean downpour?"),
    ("--workers=1,0", "--workers=1,0: takes different whole numbers from 1"),
    ("--workers=2,2", "--workers=2,2: takes different whole numbers from 1"),
    ("--budget=epochs:3", "takes samples:N or seconds:N, N above 0"),
    ("--budget=3", "N above 0: did you mean samples:3?"),
    ("--budget=samples:-3", "takes a whole number of samples above 0"),
    ("--budget=samples:1.5", "takes a whole number of samples above 0"),
    ("--budget=seconds:inf", "takes a number of seconds above 0"),
    ("--straggler=1", "takes WORKER:TIMES"),
    ("--straggler=1:0.5", "takes WORKER:TIMES"),
    ("--straggler=4:2x", "--straggler=4:2x: no run has a worker 4: workers are numbered from 0"),
    ("--target=97", "above 0 and below 1"),
    ("--out=", "--out=: names no directory"),
    ("--epochs=3", "unknown flag --epochs: epochs is a field of the job: --set epochs=3"),
]


def parse(args):
    options = CompareOptions()
    compare_command_line(options).parse(args)
    return options


class OptionsTest(unittest.TestCase):
    def test_values(self):
        for args, values in VALUES:
            options = parse(["job.textproto", "--algorithms=sync,downpour", *args])
            with self.subTest(args=args):
                self.assertEqual({name: getattr(options, name) for name in values}, values)
        self.assertEqual(options.out, "out-compare")

    def test_mistakes(self):
        for args, message in MISTAKES:
            with self.subTest(args=args), self.assertRaises(Usage) as caught:
                parse(["job.textproto", "--algorithms=sync,downpour", "--out=out", *args.split("|")])
            self.assertIn(message, caught.exception.message)

    def test_kubernetes(self):
        with tempfile.TemporaryDirectory() as overlay:
            with open(os.path.join(overlay, "kustomization.yaml"), "w") as file:
                file.write("kind: Component\n")
            more = ["--overlay=" + overlay, "--one_node", "--stall_seconds=60"]
            options = parse(["job.textproto", "--algorithms=sync", *KUBECTL, *more])
            self.assertEqual(options.overlay, overlay)
        self.assertEqual(options.given_flags(SITE_FLAGS), dict(image=IMAGE[8:], one_node="true"))

    def test_texts(self):
        options = parse(["job", "--algorithms=sync", "--budget=samples:120000", "--straggler=1:4"])
        self.assertEqual(straggler_text(options.stragglers[0]), "1:4x")
        budgets = [options.budget, CompareBudget(seconds=2.5), CompareBudget()]
        self.assertEqual(list(map(budget_text, budgets)), ["samples:120000", "seconds:2.5", "the job's"])


if __name__ == "__main__":
    reference.use_binary()
    unittest.main()
