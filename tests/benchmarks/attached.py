"""Measures how much of its speed a PyTorch program keeps when a worker runs it (docs/python.md).

one     one attached worker against the same loop with PyTorch's own SGD, one thread each; and the server. In
        a row of its own, with join(overlap=True), as the workers of `two` and `peers` are
two     two attached workers on two cores against twice one, and against two processes of
        DistributedDataParallel (gloo)
peers   two attached workers against two workers of PyTorch RPC's and TensorFlow's parameter servers
        (peers.py), on its MLP; one that is not installed is named and left out
exchange
        one attached worker whose own AdamW moves 24.3 million parameters between the exchanges of DiLoCo, one
        in 24 steps, against the same loop alone
empty   how much longer a step takes than one of the built-in synthetic model with as many parameters, where
        neither computes: 25.6 million in 161 tensors. Without one copy of them each way, between the worker's
        memory and the program's

--python is an interpreter with PyTorch, and --tensorflow one with TensorFlow. Workers are asynchronous
(preset downpour): every step pushes and fetches. Of all rounds the median counts. Every row of --json has
`case`, `ratio` and `promised`: a ratio is good where it is not below what is promised, that of `empty`, which
is of 3 ms, where it is not above.
"""

import os
import re
import statistics
import subprocess
import sys
import tempfile

import jobs
import peers

PROGRAM = os.path.join(jobs.HERE, "attached_program.py")
BATCH = 128
EMPTY_PARAMETERS = 25_600_000
EMPTY_STEPS = 60
EXCHANGE_STEPS = 24
WARM_UP = 10  # steps of attached_program.py that do not count
PROMISED_MS = 3.0
FLAGS = dict(
    cases=("one", "two", "peers", "exchange", "empty"),
    models=("mnist_cnn", "mnist_mlp", "resnet18"),
    seconds=10.0,
    rounds=3,
)


class Bench:
    def __init__(self, args):
        self.args = args

    def python(self, *arguments):
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        return subprocess.Popen(
            [self.args.python, PROGRAM, *map(str, arguments)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def local(self, model, kind="local"):
        return speeds(self.python(kind, model, self.args.seconds).communicate()[0])

    def ddp(self, model, workers):
        with tempfile.TemporaryDirectory() as directory:
            ranks = [
                self.python("ddp", model, self.args.seconds, rank, workers, directory)
                for rank in range(workers)
            ]
            return sum(speeds(rank.communicate()[0]) for rank in ranks)

    def train(self, *arguments, samples, workers=1, **fields):
        env = dict(os.environ, PYTHONPATH=os.path.join(jobs.ROOT, "python"))
        return jobs.train(
            self.args,
            *arguments,
            workers=workers,
            env=env,
            batch_size=BATCH,
            samples=int(samples),
            **(fields or {"optimizer__learning_rate": 0.001}),
        )

    def attached(self, model, workers, samples, kind="overlapped", **fields):
        """samples: that count; each worker's first ones do not, and there is some to spare for the slower of
        two."""
        samples += 2 * WARM_UP * BATCH * workers
        program = "%s %s %s %s 0" % (self.args.python, PROGRAM, kind, model)
        return speeds(self.train("--program=" + program, workers=workers, samples=samples, **fields)[1])

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
            yield row(
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
        yield row("%s: two workers / twice one" % model, kept, 0.85)
        yield row("%s: two workers / two DDP processes" % model, peers, 1.0)

    def peers(self):
        workers, args = 2, self.args
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
                yield row("mnist_mlp: two workers / two of %s" % system, ratios, 1.0)

    def exchange(self):
        ratios, plain = [], []
        fields = {
            "algorithm__preset": "diloco",
            "algorithm__contribution__pseudo_gradient__local_steps": EXCHANGE_STEPS,
        }
        for _ in range(self.args.rounds):
            plain.append(self.local("mlp_24m", "adamw"))
            samples = plain[-1] * self.args.seconds
            ratios.append(self.attached("mlp_24m", 1, samples, "exchange", **fields) / plain[-1])
        yield row(
            "mlp_24m: a step with AdamW between exchanges / the same loop alone",
            ratios,
            0.97,
            local_ms=round(1000 * BATCH / statistics.median(plain), 1),
        )

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
                built_in = self.train(job.name, samples=samples)[0]
            copies = 2 * BATCH / speeds(self.python("copy", "empty", 1).communicate()[0])
            steps.append((1000 * attached, BATCH * 1000 / built_in["samples_per_second"], 1000 * copies))
        attached, built_in, copies = (statistics.median(times) for times in zip(*steps))
        yield row(
            "a step without computation, beyond the built-in's and a copy each way",
            [(a - b - c) / PROMISED_MS for a, b, c in steps],
            1.0,
            attached_ms=round(attached, 1),
            built_in_ms=round(built_in, 1),
            copies_ms=round(copies, 1),
        )


def row(case, ratios, promised, **more):
    return dict(case=case, ratio=round(statistics.median(ratios), 3), promised=promised, **more)


def speeds(text):
    """The sum over the processes that said theirs."""
    found = [float(value) for value in re.findall(r"^speed (\S+)$", text, re.MULTILINE)]
    if not found:
        sys.exit("attached.py: the program did not say its speed; it printed:\n" + text)
    return sum(found)


def run(args):
    bench = Bench(args)
    if "one" in args.cases:
        for model in args.models:
            yield from bench.one(model)
    if "two" in args.cases:
        yield from bench.two(args.models[0])
    if "peers" in args.cases:
        yield from bench.peers()
    if "exchange" in args.cases:
        yield from bench.exchange()
    if "empty" in args.cases:
        yield from bench.empty()
