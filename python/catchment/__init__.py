"""Trains a model of your own with Catchment's parameter servers: this module for NumPy and for gradients from
anywhere, catchment.torch for PyTorch, catchment.keras and catchment.jax. docs/python.md begins with examples.

    import catchment

    worker = catchment.join({"weight": weight, "bias": bias}, train_samples=len(inputs))
    for samples in worker.minibatches():         # indices into the training set, until the job is over
        loss, gradients = ...                    # at worker.parameters["weight"], worker.parameters["bias"]
        worker.gradients["weight"] = gradients[0]
        worker.gradients["bias"] = gradients[1]
        worker.step(loss)
"""

from typing import Any, Callable, Iterator, Mapping, MutableMapping, Optional, Tuple

from . import _attachment, _counts, _indices, _stream, _vectors
from ._position import Position
from ._run import Comparison, Run, compare, train
from ._version import __version__

__all__ = ["Comparison", "Run", "Worker", "__version__", "compare", "join", "train"]

_LEFT_OUT = (
    "step %d was skipped: call worker.step(loss) once for each minibatch, or worker.skip() for one that is "
    "left out; for updates of several minibatches set algorithm.contribution.gradient.push_period in the job"
)


def join(
    parameters: Mapping[str, Any],
    train_samples: int,
    test_samples: int = 0,
    device: str = "NumPy",
    master: Optional[str] = None,
) -> "Worker":
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
    train_samples = _counts.size(train_samples, "join's train_samples", 1)
    test_samples = _counts.size(test_samples, "join's test_samples", 0)
    arrays = {name: _vectors.as_floats(value, "parameter %s" % name) for name, value in parameters.items()}
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
    final weights. The gradient is 0 when a minibatch begins; an assignment to `gradient`, or to a part in
    `gradients`, copies the values, which must have the shape of what they replace.
    """

    def __init__(self, attachment):
        super().__init__(attachment)
        self._parameters = _vectors.Parameters(attachment.weights, attachment.tensors)
        self._gradients = _vectors.Gradients(attachment.gradient, attachment.tensors)
        self._size = len(attachment.weights) // 4
        self._under_way = False
        self._loss = 0.0  # of the step before

    @property
    def weights(self) -> Any:
        return self._parameters.flat

    @weights.setter
    def weights(self, values):
        self._parameters.refuse()

    @property
    def parameters(self) -> Mapping[str, Any]:
        return self._parameters

    @parameters.setter
    def parameters(self, mapping):
        self._parameters.refuse()

    @property
    def gradient(self) -> Any:
        return self._gradients.flat

    @gradient.setter
    def gradient(self, values):
        self._gradients.assign_flat(values)

    @property
    def gradients(self) -> MutableMapping[str, Any]:
        return self._gradients

    @gradients.setter
    def gradients(self, mapping):
        self._gradients.assign(mapping)

    def minibatches(self, stream: Any = None) -> Iterator[Any]:
        """Yields the samples of each minibatch of this worker, as indices into the training set, until the
        job is over. Call step() once for each. The weights are valid from then to step(). A loop that was
        interrupted may be run again; it continues with the interrupted minibatch.

        stream: an iterable of samples, or a function that returns one. Each minibatch is then a list of the
        next samples. At its end the iterable is read again; if it can be read only once, the worker leaves
        the job without an error."""
        if self.evaluates:
            return
        _stream.hint_at_end(self._attachment)
        stream = None if stream is None else _stream.Stream(stream)
        while self._under_way or self._begin_step():
            step = self._attachment.step
            indices = self._attachment.plan.samples(step)
            samples = _indices.as_indices(indices) if stream is None else stream.take(len(indices))
            if samples is None:
                _stream.leave(self._attachment)
                return
            self._begin_gradient()
            yield samples
            if self._attachment.stopped:
                return
            if self._under_way and self._attachment.step == step:
                raise RuntimeError(_LEFT_OUT % step)

    def _begin_gradient(self):
        """Called when a minibatch is handed out, so that a part that is not written in its step is 0."""
        self._gradients.set_to_zero()

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

        loss: the mean over the samples. correct: the number of samples classified correctly,
        if there are classes.
        """
        self._end_step("step", float(loss), correct)

    def skip(self) -> None:
        """Ends the step with a gradient of 0: call it instead of step() for a minibatch that you leave out.
        The servers' momentum and weight decay still move the weights.
        Metrics repeat the loss of the step before."""
        self._gradients.set_to_zero()
        self._end_step("skip", self._loss, 0)

    def _end_step(self, method, loss, correct):
        if not self._under_way:
            raise RuntimeError("worker.%s() was called without a minibatch: call it once for each" % method)
        correct = self._count_right(correct)
        self._under_way = False
        self._loss = loss
        self.steps += 1
        self._attachment.done(loss, correct)

    def evaluate(self, score: Callable[[], Tuple[float, int]]) -> None:
        """Calls `score` for each evaluation, until the job is over. `score` returns the mean loss over the
        test set and the number of samples classified correctly (0 if there are no classes)."""
        self._evaluate(lambda: (), score)
