"""A step as one call that returns the next weights, for frameworks that make it inside a compiled step."""
import numpy

from . import Worker


class ExchangingWorker(Worker):
    """A worker of arrays, whose `_exchange` may be called from within a compiled step.

    An exception there would reach the program late, or as a different one. So `_exchange` raises none; `_settle`, which
    the program's own thread calls, raises it instead.
    """

    def __init__(self, attachment):
        super().__init__(attachment)
        self._failure = None

    def minibatches(self, stream=None):
        """Yields the samples of each minibatch of this worker, as indices into the training set or, for a stream, as a
        list, until the job is over. Make a step, or call the optimizer, once for each."""
        for samples in super().minibatches(stream):
            yield samples
            self._settle()

    def _settle(self):
        """Waits until all started steps are complete. Raises the exception of one that failed."""
        self._await_steps()
        if self._failure is not None:
            raise self._failure

    def _await_steps(self):
        """Blocks until the framework's background computations are done."""

    def _exchange(self, loss, gradients):
        """Submits the gradients and ends the step. Returns the weights of the next one, or the final ones if the job is
        over."""
        try:
            if not self._attachment.stopped:
                self._write(gradients)
                super().step(float(loss))
                self._begin_step()
        except Exception as failure:
            self._failure = failure
        return self._copy_weights()

    def _write(self, gradients):
        """gradients: in the order of the parameters."""
        for values, gradient in zip(self.gradients.values(), gradients):
            values[...] = gradient

    def _copy_weights(self):
        """Returns copies: a framework may use an array without copying it, and the shared memory changes."""
        return [numpy.array(values) for values in self.parameters.values()]
