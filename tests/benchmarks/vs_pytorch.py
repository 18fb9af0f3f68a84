"""Training samples per second of Catchment and of PyTorch: same models, same machine, in turns.

Each round runs one program, then the other, for some seconds each, in separate processes; of all rounds the
median counts. Both train by SGD with momentum on one random minibatch of 128 samples. PyTorch is tuned as
well as we know: tcmalloc where it is installed; images in the order of its channels_last, where that is
faster; and where it computes with OpenBLAS the kernels (OPENBLAS_CORETYPE) that are fastest here, which
OpenBLAS does not always choose for a processor that is newer than it. What was chosen is printed, and in the
rows of --json.

--isa=avx2 limits both programs to AVX2: oneDNN in both, and PyTorch's own kernels, MKL and OpenBLAS.
--isa=native lifts such limits. Every row names its instruction set. --python is an interpreter with
PyTorch.
"""

import ctypes.util
import json
import os
import statistics
import subprocess
import sys
import time

import jobs

BATCH = 128
IMAGES = ("mnist_cnn", "resnet20")
# The variables that limit oneDNN (by either name), PyTorch's own kernels and MKL.
AVX2 = dict(
    DNNL_MAX_CPU_ISA="AVX2",
    ONEDNN_MAX_CPU_ISA="AVX2",
    ATEN_CPU_CAPABILITY="avx2",
    MKL_ENABLE_INSTRUCTIONS="AVX2",
)
JOBS = dict(mnist_cnn="mnist_cnn", mnist_mlp="mnist_mlp", hep_lstm="hep_lstm", resnet20="resnet20_cifar10")
FLAGS = dict(isa="native", models=tuple(JOBS), threads=(1, 2), seconds=5.0, rounds=5)


def pytorch_model(name):
    from torch import nn

    sys.path.insert(0, os.path.join(jobs.ROOT, "tests", "worker", "model", "golden"))
    import make_golden

    if name == "mnist_cnn":
        return (
            (1, 28, 28),
            10,
            nn.Sequential(
                nn.Conv2d(1, 32, 3),
                nn.ReLU(True),
                nn.Conv2d(32, 64, 3),
                nn.ReLU(True),
                nn.MaxPool2d(2),
                nn.Dropout(0.25),
                nn.Flatten(),
                nn.Linear(9216, 128),
                nn.ReLU(True),
                nn.Dropout(0.5),
                nn.Linear(128, 10),
            ),
        )
    if name == "mnist_mlp":
        return (
            (784,),
            10,
            nn.Sequential(
                nn.Linear(784, 256), nn.ReLU(True), nn.Linear(256, 128), nn.ReLU(True), nn.Linear(128, 10)
            ),
        )
    if name == "hep_lstm":
        return (50, 19), 3, nn.Sequential(make_golden.Lstm(19, 50), nn.Linear(50, 3))
    return (3, 32, 32), 10, make_golden.resnet20()


def run_pytorch(name, threads, seconds, channels_last):
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    shape, classes, net = pytorch_model(name)
    x, y = torch.randn(BATCH, *shape), torch.randint(classes, (BATCH,))
    if channels_last:
        net, x = (t.to(memory_format=torch.channels_last) for t in (net, x))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)

    def step():
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()

    for _ in range(3):
        step()
    refuse_reference_blas()
    start, samples = time.monotonic(), 0
    while time.monotonic() - start < seconds:
        step()
        samples += BATCH
    print(samples / (time.monotonic() - start))


def libraries():
    with open("/proc/self/maps") as file:
        return file.read()


def refuse_reference_blas():
    if "/blas/libblas.so" in libraries():
        sys.exit(
            "PyTorch computes with the reference BLAS here, ten times slower than it could: install "
            "libopenblas0-pthread, or name another PYTHON, one with PyTorch from PyPI"
        )


def describe_pytorch():
    """Its version, and whether it computes with OpenBLAS. (NumPy loads its own in addition to MKL.)"""
    import torch

    torch.ones(2, 2) @ torch.ones(2, 2)
    print(
        json.dumps([torch.__version__, not torch.backends.mkl.is_available() and "openblas" in libraries()])
    )


def environment(isa):
    """Returns this process's environment, limited to an instruction set."""
    unlimited = {name: value for name, value in os.environ.items() if name not in AVX2}
    return dict(unlimited, **AVX2) if isa == "avx2" else unlimited


class PyTorch:
    """Runs PyTorch here."""

    def __init__(self, python, isa):
        self.python = python
        self.env = environment(isa)
        malloc = ctypes.util.find_library("tcmalloc_minimal") or ctypes.util.find_library("tcmalloc")
        if malloc:
            self.env["LD_PRELOAD"] = malloc
        self.version, openblas = json.loads(self.output(["--describe"], self.env))
        if openblas and isa == "avx2":
            self.env["OPENBLAS_CORETYPE"] = "Haswell"
        elif openblas and "OPENBLAS_CORETYPE" not in self.env:
            self.choose_kernels()
        self.channels_last = {}

    def output(self, arguments, env):
        command = [self.python, os.path.abspath(__file__), *arguments]
        return subprocess.run(command, env=env, check=True, text=True, stdout=subprocess.PIPE).stdout

    def choose_kernels(self):
        with open("/proc/cpuinfo") as file:
            flags = set(file.read().split())
        names = [
            name
            for name, flag in (
                ("Haswell", "avx2"),
                ("SkylakeX", "avx512f"),
                ("Cooperlake", "avx512_bf16"),
                ("SapphireRapids", "amx_tile"),
            )
            if flag in flags
        ]
        environments = [self.env] + [dict(self.env, OPENBLAS_CORETYPE=name) for name in names]
        self.env = max(
            environments, key=lambda env: float(self.output(["--pytorch", "mnist_mlp", "1", "1", "0"], env))
        )

    def speed(self, model, threads, seconds):
        if model not in IMAGES:
            return self.run(model, threads, seconds, False)
        if model not in self.channels_last:
            self.channels_last[model] = self.run(model, 1, 2, True) > self.run(model, 1, 2, False)
        return self.run(model, threads, seconds, self.channels_last[model])

    def run(self, model, threads, seconds, channels_last):
        return float(
            self.output(["--pytorch", model, str(threads), str(seconds), str(int(channels_last))], self.env)
        )

    def describe(self, model):
        kernels = self.env.get("OPENBLAS_CORETYPE")
        return " ".join(
            filter(
                None,
                [
                    self.version,
                    kernels and f"OPENBLAS_CORETYPE={kernels}",
                    "tcmalloc" if "LD_PRELOAD" in self.env else "",
                    "channels_last" if self.channels_last.get(model) else "",
                ],
            )
        )


def run(args):
    if args.isa not in ("native", "avx2"):
        sys.exit(f"--isa={args.isa}: known are native, avx2")
    env, pytorch = environment(args.isa), PyTorch(args.python, args.isa)
    for threads in args.threads:
        for model in args.models:
            ours = [
                jobs.program(args, "tests/benchmarks/network/train_speed"),
                os.path.join(jobs.ROOT, "examples", JOBS[model] + ".textproto"),
                str(BATCH),
                str(threads),
                str(args.seconds),
            ]
            speeds = [
                (float(jobs.run_group(ours, env=env)), pytorch.speed(model, threads, args.seconds))
                for _ in range(args.rounds)
            ]
            our, their = map(statistics.median, zip(*speeds))
            yield dict(
                model=model,
                isa=args.isa,
                threads=threads,
                samples_per_s=round(our, 1),
                pytorch_samples_per_s=round(their, 1),
                ratio=round(our / their, 3),
                pytorch=pytorch.describe(model),
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--pytorch"]:
        run_pytorch(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), sys.argv[5] == "1")
    elif sys.argv[1:2] == ["--describe"]:
        describe_pytorch()
