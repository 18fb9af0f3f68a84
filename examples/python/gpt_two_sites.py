#!/usr/bin/env python3
r"""Trains a GPT of 11 million parameters at two sites that a slow link joins: by Decoupled DiLoCo, by DiLoCo,
and with an exchange in every step, as DDP makes it. Writes what each had learned after how many seconds:

    python3 examples/python/gpt_two_sites.py --out=out-two-sites

Site 0 has the parameter server and two learners, site 1 has two more. The last learner is half as fast as the
others. The one before it is killed after a third of the time, and started again after half of it.

The sites are network namespaces of this machine, joined by a link of 100 Mbit/s and 30 ms in each direction.
This needs Linux that lets the user make namespaces, iproute2, and netem in the kernel or a build of
//tests/cluster:network_switch. Without them it says what is missing, and trains without a link. Nothing is
left on the machine but --out.
"""

import argparse
import contextlib
import glob
import importlib.util
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import time

import sites
from sites import ROOT, Failure, built, spawn

LEARNERS = (0, 0, 1, 1)  # the site of each
KILLED, SLOW = 2, 3
PATIENCE = 600  # seconds in which something must change
REST = 10  # seconds from an evaluation to the next one, at least
TEST_WINDOWS = 64
TEXT_BYTES = 4_000_000


def parse_flags():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument(
        "--out", metavar="DIR", help="a directory for the results, which must not be there yet"
    )
    parser.add_argument(
        "--text",
        metavar="FILE",
        help="what the model learns to write. Default: the sources of Python's standard library",
    )
    parser.add_argument(
        "--algorithms",
        metavar="NAME,...",
        default="decoupled_diloco,diloco,sync",
        help="of " + ", ".join(SETTINGS) + ". Default %(default)s",
    )
    for name, kind, value, metavar, text in (
        ("seconds", float, 300, "S", "of training, of each algorithm"),
        (
            "step_seconds",
            float,
            1,
            "S",
            "a step takes at least so long, by sleeping, so that learners that "
            "share the processors of this machine keep the pace of machines of their own",
        ),
        ("slower", float, 2, "N", "how many times as long a step of the slow learner takes"),
        ("mbit", float, 100, "X", "10^6 bits a second of the link"),
        ("delay_ms", float, 30, "X", "of the link, each way"),
        ("batch_size", int, 4, "N", "of a learner"),
        ("local_steps", int, 12, "N", "between two exchanges of the same weights"),
        ("learning_rate", float, 5e-4, "X", "of AdamW"),
        ("context", int, 64, "N", "of the model"),
        ("width", int, 336, "N", "of the model"),
        ("heads", int, 8, "N", "of the model"),
        ("layers", int, 8, "N", "of the model"),
    ):
        parser.add_argument(
            "--" + name, type=kind, default=value, metavar=metavar, help=text + ". Default %(default)s"
        )
    # Seconds of a step: this is a learner's program.
    parser.add_argument("--pace", type=float, help=argparse.SUPPRESS)
    return parser.parse_args()


def adamw(flags):
    return (
        "{kind: ADAMW, learning_rate: %g, clip_norm: 1, schedule { decay: CONSTANT }}" % flags.learning_rate
    )


def local_steps(flags, fields=""):
    return [
        "algorithm.contribution.pseudo_gradient={local_steps: %d, local_optimizer: %s%s}"
        % (flags.local_steps, adamw(flags), fields)
    ]


SETTINGS = {
    "decoupled_diloco": lambda flags: local_steps(flags, ", fragments: %d" % flags.local_steps),
    "streaming_diloco": lambda flags: local_steps(flags, ", fragments: %d" % max(1, flags.local_steps // 2)),
    "diloco": local_steps,
    "sync": lambda flags: ["optimizer=" + adamw(flags)],
}


def text_of(path):
    """Returns the characters that the model learns, each of one byte."""
    if path:
        with open(path, "rb") as file:
            return file.read(TEXT_BYTES).decode("latin-1")
    parts, size = [], 0
    for source in sorted(glob.glob(os.path.join(sysconfig.get_path("stdlib"), "*.py"))):
        if size < TEXT_BYTES:
            with open(source, "rb") as file:
                parts.append(file.read())
            size += len(parts[-1])
    return b"".join(parts)[:TEXT_BYTES].decode("latin-1")


def learn(flags):
    """Trains or scores, as a program of catchment_worker."""
    import torch

    import catchment.torch
    import tiny_gpt_diloco as tiny

    torch.manual_seed(1)
    shape, characters = tiny.shape_of(flags), text_of(flags.text)
    texts, tests = (tiny.Text(characters, shape.context, test=test) for test in (False, True))
    if min(len(texts), len(tests)) < 1:
        raise ValueError(
            f"the text has only {len(characters)} characters: give --text at least {10 * shape.context}"
        )
    tests = torch.utils.data.Subset(tests, range(0, len(tests), max(1, len(tests) // TEST_WINDOWS)))
    model = tiny.Gpt(len(texts.alphabet), shape)
    worker = catchment.torch.join(model, texts, tests)
    if worker.evaluates:
        tested_at = -REST

        def score():
            nonlocal tested_at
            time.sleep(max(0, min(REST, flags.seconds / 10) - (time.monotonic() - tested_at)))
            tested_at = time.monotonic()
            return tiny.score(model, tests)

        worker.evaluate(score)
    for x, y in worker.minibatches():
        begin = time.monotonic()
        loss = tiny.mean_loss(model, x, y)
        loss.backward()
        time.sleep(max(0, flags.pace - (time.monotonic() - begin)))
        worker.step(loss)


class Job:
    """The daemons of an algorithm's job."""

    def __init__(self, flags, algorithm, sites, out):
        self.flags, self.algorithm, self.sites, self.out = flags, algorithm, sites, out
        self.processes = {}  # name -> Popen, of those that must run
        os.makedirs(os.path.join(out, "logs"))
        # The package of the checkout, if it is one.
        paths = [os.path.join(ROOT, "python"), os.environ.get("PYTHONPATH")]
        self.environment = dict(
            os.environ, OMP_NUM_THREADS="1", PYTHONPATH=os.pathsep.join(filter(None, paths))
        )

    def program(self, pace):
        flags = [word for word in sys.argv[1:] if not word.startswith("--pace")]
        return "--program=" + shlex.join(
            [sys.executable, os.path.abspath(__file__), *flags, f"--pace={pace:g}"]
        )

    def log_of(self, name):
        return os.path.join(self.out, "logs", name + ".log")

    def write(self):
        """Writes the job's file: without an end, because this program ends it."""
        step = len(LEARNERS) * self.flags.batch_size
        fields = [
            f"algorithm.preset={self.algorithm}",
            *SETTINGS[self.algorithm](self.flags),
            "shared_memory=false",
            "device=CPU",
            f"batch_size={self.flags.batch_size}",
            "epochs=1000000",
            f"evaluation.every_epochs={self.every(step):.9f}",
        ]
        done = subprocess.run(
            [
                find("catchment"),
                "validate",
                self.program(0),
                f"--workers={len(LEARNERS)}",
                f"--write={self.out}/job.textproto",
                *("--set=" + field for field in fields),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment,
        )
        if done.returncode != 0:
            raise Failure(f"the description of the job failed: {done.stdout.strip()}")

    def every(self, samples):
        """Returns samples as a share of an epoch."""
        characters = len(text_of(self.flags.text))
        return samples / max(1, characters // (self.flags.context // 2) * 7 // 10)

    def start(self, name, site, *command):
        with open(self.log_of(name), "ab") as log:
            self.processes[name] = spawn(
                [*self.sites.prefix(site), *command], stdout=log, stderr=log, env=self.environment
            )

    def start_all(self):
        self.start(
            "server",
            0,
            find("catchment_server"),
            f"--job={self.out}/job.textproto",
            "--index=0",
            "--servers=" + self.sites.master,
            "--out=" + self.out,
            "--evaluators=1",
            "--insecure",
        )
        for learner in range(len(LEARNERS)):
            self.start_learner(learner)
        self.start_worker("evaluator", 0, 0, "--role=evaluator")

    def start_learner(self, learner):
        pace = self.flags.step_seconds * (self.flags.slower if learner == SLOW else 1)
        self.start_worker(f"learner{learner}", LEARNERS[learner], pace)

    def start_worker(self, name, site, pace, *options):
        self.start(
            name,
            site,
            find("catchment_worker"),
            "--master=" + self.sites.master,
            "--insecure",
            *options,
            self.program(pace),
        )

    def kill(self, name):
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def status(self):
        """Returns what `catchment status` says, {} while the master does not answer. Raises Failure if a
        process has ended."""
        for name, process in self.processes.items():
            if process.poll() is not None:
                raise Failure(
                    f"{self.algorithm}: {name} ended with {process.returncode}: "
                    f"{last_line(self.log_of(name))}"
                )
        done = subprocess.run(
            [*self.sites.prefix(0), find("catchment"), "status", self.sites.master, "--json", "--insecure"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def stop(self):
        """Ends the job in good order. Returns its summary."""
        self.processes["server"].terminate()
        for name, process in self.processes.items():
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                raise Failure(
                    f"{self.algorithm}: {name} does not end; its log is {self.log_of(name)}"
                ) from None
        with open(os.path.join(self.out, "summary.json"), encoding="utf-8") as file:
            return json.load(file)

    def close(self):
        for process in self.processes.values():
            process.kill()
            process.wait()


def find(name):
    """Returns the path of a program: of the checkout's build, or else of the wheel or the PATH."""
    folder = {"catchment": "cli", "catchment_server": "server", "catchment_worker": "worker"}[name]
    path = built(os.path.join(folder, name)) or shutil.which(name)
    if not path:
        raise Failure(f"there is no {name}: build Catchment with bazel build //..., or install its wheel")
    return path


def last_line(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return (file.read().strip() or "its log is empty").rsplit("\n", 1)[-1]


def losses(out):
    """Returns [[seconds, test loss], ...] of the weights that were scored."""
    points = {}
    with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            if line.get("test_loss") is not None:
                points[line["tested_at_seconds"]] = line["test_loss"]
    return sorted([seconds, loss] for seconds, loss in points.items())


def say(job, seconds, text):
    print(f"{job.algorithm:16} {seconds:5.0f} s  {text}", flush=True)


def run(job):
    """Trains until the time is over and the learner that was killed is back. Returns what is to be drawn."""
    flags, times, tested, before = job.flags, {}, None, (-1, time.monotonic())
    job.write()
    job.start_all()
    crossed = job.sites.link_bytes()
    while True:
        time.sleep(0.5)
        status = job.status()
        samples, seconds = status.get("samples", 0), status.get("wall_seconds", 0)
        if samples != before[0]:
            before = samples, time.monotonic()
        elif time.monotonic() > before[1] + PATIENCE:
            raise Failure(
                f"{job.algorithm}: nothing has changed for {PATIENCE} s; the logs are in {job.out}/logs"
            )
        working = sum(worker["steps"] > 0 for worker in status.get("workers", ()))
        if status.get("test_loss") is not None and status["tested_at_seconds"] != tested:
            tested = status["tested_at_seconds"]
            say(
                job,
                tested,
                f"{working} learners  {status['tested_at_samples']:7d} samples  test loss "
                f"{status['test_loss']:.3f}",
            )
        if "killed" not in times:
            if working == len(LEARNERS) and seconds >= flags.seconds / 3:
                job.kill(f"learner{KILLED}")
                times["killed"] = seconds
                say(job, seconds, f"learner {KILLED} killed")
        elif "back" not in times:
            if seconds >= flags.seconds / 2:
                job.start_learner(KILLED)
                times["back"] = seconds
                say(job, seconds, f"learner {KILLED} started again")
        elif working == len(LEARNERS) and tested is not None and seconds >= flags.seconds:
            break
    crossed = None if crossed is None else job.sites.link_bytes() - crossed
    summary = job.stop()
    waited = summary["push_seconds"] + summary["pull_seconds"]
    total = waited + summary["compute_seconds"] + summary["data_seconds"]
    return {
        "algorithm": job.algorithm,
        "points": losses(job.out),
        **times,
        "seconds": summary["wall_seconds"],
        "samples": summary["samples"],
        "test_loss": summary["test_loss"],
        "waited": waited / total,
        "link_bytes": crossed,
    }


def print_table(results):
    print(
        f"\n{'':16} {'test loss':>10} {'samples':>9} {'seconds':>8} "
        f"{'learners waited':>16} {'MB over the link':>17}"
    )
    for one in results:
        crossed = "" if one["link_bytes"] is None else f"{one['link_bytes'] / 1e6:.0f}"
        print(
            f"{one['algorithm']:16} {one['test_loss']:10.3f} {one['samples']:9d} {one['seconds']:8.0f} "
            f"{one['waited']:16.1%} {crossed:>17}"
        )


def write(flags, results):
    path = os.path.join(flags.out, "two_sites.json")
    link = None if results[0]["link_bytes"] is None else {"mbit": flags.mbit, "delay_ms": flags.delay_ms}
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"link": link, "runs": results}, file, indent=1)
    print(f"\nThe losses over time are in {path}")


def check(flags):
    """Raises Failure if the flags are wrong or something is missing."""
    algorithms = flags.algorithms.split(",")
    for name in algorithms:
        if name not in SETTINGS:
            raise Failure(f"--algorithms: there is no {name}, only {', '.join(SETTINGS)}")
    if not flags.out:
        raise Failure("give --out a directory for the results")
    if os.path.exists(flags.out):
        raise Failure(f"--out={flags.out} is already there: remove it, or name another directory")
    if flags.text and not os.path.isfile(flags.text):
        raise Failure(f"--text={flags.text} is not a file")
    if flags.width % flags.heads != 0:
        raise Failure(f"--width={flags.width} must be a multiple of --heads={flags.heads}")
    if importlib.util.find_spec("torch") is None:
        raise Failure(f"{sys.executable} has no PyTorch: {sys.executable} -m pip install torch")
    return algorithms


def launch(flags):
    algorithms = check(flags)
    sites.separate()
    find("catchment")
    os.makedirs(flags.out)
    results = []
    with open(os.path.join(flags.out, "switch.log"), "ab") as log, contextlib.closing(
        sites.join(flags.mbit, flags.delay_ms, log)
    ) as joined:
        for algorithm in algorithms:
            with contextlib.closing(Job(flags, algorithm, joined, os.path.join(flags.out, algorithm))) as job:
                results.append(run(job))
    print_table(results)
    write(flags, results)


def main():
    flags = parse_flags()
    if flags.pace is not None:
        learn(flags)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        launch(flags)
    except Failure as failure:
        sys.exit(f"gpt_two_sites.py: {failure}")
    except KeyboardInterrupt:
        sys.exit("gpt_two_sites.py: interrupted; all processes have been ended")


if __name__ == "__main__":
    main()
