"""A network of dense and relu layers on the rows of CSV files, in NumPy, for jobs that have such a model."""

import numpy


class Unsupported(Exception):
    """The job asks for something that this client does not do."""


def read_table(table):
    """Returns the features and classes of the training set."""
    rows = numpy.concatenate([numpy.loadtxt(name, delimiter=",", ndmin=2) for name in table.train])
    return rows[:, :-1].astype(numpy.float32), rows[:, -1].astype(int)


class Model:
    """Layers: (weight's slice, shape, bias's slice) for a dense one, None for relu."""

    def __init__(self, job):
        self.tensors, self.layers, self.size = [], [], 0
        inputs = job.data.table.shape[0]
        for layer in job.model.layers:
            if layer.WhichOneof("kind") == "relu":
                self.layers.append(None)
                continue
            units = layer.dense.units
            weight, bias = (
                self._add(layer.name + ".weight", units, inputs),
                self._add(layer.name + ".bias", units),
            )
            self.layers.append((weight, (units, inputs), bias))
            inputs = units

    def _add(self, name, *shape):
        self.tensors.append((name, shape))
        begin, self.size = self.size, self.size + int(numpy.prod(shape))
        return slice(begin, self.size)

    def gradient(self, weights, x, labels):
        """Returns the gradient of the mean softmax cross-entropy,
        the sum of losses and the number of right samples."""
        inputs = []
        for layer in self.layers:
            inputs.append(x)
            if layer is None:
                x = numpy.maximum(x, 0)
            else:
                weight, shape, bias = layer
                x = x @ weights[weight].reshape(shape).T + weights[bias]
        rows = numpy.arange(len(labels))
        p = numpy.exp(x - x.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        loss, correct = float(-numpy.log(p[rows, labels]).sum()), int((p.argmax(axis=1) == labels).sum())
        p[rows, labels] -= 1
        return self._backward(weights, inputs, p / numpy.float32(len(labels))), loss, correct

    def _backward(self, weights, inputs, delta):
        gradient = numpy.zeros(self.size, numpy.float32)
        for layer, x in zip(reversed(self.layers), reversed(inputs)):
            if layer is None:
                delta = delta * (x > 0)
            else:
                weight, shape, bias = layer
                gradient[weight], gradient[bias] = (delta.T @ x).ravel(), delta.sum(axis=0)
                delta = delta @ weights[weight].reshape(shape)
        return gradient
