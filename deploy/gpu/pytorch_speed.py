"""Training samples per second of PyTorch on one CUDA device, asked for in turns.

    pytorch_speed.py MODEL PRECISION BATCH_SIZE

Prints "ready" and PyTorch's version, and then, for each input line with a number of seconds, the samples per
second over that time. A step is a minibatch from pinned memory, forward, backward, and SGD with momentum on
the device. Tuned as well as we know: cuDNN chooses its algorithms by measuring, images are channels_last, 16
bits by autocast (FLOAT16 with GradScaler), TF32 for float32 products where asked for, a fused optimizer.
Times are between synchronisations.
"""

import sys
import time

import torch
from torch import nn


class Residual(nn.Module):
    def __init__(self, branch, shortcut):
        super().__init__()
        self.branch, self.shortcut = nn.Sequential(*branch), nn.Sequential(*shortcut)

    def forward(self, x):
        return torch.relu(self.branch(x) + self.shortcut(x))


def conv(channels, out, size, stride=1):
    return [nn.Conv2d(channels, out, size, stride, size // 2, bias=False), nn.BatchNorm2d(out)]


def basic(channels, out, stride):
    branch = conv(channels, out, 3, stride) + [nn.ReLU(True)] + conv(out, out, 3)
    return Residual(branch, conv(channels, out, 1, stride) if stride > 1 else [])


def resnet20():
    layers, channels = conv(3, 16, 3) + [nn.ReLU(True)], 16
    for width in (16, 32, 64):
        for block in range(3):
            layers.append(basic(channels, width, 2 if block == 0 and width > 16 else 1))
            channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def bottleneck(channels, width, stride):
    out = 4 * width
    branch = (
        conv(channels, width, 1)
        + [nn.ReLU(True)]
        + conv(width, width, 3, stride)
        + [nn.ReLU(True)]
        + conv(width, out, 1)
    )
    return Residual(branch, conv(channels, out, 1, stride) if channels != out or stride > 1 else [])


def resnet50():
    layers, channels = conv(3, 64, 7, 2) + [nn.ReLU(True), nn.MaxPool2d(3, 2, 1)], 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            layers.append(bottleneck(channels, width, 2 if block == 0 and width > 64 else 1))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class LastState(nn.Module):
    def __init__(self, inputs, units):
        super().__init__()
        self.lstm = nn.LSTM(inputs, units, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0][:, -1]


def model(name):
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
    if name == "resnet20_cifar10":
        return (3, 32, 32), 10, resnet20()
    if name == "hep_lstm":
        return (50, 19), 3, nn.Sequential(LastState(19, 50), nn.Linear(50, 3))
    return (3, 224, 224), 1000, resnet50()


def main(name, precision, batch, device="cuda"):
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "TF32"
    half = dict(BFLOAT16=torch.bfloat16, FLOAT16=torch.float16).get(precision)
    shape, classes, net = model(name)
    layout = torch.channels_last if len(shape) == 3 else torch.contiguous_format
    net = net.to(device, memory_format=layout)
    pinned = torch.randn(batch, *shape).to(memory_format=layout)
    labels = torch.randint(classes, (batch,), device=device)
    if device == "cuda":
        pinned = pinned.pin_memory()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9, fused=device == "cuda")
    scaler = torch.amp.GradScaler(device, enabled=precision == "FLOAT16")

    def step():
        x = pinned.to(device, non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype=half, enabled=half is not None):
            loss = nn.functional.cross_entropy(net(x), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    def wait():
        if device == "cuda":
            torch.cuda.synchronize()

    for _ in range(10 if device == "cuda" else 2):
        step()
    wait()
    print("ready", torch.__version__, flush=True)
    for line in sys.stdin:
        steps, start = 0, time.monotonic()
        while time.monotonic() - start < float(line):
            for _ in range(4):
                step()
            wait()
            steps += 4
        print(steps * batch / (time.monotonic() - start), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
