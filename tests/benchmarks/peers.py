"""Training speed of Catchment beside other systems for distributed training, in turns on one machine.

    peers.py [--catchment=PROGRAM] [--json=FILE] [--workers=1,2] [--rounds=3] [--seconds=10]
    [--systems=downpour,...]
             [--torch=PYTHON] [--tensorflow=PYTHON]

PROGRAM is bazel-bin/cli/catchment, PYTHON an interpreter that has the package (python3 otherwise). Each
system trains the MLP 784-256-128-10 by SGD on minibatches of 128 samples, with one thread a worker, and
exchanges gradients and weights in every step:

    downpour, sync         Catchment with one server, MNIST or the drawn digits (examples/mnist_mlp.textproto)
    pytorch_ddp            PyTorch's DistributedDataParallel on gloo: workers alone, synchronous
    pytorch_rpc            a parameter server on PyTorch's RPC (TensorPipe), asynchronous: one call a step
                           takes the gradients and brings the weights back, each as one tensor
                           (peers_torch.py)
    tensorflow_ps          TensorFlow's ParameterServerStrategy with one server, asynchronous
                           (peers_tensorflow.py)

The peers take their minibatches from random samples in memory, without a copy. All processes of a run are on
the loopback interface; a run that exceeds its time limit is stopped, and its whole process group is killed at
its end. A peer that cannot be imported is named and left out.

Rows of --json: system, workers, samples_per_second (of all workers, the median over the rounds) and ratio:
Catchment's downpour with as many workers divided by this system, so above 1 where Catchment is faster.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
BATCH = 128
CATCHMENT = ("downpour", "sync")
MODULES = dict(pytorch_ddp="torch", pytorch_rpc="torch", tensorflow_ps="tensorflow")
SYSTEMS = (*CATCHMENT, *MODULES)
START_SECONDS = 90  # what a run may take beside its measurement
SAMPLES_PER_SECOND = 40000  # of one worker of Catchment, about: how many samples fill the time


def run_group(command, limit, env=None):
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


def catchment_speed(args, preset, workers):
    with tempfile.TemporaryDirectory() as out:
        command = [
            args.catchment,
            "train",
            os.path.join(ROOT, "examples", "mnist_mlp.textproto"),
            f"--workers={workers}",
            "--threads=1",
            "--evaluator=false",
            "--json",
            f"--out={out}/out",
        ]
        samples = int(SAMPLES_PER_SECOND * args.seconds * workers)
        for setting in (
            f"algorithm.preset={preset}",
            f"batch_size={BATCH}",
            f"samples={samples}",
            "checkpoint.every_updates=0",
            "optimizer.kind=SGD",
            "block_kib=1024",
        ):
            command += ["--set", setting]
        return json.loads(run_group(command, args.seconds * 10 + START_SECONDS))["samples_per_second"]


def peer_speed(args, system, workers):
    python = args.torch if MODULES[system] == "torch" else args.tensorflow
    script = os.path.join(HERE, f"peers_{MODULES[system]}.py")
    env = dict(
        os.environ,
        OMP_NUM_THREADS="1",
        GLOO_SOCKET_IFNAME="lo",
        TP_SOCKET_IFNAME="lo",
        CUDA_VISIBLE_DEVICES="",
        TF_CPP_MIN_LOG_LEVEL="2",
        PYTHONDONTWRITEBYTECODE="1",
    )
    with tempfile.TemporaryDirectory() as out:
        command = [python, script, system, str(workers), str(args.seconds), str(BATCH), out]
        return float(run_group(command, 3 * args.seconds + START_SECONDS, env))


def is_installed(args, system):
    if system in CATCHMENT:
        return True
    python = args.torch if MODULES[system] == "torch" else args.tensorflow
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec('{MODULES[system]}') is None)"
    try:
        return subprocess.run([python, "-c", code]).returncode == 0
    except OSError:
        return False


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--catchment", default=os.path.join(ROOT, "bazel-bin", "cli", "catchment"))
    parser.add_argument("--json")
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--torch", default="python3")
    parser.add_argument("--tensorflow", default="python3")
    args = parser.parse_args()
    unknown = set(args.systems.split(",")) - set(SYSTEMS)
    if unknown:
        parser.error(f"--systems: {', '.join(sorted(unknown))}: known are {', '.join(SYSTEMS)}")
    if not os.access(args.catchment, os.X_OK):
        parser.error(f"--catchment={args.catchment} is not a program: bazel build //cli:catchment makes it")
    return args


def measure(args, system, workers):
    """Samples per second; None, with the reason on standard error, where the run failed."""
    try:
        return (catchment_speed if system in CATCHMENT else peer_speed)(args, system, workers)
    except RuntimeError as error:
        print(f"{system}, {workers} workers: {error}", file=sys.stderr, flush=True)
        return None


def make_rows(workers, speeds):
    medians = {system: statistics.median(values) for system, values in speeds.items() if values}
    ours = medians.get("downpour")
    return [
        dict(
            system=system,
            workers=workers,
            samples_per_second=round(speed, 1),
            ratio=round(ours / speed, 3) if ours else None,
        )
        for system, speed in medians.items()
    ]


def main():
    args = parse_arguments()
    systems = []
    for system in args.systems.split(","):
        if is_installed(args, system):
            systems.append(system)
        else:
            print(
                f"{system}: {MODULES[system]} is not installed; it is left out", file=sys.stderr, flush=True
            )
    rows = []
    for workers in map(int, args.workers.split(",")):
        speeds = {system: [] for system in systems}
        for _ in range(args.rounds):
            for system in systems:
                speed = measure(args, system, workers)
                if speed is not None:
                    speeds[system].append(speed)
        for row in make_rows(workers, speeds):
            print(
                "{system:14} {workers} workers {samples_per_second:10.1f} samples/s, downpour / this "
                "{ratio}".format(**row),
                flush=True,
            )
            rows.append(row)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
