"""Runs programs of the bundle and tools of NVIDIA, each with its time and its logs."""

import glob
import os
import re
import shutil
import subprocess
import time

from results import Failed, NotRun

HERE = os.path.dirname(os.path.abspath(__file__))


class TooSlow(Failed):
    """Says that a program was not done in its time."""


def end(process):
    """Ends a program in order, with its daemons, if it still can."""
    process.terminate()
    try:
        return process.communicate(timeout=15)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()


def find_tool(name):
    path = shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")
    if path is None:
        raise NotRun(f"there is no {name}")
    return path


def reason_of(errors, output):
    """Returns the last line that says something: a stack trace may follow it."""
    lines = (errors.strip() or output.strip() or "no output").splitlines()
    telling = [line for line in lines if not re.match(r"\s+@ |\*\*\* ", line)]
    return (telling or lines)[-1][:300]


class Programs:
    """out: the folder of logs. minutes: for all parts. plugin: the bundle's if it is empty."""

    def __init__(self, out, minutes, plugin):
        self.out, self.minutes, self.start = out, minutes, time.monotonic()
        self.share = 1.0  # of all time, at which the current part is over
        self.env = dict(os.environ, CATCHMENT_CUDA_PLUGIN=plugin or HERE + "/bin/libcatchment_cuda.so")
        # The programs and libraries of the bundle find their own before these.
        folders = [os.environ.get(name, "") for name in ("CATCHMENT_CUBLAS", "LD_LIBRARY_PATH")]
        if folders[0]:
            self.env["LD_LIBRARY_PATH"] = ":".join(filter(None, folders))
        os.makedirs(out, exist_ok=True)

    def seconds(self):
        return time.monotonic() - self.start

    def seconds_left(self):
        return self.share * 60 * self.minutes - self.seconds()

    def time_is_over(self):
        return f"the time of this part of the {self.minutes:g} minutes is over"

    def log(self, name):
        return f"{self.out}/{name}.log"

    def once(self, name, command, seconds, cublaslt_level=1, sync=False):
        """Returns a program's output. Both streams go to a log, and cuBLASLt's to one of each process."""
        limit = min(seconds, self.seconds_left())
        if limit < 5:
            raise NotRun(self.time_is_over())
        cublaslt_log = f"{self.out}/{name}_cublaslt_"
        env = dict(
            self.env, CUBLASLT_LOG_LEVEL=str(cublaslt_level), CUBLASLT_LOG_FILE=cublaslt_log + "%i.log"
        )
        if sync:
            env["CATCHMENT_CUDA_SYNC"] = "1"
        process = subprocess.Popen(
            command,
            env=env,
            cwd=HERE,
            text=True,
            errors="replace",
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            (output, errors), late = process.communicate(timeout=limit), False
        except subprocess.TimeoutExpired:
            (output, errors), late = end(process), True
        with open(self.log(name), "w") as file:
            file.write(output + errors)
        for path in glob.glob(glob.escape(cublaslt_log) + "*.log"):
            if os.path.getsize(path) == 0:
                os.remove(path)
        if late and limit < seconds:
            raise NotRun("not to its end: " + self.time_is_over())
        if late:
            raise TooSlow(f"not done after {limit:.0f} s ({name}.log)")
        if process.returncode != 0:
            raise Failed(f"exit code {process.returncode}: {reason_of(errors, output)} ({name}.log)")
        return output

    def run(self, name, command, seconds):
        """Does the same, and once more after a failure, so that the kernel that fails is named."""
        try:
            return self.once(name, command, seconds)
        except TooSlow:
            raise
        except Failed as first:
            raise Failed(f"{first}; {self.second_try(name, command, seconds)}") from None

    def second_try(self, name, command, seconds):
        try:
            self.once(name + "_sync", command, seconds, cublaslt_level=5, sync=True)
            return "with CATCHMENT_CUDA_SYNC=1: passed"
        except (Failed, NotRun) as failure:
            return f"with CATCHMENT_CUDA_SYNC=1: {failure}"
