"""Minibatches for a loop that may ask for one before the step of the previous one."""

import threading
from typing import Any, Callable, Deque, Iterator, Optional

from ._attachment import AnyAttachment

_LEFT_OUT = (
    "step %d was skipped: call worker.step(loss) once for each minibatch, or worker.skip() for one that is "
    "left out; for updates of several minibatches, such as by gradient accumulation, set "
    "algorithm.contribution.gradient.push_period in the job; a loop may fetch one minibatch ahead from its "
    "beginning, not more; a DataLoader needs batch_size=None, and num_workers to load more in advance"
)
_TWICE = (
    "worker.step() was called twice for a minibatch: call it once for each, after the last "
    "loss.backward(); the gradients of several losses add up"
)
_AHEAD_SECONDS = 0.5


class Handed(Deque[bool]):
    """The minibatches that the program has received and not ended by a step; for each, whether it is real.

    A loop that looks ahead, such as those of Lightning, Accelerate, and Keras on a GPU, asks for a minibatch
    before the step of the previous one, which may be the job's last; that is only known after its step. So if
    no other minibatch is planned, the loop gets the last one again,
    and the step of this placeholder is skipped.

    A thread that only loads minibatches, for one that makes the steps, may be any number of them ahead.

    counts: whether a loop runs in the thread that makes the steps, so that each step needs a minibatch.
    """

    counts = False
    _fetched = 0
    _most = 1
    _stepping: Optional[int] = None  # the thread that makes the steps, as far as is known

    def note_stepping(self) -> None:
        """Called in the thread that makes the steps."""
        self._stepping = threading.get_ident()

    def is_stepping(self) -> bool:
        """Returns whether this thread makes the steps."""
        return self._stepping == threading.get_ident()

    def begin(self, counts: bool = True) -> None:
        """Begins a loop."""
        self.clear()
        self.counts, self._fetched, self._most = counts, 0, 1

    def note(self) -> None:
        """Adds a minibatch of a loop that may be ahead."""
        self.append(True)
        self._fetched += 1

    def in_turn(
        self, attachment: AnyAttachment, load: Callable[[Any], Any], looks_ahead: Callable[[int], bool]
    ) -> Iterator[Any]:
        """Yields minibatches, from the first step that has none, until the plan ends or `load` returns None.

        load: makes a minibatch of the samples of a step. looks_ahead: called with each step before its
        minibatch is handed out; returns whether the loop has one whose step is not made."""
        step, last = attachment.step + len(self), None
        while True:
            if looks_ahead(step) and not attachment.plan.knows(step, _AHEAD_SECONDS):
                self.append(False)
                yield last
                continue
            samples = attachment.plan.samples(step)
            last = None if samples is None else load(samples)
            if last is None:
                return
            self.append(True)
            yield last
            step += 1

    def looks_ahead(self, step: int) -> bool:
        """Raises RuntimeError if a step was left out."""
        if len(self) > self._most:
            raise RuntimeError(_LEFT_OUT % (step - sum(self)))
        if self._fetched > 0 and not self:
            self._most = 0  # the loop does not look ahead
        self._fetched += 1
        return bool(self)

    def is_next_real(self) -> bool:
        """Ends the first one. Returns whether its step is to be made."""
        self.note_stepping()
        if not self and self.counts:
            raise RuntimeError(_TWICE)
        return self.popleft() if self else True
