"""A step as one call that returns the next weights, for frameworks that make it inside a compiled step."""

from typing import Any, Iterator, List, Optional

import numpy

from . import _attachment
from ._array_worker import ArrayWorker

_NO_MINIBATCH = (
    "a step was made without a minibatch, or the second one for the same: loop over "
    "worker.minibatches(), and make one step for each; gradients of several losses add up"
)


class ExchangingWorker(ArrayWorker):
    """A worker of arrays, whose `_exchange` may be called from within a compiled step.

    An exception there would reach the program late, or as a different one. So `_exchange` raises none;
    `_settle`, which the program's own thread calls, raises it instead.
    """

    def __init__(self, attachment: _attachment.Attachment) -> None:
        super().__init__(attachment)
        self._failure: Optional[Exception] = None
        self._due = False  # whether a step is due, for a minibatch that the program has received
        self._loops = False  # whether the program receives minibatches, so that _settle is called

    def minibatches(self, stream: Any = None) -> Iterator[Any]:
        """Yields the samples of each minibatch of this worker, as indices into the training set or, for a
        stream, as a list, until the job is over. Make a step, or call the optimizer, once for each."""
        self._loops = True
        for samples in super().minibatches(stream):
            self._due = True
            yield samples
            self._settle()

    def _end_step(self, method: str, loss: Any, correct: Any) -> None:
        if not self._due:
            raise RuntimeError(_NO_MINIBATCH)
        self._due = False
        super()._end_step(method, loss, correct)

    def _begin_gradient(self) -> None:
        """_write() writes all of it."""

    def _settle(self) -> None:
        """Waits until all started steps are complete. Raises the exception of one that failed."""
        self._await_steps()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _await_steps(self) -> None:
        """Blocks until the framework's background computations are done."""

    def _exchange(self, loss: Any, gradients: Any, mistake: Optional[str] = None) -> List[Any]:
        """Submits the gradients and ends the step. Returns the weights of the next one, or the final ones if
        the job is over. mistake: of the program, in place of the step."""
        try:
            if not self._attachment.stopped:
                if mistake is not None:
                    raise RuntimeError(mistake)
                self._write(gradients)
                self._end_step("step", float(loss), 0)
                self._begin_step()
        except Exception as failure:
            self._failure = failure
            if not self._loops:
                raise
        return self._copy_weights()

    def _write(self, gradients: Any) -> None:
        """gradients: in the order of the parameters."""
        for values, gradient in zip(self.gradients.values(), gradients):
            values[...] = gradient

    def _copy_weights(self) -> List[Any]:
        """Returns copies: a framework may use an array without copying it, and the shared memory changes."""
        return [numpy.array(values) for values in self.parameters.values()]
