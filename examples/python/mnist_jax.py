#!/usr/bin/env python3
"""A perceptron on MNIST in JAX, trained by Catchment:

    catchment train --program="python examples/python/mnist_jax.py" --workers=2 \
        --set algorithm.preset=downpour --set optimizer.learning_rate=0.05 --out=out

The four IDX files, gzipped or not, are in $CATCHMENT_DATA/mnist or in ~/.cache/catchment/mnist, where
deploy/fetch_mnist.sh puts them.
"""

import gzip
import os

import jax
import jax.numpy as jnp
import numpy as np

import catchment.jax as catchment

DATA = os.environ.get("CATCHMENT_DATA") or os.path.expanduser("~/.cache/catchment")
UNITS = [784, 256, 128, 10]


def read_idx(name):
    """Returns the array in an IDX file: bytes, of one dimension (labels) or three (images)."""
    path = os.path.join(DATA, "mnist", name)
    with open(path, "rb") if os.path.exists(path) else gzip.open(path + ".gz") as file:
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


def initial_params():
    keys = jax.random.split(jax.random.key(1), len(UNITS) - 1)
    return [
        {
            "kernel": jax.random.normal(key, (inputs, outputs)) * jnp.sqrt(2 / inputs),
            "bias": jnp.zeros(outputs),
        }
        for key, inputs, outputs in zip(keys, UNITS, UNITS[1:])
    ]


def mean_loss(params, x, labels):
    """Returns the mean cross-entropy, and how many samples are given the right class."""
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["kernel"] + layer["bias"])
    z = x @ params[-1]["kernel"] + params[-1]["bias"]
    log_p = jnp.take_along_axis(jax.nn.log_softmax(z), labels[:, None].astype(int), axis=1)
    return -log_p.mean(), (z.argmax(axis=1) == labels).sum()


def main():
    (x, labels), (test_x, test_labels) = load("train"), load("t10k")
    worker = catchment.join(initial_params(), x, test_x)
    if worker.evaluates:
        worker.evaluate(lambda: mean_loss(worker.params(), test_x, test_labels))
    loss_and_gradients = jax.jit(jax.value_and_grad(mean_loss, has_aux=True))
    for samples in worker.minibatches():
        (loss, correct), grads = loss_and_gradients(worker.params(), x[samples], labels[samples])
        worker.step(grads, loss, correct)


if __name__ == "__main__":
    main()
