#!/usr/bin/env python3
"""A convolutional network on MNIST in PyTorch, trained by Catchment:

    catchment train --program="python examples/python/mnist_torch.py" --workers=2 --set batch_size=64 \
        --set optimizer.learning_rate=0.05 --set optimizer.momentum=0.9 --out=out

The four IDX files, gzipped or not, are in $CATCHMENT_DATA/mnist or in ~/.cache/catchment/mnist, where
deploy/fetch_mnist.sh puts them.
"""

import gzip
import os
import struct

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import catchment.torch as catchment

DATA = os.environ.get("CATCHMENT_DATA") or os.path.expanduser("~/.cache/catchment")


def read_idx(name):
    """Returns the tensor in an IDX file: bytes, of one dimension (labels) or three (images)."""
    path = os.path.join(DATA, "mnist", name)
    with open(path, "rb") if os.path.exists(path) else gzip.open(path + ".gz") as file:
        data = bytearray(file.read())
    dimensions = data[3]
    shape = struct.unpack_from(">%dI" % dimensions, data, 4)
    return torch.frombuffer(data, dtype=torch.uint8, offset=4 + 4 * dimensions).view(shape)


def data_set(kind):
    """Returns normalised images of 1 x 28 x 28, and their classes."""
    images, labels = read_idx(kind + "-images-idx3-ubyte"), read_idx(kind + "-labels-idx1-ubyte")
    return TensorDataset((images.float().unsqueeze(1) / 255 - 0.1307) / 0.3081, labels.long())


def network():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(9216, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


@torch.no_grad()
def score(model, test):
    """Returns the mean loss over the test set, and the number of samples classified correctly."""
    model.eval()
    loss, correct = 0.0, 0
    for x, y in DataLoader(test, batch_size=500):
        z = model(x)
        loss += F.cross_entropy(z, y, reduction="sum").item()
        correct += (z.argmax(1) == y).sum().item()
    return loss / len(test), correct


def main():
    torch.manual_seed(1)
    model, train, test = network(), data_set("train"), data_set("t10k")
    worker = catchment.join(model, train, test)
    if worker.evaluates:
        worker.evaluate(lambda: score(model, test))
    for x, y in DataLoader(worker.minibatches(), batch_size=None):
        z = model(x)
        loss = F.cross_entropy(z, y)
        loss.backward()
        worker.step(loss, correct=(z.argmax(1) == y).sum())


if __name__ == "__main__":
    main()
