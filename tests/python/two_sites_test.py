#!/usr/bin/env python3
"""examples/python/gpt_two_sites.py with the real daemons, on a small model. Needs an interpreter with PyTorch
2.1 or newer:

    PYTHON=/path/to/venv/bin/python tests/python/torch_test.sh

Where network namespaces cannot be made, the sites have no link; all else is tested there, too.
"""

import glob
import json
import math
import os
import subprocess
import sys
import tempfile
import unittest

from torch_case import read

SMALL = (
    "--width=32",
    "--heads=2",
    "--layers=1",
    "--context=16",
    "--seconds=3",
    "--step_seconds=0.05",
    "--local_steps=4",
)


class TwoSitesTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.out = os.path.join(self.directory.name, "out")

    def example(self, *flags, **environment):
        """Returns the exit code and what the example prints."""
        done = subprocess.run(
            [sys.executable, "examples/python/gpt_two_sites.py", "--out=" + self.out, *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=dict(os.environ, **environment),
        )
        return done.returncode, done.stdout

    def results(self, text):
        self.assertTrue(os.path.exists(self.out + "/two_sites.json"), text)
        return json.loads(read(self.out + "/two_sites.json"))

    def test_trains_with_all_algorithms_while_a_learner_is_killed(self):
        code, text = self.example(*SMALL)
        logs = "".join(map(read, sorted(glob.glob(self.out + "/*/logs/*.log"))))
        self.assertEqual(code, 0, text + logs)
        results = self.results(text)
        self.assertEqual(
            [run["algorithm"] for run in results["runs"]], ["decoupled_diloco", "diloco", "sync"]
        )
        for run in results["runs"]:
            with self.subTest(run["algorithm"]):
                self.assertGreater(run["samples"], 0)
                self.assertTrue(all(math.isfinite(loss) for _, loss in run["points"]) and run["points"], run)
                self.assertLess(run["killed"], run["back"])
                self.assertLess(run["back"], run["seconds"])
                server = read("%s/%s/logs/server.log" % (self.out, run["algorithm"]))
                self.assertRegex(server, "considered lost")
                if results["link"]:
                    self.assertGreater(run["link_bytes"], 0)
                self.assertIn("\n%-16s" % run["algorithm"], text)
        if not results["link"]:
            self.assertIn("Trains without a link, and exchanges cost next to nothing: ", text)

    def test_trains_without_a_link_where_namespaces_cannot_be_made(self):
        book = os.path.join(self.directory.name, "book.txt")
        with open(book, "w", encoding="utf-8") as file:
            file.write("It was the best of tests, it was the worst of tests. " * 100)
        code, text = self.example(*SMALL, "--algorithms=streaming_diloco", "--text=" + book, PATH="/nowhere")
        self.assertEqual(code, 0, text)
        self.assertIn(
            "Trains without a link, and exchanges cost next to nothing: network namespaces are "
            "made with the commands unshare and ip: install util-linux and iproute2.",
            text,
        )
        self.assertIsNone(self.results(text)["link"])

    def test_names_what_is_wrong(self):
        short = os.path.join(self.directory.name, "short.txt")
        with open(short, "w", encoding="utf-8") as file:
            file.write("Too short.")
        for flags, message in (
            (["--algorithms=diloko"], "--algorithms: there is no diloko, only decoupled_diloco, "),
            (["--text=/nowhere"], "--text=/nowhere is not a file"),
            (["--width=10", "--heads=4"], "--width=10 must be a multiple of --heads=4"),
            ([*SMALL, "--text=" + short], "the text has only 10 characters: give --text at least 160"),
            (["--out=" + self.directory.name], "is already there: remove it"),
        ):
            with self.subTest(message):
                code, text = self.example(*flags)
                self.assertEqual(code, 1, text)
                self.assertIn(message, text)


if __name__ == "__main__":
    unittest.main()
