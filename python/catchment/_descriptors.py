"""Finds the file descriptors that a worker shares with this program (proto/attach.proto), and starts the
worker if the program was not started by one."""

import array
import fcntl
import multiprocessing
import os
import shlex
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time
from typing import List, Optional, TextIO, Tuple

from . import _command

_COUNT = 4  # socket, weights, gradient, plan
_CREDENTIALS = "=iII"  # process, user, group
_PAUSE_SECONDS = 0.01
_END_SECONDS = 60

_NOT_STARTED = (
    "this program was not started by a Catchment worker, so there is no job to join; start it with\n"
    '  catchment train --program="python %s" --workers=2 --out=out\n'
    'or give join() the master of a running job, master="HOST:PORT"'
)
_NO_GUARD = (
    "this process of the program, which it has spawned, such as for a DataLoader with num_workers, runs the "
    "program's file again, and so calls join() again: put what is not a definition into a function, and call "
    "it under the guard\n"
    '  if __name__ == "__main__":'
)
_NO_WORKER = (
    "join(master=...) needs the program catchment_worker, which is neither in this package nor on "
    "the PATH; install the wheel, or set PATH"
)
_JOINED_TWICE = (
    "the worker that started this program cannot be reached, or another process of the program "
    "has already joined; if the program has several processes, give join() their process group, "
    "group=torch.distributed.group.WORLD"
)
_OTHER_USER = (
    "user %d listens at the address of the worker that started this program, which user %d runs; "
    "start worker and program as the same user"
)
_JOINED_BEFORE = (
    "join() was already called in this program, but a program is one worker of one job; to "
    "train two models together, put both into one torch.nn.ModuleDict; to train one after the "
    "other, as in cross-validation, start a job for each"
)

_joined = False  # a worker that started this program


def find(master: Optional[str] = None) -> Tuple[List[int], Optional["StartedWorker"]]:
    """Returns the descriptors and the StartedWorker that shares them;
    None instead if a worker started this program."""
    global _joined
    inherited = os.environ.pop("CATCHMENT_ATTACH", None)
    address = os.environ.pop("CATCHMENT_ATTACH_ADDRESS", None)
    if inherited is not None:
        fds = [int(fd) for fd in inherited.split(",")]
        if not all(map(_is_shared, fds)):
            # A launcher between the worker and this process has closed them.
            fds = _receive(address)
        for fd in fds:
            os.set_inheritable(fd, False)
        _joined = True
        return fds, None
    if _joined:
        raise RuntimeError(_JOINED_BEFORE)
    # While such a process imports the program's file, it is inheriting. Its functions may call join() later.
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise RuntimeError(_NO_GUARD)
    if master is None:
        raise RuntimeError(_NOT_STARTED % (os.path.basename(sys.argv[0]) or "train.py"))
    worker = StartedWorker(master)
    return _receive(worker.address), worker


def _is_shared(fd: int) -> bool:
    """Returns whether it is a socket or a worker's memory; its number may be in use for another file."""
    try:
        if stat.S_ISSOCK(os.fstat(fd).st_mode):
            return True
        path = os.readlink("/proc/self/fd/%d" % fd)
    except OSError:
        return False
    # A deleted file takes the place of a memfd where the system has none.
    return "/memfd:catchment-" in path or ("/catchment-" in path and path.endswith(" (deleted)"))


def _receive(address: Optional[str]) -> List[int]:
    """Receives the descriptors from the worker, of this process's user,
    that listens at an abstract Unix address."""
    fds = array.array("i")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect("\0" + (address or ""))
            # An address that a worker has given up may be any user's.
            _, user, _ = struct.unpack(
                _CREDENTIALS,
                connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(_CREDENTIALS)),
            )
            if user != os.geteuid():
                raise RuntimeError(_OTHER_USER % (user, os.geteuid()))
            _, messages, _, _ = connection.recvmsg(
                1, socket.CMSG_SPACE(_COUNT * fds.itemsize), socket.MSG_CMSG_CLOEXEC
            )
    except OSError as error:
        raise RuntimeError(_JOINED_TWICE) from error
    for level, kind, data in messages:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    if len(fds) != _COUNT:
        raise RuntimeError(_JOINED_TWICE)
    return list(fds)


class StartedWorker:
    """A worker of the job at `master`, as a child of this process and attached to it.

    Instead of a program the worker starts a shell, which records the address of the worker's descriptors. The
    shell runs as long as this process, or until `end`: it reads from a named pipe that this process holds
    open for writing.
    """

    def __init__(self, master: str) -> None:
        program = _worker_program()
        with tempfile.TemporaryDirectory(prefix="catchment-join-") as directory:
            lock = _lock(directory)
            alive, address = os.path.join(directory, "alive"), os.path.join(directory, "address")
            os.mkfifo(alive, 0o600)
            # For reading, too: opening it for writing alone would wait for a reader.
            self._alive: Optional[int] = os.open(alive, os.O_RDWR | os.O_CLOEXEC)
            shell = 'exec <%s; echo "$CATCHMENT_ATTACH_ADDRESS" >%s; read -r end; true' % (
                shlex.quote(alive),
                shlex.quote(address),
            )
            # In a session of its own, because Ctrl-C is for this process.
            self._process = subprocess.Popen(
                [program, "--master=" + master, "--program=" + shell],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                self.address = self._await(address)
            except BaseException:
                self._process.kill()
                self._process.wait()
                os.close(self._alive)
                raise
            finally:
                lock.close()

    def _await(self, path: str) -> str:
        """Waits for a line in a file; returns it."""
        while True:
            if os.path.exists(path):
                with open(path) as file:
                    line = file.read()
                if line.endswith("\n"):
                    return line[:-1]
            code = self._process.poll()
            if code is not None:
                raise RuntimeError(
                    "catchment_worker, started by join(master=...), ended with exit code %d; "
                    "its log says why" % code
                )
            time.sleep(_PAUSE_SECONDS)

    def end(self, seconds: float = _END_SECONDS) -> None:
        """Lets the worker end, and waits for it; kills it after `seconds`."""
        if self._alive is None:
            return
        os.write(self._alive, b"\n")
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._alive)
        self._alive = None


def _lock(directory: str) -> TextIO:
    """Makes the next `catchment` command delete a temporary directory if this process is killed, as those of
    commands (cli/base/temporary_directory.h). Returns the file that holds the lock until it is closed."""
    file = open(os.path.join(directory, "temporary.lock"), "x")
    fcntl.lockf(file, fcntl.LOCK_EX)
    file.write("%s %d\n" % (socket.gethostname(), os.getpid()))
    file.flush()
    return file


def _worker_program() -> str:
    worker = _command.find("catchment_worker")
    if worker is None:
        raise RuntimeError(_NO_WORKER)
    return worker
