"""The plan, which assigns samples to steps: PLAN of proto/attach.proto."""

import array
import mmap
import os
import struct
import tempfile
import time
from typing import Any, Callable, List, Tuple

# The number of slots, their size, the last step that is planned, the first one that never will be (0: none),
# and slots, by where they begin.
Changes = Tuple[int, int, int, int, List[Tuple[int, bytes]]]

_FIRST_SLOT = 64
_PAUSE_SECONDS = 0.001


class Plan:
    """Reads the plan, in the program or, pickled, in any process of the same user while the program runs."""

    def __init__(self, fd: int) -> None:
        self._path = "/proc/%d/fd/%d" % (os.getpid(), fd)
        self._memory = mmap.mmap(fd, os.fstat(fd).st_size, prot=mmap.PROT_READ)

    def __getstate__(self) -> str:
        return self._path

    def __setstate__(self, path: str) -> None:
        self._path = path
        fd = os.open(path, os.O_RDONLY)
        try:
            self._memory = mmap.mmap(fd, os.fstat(fd).st_size, prot=mmap.PROT_READ)
        finally:
            os.close(fd)

    @property
    def size(self) -> int:
        """The size of the memory, in bytes."""
        return len(self._memory)

    def changes(self, step: int) -> Changes:
        """Returns the changes with which a PlanCopy gets step `step` and all later ones."""
        planned, end, slots, slot_bytes = struct.unpack_from("=4Q", self._memory)
        steps = range(max(step, planned - slots + 1), planned + 1)
        places = [_FIRST_SLOT + (one - 1) % slots * slot_bytes for one in steps]
        return slots, slot_bytes, planned, end, [(at, self._memory[at : at + slot_bytes]) for at in places]

    def knows(self, step: int, seconds: float) -> bool:
        """Returns whether a step is planned, or will never be. Waits for either, at most `seconds`."""
        until = time.monotonic() + seconds
        while True:
            planned, end = struct.unpack_from("=2Q", self._memory)
            if planned >= step or (end and step >= end):
                return True
            if time.monotonic() >= until:
                return False
            time.sleep(_PAUSE_SECONDS)

    def samples(self, step: int, gives_up: Callable[[], bool] = lambda: False) -> Any:
        """Returns the indices of a step's samples, as an array("I"). Waits until it is planned; returns None
        if it will never be, or once gives_up() returns true."""
        while True:
            planned, end, slots, slot_bytes = struct.unpack_from("=4Q", self._memory)
            if end and step >= end:
                return None
            if planned >= step:
                break
            if gives_up():
                return None
            time.sleep(_PAUSE_SECONDS)
        at = _FIRST_SLOT + (step - 1) % slots * slot_bytes
        found, count = struct.unpack_from("=2Q", self._memory, at)
        if found != step:
            raise RuntimeError(
                "step %d has been removed from the plan: this process reads it too late" % step
            )
        return array.array("I", self._memory[at + 16 : at + 16 + 4 * count])


class PlanCopy(Plan):
    """A process's copy of its group's plan. `write` keeps it up to date.

    Processes whose copies were written with the same changes read the same steps at any time: a planned step
    stays planned even if the job ends before it.
    """

    def __init__(self, size: int) -> None:
        fd = _memory_file(size)
        super().__init__(fd)
        self._writable = mmap.mmap(fd, size)
        self._planned = 0

    def write(self, changes: Changes) -> None:
        """changes: the result of the plan's changes()."""
        slots, slot_bytes, planned, end, parts = changes
        if end:
            end = self._planned + 1
        else:
            self._planned = planned
            struct.pack_into("=2Q", self._writable, 16, slots, slot_bytes)
            for at, data in parts:
                self._writable[at : at + len(data)] = data
        # Last, because other processes read a slot once it is planned.
        struct.pack_into("=2Q", self._writable, 0, self._planned, end)


def _memory_file(size: int) -> int:
    """Returns a descriptor of memory without a name; where the system has none (seccomp, a sandbox), of a
    deleted file in /dev/shm or the directory for temporary files."""
    try:
        fd = os.memfd_create("catchment-plan-copy")
    except (AttributeError, OSError):
        directory = "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else None
        with tempfile.TemporaryFile(prefix="catchment-", dir=directory) as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, size)
    return fd
