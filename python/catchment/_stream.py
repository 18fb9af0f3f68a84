"""Minibatches of samples without an index, from a stream or a worker's own data."""

import itertools
from typing import Any, Iterator, List, NoReturn, Optional

from ._warnings import warn

_EMPTY = "the stream of samples (%s) is empty"
_NOT_ITERABLE = (
    "minibatches() got samples of type %s, but a stream is an iterable of samples or a function "
    "that returns one"
)
_ENDED = (
    "the stream of samples ended at step %d and cannot be read again: %s; to repeat it, give a "
    "function that returns a new stream"
)
_OVER = (
    "the job is over, so this loop has no minibatches: one loop over the worker's minibatches is the whole "
    "job; remove the program's loop over epochs, and set epochs in the job (--set epochs=3)"
)


class Stream:
    """Reads an iterable, such as a generator or a streaming data set, or a function's result. At its end it
    is read again from the beginning, unless it can be read only once, as a generator can."""

    def __init__(self, samples: Any) -> None:
        if not (hasattr(samples, "__iter__") or hasattr(samples, "__getitem__") or callable(samples)):
            raise TypeError(_NOT_ITERABLE % type(samples).__name__)
        self._samples = samples
        self._iterator: Optional[Iterator[Any]] = None
        self._passes = 0
        self._first = True  # no sample of this pass has been taken

    def take(self, count: int) -> Optional[List[Any]]:
        """Returns this number of samples; None if the stream ends before and cannot be read again."""
        taken: List[Any] = []
        while len(taken) < count:
            if self._iterator is None:
                self._iterator = self._restart()
                if self._iterator is None:
                    return None
            before = len(taken)
            taken += itertools.islice(self._iterator, count - before)
            if len(taken) < count:
                if self._first and len(taken) == before:
                    raise ValueError(_EMPTY % type(self._samples).__name__)
                self._iterator = None
            self._first = False
        return taken

    def _restart(self) -> Optional[Iterator[Any]]:
        """Returns an iterator from the beginning; None if there is none."""
        if hasattr(self._samples, "set_epoch"):  # of Hugging Face: shuffles anew
            self._samples.set_epoch(self._passes)
        samples = self._samples
        if not (hasattr(samples, "__iter__") or hasattr(samples, "__getitem__")):
            samples = samples()
        iterator = iter(samples)
        if self._passes > 0 and iterator is self._samples:
            return None
        self._passes += 1
        self._first = True
        return iterator


def hint_at_end(attachment: Any) -> None:
    """Warns, once, of a loop that begins after the end of the job."""
    if attachment.stopped and not (attachment.left or attachment.hinted):
        attachment.hinted = True
        warn(_OVER)


def leave(attachment: Any) -> None:
    """Ends a worker whose stream has ended and cannot be read again."""
    if hasattr(attachment, "rank"):
        raise RuntimeError(
            _ENDED % (attachment.step, "the other processes of the group would wait for this one")
        )
    why = _ENDED % (attachment.step, "this worker leaves the job")
    warn(why)
    attachment.leave(why)


def fail(step: int) -> NoReturn:
    """Reports that the stream of one of a DataLoader's processes has ended and cannot be read again."""
    raise RuntimeError(_ENDED % (step, "other processes of the DataLoader may have more samples"))
