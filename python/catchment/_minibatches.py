"""The minibatches of a worker's plan as a data set of PyTorch's."""
import functools
import sys
import threading
import types

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from . import _stream
from ._indices import own_part

_BATCHED = ("these are whole minibatches of the job's batch_size, but the DataLoader combines several of "
            "them: give it batch_size=None")
_OWN_BATCH = ("loader() yields whole minibatches of the job's batch_size, so it does not accept %s: set "
              "batch_size in the job")
_PERSISTENT = ("the DataLoader has persistent_workers, whose processes do not know at which step a second "
               "loop begins: make the loader with worker.loader(persistent_workers=True, ...)")
_LOADER = ("the %s set is a DataLoader, whose items are whole minibatches: give its data set, loader.dataset; "
           "the minibatches are the job's, so its sampler has no effect: put weights into the loss, and a selection of "
           "samples into torch.utils.data.Subset")
_LENGTH = 10 ** 9


class Minibatches(IterableDataset):
    """The minibatches that the job assigns to this worker, from its current step until the job is over; in a
    process group this process's part of each. For a DataLoader with batch_size=None, whose processes take
    turns.
    read: returns the list of samples for a list of indices; None if a stream has ended."""

    def __init__(self, read, collate, attachment, handed):
        self._read, self._collate, self._plan = read, collate, attachment.plan
        self._rank, self._size = getattr(attachment, "rank", 0), getattr(attachment, "size", 1)
        self._attachment, self._handed = attachment, handed
        self._loop = None       # of a Loader that keeps its processes: the loop's number, and its first step
        self._iterated = False  # in this process of a DataLoader

    def begin_loop(self):
        """Tells the processes that a loader keeps at which step its next loop begins. Those that still wait
        for a minibatch of the previous loop then end it."""
        if self._loop is None:
            self._loop = torch.zeros(2, dtype=torch.int64).share_memory_()
        self._loop[1] = self._attachment.step
        self._loop[0] += 1

    def __getstate__(self):
        # Of the attachment a process that a DataLoader has spawned needs the step.
        position = types.SimpleNamespace(step=self._attachment.step)
        return dict(self.__dict__, _attachment=position, _handed=None)

    def __iter__(self):
        # PyTorch's fetcher of a DataLoader, in whatever process it is, makes the iterator.
        if sys._getframe(1).f_locals.get("auto_collation") is True:
            raise TypeError(_BATCHED)
        if get_worker_info() is not None:
            if self._iterated and self._loop is None:
                raise RuntimeError(_PERSISTENT)
            self._iterated = True
        elif threading.current_thread() is threading.main_thread():
            return self.in_turn(self._load)
        return self._load_all()

    def in_turn(self, load):
        """Yields the minibatches in the main thread, which also makes the steps. load: makes one of its
        samples."""
        def load_or_leave(samples):
            minibatch = load(samples)
            if minibatch is None:
                _stream.leave(self._attachment)
            return minibatch

        self._handed.begin()
        try:
            yield from self._handed.in_turn(self._attachment, load_or_leave, self._handed.looks_ahead)
            self._attachment.await_stop()  # raises if the job has failed
        finally:
            self._handed.counts = False

    def _load_all(self):
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

    def _load(self, samples):
        part = self._read(own_part(samples, self._rank, self._size))
        return None if part is None else self._collate(part)


def check_items(data, what):
    """Raises TypeError if the items of a data set are not samples."""
    if isinstance(data, DataLoader) and data.batch_size is not None:
        raise TypeError(_LOADER % what)


def reader(data, counted, attachment):
    """Returns the reader of samples for Minibatches. counted: whether samples with an index are this worker's
    own, so the job only counts them."""
    check_items(data, "training")
    if not is_indexed(data):
        return functools.partial(_take, _stream.Stream(data))
    if counted:
        return functools.partial(_take, _stream.Stream(_OwnSamples(data, attachment)))
    return functools.partial(_read, data)


def is_indexed(data):
    return hasattr(data, "__getitem__") and not isinstance(data, IterableDataset)


def _take(stream, indices):
    return stream.take(len(indices))


class _OwnSamples:
    """A worker's own samples, in a new random order in each pass. Processes of a DataLoader or a group share
    them."""

    def __init__(self, data, attachment):
        welcome = attachment.welcome or {}
        self._data, self._pass = data, 0
        self._seed = welcome.get("seed", 0) + (welcome.get("worker", 0) << 32)
        self._rank, self._size = getattr(attachment, "rank", 0), getattr(attachment, "size", 1)

    def set_epoch(self, epoch):
        self._pass = epoch

    def __iter__(self):
        info = get_worker_info()
        part, parts = (0, 1) if info is None else (info.id, info.num_workers)
        generator = torch.Generator().manual_seed((self._seed + self._pass) % 2 ** 63)
        order = torch.randperm(len(self._data), generator=generator).tolist()
        return (self._data[index] for index in order[self._rank * parts + part::self._size * parts])


def _read(data, indices):
    # Data sets that read many samples at once, such as those of Hugging Face, do so there.
    if hasattr(data, "__getitems__"):
        return data.__getitems__(list(indices))
    return [data[index] for index in indices]


class Loader(DataLoader):
    """A DataLoader of the job's minibatches. Its length is more than any job has, because the job ends it."""

    def __init__(self, minibatches, **options):
        for name in ("batch_size", "batch_sampler", "sampler", "shuffle", "drop_last"):
            if options.pop(name, None):
                raise ValueError(_OWN_BATCH % name)
        super().__init__(minibatches, batch_size=None, **options)

    def __len__(self):
        return _LENGTH

    def __iter__(self):
        if self.persistent_workers and isinstance(self.dataset, Minibatches):
            self.dataset.begin_loop()
        loaded = super().__iter__()
        if self.num_workers == 0 or not isinstance(self.dataset, Minibatches):
            return loaded
        return self.dataset.in_turn(lambda _: next(loaded))


class NoMinibatches(IterableDataset):
    """The minibatches of an evaluator's program: none."""

    def __iter__(self):
        return iter(())
