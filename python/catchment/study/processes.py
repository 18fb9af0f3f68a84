"""Child processes whose output goes to log files, and the signals of a command."""

import ctypes
import os
import re
import signal
import subprocess
from typing import Any, List, Optional, Sequence, Set, Tuple

from . import files
from .errors import Refused
from .text import escape_controls, one_line

_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


def start(
    name: str, argv: Sequence[str], stdout: int, stderr: Optional[int], stdin: int = subprocess.DEVNULL
) -> "subprocess.Popen[bytes]":
    """Starts a program without blocked signals, in a process group of its own (Ctrl-C reaches only this
    process). The kernel kills it when this thread ends in any way."""
    kernel, parent = ctypes.CDLL(None), os.getpid()

    def prepare() -> None:
        os.setpgid(0, 0)
        kernel.prctl(_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(127)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])

    try:
        return subprocess.Popen(argv, stdin=stdin, stdout=stdout, stderr=stderr, preexec_fn=prepare)
    except OSError as error:
        what = "%s: %s" % (name, argv[0]) if name else argv[0]
        raise Refused("cannot start %s: %s" % (what, error.strerror)) from error


def describe_end(code: int) -> str:
    """Returns "exit code 1" or "killed by SIGKILL (9)"."""
    if code >= 0:
        return "exit code %d" % code
    name = signal.Signals(-code).name if -code in list(signal.Signals) else "SIG?"
    return "killed by %s (%d)" % (name, -code)


def shell_quoted(argument: str) -> str:
    """Returns the argument quoted for a shell, for bash and zsh if it has control characters other than
    line breaks."""
    if re.fullmatch(r"[A-Za-z0-9_=./:,+@%-]+", argument):
        return argument
    if escape_controls(argument) != argument:
        return "$'%s'" % one_line(argument.replace("\\", "\\\\").replace("'", "\\x27"))
    return "'%s'" % argument.replace("'", "'\\''")


def shell_command(command: str, args: Sequence[str]) -> str:
    """Returns the command and its arguments, quoted for a shell."""
    return " ".join([command, *map(shell_quoted, args)])


def last_lines(text: str, lines: int) -> List[str]:
    """Returns the last lines of a text that are not empty, at most `lines`."""
    return [line for line in text.split("\n") if line.strip()][-lines:]


class SignalWaiter:
    """Receives the signals that ask the command to end, and SIGCHLD, in calls instead of a handler, while it
    is entered. A signal that the process ignores, such as SIGHUP under nohup, is not one of them."""

    def __init__(self) -> None:
        ending = {signal.SIGTERM, signal.SIGINT}
        for other in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU):
            if signal.getsignal(other) != signal.SIG_IGN:
                ending.add(other)
        self._awaited: Set[int] = {signal.SIGCHLD, *ending}
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, self._awaited)

    def __enter__(self) -> "SignalWaiter":
        return self

    def __exit__(self, *_: Any) -> None:
        while self.wait(0):
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def wait(self, seconds: float) -> int:
        """Returns the next signal, or 0 if there is none within `seconds`."""
        info = signal.sigtimedwait(self._awaited, max(0.0, seconds))
        return info.si_signo if info else 0


def execute(argv: Sequence[str], log: str, seconds: float) -> Tuple[Optional[int], str]:
    """Executes a command and returns its exit code, None if it does not end within `seconds`, and its output,
    which is also in the file `log`."""
    files.delete(log)
    file = files.open_file(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        process = start(os.path.basename(argv[0]), argv, file, subprocess.STDOUT)
    finally:
        os.close(file)
    try:
        code: Optional[int] = process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        code = None
    return code, files.text_or_empty_of(log)
