"""Applies the DataLoaders of a program to its job. Each of their settings is kept, or refused by its name."""

import itertools
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, Optional, Union

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
)

from ._minibatches import Loader
from ._warnings import warn

if TYPE_CHECKING:
    from .torch import Worker

# Options of the DataLoader of minibatches, which makes them as the program's own would.
_PASSED = (
    "num_workers",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "generator",
    "multiprocessing_context",
    "prefetch_factor",
    "persistent_workers",
)

SAMPLER = (
    "the training %s has a %s, but the master assigns each sample once in an epoch, in a random order, so "
    "it would have no effect: remove it; weights go into the loss, and a selection of samples into "
    "torch.utils.data.Subset or a SubsetRandomSampler"
)
_ONE_LOADER = (
    "the job trains on one DataLoader, but there is a %s for training: put the data sets into one, with "
    "torch.utils.data.ConcatDataset for example"
)
_OWN_LOADER = (
    "the training loader is a %s, which makes minibatches by a method of its own, %s: give a DataLoader, "
    "whose data set and collate_fn make the samples and the minibatch"
)
_WHOLE = (
    "the %s DataLoader has batch_size=None, so its data set (%s) makes whole minibatches, but the job %s: "
    "give a data set of samples, and a batch_size"
)
_STREAM = (
    "the training set (%s) is a stream, without an index for its samples: have the job count them, with "
    "%s(samples_per_epoch=...), the number that all workers together train in an epoch"
)
_DRAWS = "%s that draws %d of %d samples%s"
_IN_ORDER = (
    "the training DataLoader does not shuffle, but the job assigns samples in a new random order in each "
    "epoch"
)
_DROPS = (
    "the training DataLoader has drop_last=True, which has no effect: set last_minibatch=DROP in the job "
    "(--set last_minibatch=DROP), unless it is set already"
)
_NO_COUNT = (
    "the number of samples in a validation loader (%s) is not known: give a DataLoader with a batch_size "
    "whose data set and sampler have a length"
)


def training_data(loader: Any, counted: bool, adapter: str) -> Any:
    """Returns the data set of exactly the samples that the loader trains in an epoch. counted: whether the
    job counts samples, so that streams are possible. adapter: the name of the object that has
    samples_per_epoch."""
    if not isinstance(loader, DataLoader):
        raise TypeError(_ONE_LOADER % type(loader).__name__)
    for method in ("__iter__", "_get_iterator"):
        if getattr(type(loader), method) is not getattr(DataLoader, method):
            raise ValueError(_OWN_LOADER % (type(loader).__name__, method))
    data = loader.dataset
    if loader.batch_sampler is None:
        raise ValueError(_WHOLE % ("training", type(data).__name__, "decides on their size"))
    if isinstance(data, IterableDataset):
        if not counted:
            raise ValueError(_STREAM % (type(data).__name__, adapter))
        return data
    if type(loader.batch_sampler) is not BatchSampler:
        raise ValueError(SAMPLER % ("DataLoader", type(loader.batch_sampler).__name__))
    # loader.sampler is another one if a batch_sampler was given.
    return selected(data, loader.batch_sampler.sampler)


def selected(data: Any, sampler: Any, where: str = "DataLoader") -> Any:
    """Returns the data set of the samples that a sampler draws in an epoch. where:
    names what has the sampler."""
    if type(sampler) is SubsetRandomSampler:
        return Subset(data, list(sampler.indices))
    if type(sampler) is SequentialSampler:
        warn(_IN_ORDER)
        count = len(sampler)
    elif type(sampler) is RandomSampler:
        count = len(sampler.data_source)
        if sampler.replacement or sampler.num_samples != count:
            ending = " with replacement" * sampler.replacement
            draws = _DRAWS % ("RandomSampler", sampler.num_samples, count, ending)
            raise ValueError(SAMPLER % (where, draws))
    else:
        raise ValueError(SAMPLER % (where, type(sampler).__name__))
    return data if count == len(data) else Subset(data, range(count))


def options(loader: Any) -> Dict[str, Any]:
    """Returns the loader's options for worker.loader()."""
    return {name: getattr(loader, name) for name in _PASSED}


def warn_of_last(loader: Any, batch_size: int) -> None:
    """Warns if the loader leaves out an epoch's last minibatch,
    where the job may have one that is smaller."""
    sampler = loader.batch_sampler
    if (
        sampler.drop_last
        and not isinstance(loader.dataset, IterableDataset)
        and len(sampler.sampler) % batch_size
    ):
        warn(_DROPS)


def scored_samples(loader: Any, limit: Union[int, float]) -> int:
    """Returns the number of samples in a pass over a validation loader. limit: the number of minibatches, or,
    as a float, a share of them."""
    sampler = getattr(loader, "batch_sampler", None)
    try:
        minibatches = len(loader)
        minibatches = min(minibatches, limit) if isinstance(limit, int) else int(minibatches * limit)
        if type(sampler) is BatchSampler:
            data = loader.dataset
            samples = len(data if isinstance(data, IterableDataset) else sampler.sampler)
            samples -= samples % sampler.batch_size * sampler.drop_last
            return min(samples, minibatches * sampler.batch_size)
        if sampler is not None:
            return sum(map(len, itertools.islice(sampler, minibatches)))
    except TypeError:  # without a length
        pass
    if isinstance(loader, DataLoader) and sampler is None:
        raise ValueError(_WHOLE % ("validation", type(loader.dataset).__name__, "counts its samples"))
    raise ValueError(
        _NO_COUNT % (type(loader.dataset).__name__ if hasattr(loader, "dataset") else type(loader).__name__)
    )


class EpochLoader(Loader):
    """The job's minibatches; each loop over it is an epoch of the job. All loops read from one iterator, so
    that processes that load minibatches in advance go on."""

    def __init__(
        self, minibatches: Any, worker: "Worker", end_epoch: Callable[[], None], **options: Any
    ) -> None:
        super().__init__(minibatches, **options)
        self._worker, self._end_epoch = worker, end_epoch
        self._loaded: Optional[Iterator[Any]] = None

    def __iter__(self) -> Iterator[Any]:
        if self._loaded is None:
            self._loaded = super().__iter__()
        epoch = self._worker.epoch
        while self._worker.epoch <= epoch and not self._worker._attachment.stopped:
            try:
                minibatch = next(self._loaded)
            except StopIteration:
                break
            yield minibatch
        self._end_epoch()
