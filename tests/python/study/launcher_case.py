"""The base of tests of launchers: runs that are planned by hand, and shell scripts in place of a cluster's
commands."""

import io
import os
import shutil
import tempfile
import unittest

from catchment.study import core, files
from catchment.study.command_line import Stream, Streams
from catchment.study.directory import CompareDirectory
from catchment.study.errors import Refused
from catchment.study.options import CompareOptions
from catchment.study.plan import PlannedRun
from catchment.study.processes import SignalWaiter
from catchment.study.runs import run_missing


def planned(algorithm="sync", workers=2, seed=1, seconds=0.0, directory="", trial=""):
    name = directory or "runs/%s-%d-workers-seed-%d" % (algorithm, workers, seed)
    job = core.Job('name: "%s"\n' % name, facts={"learning_rate": 0.1, "momentum": 0.9})
    return PlannedRun(
        directory=name,
        algorithm=algorithm,
        workers=workers,
        seed=seed,
        seconds=seconds,
        job=job,
        trial=trial,
    )


class LauncherCase(unittest.TestCase):
    def setUp(self):
        self.root = os.path.realpath(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        self.options = CompareOptions()
        self.options.out = self.root + "/out"
        self.runs = [planned("sync"), planned("downpour")]
        self.signals = SignalWaiter()
        self.signals.__enter__()
        self.addCleanup(self.signals.__exit__)
        self.record = {"job": ""}
        self.overwrite = False
        self.out = io.StringIO()

    def write(self, name, text):
        with open(os.path.join(self.root, name), "w") as file:
            file.write(text)

    def read(self, name):
        return files.text_or_empty_of(os.path.join(self.root, name))

    def program(self, name, body):
        """Makes a shell script that runs in `root`."""
        self.write(name, "#!/bin/sh\ncd %s\n%s\n" % (self.root, body))
        os.chmod(os.path.join(self.root, name), 0o700)

    def directory(self):
        directory = CompareDirectory(self.options.out, self.overwrite, self.record)
        self.addCleanup(directory.close)
        return directory

    def streams(self):
        self.out = io.StringIO()
        return Streams(Stream(self.out), Stream(self.out))

    def launch(self):
        directory = self.directory()
        try:
            run_missing(self.runs, directory, self.launcher(), self.streams())
        finally:
            directory.close()

    def refused(self, function, *args):
        with self.assertRaises(Refused) as caught:
            function(*args)
        return caught.exception

    def assertPrinted(self, *parts):
        for part in parts:
            self.assertIn(part, self.out.getvalue())
