"""Runs with processes on this machine, one after another, each of which `catchment train` starts and ends."""

import json
import os
import signal
import subprocess
from typing import List, Tuple

from catchment.study import core, processes, run_directory, runs
from catchment.study.launchers import Interrupted, SequentialLauncher
from catchment.study.options import CompareOptions
from catchment.study.plan import PlannedRun

_POLL_SECONDS = 0.2


class LocalLauncher(SequentialLauncher):
    def __init__(self, options: CompareOptions, signals: processes.SignalWaiter) -> None:
        self._options, self._signals = options, signals

    def train(self, run: PlannedRun, work: runs.Work) -> None:
        path = runs.prepare_run(run, work.directory)
        work.progress.begin(runs.label_of(run))
        error, number = self._follow(self._command(run, path), work.progress)
        if number:
            raise Interrupted(number)
        run_directory.delete_run_checkpoints(path)
        work.progress.end("failed: " + error if error else runs.result_line(path))

    def _command(self, run: PlannedRun, path: str) -> List[str]:
        options = self._options
        command = [core.binary(), "train", path + "/job.textproto", "--door", "--overwrite", "--out=" + path]
        command += ["--servers=%d" % options.servers, "--threads=%d" % options.threads]
        command += ["--stall_seconds=%r" % options.stall_seconds, "--seconds=%r" % run.seconds]
        # A comparison depends on the scores, which must not be delayed if workers use all processors.
        command.append("--evaluator_nice=0")
        given = {"device": options.device, "program": options.program}
        return command + ["--%s=%s" % flag for flag in given.items() if flag[1]]

    def _follow(self, command: List[str], progress: runs.CompareProgress) -> Tuple[str, int]:
        """Returns why a run has failed, or an empty text, and the signal that has ended it, or 0."""
        process = processes.start("catchment train", command, subprocess.PIPE, None)
        assert process.stdout
        os.set_blocking(process.stdout.fileno(), False)
        end, number, unfinished, code = {}, 0, b"", None
        while code is None:
            received = self._signals.wait(_POLL_SECONDS)
            if received not in (0, signal.SIGCHLD):
                number = number or received
                process.send_signal(received)
            # It is asked before the lines are read, so that all lines of a process that has ended are.
            code = process.poll()
            *lines, unfinished = (unfinished + (process.stdout.read() or b"")).split(b"\n")
            for message in map(json.loads, lines):
                if "progress" in message:
                    progress.update(message["progress"])
                elif "note" in message:
                    progress.note(message["note"])
                else:
                    end = message
        process.stdout.close()
        progress.clear()
        died = "`catchment train` ended (%s)" % processes.describe_end(code)
        return end.get("error", died), end.get("signal", 0) or number
