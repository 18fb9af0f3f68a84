"""Launchers start the runs of a comparison on this machine or on a cluster. A launcher leaves nothing but the
directory of each run; the run is done if that contains its result.

Here is also what they share: commands of a cluster's software, such as sbatch and kubectl.
"""

import abc
import os
import shutil
import signal
import time
from typing import Sequence

from catchment.study import errors, processes
from catchment.study.errors import Refused
from catchment.study.options import CompareOptions
from catchment.study.plan import PlannedRun
from catchment.study.processes import SignalWaiter
from catchment.study.runs import Work
from catchment.study.simulator import Simulator

COMMAND_SECONDS = 120  # for a command to end
QUOTED_LINES = 8  # of an output or a log, in messages


class Interrupted(Refused):
    """A signal has ended the launcher."""

    def __init__(self, number: int) -> None:
        super().__init__("interrupted; the same command continues with the missing runs")
        self.exit_code = errors.SIGNAL + number


class Launcher(abc.ABC):
    concurrent = False  # whether it executes several runs at once

    @abc.abstractmethod
    def launch(self, runs: Sequence[PlannedRun], work: Work) -> None:
        """Carries out runs that are not done, and those that follow them. Reports the end of each, also that
        of a run that fails, after which it continues with the others. May return before all have begun if the
        data have changed. Errors, Interrupted among them, concern all runs."""


class SequentialLauncher(Launcher):
    """Carries out one run after another."""

    def launch(self, runs: Sequence[PlannedRun], work: Work) -> None:
        left = list(runs)
        while left and not work.directory.data_changed:
            run = left.pop(0)
            self.train(run, work)
            left += work.following(run)

    @abc.abstractmethod
    def train(self, run: PlannedRun, work: Work) -> None:
        """Carries out one run."""


def make_launcher(options: CompareOptions, signals: SignalWaiter) -> Launcher:
    """Returns that of the options. Refused if a program that it needs is missing."""
    if options.launcher == "slurm":
        from . import slurm

        return slurm.SlurmLauncher(options, slurm.find_programs(), signals)
    if options.launcher == "kubectl":
        from . import kubernetes

        return kubernetes.KubectlLauncher(options, kubernetes.find_program(), signals)
    from . import local

    with Simulator() as simulator:
        problem = simulator.ask(about=True)["daemons"]
    if problem:
        raise Refused(problem)
    return local.LocalLauncher(options, signals)


def find(launcher: str, program: str, remedy: str) -> str:
    """Returns the path of a program in $PATH."""
    path = shutil.which(program)
    if not path:
        ways = remedy + ", or leave out --launcher to train on this machine"
        raise Refused("--launcher=%s: no %s in PATH; %s" % (launcher, program, ways))
    return path


def execute_or_refuse(argv: Sequence[str], log: str, seconds: float = COMMAND_SECONDS) -> str:
    """Executes a command and returns its output, which is also written to the file `log`. Refused if it fails
    or does not end within `seconds`, with the last lines of its output."""
    code, output = processes.execute(argv, log, seconds)
    if code == 0:
        return output
    how = "no answer within %g s" % seconds if code is None else processes.describe_end(code)
    quoted = quote_last(output)
    raise Refused("%s failed (%s):%s" % (os.path.basename(argv[0]), how, quoted))


def quote_last(text: str, most: int = QUOTED_LINES) -> str:
    """Returns the last lines, each indented on a line of its own, after a line break."""
    return "\n    " + ("\n    ".join(processes.last_lines(text, most)) or "(nothing)")


def await_request_to_end(seconds: float, signals: SignalWaiter) -> int:
    """Returns the next request to end the command within `seconds`; 0 if there is none."""
    end = time.monotonic() + seconds
    number = int(signal.SIGCHLD)
    while number == signal.SIGCHLD:
        number = signals.wait(end - time.monotonic())
    return number
