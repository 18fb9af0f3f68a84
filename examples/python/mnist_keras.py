#!/usr/bin/env python3
"""A convolutional network on MNIST in Keras 3, trained by Catchment:

    KERAS_BACKEND=jax catchment train --program="python examples/python/mnist_keras.py" --workers=2 \
        --set batch_size=64 --set optimizer.learning_rate=0.05 --set optimizer.momentum=0.9 --out=out

The network, of 1,199,882 parameters, is that of the Keras benchmarks at NERSC. The four IDX files, gzipped or
not, are in $CATCHMENT_DATA/mnist or in ~/.cache/catchment/mnist, where deploy/fetch_mnist.sh puts them.
"""

import gzip
import os

import keras
import numpy as np
from keras import layers

import catchment.keras as catchment

DATA = os.environ.get("CATCHMENT_DATA") or os.path.expanduser("~/.cache/catchment")


def read_idx(name):
    """Returns the array in an IDX file: bytes, of one dimension (labels) or three (images)."""
    path = os.path.join(DATA, "mnist", name)
    with open(path, "rb") if os.path.exists(path) else gzip.open(path + ".gz") as file:
        data = file.read()
    dimensions = data[3]
    shape = np.frombuffer(data, ">u4", dimensions, offset=4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def load(kind):
    """Returns images of 28 x 28 x 1 with values from 0 to 1, and their classes."""
    images = read_idx(kind + "-images-idx3-ubyte")
    return images[..., np.newaxis].astype("float32") / 255, read_idx(kind + "-labels-idx1-ubyte").astype(
        "int32"
    )


def network():
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Dropout(0.25),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ]
    )


def main():
    model = network()
    worker = catchment.join(model, load("train"), test=load("t10k"))
    model.compile(optimizer=worker.optimizer(), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    if worker.evaluates:
        worker.evaluate()
    else:
        model.fit(worker.data(), callbacks=[worker.callback()], verbose=2)


if __name__ == "__main__":
    main()
