"""Which samples the steps are of: PLAN of proto/attach.proto."""
import array
import mmap
import os
import struct
import time

_FIRST_SLOT = 64
_PAUSE_SECONDS = 0.001


class Plan:
    """Reads the plan, in the program or, pickled, in any process of the same user while the program lives."""

    def __init__(self, fd):
        self._path = "/proc/%d/fd/%d" % (os.getpid(), fd)
        self._memory = mmap.mmap(fd, os.fstat(fd).st_size, prot=mmap.PROT_READ)

    def __getstate__(self):
        return self._path

    def __setstate__(self, path):
        self._path = path
        fd = os.open(path, os.O_RDONLY)
        try:
            self._memory = mmap.mmap(fd, os.fstat(fd).st_size, prot=mmap.PROT_READ)
        finally:
            os.close(fd)

    def samples(self, step):
        """Returns the indices of a step's samples, as an array("I"). Waits until it is planned; None: no such step
        will come."""
        while True:
            planned, end, slots, slot_bytes = struct.unpack_from("=4Q", self._memory)
            if end and step >= end:
                return None
            if planned >= step:
                break
            time.sleep(_PAUSE_SECONDS)
        at = _FIRST_SLOT + (step - 1) % slots * slot_bytes
        found, count = struct.unpack_from("=2Q", self._memory, at)
        if found != step:
            raise RuntimeError("step %d is not in the plan any more: this process reads it too late" % step)
        return array.array("I", self._memory[at + 16:at + 16 + 4 * count])
