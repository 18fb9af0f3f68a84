"""The minibatches of a worker's plan as a data set of PyTorch's."""
import sys
import threading

from torch.utils.data import IterableDataset, get_worker_info


_BATCHED = ("these are whole minibatches of the job's batch_size, and the DataLoader puts several of them together: give "
            "it batch_size=None")
_LEFT_OUT = ("step %d was left out: call worker.step(loss) once for each minibatch; a DataLoader needs batch_size=None, and "
             "one with num_workers loads further minibatches meanwhile")


class Minibatches(IterableDataset):
    """The minibatches that the job assigns to this worker, from its present step on and until the job is over; in a
    process group this process's part of each. For a DataLoader with batch_size=None, whose processes take turns."""

    def __init__(self, data, collate, attachment):
        self._data, self._collate, self._plan = data, collate, attachment.plan
        self._rank, self._size = getattr(attachment, "rank", 0), getattr(attachment, "size", 1)
        self._attachment = attachment

    def __getstate__(self):
        # Of the attachment a process that a DataLoader has spawned needs the step.
        return dict(self.__dict__, _attachment=_Position(self._attachment.step))

    def __iter__(self):
        # PyTorch's fetcher of a DataLoader, in whatever process it is, makes the iterator.
        if sys._getframe(1).f_locals.get("auto_collation") is True:
            raise TypeError(_BATCHED)
        return self._load()

    def _load(self):
        info = get_worker_info()
        first, stride = (0, 1) if info is None else (info.id, info.num_workers)
        step = self._attachment.step + first
        while True:
            samples = self._plan.samples(step)
            if samples is None:
                if info is None and _in_main_thread() and not self._attachment.stopped:
                    self._attachment.await_stop()  # raises if the job has failed
                return
            yield self._collate([self._data[index] for index in own_part(samples, self._rank, self._size)])
            if info is None and self._attachment.step == step and _in_main_thread():
                raise RuntimeError(_LEFT_OUT % step)
            step += stride


def _in_main_thread():
    return threading.current_thread() is threading.main_thread()


class _Position:
    def __init__(self, step):
        self.step = step


def own_part(samples, rank, size):
    """Returns a rank's samples of a minibatch. All ranks have equally many: where the minibatch cannot be divided, its
    first samples are repeated."""
    return [samples[(index * size + rank) % len(samples)] for index in range(-(-len(samples) // size))]


class NoMinibatches(IterableDataset):
    """Those of an evaluator's program."""

    def __iter__(self):
        return iter(())
