#!/usr/bin/env python3
"""python/catchment/study/core.py with the binary, and with programs that stand in for it."""

import json
import os
import subprocess
import tempfile
import unittest
from unittest import mock

import reference
from catchment.study import core
from catchment.study.errors import Unavailable

DIGITS = "examples/drawn_digits.textproto"

# Describes a model and says so, as a program that calls catchment.join() does.
PROGRAM = """cat > $CATCHMENT_DESCRIBE/model.textproto <<'END'
model { external { tensors { name: "w" shape: 4 } } } data { external { train_samples: 10 } }
END
echo weights > $CATCHMENT_DESCRIBE/weights.safetensors"""


class JobTest(unittest.TestCase):
    def test_a_job_is_complete_with_its_facts(self):
        job = core.load_job(DIGITS, ["workers=3"])
        self.assertEqual((job.json["workers"], job.facts["name"], job.preset), (3, job.json["name"], "sync"))
        self.assertEqual(core.parse_job(job.text), job)
        self.assertNotEqual(core.edit(job, ["workers=4"]), job)

    def test_a_job_that_is_not_completed_may_have_facts(self):
        job = core.load_job(DIGITS)
        changed = core.edit(job, ["optimizer.momentum=7"], complete=False)
        self.assertEqual((changed.facts["momentum"], changed.facts["period"]), (7, 1))
        self.assertEqual(core.load_job(DIGITS, complete=False).facts, {})

    def test_errors_have_codes(self):
        for request, code in (
            (dict(file="/nothing"), "NOT_FOUND"),
            (dict(file=DIGITS, set=["workers=0"]), "INVALID_ARGUMENT"),
            (dict(file=DIGITS, servers=10**8), "INVALID_ARGUMENT"),
        ):
            with self.assertRaises(core.DoorError) as caught:
                core.DOOR.job(**request)
            self.assertEqual(caught.exception.code, code)
        bad, good = core.edit_all(core.load_job(DIGITS), [["workers=0"], ["workers=2"]])
        self.assertIn("workers: is 0", bad.message)
        self.assertEqual(good.json["workers"], 2)

    def test_what_the_binary_says_of_itself(self):
        self.assertRegex(core.version_line(), r"^catchment \d+\.\d+")
        self.assertGreater(core.processors(), 0)


class DoorTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name

    def door(self, *args):
        door = core.Door(*args)
        self.addCleanup(door.close)
        return door

    def test_a_program_describes_the_job_once(self):
        count, weights = self.directory + "/count", self.directory + "/initial.safetensors"
        door = self.door("", PROGRAM + "\necho x >> %s" % count)
        for name in ("first", "second"):
            job = door.job(set=["name=" + name], complete=False, initial_weights=weights)
            self.assertTrue(job.described)
            found = (job.json["name"], job.json["model"]["initial_weights"])
            self.assertEqual(found, (name, weights))
        door.ask({"copy_weights": weights})
        with open(weights) as copy, open(count) as times:
            self.assertEqual((copy.read(), times.read()), ("weights\n", "x\n"))

    def train(self, *args):
        command = [core.binary(), "train", DIGITS, "--out=" + self.directory + "/run", "--door", *args]
        end = subprocess.run(command, stdout=subprocess.PIPE, encoding="utf-8")
        lines = [json.loads(line) for line in end.stdout.splitlines()]
        self.assertEqual({line["version"] for line in lines}, {1})
        return end.returncode, lines

    def test_a_run_prints_objects(self):
        code, lines = self.train("--workers=1", "--set=samples=600", "--evaluator_nice=0")
        self.assertEqual((code, lines[-1]), (0, dict(version=1, error="", signal=0)))
        self.assertTrue(os.path.exists(self.directory + "/run/summary.json"))
        code, lines = self.train()
        self.assertEqual((code, len(lines)), (1, 1))
        self.assertIn("contains the result of a finished run", lines[0]["error"])

    def test_a_run_of_a_job_that_is_not_valid(self):
        code, (line,) = self.train("--set=workers=0")
        self.assertEqual((code, line["signal"]), (1, 0))
        self.assertIn("workers: is 0", line["error"])

    def stand_in(self, text):
        path = self.directory + "/catchment"
        with open(path, "w") as file:
            file.write("#!/bin/sh\n" + text)
        os.chmod(path, 0o755)
        return mock.patch.dict(os.environ, CATCHMENT_BINARY=path)

    def test_a_binary_that_ends_or_is_missing_is_an_error(self):
        for text in ("", "read line; exit 1\n"):
            door = self.door()
            with self.stand_in(text), self.assertRaises(Unavailable):
                door.ask({})
            self.assertIn("presets", door.ask({"about": True}), "it starts again")
        nothing = mock.patch.dict(os.environ, CATCHMENT_BINARY="/nothing")
        with nothing, self.assertRaises(Unavailable) as refused:
            self.door().ask({})
        self.assertIn("cannot start /nothing: No such file or directory: ", refused.exception.message)


if __name__ == "__main__":
    reference.use_binary()
    unittest.main()
