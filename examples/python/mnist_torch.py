#!/usr/bin/env python3
"""A convolutional network on MNIST in PyTorch, trained by Catchment:

    catchment train --program="python examples/python/mnist_torch.py" --workers=2 --set batch_size=64 \
        --set optimizer.learning_rate=0.05 --set optimizer.momentum=0.9 --out=out

The four IDX files, gzipped or not, are in $CATCHMENT_DATA/mnist (deploy/fetch_mnist.sh fetches them).
"""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import catchment.torch as catchment
from mnist_numpy import load


def data_set(kind):
    images, labels = load(kind)
    return TensorDataset(torch.from_numpy(images).view(-1, 1, 28, 28), torch.from_numpy(labels.astype("int64")))


def network():
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10))


@torch.no_grad()
def score(model, test):
    """Returns the mean loss over the test set, and how many of its samples are given the right class."""
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
