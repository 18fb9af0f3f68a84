"""The minibatches of a worker's plan as a data set of PyTorch's."""

import collections.abc
import functools
import sys
import types
from typing import Any, Callable, Dict, Iterator, Optional

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from . import _accelerate, _stream
from ._handed import Handed
from ._indices import own_part

_BATCHED = (
    "these are whole minibatches of the job's batch_size, but the DataLoader combines several of "
    "them: give it batch_size=None"
)
_OWN_BATCH = (
    "loader() yields whole minibatches of the job's batch_size, so it does not accept %s: set "
    "batch_size in the job"
)
_PERSISTENT = (
    "the DataLoader has persistent_workers, whose processes do not know at which step a second "
    "loop begins: make the loader with worker.loader(persistent_workers=True, ...)"
)
_LOADER = (
    "the %s set is a DataLoader, whose items are whole minibatches: give its data set, loader.dataset; the "
    "minibatches are the job's, so its sampler has no effect: put weights into the loss, and a selection of "
    "samples into torch.utils.data.Subset"
)
_PREPARED = (
    "the DataLoader that Accelerate has made of a DataLoader with num_workers asks for each minibatch before "
    "the step of the previous one, and would wait for ever at the end: give accelerator.prepare() "
    "worker.loader(num_workers=%d), which it leaves as it is"
)
_IN_COLUMNS = (
    "the %s set is a %s, and not a data set of samples: give join() "
    "torch.utils.data.TensorDataset(x, y), or another object whose items are samples"
)
_NO_SAMPLES = (
    "this worker has no samples of its own: its training set (%s) is empty; start no worker where there are "
    "none"
)
_FEW_SAMPLES = (
    "the worker's own training set (%s) has %d samples, which is too few for %d processes to divide: set a "
    "smaller num_workers"
)
_LENGTH = 10**9


class Minibatches(IterableDataset):
    """The minibatches that the job assigns to this worker, from its current step until the job is over; in a
    process group this process's part of each. For a DataLoader with batch_size=None, whose processes take
    turns.
    read: returns the list of samples for a list of indices; None if a stream has ended."""

    def __init__(
        self, read: Callable[[Any], Any], collate: Callable[[Any], Any], attachment: Any, handed: Handed
    ) -> None:
        self._read, self._collate, self._plan = read, collate, attachment.plan
        self._rank, self._size = getattr(attachment, "rank", 0), getattr(attachment, "size", 1)
        self._attachment, self._handed = attachment, handed
        self._loop: Optional[torch.Tensor] = (
            None  # of a Loader that keeps its processes: the loop's number, and its first step
        )
        self._iterated = False  # in this process of a DataLoader
        self._prepared = False  # by Accelerate

    def begin_loop(self) -> None:
        """Tells the processes that a loader keeps at which step its next loop begins. Those that still wait
        for a minibatch of the previous loop then end it."""
        if self._loop is None:
            self._loop = torch.zeros(2, dtype=torch.int64).share_memory_()
        self._loop[1] = self._attachment.step
        self._loop[0] += 1

    def __getstate__(self) -> Dict[str, Any]:
        # A process that a DataLoader has spawned needs these of the attachment.
        about = {name: getattr(self._attachment, name) for name in ("step", "stopped", "left", "hinted")}
        return dict(self.__dict__, _attachment=types.SimpleNamespace(**about), _handed=None)

    def set_epoch(self, epoch: int) -> None:
        """Called by a loader that Accelerate has made, before its processes begin."""
        self._prepared = True

    def __iter__(self) -> Iterator[Any]:
        # PyTorch's fetcher of a DataLoader, in whatever process it is, makes the iterator.
        if sys._getframe(1).f_locals.get("auto_collation") is True:
            raise TypeError(_BATCHED)
        info = get_worker_info()
        if info is None:
            self.check_loop()
            return self.iterate(self._load)
        if self._iterated and self._loop is None:
            raise RuntimeError(_PERSISTENT)
        if self._prepared:
            raise RuntimeError(_PREPARED % info.num_workers)
        self._iterated = True
        if info.id == 0:
            self.check_loop()
        return self._load_all()

    def check_loop(self) -> None:
        """Checks a loop that begins."""
        _accelerate.check()
        _stream.hint_at_end(self._attachment)

    def iterate(self, load: Callable[[Any], Any]) -> Iterator[Any]:
        """Yields the minibatches in this process. load: makes one of its samples."""
        return self._in_turn(load) if self._handed.is_stepping() else self._load_ahead(load)

    def _load_ahead(self, load: Callable[[Any], Any]) -> Iterator[Any]:
        """Yields the minibatches in a thread that has made no step so far,
        so that another one may make them."""
        self._handed.begin(counts=False)
        step = self._attachment.step
        while not self._handed.is_stepping():
            samples = self._plan.samples(step)
            if samples is None:
                return
            minibatch = load(samples)
            if minibatch is None:
                _stream.fail(step)
            self._handed.note()
            yield minibatch
            step += 1
        yield from self._continue_in_turn(load)

    def _in_turn(self, load: Callable[[Any], Any]) -> Iterator[Any]:
        """Yields the minibatches in the thread that also makes the steps."""
        self._handed.begin()
        yield from self._continue_in_turn(load)

    def _continue_in_turn(self, load: Callable[[Any], Any]) -> Iterator[Any]:
        def load_or_leave(samples: Any) -> Any:
            minibatch = load(samples)
            if minibatch is None:
                _stream.leave(self._attachment)
            return minibatch

        self._handed.counts = True
        try:
            yield from self._handed.in_turn(self._attachment, load_or_leave, self._handed.looks_ahead)
            self._attachment.await_stop()  # raises if the job has failed
        finally:
            self._handed.counts = False

    def _load_all(self) -> Iterator[Any]:
        info = get_worker_info()
        first, stride = (0, 1) if info is None else (info.id, info.num_workers)
        loop, step = (0, self._attachment.step) if self._loop is None else self._loop.tolist()
        step += first
        while True:
            samples = self._plan.samples(step, lambda: self._loop is not None and self._loop[0] != loop)
            if samples is None:
                return
            minibatch = self._load(samples)
            if minibatch is None:
                _stream.fail(step)
            yield minibatch
            step += stride

    def _load(self, samples: Any) -> Any:
        part = self._read(own_part(samples, self._rank, self._size))
        return None if part is None else self._collate(part)


def check_items(data: Any, what: str) -> None:
    """Raises TypeError if the items of a data set are not samples."""
    if isinstance(data, DataLoader) and data.batch_size is not None:
        raise TypeError(_LOADER % what)
    # The items of a DataFrame are its columns, too.
    if isinstance(data, (collections.abc.Mapping, tuple)) or hasattr(data, "iloc") or _has_columns(data):
        raise TypeError(_IN_COLUMNS % (what, type(data).__name__))


def _has_columns(data: Any) -> bool:
    """Returns whether a list has arrays in place of samples: as many values in each as there are samples, and
    of different shapes or types, which no minibatch could have."""
    if not (isinstance(data, list) and len(data) > 1 and all(getattr(part, "shape", ()) for part in data)):
        return False
    lengths = {part.shape[0] for part in data}
    return (
        len(lengths) == 1
        and lengths.pop() > len(data)
        and len({(tuple(part.shape), str(part.dtype)) for part in data}) > 1
    )


def reader(data: Any, counted: bool, attachment: Any) -> Callable[[Any], Any]:
    """Returns the reader of samples for Minibatches. counted: whether samples with an index are this worker's
    own, so the job only counts them."""
    check_items(data, "training")
    if not is_indexed(data):
        return functools.partial(_take, _stream.Stream(data))
    if counted:
        if len(data) == 0:
            raise ValueError(_NO_SAMPLES % type(data).__name__)
        return functools.partial(_take, _stream.Stream(_OwnSamples(data, attachment)))
    return functools.partial(_read, data)


def is_indexed(data: Any) -> bool:
    return hasattr(data, "__getitem__") and not isinstance(data, IterableDataset)


def _take(stream: _stream.Stream, indices: Any) -> Any:
    return stream.take(len(indices))


class _OwnSamples:
    """A worker's own samples, in a new random order in each pass.
    Processes of a DataLoader or a group share them."""

    def __init__(self, data: Any, attachment: Any) -> None:
        welcome = attachment.welcome or {}
        self._data, self._pass = data, 0
        self._seed = welcome.get("seed", 0) + (welcome.get("worker", 0) << 32)
        self._rank, self._size = getattr(attachment, "rank", 0), getattr(attachment, "size", 1)

    def set_epoch(self, epoch: int) -> None:
        self._pass = epoch

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        part, parts = (0, 1) if info is None else (info.id, info.num_workers)
        generator = torch.Generator().manual_seed((self._seed + self._pass) % 2**63)
        order = torch.randperm(len(self._data), generator=generator).tolist()
        own = order[self._rank * parts + part :: self._size * parts]
        if not own:
            raise ValueError(_FEW_SAMPLES % (type(self._data).__name__, len(order), self._size * parts))
        return (self._data[index] for index in own)


def _read(data: Any, indices: Any) -> Any:
    # Data sets that read many samples at once, such as those of Hugging Face, do so there.
    if hasattr(data, "__getitems__"):
        return data.__getitems__(list(indices))
    return [data[index] for index in indices]


class Loader(DataLoader):
    """A DataLoader of the job's minibatches. Its length is more than any job has, because the job ends it."""

    # accelerator.prepare() then leaves it as it is: a loader of its own would wait
    # for ever for the processes.
    _is_accelerate_prepared = True

    def __init__(self, minibatches: IterableDataset, **options: Any) -> None:
        for name in ("batch_size", "batch_sampler", "sampler", "shuffle", "drop_last"):
            if options.pop(name, None):
                raise ValueError(_OWN_BATCH % name)
        super().__init__(minibatches, batch_size=None, **options)

    def __len__(self) -> int:
        return _LENGTH

    def __iter__(self) -> Iterator[Any]:
        if not isinstance(self.dataset, Minibatches):
            return super().__iter__()
        self.dataset.check_loop()
        if self.persistent_workers:
            self.dataset.begin_loop()
        loaded = super().__iter__()
        return _accelerate.on_device(
            loaded if self.num_workers == 0 else self.dataset.iterate(lambda _: next(loaded))
        )


class NoMinibatches(IterableDataset):
    """The minibatches of an evaluator's program: none."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())
