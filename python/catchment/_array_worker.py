"""A worker whose model is a set of named arrays."""

from typing import Any, Callable, Iterator, Mapping, MutableMapping, Tuple

from . import _attachment, _indices, _stream, _vectors
from ._position import Position

_LEFT_OUT = (
    "step %d was skipped: call worker.step(loss) once for each minibatch, or worker.skip() for one that is "
    "left out; for updates of several minibatches set algorithm.contribution.gradient.push_period in the job"
)


class ArrayWorker(Position):
    """This program's place in the job, without the call that ends a step, which depends on what the gradients
    are. catchment.Worker describes the attributes."""

    def __init__(self, attachment: _attachment.Attachment) -> None:
        super().__init__(attachment)
        self._parameters = _vectors.Parameters(attachment.weights, attachment.tensors)
        self._gradients = _vectors.Gradients(attachment.gradient, attachment.tensors)
        self._size = len(attachment.weights) // 4
        self._here = False  # the weights of a step that counts
        self._under_way = False  # that step, in the program
        self._loss = 0.0  # of the step before

    @property
    def weights(self) -> Any:
        return self._parameters.flat

    @weights.setter
    def weights(self, values: Any) -> None:
        self._parameters.refuse()

    @property
    def parameters(self) -> Mapping[str, Any]:
        return self._parameters

    @parameters.setter
    def parameters(self, mapping: Any) -> None:
        self._parameters.refuse()

    @property
    def gradient(self) -> Any:
        return self._gradients.flat

    @gradient.setter
    def gradient(self, values: Any) -> None:
        self._gradients.assign_flat(values)

    @property
    def gradients(self) -> MutableMapping[str, Any]:
        return self._gradients

    @gradients.setter
    def gradients(self, mapping: Any) -> None:
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

    def _begin_gradient(self) -> None:
        """Called when a minibatch is handed out, so that a part that is not written in its step is 0."""
        self._gradients.set_to_zero()

    def _begin_step(self) -> bool:
        """Waits for the weights of the next step that counts, and begins it. Returns False when the job is
        over."""
        self._under_way = self._await_step()
        return self._under_way

    def _await_step(self) -> bool:
        while not self._here:
            self._attachment.next_step()
            self._here = self._attachment.await_weights(self._size)
            if self._attachment.stopped:
                return False
        return True

    def skip(self) -> None:
        """Ends the step with a gradient of 0: call it instead of step() for a minibatch that you leave out.
        The servers' momentum and weight decay still move the weights.
        Metrics repeat the loss of the step before."""
        if self._under_way:
            self._gradients.set_to_zero()
        self._end_step("skip", self._loss, 0)

    def _end_step(self, method: str, loss: float, correct: Any) -> None:
        if not self._under_way:
            raise RuntimeError("worker.%s() was called without a minibatch: call it once for each" % method)
        correct = self._count_right(correct)
        self._under_way = self._here = False
        self._loss = loss
        self.steps += 1
        self._attachment.done(loss, correct)
        # Until the next weights are here, the servers may read the gradient.
        self._await_step()

    def evaluate(self, score: Callable[[], Tuple[float, int]]) -> None:
        """Calls `score` for each evaluation, until the job is over. `score` returns the mean loss over the
        test set and the number of samples classified correctly (0 if there are no classes)."""
        self._evaluate(lambda: (), score)
