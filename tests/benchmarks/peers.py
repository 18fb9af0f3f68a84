"""Training speed of Catchment beside other systems for distributed training.

--python and --tensorflow are interpreters that have the packages. Each system trains the MLP 784-256-128-10
by SGD on minibatches of 128 samples, with one thread a worker, and exchanges gradients and weights in every
step:

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

import os
import statistics
import subprocess
import sys
import tempfile

import jobs

BATCH = 128
CATCHMENT = ("downpour", "sync")
MODULES = dict(pytorch_ddp="torch", pytorch_rpc="torch", tensorflow_ps="tensorflow")
FLAGS = dict(systems=(*CATCHMENT, *MODULES), workers=(1, 2), rounds=3, seconds=10.0)
SAMPLES_PER_SECOND = 40000  # of one worker of Catchment, about: how many samples fill the time


def catchment_speed(args, preset, workers):
    return jobs.train(
        args,
        example="mnist_mlp",
        workers=workers,
        algorithm__preset=preset,
        batch_size=BATCH,
        samples=int(SAMPLES_PER_SECOND * args.seconds * workers),
        optimizer__kind="SGD",
        block_kib=1024,
    )[0]["samples_per_second"]


def python_of(args, system):
    return args.python if MODULES[system] == "torch" else args.tensorflow


def peer_speed(args, system, workers):
    script = os.path.join(jobs.HERE, f"peers_{MODULES[system]}.py")
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
        command = [python_of(args, system), script, system, str(workers), str(args.seconds), str(BATCH), out]
        return float(jobs.run_group(command, 3 * args.seconds + jobs.START_SECONDS, env))


def is_installed(args, system):
    if system in CATCHMENT:
        return True
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec('{MODULES[system]}') is None)"
    try:
        return subprocess.run([python_of(args, system), "-c", code]).returncode == 0
    except OSError:
        return False


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


def run(args):
    systems = []
    for system in args.systems:
        if is_installed(args, system):
            systems.append(system)
        else:
            print(
                f"{system}: {MODULES[system]} is not installed; it is left out", file=sys.stderr, flush=True
            )
    for workers in args.workers:
        speeds = {system: [] for system in systems}
        for _ in range(args.rounds):
            for system in systems:
                speed = measure(args, system, workers)
                if speed is not None:
                    speeds[system].append(speed)
        yield from make_rows(workers, speeds)
