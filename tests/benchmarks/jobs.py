#!/usr/bin/env python3
"""Benchmarks of whole jobs and of other systems beside them, in turns on one machine.

jobs.py CASE [--json=FILE] [FLAG...]; jobs.py CASE --help describes one of
"""

import argparse
import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CASES = ("attached", "diloco_peers", "images", "peers", "two_workers", "vs_pytorch", "watching")
START_SECONDS = 600  # what a run may take beside its measurement


def run_group(command, limit=START_SECONDS, env=None):
    """Standard output of the command; kills its process group at the end, or after `limit` seconds."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, start_new_session=True
    )
    try:
        output, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"no result within {limit:.0f} s: {' '.join(command)}") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}:\n{errors[-2000:]}")
    return output


def program(args, path):
    """Returns a program of the directory --bin."""
    found = os.path.join(ROOT, args.bin, path)
    if not os.access(found, os.X_OK):
        sys.exit(f"{found} is not a program: bazel build //{':'.join(os.path.split(path))} makes it")
    return found


def train(args, *arguments, workers=1, threads=1, example=None, env=None, **settings):
    """Runs a job without an evaluator and without checkpoints, with the preset downpour unless `settings`
    have another. In their names __ stands for a point. Returns its summary and what its workers printed."""
    settings = dict(dict(algorithm__preset="downpour", checkpoint__every_updates=0), **settings)
    if example:
        arguments = (os.path.join(ROOT, "examples", example + ".textproto"), *arguments)
    with tempfile.TemporaryDirectory() as directory:
        command = [
            program(args, "cli/catchment"),
            "train",
            *arguments,
            f"--workers={workers}",
            f"--threads={threads}",
            "--evaluator=false",
            "--json",
            f"--out={directory}/out",
        ]
        for name, value in settings.items():
            command += ["--set", f"{name.replace('__', '.')}={value}"]
        summary = json.loads(run_group(command, START_SECONDS + 10 * getattr(args, "seconds", 0), env))
        texts = []
        for name in sorted(os.listdir(directory + "/out/logs")):
            if name.startswith("worker-"):
                with open(f"{directory}/out/logs/{name}") as log:
                    texts.append(log.read())
        return summary, "".join(texts)


def read_list(default):
    """Returns the function that reads numbers, or some of the names in `default`, with commas between."""

    def read(text):
        if isinstance(default[0], int):
            return [int(word) for word in text.split(",")]
        unknown = set(text.split(",")) - set(default)
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: known are {', '.join(default)}")
        return text.split(",")

    return read


def parse(name, case, words):
    """Returns the flags of a case: those of its FLAGS, which holds their defaults."""
    flags = dict(json="", bin="bazel-bin", python=sys.executable, tensorflow="python3", **case.FLAGS)
    parser = argparse.ArgumentParser(
        "jobs.py " + name, description=case.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for flag, default in flags.items():
        if default is False:
            parser.add_argument("--" + flag, action="store_true")
        elif isinstance(default, tuple):
            parser.add_argument(
                "--" + flag,
                default=list(default),
                type=read_list(default),
                metavar=",".join(map(str, default)),
            )
        else:
            parser.add_argument("--" + flag, default=default, type=type(default), metavar=default or "TEXT")
    return parser.parse_args(words)


def main(words):
    if not words or words[0] not in CASES:
        sys.exit(__doc__ + "    " + ", ".join(CASES))
    case = importlib.import_module(words[0])
    args = parse(words[0], case, words[1:])
    rows = []
    for row in case.run(args):
        rows.append(row)
        print(json.dumps(row), flush=True)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main(sys.argv[1:])
