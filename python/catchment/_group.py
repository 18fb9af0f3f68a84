"""A process group of torch.distributed as one worker: rank 0 is attached to the daemon,
and the others follow it."""

import contextlib
import ctypes
import datetime
import mmap
import os
import pickle
import signal
import weakref
from typing import Any, Callable, List, NamedTuple, Optional, Tuple

import torch
import torch.distributed as dist

from . import _attachment
from ._plan import PlanCopy

_PR_SET_PDEATHSIG = 1
# Other workers, which rank 0 may wait for, can take any time.
_PATIENCE = datetime.timedelta(days=365)


class _Exchange(NamedTuple):
    """The work that comes first in a program that keeps its weights (Attachment.take_exchange)."""

    everything: bool
    arrived: List[int]
    parts: Optional[List[List[Tuple[int, int]]]]  # Attachment.fragments; None: the ranks have them


class _Send(NamedTuple):
    """Send of proto/attach.proto."""

    fragment: int
    exchange: _Exchange


class GroupAttachment:
    """An _attachment.Attachment for each rank of a group. All ranks call the same methods in the same order.

    attach: makes rank 0's Attachment. Exceptions of this or a later call on rank 0 are raised on every rank.
    """

    def __init__(self, group: Any, attach: Callable[[], _attachment.Attachment]) -> None:
        _end_with_launcher()
        ranks = dist.get_process_group_ranks(group)
        self.rank, self.size = dist.get_rank(group), len(ranks)
        # A group of its own, so that it has neither the program's timeout nor its order of calls.
        self._own = [dist.new_group(ranks, timeout=_PATIENCE, backend="gloo", use_local_synchronization=True)]
        weakref.finalize(self, _destroy, self._own)
        self._first = ranks[0]
        self._attachment: _attachment.Attachment  # on rank 0
        self._failure: Optional[Exception] = None
        self.step = self.begun = self.here = 0
        self.progress, self.epoch, self.learning_rate, self.restarted = 0.0, 0, 0.0, False
        self.on_result: Optional[Callable[[], None]] = None
        self._has_result = False  # on rank 0
        # As Attachment has them.
        self.fragments: List[List[Tuple[int, int]]] = []
        self._exchange = _Exchange(False, [], None)
        self.on_send: Callable[[int], None] = lambda fragment: None
        self.stopped = self.left = False
        about = self._from_first(lambda: self._attach(attach))
        self.welcome, self.test_samples, self.stopped, size, plan_size = about
        self.hinted = self.welcome is None
        if self.rank == 0:
            self.weights, self.gradient = self._attachment.weights, self._attachment.gradient
        else:
            self.weights, self.gradient = mmap.mmap(-1, size), mmap.mmap(-1, size)
        self.plan = PlanCopy(plan_size)

    @property
    def _group(self) -> Any:
        return self._own[0]

    def _attach(self, attach: Callable[[], _attachment.Attachment]) -> Tuple[Any, ...]:
        self._attachment = one = attach()
        one.on_result, one.on_send = self._note_result, self._send
        return one.welcome, one.test_samples, one.stopped, len(one.weights), one.plan.size

    def _note_result(self) -> None:
        self._has_result = True

    # ---------------------------------------------------------------------------------------------- the ranks

    def _from_first(self, make: Callable[[], Any]) -> Any:
        """Calls `make` on rank 0, and returns its result on every rank. If the daemon meanwhile asks for a
        part of the weights, all ranks write it."""
        if self.rank == 0:
            try:
                result = make()
            except Exception as error:
                self._broadcast((None, _attachment.describe_exception(type(error), error)))
                raise
            self._broadcast((result, None))
            return result
        while True:
            result, failure = self._broadcast(None)
            if failure is not None:
                self.stopped = True
                raise RuntimeError("rank 0 of the group has failed: " + failure)
            if not isinstance(result, _Send):
                return result
            self._write(result)

    def _send(self, fragment: int) -> None:
        """Called on rank 0, within _from_first."""
        send = _Send(fragment, self._exchange_on_first())
        self._broadcast((send, None))
        self._write(send)

    def _write(self, send: _Send) -> None:
        self._note_exchange(send.exchange)
        self.on_send(send.fragment)

    def _exchange_on_first(self) -> _Exchange:
        one = self._attachment
        return _Exchange(*one.take_exchange(), None if self.fragments else one.fragments)

    def _note_exchange(self, exchange: _Exchange) -> None:
        self._exchange, self.fragments = exchange, exchange.parts or self.fragments

    def _broadcast(self, value: Any) -> Any:
        """Returns rank 0's value, which may be anything that can be pickled."""
        data = bytearray(pickle.dumps(value)) if self.rank == 0 else b""
        size = torch.tensor([len(data)])
        dist.broadcast(size, self._first, self._group)
        if self.rank != 0:
            data = bytearray(size.item())
        dist.broadcast(torch.frombuffer(data, dtype=torch.uint8), self._first, self._group)
        return pickle.loads(data)

    def _broadcast_weights(self) -> None:
        dist.broadcast(torch.frombuffer(self.weights, dtype=torch.float32), self._first, self._group)

    # ----------------------------------------------------------------------------------------------- training

    def next_step(self) -> None:
        self.step += 1
        if self.rank == 0:
            self._attachment.next_step()

    def await_weights(self, values: int) -> bool:
        """Waits for all of the step's weights, regardless of `values`."""
        counts = self._await_on_first(lambda one: one.await_weights(len(one.weights) // 4))
        if counts:
            self.here = len(self.weights) // 4
            self._broadcast_weights()
        return counts

    def await_step(self) -> bool:
        return self._await_on_first(lambda one: one.await_step())

    def _await_on_first(self, wait: Callable[[_attachment.Attachment], bool]) -> bool:
        """Waits on rank 0. Returns whether the step counts."""
        counts, self.begun, self.stopped, has_result, about, changes, exchange = self._from_first(
            lambda: self._begin(wait)
        )
        self.progress, self.epoch, self.learning_rate, self.restarted = about
        self._note_exchange(exchange)
        self.plan.write(changes)
        if has_result:
            self._broadcast_weights()
            if self.on_result is not None:
                self.on_result()
        return bool(counts)

    def _begin(self, wait: Callable[[_attachment.Attachment], bool]) -> Tuple[Any, ...]:
        if self._failure is not None:
            raise self._failure
        one = self._attachment
        counts = wait(one)
        about = one.progress, one.epoch, one.learning_rate, one.restarted
        has_result, self._has_result = self._has_result, False
        changes, exchange = one.plan.changes(self.step), self._exchange_on_first()
        return counts, one.begun, one.stopped, has_result, about, changes, exchange

    def take_exchange(self) -> Tuple[bool, List[int]]:
        exchange, self._exchange = self._exchange, _Exchange(False, [], None)
        return exchange.everything, exchange.arrived

    def fetch(self, ranges: List[Tuple[int, int]]) -> None:
        """Brings these ranges of rank 0's weights to every rank."""
        weights = torch.frombuffer(self.weights, dtype=torch.float32)
        parts = [weights[begin:end] for begin, end in ranges]
        values = parts[0] if len(parts) == 1 else torch.cat(parts)
        dist.broadcast(values, self._first, self._group)
        if self.rank != 0 and len(parts) > 1:
            for part, received in zip(parts, values.split([len(part) for part in parts])):
                part.copy_(received)

    def await_stop(self) -> None:
        """For the end of a loop: await_weights has waited for it already."""

    def leave(self) -> None:
        self._from_first(lambda: self._attachment.leave())
        self.stopped = self.left = True

    def await_begin(self) -> bool:
        return self.begun == self.step and not self.stopped

    def done(self, loss: float, correct: int) -> None:
        """Ends the step. loss, correct: of this rank's part; the daemon receives those of the minibatch."""
        totals = torch.tensor([loss, correct], dtype=torch.float64)
        dist.all_reduce(totals, group=self._group)
        if self.rank != 0:
            return
        loss, correct = (totals / self.size).tolist()
        samples = len(self.plan.samples(self.step))
        try:
            # Repeated samples are counted as often as they are trained.
            self._attachment.done(loss, round(correct * samples / -(-samples // self.size)))
        except Exception as error:  # raised on all ranks when they next wait for rank 0
            self._failure = error

    def log(self, name: str, value: float) -> None:
        if self.rank == 0:
            self._attachment.log(name, value)

    def span(self, name: str, begin: float, end: float) -> None:
        if self.rank == 0:
            self._attachment.span(name, begin, end)

    # --------------------------------------------------------------------------------------------- evaluation

    def await_evaluation(self) -> bool:
        more = self._from_first(lambda: self._attachment.await_evaluation())
        if more:
            self._broadcast_weights()
        else:
            self.stopped = True
        return more

    def statistic(self, name: str, values: bytes) -> None:
        if self.rank == 0:
            self._attachment.statistic(name, values)

    def scored(self, samples: int, loss_sum: float, correct: int) -> None:
        if self.rank == 0:
            self._attachment.scored(samples, loss_sum, correct)


def _destroy(groups: List[Any]) -> None:
    """Destroys the only group in `groups`, at the latest when the program exits: a thread of gloo that
    releases a tensor after the interpreter has ended aborts the process."""
    group = groups.pop()
    # Raised if the program has destroyed all groups.
    with contextlib.suppress(AssertionError, ValueError):
        dist.destroy_process_group(group)  # The last reference to it, here, joins its threads.


def _end_with_launcher() -> None:
    """Has the kernel end this process with the launcher that started it: torchrun puts its processes into
    sessions, in which the worker's watch for processes that remain does not find them."""
    if "CATCHMENT_ATTACH_ADDRESS" in os.environ:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
