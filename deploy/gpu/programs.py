"""Runs programs of the bundle and tools of NVIDIA, each with its time and its logs."""

import contextlib
import glob
import os
import re
import select
import shutil
import signal
import subprocess
import time

from results import Failed, NotRun

HERE = os.path.dirname(os.path.abspath(__file__))
LEAST_SECONDS = 5  # in which a program can do something
GRACE_SECONDS = 10  # for a program to end


class TooSlow(Failed):
    """Says that a program was not done in its time."""


class Stopped(BaseException):
    """A signal ends the check: what has been measured is kept."""

    def __init__(self, number):
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


def end(process):
    """Ends a program in order, with its daemons, if it still can; then whatever is left of its group."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=GRACE_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(timeout=GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        # A driver that hangs keeps a process even then, and the check goes on without it.
        print(f"process {process.pid} does not end, although it was killed", flush=True)


def find_tool(name):
    path = shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")
    if path is None:
        raise NotRun(f"there is no {name}")
    return path


def reason_of(errors, output):
    """Returns the last line that says something: a stack trace may follow it."""
    lines = (errors.strip() or output.strip() or "no output").splitlines()
    telling = [line for line in lines if not re.match(r"\s+@ |\*\*\* ", line)]
    return (telling or lines)[-1][:600]


def read(path):
    with open(path, errors="replace") as file:
        return file.read()


class Programs:
    """out: the folder of logs. minutes: for all parts. plugin: the bundle's if it is empty. folders: of
    libraries of CUDA."""

    def __init__(self, out, minutes, plugin, folders):
        self.out, self.minutes, self.start = out, minutes, time.monotonic()
        self.row_end, self.planned = self.start, 0.0
        self.env = dict(os.environ, CATCHMENT_CUDA_PLUGIN=plugin or HERE + "/bin/libcatchment_cuda.so")
        # The programs and libraries of the bundle find their own before these.
        paths = [*folders, os.environ.get("LD_LIBRARY_PATH", "")]
        if folders:
            self.env["LD_LIBRARY_PATH"] = ":".join(filter(None, paths))
        # CUDA numbers devices as nvidia-smi does.
        self.env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"

    def seconds(self):
        return time.monotonic() - self.start

    def begin_row(self, end, planned):
        """Gives the next programs the time until `end`, in seconds from the start of the check. planned: what
        the row needs."""
        self.row_end, self.planned = self.start + end, planned

    def seconds_left(self):
        return self.row_end - time.monotonic()

    def limit(self):
        """Returns the seconds for the next program; there may be too few."""
        left = self.seconds_left()
        if left < LEAST_SECONDS:
            raise NotRun(f"the time of this row in the {self.minutes:g} minutes is over")
        return left

    def log(self, name):
        return f"{self.out}/{name}.log"

    def once(self, name, command, cublaslt_level=1, sync=False, env=None):
        """Returns a program's output. Both streams go to a log, and cuBLASLt's to one of each process."""
        limit = self.limit()
        cublaslt_log = f"{self.out}/{name}_cublaslt_"
        env = dict(
            env or self.env, CUBLASLT_LOG_LEVEL=str(cublaslt_level), CUBLASLT_LOG_FILE=cublaslt_log + "%i.log"
        )
        if sync:
            env["CATCHMENT_CUDA_SYNC"] = "1"
        # Files, and not pipes: they are there if this check is killed, and no grandchild that lives on
        # holds the check up.
        printed = f"{self.out}/{name}.out"
        with open(printed, "w") as output, open(self.log(name), "w") as errors:
            process = subprocess.Popen(
                command,
                env=env,
                cwd=HERE,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
            try:
                process.wait(timeout=limit)
                late = False
            except subprocess.TimeoutExpired:
                late = True
            finally:
                if process.returncode is None:
                    end(process)
        output, errors = read(printed), read(self.log(name))
        with open(self.log(name), "w") as file:
            file.write(output + errors)
        os.remove(printed)
        for path in glob.glob(glob.escape(cublaslt_log) + "*.log"):
            if os.path.getsize(path) == 0:
                os.remove(path)
        if late:
            # With less time than it needs by the plan, a program has not failed.
            kind = TooSlow if limit >= self.planned else NotRun
            raise kind(f"not done after {limit:.0f} s ({name}.log)")
        if process.returncode != 0:
            raise Failed(f"exit code {process.returncode}: {reason_of(errors, output)} ({name}.log)")
        return output

    def run(self, name, command, **options):
        """Does the same, and once more after a failure, so that the kernel that fails is named."""
        try:
            return self.once(name, command, **options)
        except TooSlow:
            raise
        except Failed as first:
            raise Failed(f"{first}; {self.second_try(name, command, **options)}") from None

    def second_try(self, name, command, **options):
        try:
            self.once(name + "_sync", command, cublaslt_level=5, sync=True, **options)
            return "with CATCHMENT_CUDA_SYNC=1: passed"
        except (Failed, NotRun) as failure:
            return f"with CATCHMENT_CUDA_SYNC=1: {failure}"

    def talk(self, name, command):
        """Starts a program to ask. Each answer may take two thirds of the time that is left, for the program
        beside it needs some, too."""
        return Talk(command, self.env, self.log(name), lambda: self.limit() * 2 / 3)


class Talk:
    """A program that answers each line with one, within the time that `limit()` returns."""

    def __init__(self, command, env, log, limit):
        self._log, self._limit, self._rest = log, limit, b""
        with open(log, "w") as errors:
            self._process = subprocess.Popen(
                command,
                env=env,
                cwd=HERE,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            end(self._process)
        self._process.stdout.close()

    def ask(self, question=""):
        """Returns the answer to a line, or without a question the first line of the program."""
        with contextlib.suppress(BrokenPipeError):  # it has ended, which the answer shows
            if question:
                self._process.stdin.write(question.encode() + b"\n")
                self._process.stdin.flush()
        end_of_limit = time.monotonic() + self._limit()
        stdout = self._process.stdout.fileno()
        while b"\n" not in self._rest:
            if not select.select([stdout], [], [], max(0, end_of_limit - time.monotonic()))[0]:
                raise NotRun(f"no answer in its time ({os.path.basename(self._log)})")
            more = os.read(stdout, 4096)
            if not more:
                raise Failed(f"it ended: {reason_of(read(self._log), '')} ({os.path.basename(self._log)})")
            self._rest += more
        answer, self._rest = self._rest.split(b"\n", 1)
        return answer.decode(errors="replace")
