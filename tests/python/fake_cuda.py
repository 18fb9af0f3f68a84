"""Stands in for torch.cuda in tests of catchment._copies: copies on a stream are done as late as possible.

Computations, which are on the current stream, happen at once. What is copied on another stream is done when
something waits for it, so a wait that is missing shows in the values.
"""

import contextlib
import os

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class _Deferred(TorchDispatchMode):
    """Has copy_ put into the stream's queue."""

    def __init__(self, stream):
        super().__init__()
        self._stream = stream

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        if function is torch.ops.aten.copy_.default:
            self._stream.add(lambda: function(*arguments, **keywords or {}))
            return arguments[0]
        return function(*arguments, **keywords or {})


class Stream:
    def __init__(self, device):
        self._works = []
        self._done = 0
        self._sees_computations = False

    def add(self, work):
        assert self._sees_computations, "a copy does not wait for the computations before it"
        self._works.append(work)

    def issued(self):
        self._sees_computations = False  # those from now on
        return len(self._works)

    def run(self, count):
        """Does the first `count` works."""
        with torch.no_grad():
            while self._done < count:
                self._done += 1
                self._works[self._done - 1]()
                self._works[self._done - 1] = None

    def has_run(self, count):
        return self._done >= count

    def wait_stream(self, other):
        assert isinstance(other, _Current)
        self._sees_computations = True

    def synchronize(self):
        self.run(len(self._works))


class Event:
    def record(self, stream):
        self._stream, self._count = stream, stream.issued()

    def wait(self):
        self._stream.run(self._count)

    def query(self):
        return self._stream.has_run(self._count)


class _Current:
    def wait_event(self, event):
        event.wait()


class FakeCuda:
    """pinned: (address, bytes, device, flags) of memory that was pinned. error: what pinning answers; 0:
    success. The next launch raises an error that was answered. gpus: of the machine, or those that a cgroup
    leaves, of which CUDA_VISIBLE_DEVICES chooses."""

    Stream, Event = Stream, Event

    def __init__(self, error=0, gpus=1):
        self._gpus = gpus
        self.pinned, self._error, self._current = [], error, _Current()
        self._last_error = 0
        self._device = torch.device("cuda", 0)

    def visible(self):
        """Returns the GPUs that a program sees: as in CUDA, the first that does not exist ends the list."""
        chosen, seen = os.environ.get("CUDA_VISIBLE_DEVICES"), []
        for name in range(self._gpus) if chosen is None else chosen.split(","):
            if str(name) not in map(str, range(self._gpus)):
                break
            seen.append(int(name))
        return seen

    def device_count(self):
        return len(self.visible())

    def cudart(self):
        return self

    class cudaError:
        success = 0

    def cudaHostRegister(self, address, size, flags):
        self.pinned.append((address, size, self._device, flags))
        self._last_error = self._error
        return self._error

    def launch(self, device):
        error, self._last_error = self._last_error, 0
        if error:
            raise RuntimeError("CUDA error %d" % error)

    @contextlib.contextmanager
    def device(self, device):
        self._device, before = device, self._device
        yield
        self._device = before

    def current_stream(self, device):
        return self._current

    @contextlib.contextmanager
    def stream(self, stream):
        with _Deferred(stream):
            yield


def install():
    """Has catchment.torch take every parameter for one on a GPU."""
    from catchment import _copies, _weights

    class OnGpu(_weights.Parameter):
        def __init__(self, *arguments):
            super().__init__(*arguments[:-1], copied=True)

    _weights.Parameter = OnGpu
    _copies.choose = lambda parameters, memories, before=None: _copies.CudaCopies(
        memories, {torch.device("cpu")}, FakeCuda()
    )
    torch.Tensor.record_stream = lambda tensor, stream: None
