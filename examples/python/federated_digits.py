#!/usr/bin/env python3
"""Federated training: each worker has images of two of MNIST's ten digits, and no other worker sees them.

    catchment train --program="python examples/python/federated_digits.py" --workers=8 \
        --set algorithm.preset=fedbuff --set epochs=4 --out=out

The job counts samples in place of naming them (docs/python.md, "Streams and per-worker data"). The model
and the files are those of mnist_numpy.py.
"""

import numpy as np

import catchment
from mnist_numpy import forward, initial_weights, load, mean_loss, train

DIGITS = 10


def main():
    images, labels = load("train")
    test_images, test_labels = load("t10k")
    worker = catchment.join(initial_weights(), len(images), len(test_images))
    if worker.evaluates:
        worker.evaluate(lambda: mean_loss(forward(worker.parameters, test_images)[1], test_labels))
    first = 2 * worker.index % DIGITS
    own = np.flatnonzero((labels == first) | (labels == first + 1))
    random = np.random.default_rng([worker.seed, worker.index])
    for samples in worker.minibatches(lambda: random.permutation(own)):
        worker.step(*train(worker, images[samples], labels[samples]))


if __name__ == "__main__":
    main()
