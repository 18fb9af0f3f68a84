"""Reads a model and data sets for catchment.keras, and refuses those that it cannot train."""

import collections
from typing import Any, Counter, List, Tuple

import keras
import numpy

from . import _counts, _groups
from ._indices import evenly
from ._warnings import warn

_NOT_BUILT = (
    "the model has no weights yet: give it a keras.Input, or pass a minibatch through it, before join()"
)
_NOTHING = "the model has no trainable weight, so there is nothing to train"
_CONSTRAINT = (
    "%s has a constraint, but the servers, which update the weights, do not apply it: put it "
    "into the layer's call()"
)
_OVERWRITTEN = (
    "%s is assigned its gradient as a value, as for float8, but the servers would treat it as a "
    "gradient: train without the float8 policy"
)
_NO_ARRAYS = (
    "the %s set has a part of type %s: give join() arrays, such as (x, y), or the number of "
    "samples, and worker.data(load) a function that returns the minibatch of their indices"
)
_LENGTHS = "the parts of the %s set have %s samples: give all of them the same number"
_OTHER_OPTIMIZER = (
    "the model is compiled with another optimizer (%s), and the servers move the weights: "
    "call model.compile(optimizer=worker.optimizer(), ...)"
)
_SCALED = (
    "a model with policy mixed_float16 scales its loss and skips steps: use mixed_bfloat16, or "
    "compile the model with auto_scale_loss=False"
)
_EXECUTION = (
    "the model is compiled with steps_per_execution=%s, but each step has an exchange with the servers: "
    "leave it at 1"
)
_CHANGED = "whether weight %s is trainable has changed since join(): freeze or add layers before join()"
_REPLICAS = (
    "a tf.distribute strategy with %d replicas would repeat each step as often: start a worker "
    "for each device"
)
_NO_SAMPLES = (
    "the moving statistics of %s and other layers are those that the model was created with, because "
    "there are no training samples to estimate them from: give join() the arrays of the training set"
)
_NO_STATISTICS = (
    "model.safetensors will not have the moving statistics of %s, because an evaluator's program "
    "estimates them, and this job has no evaluator: give join() test=(x_test, y_test) and call "
    "worker.evaluate(), or save the model in the program after fit()"
)
_NO_BUFFERS = (
    "model.safetensors will not have %s, which no gradient moves. If they change in training, each worker "
    "has its own: save the model of one in the program after fit(), if worker.index == 0"
)
_MOST_NAMES = 3
_CALLBACK = "fit() got the callback %s, which %s"
_REFUSED = {
    "LearningRateScheduler": (
        "would set the learning rate, but the job sets the learning rate: set optimizer.learning_rate and "
        "optimizer.schedule in the job"
    ),
    "ReduceLROnPlateau": (
        "would set the learning rate, but the job sets the learning rate: set "
        "optimizer.schedule.decay=PLATEAU in the job, which follows the evaluator's test loss"
    ),
    "SwapEMAWeights": (
        "would put averages of the optimizer into the model, but the optimizer is the servers', which keeps "
        "none"
    ),
    "BackupAndRestore": (
        "would load weights that the servers' replace: the job has checkpoints, from which catchment train "
        "--resume continues"
    ),
}
_STOPS = (
    "fit() got the callback %s, which sees the epochs of this worker alone and ends only its fit(): to end "
    "the job, set evaluation.patience or evaluation.target_accuracy, which follow the evaluator's scores"
)
_RESTORES = (
    "%s(restore_best_weights=True) restores nothing, because after fit() the model has the job's final "
    "weights: set evaluation.keep_best, which writes those of the best score to model-best.safetensors"
)
_SAVES_BEST = (
    "fit() got the callback %s(save_best_only=True), which sees the epochs of this worker alone: set "
    "evaluation.keep_best, which writes the weights of the job's best score to model-best.safetensors"
)


def check(model: keras.Model) -> List[Any]:
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


def names_of(variables: List[Any]) -> List[str]:
    """Returns the variables' paths, which are numbered if several have the same one."""
    names: List[str] = []
    count: Counter[str] = collections.Counter()
    for variable in variables:
        count[variable.path] += 1
        names.append(variable.path + ("_%d" % count[variable.path] if count[variable.path] > 1 else ""))
    return names


def groups(given: Any, variables: List[Any]) -> List[_groups.Group]:
    """Returns the job's groups of what join got as `groups`."""
    patterns = dict(zip(map(id, variables), map(_groups.exactly, names_of(variables))))
    if isinstance(given, keras.optimizers.Optimizer):
        excluded = [variable for variable in variables if not given._use_weight_decay(variable)]
        given = [{"params": excluded, "weight_decay": 0.0}]
    return _groups.of_list(given, lambda item: item if isinstance(item, str) else patterns.get(id(item)))


def floats(variable: Any) -> Any:
    return numpy.asarray(keras.ops.convert_to_numpy(variable), dtype=numpy.float32)


class Data:
    """A data set: arrays with a sample for each index, or only its size."""

    def __init__(self, data: Any, what: str) -> None:
        self.arrays = None
        if _counts.is_number(data):
            self.size = _counts.size(data, "join's %s set" % what, 0 if what == "test" else 1)
            return
        self.arrays = keras.tree.map_structure(lambda part: self._as_array(part, what), data)
        sizes = sorted({len(part) for part in keras.tree.flatten(self.arrays)})
        if len(sizes) != 1:
            raise ValueError(_LENGTHS % (what, " and ".join(map(str, sizes))))
        self.size = sizes[0]

    @staticmethod
    def _as_array(part: Any, what: str) -> Any:
        if not getattr(part, "shape", ()):
            raise TypeError(_NO_ARRAYS % (what, type(part).__name__))
        return part if isinstance(part, numpy.ndarray) else keras.ops.convert_to_numpy(part)

    def minibatch(self, samples: Any) -> Any:
        return keras.tree.map_structure(lambda part: part[samples], self.arrays)


def check_compiled(model: keras.Model, optimizer: Any, variables: List[Any]) -> None:
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


def estimate_statistics(model: keras.Model, data: Data, batch_size: int) -> List[Tuple[str, Any]]:
    """Assigns means over minibatches to batch norm's moving statistics, as the job's own models take them,
    except to those of layers that are frozen. Returns (name, variable) of all."""
    norms = _norms(model)
    learning = [layer for layer in norms if layer.trainable and layer.momentum < 1]
    if learning and data.arrays is None:
        warn(_NO_SAMPLES % learning[0].path)
        norms = [layer for layer in norms if layer not in learning]
    elif learning:
        momenta = [layer.momentum for layer in learning]
        for number, samples in enumerate(evenly(data.size, batch_size)):
            for layer in learning:
                layer.momentum = number / (number + 1)  # the mean of all so far
            model(as_tuple(data.minibatch(numpy.array(samples)))[0], training=True)
        for layer, momentum in zip(learning, momenta):
            layer.momentum = momentum
    return [statistic for layer in norms for statistic in _statistics_of(layer)]


def lacks(model: keras.Model, evaluated: bool) -> List[str]:
    """Returns sentences about the parts of a model that will not be in its job's file of weights, beside
    layers that are frozen. evaluated: whether the job has an evaluator."""
    said, norms = [], _norms(model)
    if norms and not evaluated:
        said.append(_NO_STATISTICS % _several([layer.path for layer in norms]))
    statistics = {id(variable) for layer in norms for _, variable in _statistics_of(layer)}
    others = [
        variable.path
        for layer in model._flatten_layers()
        if layer.trainable
        for variable in getattr(layer, "_non_trainable_variables", [])
        if id(variable) not in statistics and "float" in str(variable.dtype)
    ]
    if others:
        said.append(_NO_BUFFERS % _several(others))
    return said


def _norms(model: keras.Model) -> List[Any]:
    return [layer for layer in model._flatten_layers() if isinstance(layer, keras.layers.BatchNormalization)]


def _statistics_of(layer: Any) -> List[Tuple[str, Any]]:
    """Returns (name, variable) of batch norm's, with names of PyTorch."""
    return [
        (variable.path.rpartition("/")[0] + name, variable)
        for name, variable in ((".running_mean", layer.moving_mean), (".running_var", layer.moving_variance))
    ]


def _several(names: List[str]) -> str:
    rest = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (" and %d more" % rest if rest > 0 else "")


def check_callbacks(callbacks: Any) -> None:
    """Refuses callbacks of Keras that would change the weights or the rate, and warns of those that judge by
    the epochs of one worker."""
    for callback in callbacks:
        for name, why in _REFUSED.items():
            if isinstance(callback, getattr(keras.callbacks, name, ())):
                raise ValueError(_CALLBACK % (type(callback).__name__, why))
        if isinstance(callback, keras.callbacks.EarlyStopping):
            warn(_STOPS % type(callback).__name__)
            if callback.restore_best_weights:
                callback.restore_best_weights = False
                warn(_RESTORES % type(callback).__name__)
        elif getattr(callback, "save_best_only", False):
            warn(_SAVES_BEST % type(callback).__name__)


def as_tuple(minibatch: Any) -> Tuple[Any, ...]:
    return tuple(minibatch) if isinstance(minibatch, (list, tuple)) else (minibatch,)
