#!/usr/bin/env python3
"""A perceptron on MNIST in NumPy, trained by Catchment:

    catchment train --program="python examples/python/mnist_numpy.py" --workers=2 \
        --set algorithm.preset=downpour --set optimizer.learning_rate=0.05 --out=out

The four IDX files, gzipped or not, are in $CATCHMENT_DATA/mnist or in ~/.cache/catchment/mnist, where
deploy/fetch_mnist.sh puts them.
"""

import gzip
import os

import numpy as np

import catchment

UNITS = 128
DATA = os.environ.get("CATCHMENT_DATA") or os.path.expanduser("~/.cache/catchment")


def read_idx(name):
    """Returns the array in an IDX file: bytes, of one dimension (labels) or three (images)."""
    path = os.path.join(DATA, "mnist", name)
    if os.path.exists(path):
        with open(path, "rb") as file:
            data = file.read()
    else:
        with gzip.open(path + ".gz") as file:
            data = file.read()
    dimensions = data[3]
    shape = np.frombuffer(data, ">u4", dimensions, offset=4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def load(kind):
    """Returns images as rows of 784 normalised values, and their classes."""
    images = read_idx(kind + "-images-idx3-ubyte")
    labels = read_idx(kind + "-labels-idx1-ubyte")
    pixels = images.reshape(len(images), -1) / np.float32(255)
    return (pixels - np.float32(0.1307)) / np.float32(0.3081), labels


def initial_weights():
    """Uniform in +-1/sqrt(inputs), PyTorch's default for dense layers."""
    random = np.random.default_rng(1)
    shapes = {
        "hidden.weight": (UNITS, 784),
        "hidden.bias": (UNITS,),
        "output.weight": (10, UNITS),
        "output.bias": (10,),
    }
    return {
        name: random.uniform(-1, 1, shape) / np.sqrt(784 if name.startswith("hidden") else UNITS)
        for name, shape in shapes.items()
    }


def forward(parameters, x):
    """Returns the hidden layer's values and the logarithms of the classes' probabilities."""
    hidden = np.maximum(x @ parameters["hidden.weight"].T + parameters["hidden.bias"], 0)
    z = hidden @ parameters["output.weight"].T + parameters["output.bias"]
    z -= z.max(axis=1, keepdims=True)
    return hidden, z - np.log(np.exp(z).sum(axis=1, keepdims=True))


def mean_loss(log_p, labels):
    """Returns the mean cross-entropy, and how many samples are given the right class."""
    return -log_p[np.arange(len(labels)), labels].mean(), (log_p.argmax(axis=1) == labels).sum()


def train(worker, x, labels):
    """Writes the gradient of the mean loss over a minibatch; returns loss and right samples."""
    hidden, log_p = forward(worker.parameters, x)
    delta = np.exp(log_p)
    delta[np.arange(len(labels)), labels] -= 1
    delta /= len(labels)
    back = (delta @ worker.parameters["output.weight"]) * (hidden > 0)
    np.matmul(delta.T, hidden, out=worker.gradients["output.weight"])
    delta.sum(axis=0, out=worker.gradients["output.bias"])
    np.matmul(back.T, x, out=worker.gradients["hidden.weight"])
    back.sum(axis=0, out=worker.gradients["hidden.bias"])
    return mean_loss(log_p, labels)


def main():
    images, labels = load("train")
    test_images, test_labels = load("t10k")
    worker = catchment.join(initial_weights(), len(images), len(test_images))
    if worker.evaluates:
        worker.evaluate(lambda: mean_loss(forward(worker.parameters, test_images)[1], test_labels))
    for samples in worker.minibatches():
        worker.step(*train(worker, images[samples], labels[samples]))


if __name__ == "__main__":
    main()
