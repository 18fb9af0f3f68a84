"""Trains with the real daemons, for the tests of catchment.torch."""

import glob
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import unittest

import torch

CATCHMENT = "cli/catchment" if os.path.exists("cli/catchment") else "bazel-bin/cli/catchment"


def read(path):
    with open(path) as file:
        return file.read()


def tensors(path):
    """The tensors of a safetensors file by name."""
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    return {
        name: torch.frombuffer(bytearray(data[8 + size :]), dtype=torch.float32)[
            about["data_offsets"][0] // 4 : about["data_offsets"][1] // 4
        ].view(about["shape"])
        for name, about in header.items()
    }


class TorchCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.rows = os.path.join(cls.directory.name, "rows.csv")
        torch.manual_seed(2)
        x = torch.rand(240, 6) * 4 - 2
        y = (x[:, :3] + x[:, 3:]).argmax(1)
        with open(cls.rows, "w") as file:
            for features, label in zip(x.tolist(), y.tolist()):
                file.write(",".join("%.6f" % value for value in features) + ",%d\n" % label)

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def catchment(self, name, arguments, fails=False):
        """Trains; returns the directory of the result."""
        out = os.path.join(self.directory.name, name)
        command = [
            CATCHMENT,
            "train",
            "--set",
            "batch_size=16",
            "--set",
            "device=CPU",
            *arguments,
            "--out=" + out,
        ]
        environment = dict(os.environ, PYTHONPATH=os.path.abspath("python"))
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        self.logs = done.stdout + "".join(
            read(path) for path in sorted(glob.glob(out + "/logs/worker-*.log"))
        )
        self.assertEqual(done.returncode != 0, fails, self.logs)
        return out

    def attached(self, variant, *arguments, command="", program="torch_program", **more):
        """Trains a variant of a program of this directory; `command` goes between the
        interpreter and the program."""
        program = "%s %s tests/python/%s.py %s %s" % (sys.executable, command, program, self.rows, variant)
        return self.catchment(
            "attached-%s" % self.id().split(".")[-1] + variant,
            ["--program=" + program, "--overwrite", *arguments],
            **more,
        )

    def evaluators_log(self, out):
        return "".join(read(path) for path in glob.glob(out + "/logs/evaluator*.log"))

    def sets(self, *fields):
        return [word for field in fields for word in ("--set", field)]


class FrameworkCase(TorchCase):
    """Tests of a framework's programs: `program ROWS VARIANT` trains as a worker or, without one, by itself,
    and prints the weights that its model has then."""

    program = None
    # Steps of all rows, so that their order does not count: those of the program without a job.
    ALONE = [
        "optimizer.learning_rate=0.1",
        "optimizer.momentum=0",
        "optimizer.schedule.decay=CONSTANT",
        "batch_size=240",
        "epochs=15",
    ]

    def trained(self, variant, *fields, workers=1, **more):
        return self.attached(
            variant, "--workers=%d" % workers, *self.sets(*fields), program=self.program, **more
        )

    def weights_in(self, log):
        return json.loads(
            [line for line in log.splitlines() if "weights {" in line][-1].split("weights ", 1)[1]
        )

    def assert_as_alone(self, variant, out, frozen=()):
        """frozen: names of parameters that the job does not train."""
        done = subprocess.run(
            [sys.executable, "tests/python/%s.py" % self.program, self.rows, variant],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.assertEqual(done.returncode, 0, done.stdout)
        expected = self.weights_in(done.stdout)
        file = {
            name: tensor.flatten().tolist() for name, tensor in tensors(out + "/model.safetensors").items()
        }
        own = self.weights_in(self.logs)
        self.assertFalse(set(file) & set(frozen))
        for weights in (dict(own, **file), own):
            for name, values in expected.items():
                self.assertLess(max(abs(a - b) for a, b in zip(weights[name], values)), 1e-6, name)

    def summary(self, out):
        return json.loads(read(out + "/summary.json"))

    def assert_scored(self, out, samples):
        summary = self.summary(out)
        self.assertEqual(summary["samples"], samples)
        self.assertGreater(summary["test_accuracy"], 0.8)
        self.assertLess(summary["test_loss"], 0.6)

    def evaluators_log(self, out):
        return "".join(read(path) for path in glob.glob(out + "/logs/evaluator*.log"))


class RowsChecks:
    """Tests of the tables in docs/lightning.md. rows: a module with their cases, of programs that end where
    they would join a job. section: the heading above the table."""

    def test_refuses_by_name(self):
        for row, cases in self.rows.REFUSED.items():
            for arguments, words in cases:
                with self.subTest(row, words=words):
                    _, error = self.rows.outcome(**arguments)
                    self.assertIsInstance(error, (ValueError, TypeError))
                    self.assertRegex(str(error), words)

    def test_warns_of_what_has_no_effect(self):
        for row, cases in self.rows.NO_EFFECT.items():
            for arguments, words in cases:
                with self.subTest(row, words=words):
                    warned, error = self.rows.outcome(**arguments)
                    self.assertRegex(str(error), "not started by a Catchment worker")
                    self.assertRegex(warned, "(?m)^%s: .*%s" % (re.escape(self.rows.__file__), words))

    def test_accepts_without_a_word(self):
        for row, cases in self.rows.QUIET.items():
            for arguments in cases:
                with self.subTest(row):
                    warned, error = self.rows.outcome(**arguments)
                    self.assertRegex(str(error), "not started by a Catchment worker")
                    self.assertNotRegex(warned, "the job|no effect")

    def test_the_page_has_these_rows_and_no_others(self):
        table = read("docs/lightning.md").split(self.section + "\n")[1].split("\n\n## ")[0].splitlines()
        cells = [line.replace("`", "").split(" | ", 1) for line in table if line.startswith("| ")][2:]
        kinds = {
            "an error": self.rows.REFUSED,
            "no effect": self.rows.NO_EFFECT,
            "counts": self.rows.QUIET,
            "": self.rows.IN_JOBS,
        }
        for kind, rows in kinds.items():
            for row in rows:
                self.assertTrue(any(row in cell and kind in other for cell, other in cells), row)
        for cell, _ in cells:
            self.assertTrue(any(row in cell for rows in kinds.values() for row in rows), cell)
