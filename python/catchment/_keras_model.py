"""Reads a model and data sets for catchment.keras, and refuses those that it cannot train."""
import collections

import keras
import numpy

from ._indices import evenly

_NOT_BUILT = ("the model has no weights yet: give it a keras.Input, or pass a minibatch through it, before "
              "join()")
_NOTHING = "the model has no trainable weight, so there is nothing to train"
_CONSTRAINT = ("%s has a constraint, but the servers, which update the weights, do not apply it: put it "
               "into the layer's call()")
_OVERWRITTEN = ("%s is assigned its gradient as a value, as for float8, but the servers would treat it as a "
                "gradient: train without the float8 policy")
_NO_ARRAYS = ("the %s set has a part of type %s: give join() arrays, such as (x, y), or the number of "
              "samples, and worker.data(load) a function that returns the minibatch of their indices")
_LENGTHS = "the parts of the %s set have %s samples: give all of them the same number"
_OTHER_OPTIMIZER = ("the model is compiled with another optimizer (%s), and the servers move the weights: "
                    "call model.compile(optimizer=worker.optimizer(), ...)")
_SCALED = ("a model with policy mixed_float16 scales its loss and skips steps: use mixed_bfloat16, or "
           "compile the model with auto_scale_loss=False")
_EXECUTION = "the model is compiled with steps_per_execution=%s, but each step has an exchange with the servers: leave it at 1"
_CHANGED = "whether weight %s is trainable has changed since join(): freeze or add layers before join()"
_REPLICAS = "a tf.distribute strategy with %d replicas would repeat each step as often: start a worker for each device"


def check(model):
    """Returns the weights to train."""
    if not model.built:
        raise ValueError(_NOT_BUILT)
    variables = model.trainable_variables
    if not variables:
        raise ValueError(_NOTHING)
    for variable in variables:
        if getattr(variable, "constraint", None) is not None:
            raise ValueError(_CONSTRAINT % variable.path)
        if getattr(variable, "overwrite_with_gradient", False):
            raise ValueError(_OVERWRITTEN % variable.path)
    return list(variables)


def names_of(variables):
    """Returns the variables' paths, which are numbered if several have the same one."""
    names, count = [], collections.Counter()
    for variable in variables:
        count[variable.path] += 1
        names.append(variable.path + ("_%d" % count[variable.path] if count[variable.path] > 1 else ""))
    return names


def floats(variable):
    return numpy.asarray(keras.ops.convert_to_numpy(variable), dtype=numpy.float32)


class Data:
    """A data set: arrays with a sample for each index, or only its size."""

    def __init__(self, data, what):
        self.arrays = None
        if isinstance(data, int):
            self.size = data
            return
        self.arrays = keras.tree.map_structure(lambda part: self._as_array(part, what), data)
        sizes = sorted({len(part) for part in keras.tree.flatten(self.arrays)})
        if len(sizes) != 1:
            raise ValueError(_LENGTHS % (what, " and ".join(map(str, sizes))))
        self.size = sizes[0]

    @staticmethod
    def _as_array(part, what):
        if not getattr(part, "shape", ()):
            raise TypeError(_NO_ARRAYS % (what, type(part).__name__))
        return part if isinstance(part, numpy.ndarray) else keras.ops.convert_to_numpy(part)

    def minibatch(self, samples):
        return keras.tree.map_structure(lambda part: part[samples], self.arrays)


def check_compiled(model, optimizer, variables):
    """Checks the compiled model of a fit() that begins. Turns off XLA, which cannot call the host."""
    if isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer):
        raise ValueError(_SCALED)
    if model.optimizer is not optimizer:
        raise ValueError(_OTHER_OPTIMIZER % type(model.optimizer).__name__)
    if model.steps_per_execution != 1:
        raise ValueError(_EXECUTION % model.steps_per_execution)
    others = {id(v): v for v in variables}
    for variable in model.trainable_variables:
        if others.pop(id(variable), None) is None:
            raise ValueError(_CHANGED % variable.path)
    for variable in others.values():
        raise ValueError(_CHANGED % variable.path)
    if keras.backend.backend() == "tensorflow":
        if model.distribute_strategy.num_replicas_in_sync > 1:
            raise ValueError(_REPLICAS % model.distribute_strategy.num_replicas_in_sync)
        if model.jit_compile:
            model.jit_compile, model.train_function = False, None


def estimate_statistics(model, data, batch_size):
    """Assigns means over minibatches to batch norm's moving statistics, as the job's own models take them.
    Returns (name, variable)."""
    norms = [layer for layer in model._flatten_layers()
             if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable]
    if not norms or data.arrays is None:
        return []
    momenta = [layer.momentum for layer in norms]
    for number, samples in enumerate(evenly(data.size, batch_size)):
        for layer in norms:
            layer.momentum = number / (number + 1)  # the mean of all so far
        model(as_tuple(data.minibatch(numpy.array(samples)))[0], training=True)
    for layer, momentum in zip(norms, momenta):
        layer.momentum = momentum
    return [(variable.path.rpartition("/")[0] + name, variable) for layer in norms for name, variable in (
        (".running_mean", layer.moving_mean), (".running_var", layer.moving_variance))]


def as_tuple(minibatch):
    return tuple(minibatch) if isinstance(minibatch, (list, tuple)) else (minibatch,)
