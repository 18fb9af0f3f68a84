"""Trains a model of your own with Catchment's parameter servers: this module for NumPy and for gradients from
anywhere, catchment.torch for PyTorch, catchment.keras and catchment.jax. docs/python.md begins with examples.

    import catchment

    worker = catchment.join({"weight": weight, "bias": bias}, train_samples=len(inputs))
    for samples in worker.minibatches():              # indices into the training set, until the job is over
        loss, gradients = ...                         # at worker.parameters["weight"], worker.parameters["bias"]
        worker.gradients["weight"][...] = gradients[0]
        worker.gradients["bias"][...] = gradients[1]
        worker.step(loss)
"""
import math as _math
from typing import Any, Callable, Iterator, Mapping, Optional, Tuple

from . import _attachment, _indices, _stream
from ._position import Position
from ._run import Comparison, Run, compare, train
from ._version import __version__

try:
    import numpy as _numpy
except ImportError:
    _numpy = None

__all__ = ["Comparison", "Run", "Worker", "__version__", "compare", "join", "train"]


def join(parameters: Mapping[str, Any], train_samples: int, test_samples: int = 0, device: str = "NumPy",
         master: Optional[str] = None) -> "Worker":
    """Joins the job that this program was started for; returns a Worker. Call it once.

    parameters: dict of name -> initial value, a NumPy array or anything else with the buffer protocol and
    float32 values. All workers must have the same names and shapes. The job's initial weights are those of
    the program's first run; the values of other workers are ignored.
    train_samples: the size of the training set, whose samples the job assigns by index. For a stream, or if
    each worker has its own samples: the number that all workers together train in an epoch. The job then only
    counts samples.
    test_samples: the size of the test set; 0: there is none, and the job has no evaluator.
    device: shown in the job's status.
    master: "HOST:PORT" of a running job, for a notebook or a program that another launcher has started: join
    starts a worker of that job.

    Raises RuntimeError if the program was not started by a Catchment worker and `master` is not given, or if
    its model or its data are not the job's.
    """
    arrays = {name: _as_floats(value) for name, value in parameters.items()}
    tensors = [(name, array.shape) for name, array in arrays.items()]
    directory = _attachment.describe_only()
    if directory is not None:
        values = [array.tobytes() for array in arrays.values()]
        _attachment.describe(directory, tensors, values, train_samples, test_samples)
    return Worker(_attachment.Attachment(tensors, train_samples, test_samples, device, master=master))


class Worker(Position):
    """This program's place in the job. Arrays are NumPy's, or memoryviews if NumPy is not installed.

    job, index, batch_size, seed, evaluates, steps, progress, epoch, log(), leave(): as Position has them
    (_position.py).
    weights, gradient: the flat vectors of all parameters, in the order of join's dict.
    parameters, gradients: their parts by name, in the parameters' shapes.

    Weights are read-only, and valid while a minibatch is in progress. When the job is done, they are its
    final weights.
    """

    def __init__(self, attachment):
        super().__init__(attachment)
        self.weights = _as_array(attachment.weights)
        self.gradient = _as_array(attachment.gradient)
        self.parameters = _views(attachment.weights, attachment.tensors)
        self.gradients = _views(attachment.gradient, attachment.tensors)
        self._size = len(attachment.weights) // 4
        self._under_way = False
        self._loss = 0.0  # of the step before

    def minibatches(self, stream: Any = None) -> Iterator[Any]:
        """Yields the samples of each minibatch of this worker, as indices into the training set, until the
        job is over. Call step() once for each. The weights are valid from then to step(). A loop that was
        interrupted may be run again; it continues with the interrupted minibatch.

        stream: an iterable of samples, or a function that returns one. Each minibatch is then a list of the
        next samples. At its end the iterable is read again; if it can be read only once, the worker leaves
        the job without an error."""
        if self.evaluates:
            return
        stream = None if stream is None else _stream.Stream(stream)
        while self._under_way or self._begin_step():
            step = self._attachment.step
            indices = self._attachment.plan.samples(step)
            samples = _indices.as_indices(indices) if stream is None else stream.take(len(indices))
            if samples is None:
                _stream.leave(self._attachment)
                return
            yield samples
            if self._attachment.stopped:
                return
            if self._under_way and self._attachment.step == step:
                raise RuntimeError("step %d was skipped: call worker.step(loss) once for each minibatch" %
                                   step)

    def _begin_step(self):
        """Waits for the weights of the next step that counts. Returns False when the job is over."""
        while not self._under_way:
            self._attachment.next_step()
            self._under_way = self._attachment.await_weights(self._size)
            if self._attachment.stopped:
                return False
        return True

    def step(self, loss: float, correct: int = 0) -> None:
        """Submits the gradient in `gradient`, the mean over the minibatch's samples, and ends the step.

        loss: the mean over the samples. correct: the number of samples classified correctly, if there are
        classes.
        """
        self._end_step("step", float(loss), int(correct))

    def skip(self) -> None:
        """Ends the step with a gradient of 0: call it instead of step() for a minibatch that you leave out.
        The servers' momentum and weight decay still move the weights. Metrics repeat the loss of the step
        before."""
        self._attachment.gradient[:] = bytes(len(self._attachment.gradient))
        self._end_step("skip", self._loss, 0)

    def _end_step(self, method, loss, correct):
        if not self._under_way:
            raise RuntimeError("worker.%s() was called without a minibatch: call it once for each" % method)
        self._under_way = False
        self._loss = loss
        self.steps += 1
        self._attachment.done(loss, correct)

    def evaluate(self, score: Callable[[], Tuple[float, int]]) -> None:
        """Calls `score` for each evaluation, until the job is over. `score` returns the mean loss over the
        test set and the number of samples classified correctly (0 if there are no classes)."""
        self._evaluate(lambda: (), score)


def _as_floats(value):
    """A contiguous array of float32 with a shape and tobytes()."""
    if _numpy is not None:
        # ascontiguousarray would give a scalar a dimension.
        return _numpy.asarray(value, dtype=_numpy.float32, order="C")
    view = memoryview(value)
    if view.format != "f":
        raise TypeError("without NumPy a parameter must have float32 values (array.array('f'), a "
                        "memoryview), got format %r" % view.format)
    return view


def _as_array(memory):
    view = memoryview(memory).cast("B").cast("f")
    return view if _numpy is None else _numpy.frombuffer(view, dtype=_numpy.float32)


def _views(memory, tensors):
    views, begin, all_values = {}, 0, memoryview(memory).cast("B")
    for name, shape in tensors:
        size = _math.prod(shape)
        part = all_values[4 * begin:4 * (begin + size)]
        if _numpy is not None:
            views[name] = _numpy.frombuffer(part, dtype=_numpy.float32).reshape(shape)
        else:
            views[name] = part.cast("f", shape) if shape else part.cast("f")
        begin += size
    return views
