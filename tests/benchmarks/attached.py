#!/usr/bin/env python3
"""Measures how much of its speed a PyTorch program keeps when a worker runs it (docs/python.md), on this
machine, in turns.

    attached.py [--json=FILE] [--python=PYTHON] [--tensorflow=PYTHON] [--seconds=10] [--rounds=3]
                [--cases=one,two,peers,empty] [--models=mnist_cnn,mnist_mlp,resnet18] [--bin=bazel-bin]

one     one attached worker against the same loop with PyTorch's own SGD, one thread each; and the server. In
        a row of its own, with join(overlap=True), as the workers of `two` and `peers` are
two     two attached workers on two cores against twice one, and against two processes of
        DistributedDataParallel (gloo)
peers   two attached workers against two workers of PyTorch RPC's and TensorFlow's parameter servers
        (peers.py), on its MLP; one that is not installed is named and left out
empty   how much longer a step takes than one of the built-in synthetic model with as many parameters, where
        neither computes: 25.6 million in 161 tensors. Without one copy of them each way, between the worker's
        memory and the program's

PYTHON is an interpreter with PyTorch, and that of --tensorflow one with TensorFlow. Workers are asynchronous
(preset downpour): every step pushes and fetches. Of all rounds the median counts. Every row of --json has
`case`, `ratio` and `promised`: a ratio is good where it is not below what is promised, that of `empty`, which
is of 3 ms, where it is not above.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

import peers

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "attached_program.py")
BATCH = 128
EMPTY_PARAMETERS = 25_600_000
EMPTY_STEPS = 60
WARM_UP = 10  # steps of attached_program.py that do not count
PROMISED_MS = 3.0


class Bench:
    def __init__(self, args):
        self.args = args
        self.rows = []

    def python(self, *arguments):
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        return subprocess.Popen(
            [self.args.python, PROGRAM, *map(str, arguments)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def local(self, model):
        return speeds(self.python("local", model, self.args.seconds).communicate()[0])

    def ddp(self, model, workers):
        with tempfile.TemporaryDirectory() as directory:
            ranks = [
                self.python("ddp", model, self.args.seconds, rank, workers, directory)
                for rank in range(workers)
            ]
            return sum(speeds(rank.communicate()[0]) for rank in ranks)

    def train(self, arguments, samples):
        """Runs a job; returns its summary and what its workers printed."""
        with tempfile.TemporaryDirectory() as directory:
            out = os.path.join(directory, "out")
            command = [
                os.path.join(ROOT, self.args.bin, "cli/catchment"),
                "train",
                *arguments,
                "--threads=1",
                "--evaluator=false",
                "--out=" + out,
            ]
            for setting in (
                "algorithm.preset=downpour",
                "batch_size=%d" % BATCH,
                "samples=%d" % samples,
                "checkpoint.every_seconds=0",
                "optimizer.learning_rate=0.001",
            ):
                command += ["--set", setting]
            environment = dict(os.environ, PYTHONPATH=os.path.join(ROOT, "python"))
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
            logs = [
                open(os.path.join(out, "logs", name))
                for name in sorted(os.listdir(out + "/logs"))
                if name.startswith("worker-")
            ]
            with open(out + "/summary.json") as file:
                return json.load(file), "".join(log.read() for log in logs)

    def attached(self, model, workers, samples, kind="overlapped"):
        """samples: that count; each worker's first ones do not,
        and there is some to spare for the slower of two."""
        samples += 2 * WARM_UP * BATCH * workers
        program = "%s %s %s %s 0" % (self.args.python, PROGRAM, kind, model)
        return speeds(self.train(["--program=" + program, "--workers=%d" % workers], samples)[1])

    def add(self, case, ratios, promised, **more):
        row = dict(case=case, ratio=round(statistics.median(ratios), 3), promised=promised, **more)
        self.rows.append(row)
        print("%-46s %6.3f  (promised: %s)" % (case, row["ratio"], promised), more or "", flush=True)

    # ---------------------------------------------------------------------------------------------- the cases

    def one(self, model):
        cases = {"attached": ("one worker", []), "overlapped": ("one worker with overlap", [])}
        plain = []
        for _ in range(self.args.rounds):
            local = self.local(model)
            plain.append(local)
            for kind, (_, ratios) in cases.items():
                ratios.append(self.attached(model, 1, local * self.args.seconds, kind) / local)
        for name, ratios in cases.values():
            self.add(
                "%s: %s / local SGD" % (model, name),
                ratios,
                0.95,
                local_ms=round(1000 * BATCH / statistics.median(plain), 1),
            )

    def two(self, model):
        kept, peers = [], []
        for _ in range(self.args.rounds):
            local = self.local(model)
            one = self.attached(model, 1, local * self.args.seconds)
            two = self.attached(model, 2, 2 * local * self.args.seconds)
            kept.append(two / (2 * one))
            peers.append(two / self.ddp(model, 2))
        self.add("%s: two workers / twice one" % model, kept, 0.85)
        self.add("%s: two workers / two DDP processes" % model, peers, 1.0)

    def peers(self):
        workers, args = (
            2,
            argparse.Namespace(
                torch=self.args.python, tensorflow=self.args.tensorflow, seconds=self.args.seconds
            ),
        )
        for system in ("pytorch_rpc", "tensorflow_ps"):
            if not peers.is_installed(args, system):
                print("%s: %s is not installed; it is left out" % (system, peers.MODULES[system]), flush=True)
                continue
            ratios = []
            for _ in range(self.args.rounds):
                samples = workers * self.local("mnist_mlp") * self.args.seconds
                theirs = peers.measure(args, system, workers)
                if theirs is not None:
                    ratios.append(self.attached("mnist_mlp", workers, samples) / theirs)
            if ratios:
                self.add("mnist_mlp: two workers / two of %s" % system, ratios, 1.0)

    def empty(self):
        samples = BATCH * EMPTY_STEPS
        steps = []
        for _ in range(self.args.rounds):
            attached = BATCH / self.attached("empty", 1, samples)
            with tempfile.NamedTemporaryFile("w", suffix=".textproto") as job:
                job.write(
                    "model { synthetic { parameters: %d step_ms: 0 } } data { synthetic { samples: %d "
                    "} }" % (EMPTY_PARAMETERS, samples)
                )
                job.flush()
                built_in = self.train([job.name], samples)[0]
            copies = 2 * BATCH / speeds(self.python("copy", "empty", 1).communicate()[0])
            steps.append((1000 * attached, BATCH * 1000 / built_in["samples_per_second"], 1000 * copies))
        attached, built_in, copies = (statistics.median(times) for times in zip(*steps))
        self.add(
            "a step without computation, beyond the built-in's and a copy each way",
            [(a - b - c) / PROMISED_MS for a, b, c in steps],
            1.0,
            attached_ms=round(attached, 1),
            built_in_ms=round(built_in, 1),
            copies_ms=round(copies, 1),
        )


def speeds(text):
    """The sum over the processes that said theirs."""
    found = [float(value) for value in re.findall(r"^speed (\S+)$", text, re.MULTILINE)]
    if not found:
        sys.exit("attached.py: the program did not say its speed; it printed:\n" + text)
    return sum(found)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--tensorflow", default="python3")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", default="one,two,peers,empty")
    parser.add_argument("--models", default="mnist_cnn,mnist_mlp,resnet18")
    parser.add_argument("--bin", default="bazel-bin")
    bench = Bench(parser.parse_args())
    cases = bench.args.cases.split(",")
    for model in bench.args.models.split(","):
        if "one" in cases:
            bench.one(model)
    if "two" in cases:
        bench.two(bench.args.models.split(",")[0])
    if "peers" in cases:
        bench.peers()
    if "empty" in cases:
        bench.empty()
    if bench.args.json:
        with open(bench.args.json, "w") as file:
            json.dump(bench.rows, file, indent=1)


if __name__ == "__main__":
    main()
