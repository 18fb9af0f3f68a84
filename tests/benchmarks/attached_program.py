"""The program that attached.py runs: a training loop on random minibatches of 128 samples.

    attached_program.py KIND MODEL SECONDS [RANK WORKERS DIRECTORY]

local: with PyTorch's own SGD. ddp: as one of several processes with DistributedDataParallel on gloo.
attached: as a worker's program, until the job is over; overlapped: with join(overlap=True).
adamw: local, with AdamW; exchange: attached, with the program's AdamW. copy: copies as many values as the
model `empty` has parameters, and counts a copy as a step. Prints "speed S", samples per second of this
process, without its first steps.
MODEL: mnist_cnn; mnist_mlp, the network of peers.py; mlp_24m, a wider one; resnet18, of 11.7 million
parameters, on images of 3 x 64 x 64; or empty, 25.6 million parameters in 161 tensors, whose gradient is not
computed.
"""

import itertools
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 128
LEARNING_RATE = 0.001
WARM_UP = 10  # steps
SAMPLES = 60000  # in the training set, for the job
MLP_BATCHES = 50  # in memory; a single one would be learned by heart, until its gradients are denormal
MLP_WIDTHS = {"mnist_mlp": (256, 128), "mlp_24m": (4550, 4550)}  # the latter has 24.3 million parameters
EMPTY_TENSORS, EMPTY_PARAMETERS = 161, 25_600_000


class Block(nn.Module):
    """Two convolutions with a shortcut (He et al. 2016, arXiv:1512.03385)."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = (
            nn.Sequential()
            if stride == 1 and inputs == outputs
            else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        )

    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


def make_model(name):
    """Returns the model and its minibatches."""
    torch.manual_seed(0)
    if name in MLP_WIDTHS:
        a, b = MLP_WIDTHS[name]
        batches = [(torch.randn(BATCH, 784), torch.randint(10, (BATCH,))) for _ in range(MLP_BATCHES)]
        return nn.Sequential(
            nn.Linear(784, a), nn.ReLU(True), nn.Linear(a, b), nn.ReLU(True), nn.Linear(b, 10)
        ), batches
    labels = torch.randint(10, (BATCH,))
    if name == "mnist_cnn":
        return nn.Sequential(
            nn.Conv2d(1, 32, 3),
            nn.ReLU(True),
            nn.Conv2d(32, 64, 3),
            nn.ReLU(True),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(9216, 128),
            nn.ReLU(True),
            nn.Linear(128, 10),
        ), [(torch.randn(BATCH, 1, 28, 28), labels)]
    widths = [64, 128, 256, 512]
    blocks = [
        Block(widths[max(0, i - 1)] if j == 0 else widths[i], widths[i], 2 if j == 0 and i > 0 else 1)
        for i in range(4)
        for j in range(2)
    ]
    net = nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(True),
        nn.MaxPool2d(3, 2, 1),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(512, 1000),
    )
    return net, [(torch.randn(BATCH, 3, 64, 64), labels)]


def measure(steps, seconds=None):
    """Takes steps until they end, or for so long; returns how many a second were taken, once warm."""
    for _, _ in zip(range(WARM_UP), steps):
        pass
    start, count = time.monotonic(), 0
    for _ in steps:
        count += 1
        if seconds is not None and time.monotonic() - start >= seconds:
            break
    if count == 0:
        raise RuntimeError("there were no more than the first %d steps, which do not count" % WARM_UP)
    return count / (time.monotonic() - start)


def local_steps(model, batches, kind=torch.optim.SGD):
    optimizer = kind(model.parameters(), lr=LEARNING_RATE)
    for x, y in itertools.cycle(batches):
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        yield


def attached_steps(model, batches, kind):
    import catchment.torch as catchment

    own = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE) if kind == "exchange" else None
    worker = catchment.join(model, SAMPLES, optimizer=own, overlap=kind == "overlapped")
    for step, _ in enumerate(worker.minibatches(range(SAMPLES), collate=len)):
        x, y = batches[step % len(batches)]
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        worker.step(loss)
        yield


def empty_steps():
    import catchment

    sizes = [
        EMPTY_PARAMETERS * (i + 1) // EMPTY_TENSORS - EMPTY_PARAMETERS * i // EMPTY_TENSORS
        for i in range(EMPTY_TENSORS)
    ]
    worker = catchment.join({"part%d" % i: torch.zeros(n).numpy() for i, n in enumerate(sizes)}, SAMPLES)
    for _ in worker.minibatches():
        worker.step(0.0)
        yield


def copies():
    source, target = torch.zeros(EMPTY_PARAMETERS), torch.zeros(EMPTY_PARAMETERS)
    while True:
        target.copy_(source)
        yield


def ddp_steps_per_second(model, batches, seconds, rank, workers, directory):
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method="file://%s/store" % directory, rank=rank, world_size=workers)
    steps = local_steps(nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True), batches)
    # All take as many steps: those that fill the time of the first.
    speed = torch.tensor([measure(next(steps) for _ in range(3 * WARM_UP))])
    dist.broadcast(speed, 0)
    speed = measure(next(steps) for _ in range(WARM_UP + max(1, int(speed.item() * seconds))))
    dist.destroy_process_group()
    return speed


def main():
    kind, name, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    torch.set_num_threads(1)
    model, batches = make_model(name) if name != "empty" else (None, None)
    if kind == "copy":
        speed = measure(copies(), seconds)
    elif name == "empty":
        speed = measure(empty_steps())
    elif kind == "ddp":
        speed = ddp_steps_per_second(model, batches, seconds, int(sys.argv[4]), int(sys.argv[5]), sys.argv[6])
    elif kind in ("attached", "overlapped", "exchange"):
        speed = measure(attached_steps(model, batches, kind))
    elif kind == "adamw":
        speed = measure(local_steps(model, batches, torch.optim.AdamW), seconds)
    else:
        speed = measure(local_steps(model, batches), seconds)
    print("speed %.3f" % (speed * BATCH), flush=True)


if __name__ == "__main__":
    main()
