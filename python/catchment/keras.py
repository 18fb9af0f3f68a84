"""Trains a Keras 3 model with Catchment's parameter servers. docs/keras.md begins with the lines to change.

    import catchment.keras as catchment

    worker = catchment.join(model, (x_train, y_train))
    model.compile(optimizer=worker.optimizer(), loss=..., metrics=["accuracy"])
    model.fit(worker.data(), callbacks=[worker.callback()])

Backends: JAX, PyTorch and TensorFlow.
"""

import sys
import threading
import warnings
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import keras
import numpy

from . import _attachment, _counts, _description, _indices, _keras_backend as _backend, _keras_model as _model
from ._exchange import ExchangingWorker
from ._handed import Handed
from ._warnings import warn

__all__ = ["Worker", "join"]

_NO_DATA = (
    "join() got only the size of the training set: give worker.data(load) a function that returns "
    "the minibatch of an array of indices"
)
_NO_TEST = (
    "join() got no test data: give it test=(x_test, y_test), or worker.evaluate() a function that "
    "returns the loss and the number of samples classified correctly"
)
_NO_SHARE = (
    "rename it, or give worker.evaluate() a function that returns the loss and the number of right samples"
)
_OPTIONS = (
    "worker.optimizer() takes no %s: the servers move the weights, by the job's optimizer (--set "
    "optimizer.%s=...)"
)
_JOB_FIELDS = {"clipnorm": "clip_norm", "global_clipnorm": "clip_norm", "clipvalue": "clip_value"}
_RATE = (
    "the job sets the learning rate, so changes by a callback or the program have no effect: set "
    "optimizer.learning_rate and optimizer.schedule in the job"
)
_NO_LOSS = (
    "the optimizer got gradients without a loss, so the job's metrics show 0: in your train_step or "
    "loop, call optimizer.scale_loss(loss) before optimizer.apply(...)"
)
_EVALUATOR = (
    "this program scores weights and does not train: after compile(), call worker.evaluate() if "
    "worker.evaluates"
)
_NO_CALLBACK = (
    "fit() lacks the worker's callback: call model.fit(worker.data(), callbacks=[worker.callback()])"
)
_OTHER_DATA = (
    "fit() has other data than the job's minibatches, or train_step() calls the optimizer several "
    "times for one: call model.fit(worker.data(), callbacks=[worker.callback()]), and the "
    "optimizer once, with the gradients of all weights"
)
_LOADED = (
    "weights were loaded into the model after join(), but the servers' replace them: load them before "
    "join(), which makes them the initial weights of a new job"
)
_WRITTEN = (
    "the program has changed weights of the model after join(), but the servers' replace them in every step: "
    "load weights before join(), constrain them in the layer's call(), and set weight decay in the job"
)
_OVER = "the job is over: it has no more minibatches for fit()"
_EPOCHS = (
    "fit() has epochs=%d, but the job's budget ends it (--set epochs=%d), so it is a single epoch "
    "here; pass steps_per_epoch for several"
)
_EARLY = (
    "fit() ended before the job: call it again to continue, or worker.leave() to leave the rest to "
    "other workers"
)
_LEFT_OUT = (
    "step %d was skipped: call the optimizer once for each minibatch; a loop may fetch one "
    "minibatch ahead, not more"
)
_SHUFFLE = "`shuffle=True` was passed, but will be ignored"
_PAUSE_SECONDS = 0.01
_ROUNDING = 0.01  # of weights in the lowest precision
_ROUNDING_EXACT = 1e-6  # of weights in float32 and float64
_SAMPLED = 16  # values of a weight that are compared in each step, or nearly twice as many


def join(
    model: keras.Model, train: Any, test: Any = None, master: Optional[str] = None, groups: Any = ()
) -> "Worker":
    """Joins the job that this program was started for; returns a Worker. Call it once, before compile().

    model: a keras.Model that is built. The job trains its trainable weights.
    train, test: the data sets, as arrays of the same length: (x, y), (x, y, sample_weight) or x, whose parts
    may be dictionaries and lists; or the numbers of their samples. Without `test` the job has no evaluator.
    master: "HOST:PORT" of a running job, for a notebook or a program that another launcher has started: join
    starts a worker of that job.
    groups: become optimizer.groups of a new job. Either an optimizer of Keras, which makes no step: what its
    exclude_from_weight_decay() excludes has no weight decay in the job. Or a list of dicts with "params",
    weights or patterns of their paths, and "weight_decay", "frozen", or "lr_scale", a factor of the job's
    learning rate.

    Raises RuntimeError if the program was not started by a Catchment worker and `master` is not given, or if
    its model or its data are not the job's.
    """
    _backend.check()
    variables = _model.check(model)
    train, test = _model.Data(train, "training"), _model.Data(0 if test is None else test, "test")
    tensors = list(zip(_model.names_of(variables), (tuple(v.shape) for v in variables)))
    directory = _attachment.describe_only()
    if directory is not None:
        _description.describe(
            directory,
            tensors,
            [_model.floats(v).tobytes() for v in variables],
            train.size,
            test.size,
            notes=_model.lacks(model, test.size > 0),
            groups=_model.groups(groups, variables),
        )
        _attachment.end_program()
    device = "Keras %s, %s" % (keras.__version__, keras.backend.backend())
    attachment = _attachment.Attachment(tensors, train.size, test.size, device, master=master)
    return Worker(attachment, model, variables, train, test)


@keras.saving.register_keras_serializable("catchment")
class Optimizer(keras.optimizers.Optimizer):
    """The servers' optimizer: it submits the gradients, and assigns the next weights.
    Its rate shows the job's."""

    def __init__(self, worker: "Worker") -> None:
        super().__init__(learning_rate=float(worker._attachment.learning_rate), name="catchment")
        self._worker = worker
        self.build(worker._variables)

    @property
    def learning_rate(self) -> Any:
        return self._learning_rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> Any:
        raise ValueError(_RATE)

    def scale_loss(self, loss: Any) -> Any:
        """Records the loss of a step. Keras calls it with the loss."""
        _backend.call(self._worker._note_loss, [keras.ops.cast(loss, "float32")], [])
        return loss

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        variables = self._trainable_variables if trainable_variables is None else trainable_variables
        gradients = [keras.ops.zeros(v.shape, "float32") for v in self._trainable_variables]
        for variable, gradient in zip(variables, grads):
            if gradient is not None:
                index = self._get_variable_index(variable)
                gradients[index] = keras.ops.cast(keras.ops.convert_to_tensor(gradient), "float32")
        shapes = [()] + [tuple(v.shape) for v in self._trainable_variables]
        sample = keras.ops.concatenate(
            [
                keras.ops.cast(_sampled(keras.ops.reshape(v, (-1,))), "float32")
                for v in self._trainable_variables
            ]
        )
        rate, *weights = _backend.call(self._worker._exchange_arrays, [sample] + gradients, shapes)
        for variable, values in zip([self._learning_rate] + self._trainable_variables, [rate] + weights):
            variable.assign(keras.ops.convert_to_tensor(values))
        self._iterations.assign_add(1)

    @classmethod
    def from_config(cls, config: Dict[str, Any], custom_objects: Any = None) -> Any:
        """For files of a model: an optimizer without a worker."""
        return keras.optimizers.SGD(config["learning_rate"])


class Callback(keras.callbacks.Callback):
    """Ends fit() with the job, and raises its failure there."""

    def __init__(self, worker: "Worker") -> None:
        super().__init__()
        self._worker = worker

    def set_model(self, model: keras.Model) -> None:
        super().set_model(model)
        self._worker._follow(model)
        # Keras' list of all callbacks, in which further ones get the model after this one.
        callbacks = getattr(sys._getframe(1).f_locals.get("self"), "callbacks", None)
        if isinstance(callbacks, list):
            _model.check_callbacks(callbacks)
            callbacks.append(_Last(self._worker))

    def on_train_begin(self, logs: Any = None) -> None:
        worker = self._worker
        if self.params["epochs"] > 1 and self.params["steps"] is None:
            warn(_EPOCHS % (self.params["epochs"], self.params["epochs"]))
        worker._fits = worker._loops = True
        worker._handed.note_stepping()
        if worker.steps == 0 and worker._differs():
            warn(_LOADED)
        worker._assign_weights()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._worker._due = True

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._worker._settle()
        if self._worker._attachment.stopped:
            self._model.stop_training = True

    def on_train_end(self, logs: Any = None) -> None:
        self._worker._fits = False
        if not self._worker._attachment.stopped:
            warn(_EARLY)


class _Last(keras.callbacks.Callback):
    """Ends fit() with the job's weights in the model, whatever other callbacks have put there."""

    def __init__(self, worker: "Worker") -> None:
        super().__init__()
        self._worker = worker

    def on_train_end(self, logs: Any = None) -> None:
        self._worker._assign_weights()


class Worker(ExchangingWorker):
    """This program's place in the job: like catchment.Worker, with a Keras model."""

    def __init__(
        self,
        attachment: _attachment.Attachment,
        model: keras.Model,
        variables: List[Any],
        train: _model.Data,
        test: _model.Data,
    ) -> None:
        super().__init__(attachment)
        self._model, self._variables, self._train, self._test = model, variables, train, test
        self._optimizer: Optional[Optimizer] = None
        self._fits = False  # in fit(), with the callback
        self._loss_of_step: Optional[float] = None  # of the step under way; None: not known
        self._sample: Any = None  # of the weights that the model received last
        self._warns = True  # of weights that the program writes
        exact = all(variable.dtype in ("float32", "float64") for variable in variables)
        self._rounding = _ROUNDING_EXACT if exact else _ROUNDING
        self._handed = Handed()
        self._handed.note_stepping()
        if not self.evaluates:
            for sentence in _model.lacks(model, test.size > 0):
                warn(sentence)
            self._begin_step()
            self._assign_weights()

    def optimizer(self, **options: Any) -> Optimizer:
        """Returns the servers' optimizer, for compile(). Every call returns the same one."""
        for name in options:
            raise TypeError(_OPTIONS % (name, _JOB_FIELDS.get(name, name)))
        if self._optimizer is None:
            self._optimizer = Optimizer(self)
        return self._optimizer

    def callback(self) -> Callback:
        """Returns the callback that fit() needs: it ends fit() with the job,
        and raises the job's failure there."""
        return Callback(self)

    def data(self, load: Optional[Callable[[Any], Any]] = None) -> Any:
        """Returns the minibatches that the job assigns to this worker, for fit(). load(samples): makes one,
        such as (x, y), from an array of indices; by default, the samples of the arrays given to join."""
        if self.evaluates:
            raise RuntimeError(_EVALUATOR)
        if load is None and self._train.arrays is None:
            raise TypeError(_NO_DATA)
        load = load or self._train.minibatch
        if not self._begin_step():
            raise RuntimeError(_OVER)

        self._loops = True
        warnings.filterwarnings("ignore", _SHUFFLE)  # fit()'s default, which the job's order replaces

        def load_tuple(samples: Any) -> Any:
            return None if self._attachment.stopped else _model.as_tuple(load(_indices.as_indices(samples)))

        def make() -> Iterator[Any]:
            self._handed.clear()
            return self._handed.in_turn(self._attachment, load_tuple, self._looks_ahead)

        def first() -> Any:
            return load_tuple(self._attachment.plan.samples(self._attachment.step))

        return _backend.data_set(make, first)

    def minibatches(self, stream: Any = None) -> Iterator[Any]:
        self._handed.clear()
        self._fits = False
        yield from super().minibatches(stream)

    def evaluate(self, score: Optional[Callable[[], Tuple[float, int]]] = None) -> None:
        """Calls `score` for each evaluation, until the job is over. `score` returns the mean loss over the
        test set and the number of samples classified correctly (0 if there are no classes). By default,
        model.evaluate() on the test data passed to join provides them: its loss, and its first metric with
        "acc" in the name.

        If the model has batch norm, its moving statistics are first recomputed from about 1000 training
        samples, except in layers that are frozen. The file of weights contains them.
        """
        if score is None and self._test.arrays is None:
            raise TypeError(_NO_TEST)

        def prepare() -> List[Tuple[str, bytes]]:
            self._assign_weights()
            return [
                (name, _model.floats(variable).tobytes())
                for name, variable in _model.estimate_statistics(self._model, self._train, self.batch_size)
            ]

        self._evaluate(prepare, score or self._score)

    def _score(self) -> Tuple[float, int]:
        parts = _model.as_tuple(self._test.arrays)
        logs = self._model.evaluate(
            *parts[:2], sample_weight=parts[2] if len(parts) > 2 else None, verbose=0, return_dict=True
        )
        name, accuracy = next(((name, value) for name, value in logs.items() if "acc" in name), ("", 0.0))
        return logs["loss"], _counts.right_of_share(accuracy, self._test.size, name, _NO_SHARE)

    def _looks_ahead(self, step: int) -> bool:
        """Returns whether the loop, in this thread, asks for a minibatch before the step of the one before is
        made. A loop in a thread of the framework waits until it is."""
        self._settle()
        if not self._handed.is_stepping():
            while self._attachment.step < step and not self._attachment.stopped:
                threading.Event().wait(_PAUSE_SECONDS)
            return False
        if len(self._handed) > 1:
            raise RuntimeError(_LEFT_OUT % self._attachment.step)
        return bool(self._handed)

    def _await_steps(self) -> None:
        _backend.await_steps()

    def _note_loss(self, loss: Any) -> List[Any]:
        self._loss_of_step = float(loss)
        return []

    def _exchange_arrays(self, sample: Any, *gradients: Any) -> List[Any]:
        """Returns the rate and the weights of the next step. sample: of the weights of this one."""
        loss, self._loss_of_step = self._loss_of_step, None
        if self._warns and not self._attachment.stopped and self._is_written(sample):
            self._warns = False
            warn(_WRITTEN)
        handed = self._handed.popleft() if self._handed else None
        if handed is False:
            self._due = False
            weights = self._copy_weights()
        else:
            mistake = None
            if self._fits != bool(handed):
                mistake = _OTHER_DATA if self._fits else _NO_CALLBACK
            elif loss is None:
                warn(_NO_LOSS)
            weights = self._exchange(loss or 0.0, gradients, mistake)
        return [numpy.array(self._attachment.learning_rate, dtype=numpy.float32)] + weights

    def _is_written(self, sample: Any) -> bool:
        if numpy.array_equal(sample, self._sample, equal_nan=True):
            return False
        return not numpy.allclose(
            sample, self._sample, self._rounding, self._rounding * abs(self._sample).max()
        )

    def _differs(self) -> bool:
        """Returns whether the model has other weights than the servers',
        apart from rounding to its precision."""
        return not all(
            numpy.allclose(_model.floats(variable), values, rtol=_ROUNDING)
            for variable, values in zip(self._variables, self.parameters.values())
        )

    def _copy_weights(self) -> List[Any]:
        weights = super()._copy_weights()
        self._sample = numpy.concatenate([_sampled(values.reshape(-1)) for values in weights])
        return weights

    def _assign_weights(self) -> None:
        for variable, values in zip(self._variables, self._copy_weights()):
            variable.assign(values)

    def _follow(self, model: keras.Model) -> None:
        """Checks the model of a fit() that begins."""
        self._handed.clear()  # of a fit() that has failed
        if self.evaluates:
            raise RuntimeError(_EVALUATOR)
        _model.check_compiled(model, self.optimizer(), self._variables)


def _sampled(values: Any) -> Any:
    return values[:: max(1, values.shape[0] // _SAMPLED)]
