"""The samples of minibatches, as indices into a data set."""

from typing import Any, Iterator, List

try:
    import numpy
except ImportError:
    numpy = None

STATISTICS_SAMPLES = 1024  # at least, for the statistics of batch norm in an evaluator's program


def as_indices(samples: Any) -> Any:
    """Returns the samples of a plan as an array of NumPy, or as they are if it is not installed."""
    return samples if numpy is None else numpy.frombuffer(samples, dtype=numpy.uint32).astype(numpy.int64)


def own_part(samples: Any, rank: int, size: int) -> List[int]:
    """Returns a rank's samples of a minibatch. All ranks have equally many: if the minibatch cannot be
    divided equally, its first samples are repeated."""
    return [samples[(index * size + rank) % len(samples)] for index in range(part_size(samples, size))]


def part_size(samples: Any, size: int) -> int:
    """Returns the number of samples in own_part()."""
    return -(-len(samples) // size)


def evenly(size: int, batch_size: int) -> Iterator[List[int]]:
    """Yields minibatches of STATISTICS_SAMPLES in all, evenly from a data set of this size."""
    count = min(size, -(-STATISTICS_SAMPLES // batch_size) * batch_size)
    for begin in range(0, count - batch_size + 1, batch_size) or [0]:
        yield [i * size // count for i in range(begin, min(begin + batch_size, count))]
