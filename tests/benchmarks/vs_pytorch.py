"""Training samples per second of Catchment and of PyTorch: same models, same machine, in turns.

    vs_pytorch.py TRAIN_SPEED [--json=FILE] [--models=mnist_cnn,...] [--threads=1,2] [--seconds=5] [--rounds=5]

Each round runs one program, then the other, for some seconds each, in processes of their own; of all rounds the
median counts. Both train by SGD with momentum on one random minibatch of 128 samples. PyTorch is tuned as well as we
know: OpenBLAS's kernels for Sapphire Rapids where the processor is one (Debian's does not know it), tcmalloc where it
is installed, oneDNN for convolutions and no gradient of the samples.
"""
import argparse
import ctypes.util
import json
import os
import statistics
import subprocess
import sys
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
BATCH = 128
JOBS = dict(mnist_cnn="mnist_cnn", mnist_mlp="mnist_mlp", hep_lstm="hep_lstm", resnet20="resnet20_cifar10")


def pytorch_model(name):
    from torch import nn
    sys.path.insert(0, os.path.join(ROOT, "tests", "worker", "model", "golden"))
    import make_golden
    if name == "mnist_cnn":
        return (1, 28, 28), 10, nn.Sequential(
            nn.Conv2d(1, 32, 3), nn.ReLU(True), nn.Conv2d(32, 64, 3), nn.ReLU(True), nn.MaxPool2d(2), nn.Dropout(0.25),
            nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(True), nn.Dropout(0.5), nn.Linear(128, 10))
    if name == "mnist_mlp":
        return (784,), 10, nn.Sequential(nn.Linear(784, 256), nn.ReLU(True), nn.Linear(256, 128), nn.ReLU(True),
                                         nn.Linear(128, 10))
    if name == "hep_lstm":
        return (50, 19), 3, nn.Sequential(make_golden.Lstm(19, 50), nn.Linear(50, 3))
    return (3, 32, 32), 10, make_golden.resnet20()


def run_pytorch(name, threads, seconds):
    import torch
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    shape, classes, net = pytorch_model(name)
    x, y = torch.randn(BATCH, *shape), torch.randint(classes, (BATCH,))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)

    def step():
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()

    for _ in range(3):
        step()
    start, samples = time.monotonic(), 0
    while time.monotonic() - start < seconds:
        step()
        samples += BATCH
    print(samples / (time.monotonic() - start))


def tuned_environment():
    env = dict(os.environ)
    with open("/proc/cpuinfo") as file:
        if "amx_tile" in file.read():
            env["OPENBLAS_CORETYPE"] = "SapphireRapids"
    malloc = ctypes.util.find_library("tcmalloc_minimal") or ctypes.util.find_library("tcmalloc")
    if malloc:
        env["LD_PRELOAD"] = malloc
    return env


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("train_speed")
    parser.add_argument("--json")
    parser.add_argument("--models", default=",".join(JOBS))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    unknown = set(args.models.split(",")) - set(JOBS)
    if unknown:
        parser.error(f"--models: {', '.join(sorted(unknown))}: known are {', '.join(JOBS)}")
    rows, env = [], tuned_environment()
    for threads in args.threads.split(","):
        for model in args.models.split(","):
            job = os.path.join(ROOT, "examples", JOBS[model] + ".textproto")
            ours = [args.train_speed, job, str(BATCH), threads, str(args.seconds)]
            theirs = [sys.executable, __file__, "--pytorch", model, threads, str(args.seconds)]
            speeds = ([], [])
            for _ in range(args.rounds):
                for command, found, environment in ((ours, speeds[0], os.environ), (theirs, speeds[1], env)):
                    found.append(float(subprocess.run(command, env=environment, check=True, text=True,
                                                      stdout=subprocess.PIPE).stdout))
            our, their = (statistics.median(s) for s in speeds)
            rows.append(dict(model=model, threads=int(threads), samples_per_s=round(our, 1),
                             pytorch_samples_per_s=round(their, 1), ratio=round(our / their, 3)))
            print(f"{model:10} {threads} threads: {our:9.1f} samples/s, PyTorch {their:9.1f}, ratio {our / their:.2f}",
                  flush=True)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--pytorch"]:
        run_pytorch(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
    else:
        main()
