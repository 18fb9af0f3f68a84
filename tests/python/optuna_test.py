#!/usr/bin/env python3
"""The example of a search with Optuna: it trains, prunes, continues and names the best trial.
PYTHON has Optuna.

bazel test //tests/python:optuna_test --test_env=PYTHON=/path/to/venv/bin/python
"""

import os
import sqlite3
import subprocess
import unittest

OUT = os.path.join(os.environ["TEST_TMPDIR"], "search")
DIGITS = "data.drawn_digits={train_samples: 512, test_samples: 128}"


def search(trials):
    command = [
        os.environ.get("PYTHON", "python3"),
        "examples/python/optuna_tune.py",
        "examples/drawn_digits.textproto",
        f"--trials={trials}",
        f"--out={OUT}",
        "--catchment=cli/catchment",
        "--",
        "--workers=1",
        f"--set={DIGITS}",
        "--set=samples=2048",
        "--set=evaluation.every_epochs=0.25",
    ]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def states():
    with sqlite3.connect(os.path.join(OUT, "study.db")) as database:
        return [state for (state,) in database.execute("SELECT state FROM trials ORDER BY number")]


class OptunaTest(unittest.TestCase):
    def test_a_search_continues_and_names_the_best_trial(self):
        first = search(2)
        self.assertEqual(first.returncode, 0, first.stdout)
        self.assertEqual(len(states()), 2)
        done = search(8)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(
            done.stdout, r"best: trial \d, \d+\.\d+%, \{'learning_rate': [\d.]+, 'momentum': [\d.]+\}"
        )
        self.assertEqual(len(states()), 8)
        self.assertLessEqual(set(states()), {"COMPLETE", "PRUNED", "FAIL"})
        self.assertIn("COMPLETE", states())
        for number, state in enumerate(states()):
            self.assertEqual(os.path.exists(f"{OUT}/trial-{number}/job.textproto"), True, state)


if __name__ == "__main__":
    unittest.main()
