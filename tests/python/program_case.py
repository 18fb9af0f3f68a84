"""Trains with the real daemons, for the tests of programs."""

import array
import glob
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unittest

CATCHMENT = "cli/catchment" if os.path.exists("cli/catchment") else "bazel-bin/cli/catchment"
SAMPLES = 240


def read(path):
    with open(path) as file:
        return file.read()


def tensors(path):
    """The values of a safetensors file by the tensors' names."""
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    return {
        name: array.array("f", data[8 + size :][slice(*about["data_offsets"])])
        for name, about in header.items()
    }


class ProgramCase(unittest.TestCase):
    """PROGRAM: of this directory; its arguments are a CSV file of samples and a variant."""

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.rows = os.path.join(cls.directory.name, "rows.csv")
        numbers = random.Random(2)
        with open(cls.rows, "w") as file:
            for _ in range(SAMPLES):
                x = [numbers.uniform(-2, 2) for _ in range(6)]
                sums = [x[i] + x[i + 3] for i in range(3)]
                file.write(",".join("%.6f" % value for value in x) + ",%d\n" % sums.index(max(sums)))

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def train(self, variant, *changes, workers=1, fails=False, **environment):
        """Trains a variant of the program; returns the directory of the result."""
        out = os.path.join(self.directory.name, variant)
        program = "%s tests/python/%s %s %s" % (sys.executable, self.PROGRAM, self.rows, variant)
        command = [
            CATCHMENT,
            "train",
            "--program=" + program,
            "--workers=%d" % workers,
            "--overwrite",
            "--out=" + out,
        ]
        for change in ("batch_size=16", "device=CPU", *changes):
            command += ["--set", change]
        environment = dict(os.environ, PYTHONPATH=os.path.abspath("python"), **environment)
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        logs = sorted(glob.glob(out + "/logs/worker-*.log") + glob.glob(out + "/logs/evaluator*.log"))
        self.logs = done.stdout + "".join(map(read, logs))
        self.assertEqual(done.returncode != 0, fails, self.logs)
        if not fails:  # not behind the loop, either, when the job is done
            self.assertNotRegex(self.logs, "the program .* ended: (?!exit code 0)")
        return out

    def summary(self, out):
        return json.loads(read(out + "/summary.json"))
