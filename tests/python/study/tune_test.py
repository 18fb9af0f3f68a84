#!/usr/bin/env python3
"""Tests `catchment tune` with Optuna, simulated runs, and a script for `catchment train`. PYTHON has Optuna
(tests/python/requirements/tune.txt).

bazel test //tests/python/study:tune_test --test_env=PYTHON=/path/to/venv/bin/python
"""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import types
import unittest
from unittest import mock

PYTHON = os.environ.get("PYTHON")
if PYTHON and os.path.abspath(PYTHON) != sys.executable:
    os.execv(PYTHON, [PYTHON, *sys.argv])

from catchment.study import core, tune
from catchment.study.command_line import Stream, Streams
from compare_test import BINARY, ROOT, CompareCase

JOB = """name: 'job' batch_size: 8 workers: 2 samples: 8000 model { layers { flatten {} } layers
{ dense { units: 10 } } } data { drawn_digits { train_samples: 256 test_samples: 64 } }
optimizer { kind: SGD momentum: 0 learning_rate: 0.1 schedule { decay: CONSTANT } }"""
RATE = "--over=optimizer.learning_rate=log:0.0001..10"
# With curvatures of at most 1, gradient descent diverges from a learning rate of 2 on.
QUADRATIC = (
    "--simulate",
    "--step=constant:50ms",
    "--gradient=quadratic:10:0",
    RATE,
    "--over=batch_size=4..16",
)
# The accuracy of a run is lower than that of the one before. It waits after each of its scores.
SCORES = """
n=$(cat %s/trained | wc -l); accuracy=0.$((90 - n)); i=0
for score in 1 2 3 4 5 6 7 8; do
  echo "{\\"test_accuracy\\": $accuracy, \\"tested_at_seconds\\": $score, \\"tested_at_samples\\": ${score}000}" >>$RUN/metrics.jsonl
  while %s; do sleep 0.01; done
done
finish DONE; end
"""  # noqa: E501


class TuneCase(CompareCase):
    def setUp(self):
        super().setUp()
        self.job = self.write("job.textproto", JOB)

    def tune(self, *flags, exit_code=0):
        self.out, self.err = io.StringIO(), io.StringIO()
        args = [self.job, *flags, "--out=" + self.path]
        self.choose_binary(flags)
        code = tune.main(args, Streams(Stream(self.out), Stream(self.err)))
        self.assertEqual(code, exit_code, self.err.getvalue() + self.out.getvalue())

    def choose_binary(self, flags):
        """The script that takes the place of `catchment train` has no simulator."""
        os.environ["CATCHMENT_BINARY"] = BINARY if "--simulate" in flags else self.root + "/catchment"

    def outcomes(self):
        return [one["outcome"] for one in self.report()["trials"]]

    def process(self, *flags):
        """Starts the command in a process of its own."""
        command = [sys.executable, "-m", "catchment.study", "tune", self.job, *flags, "--out=" + self.path]
        self.choose_binary(flags)
        environment = dict(os.environ, PYTHONPATH=os.path.join(ROOT, "python"))
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=environment, stdout=pipe, stderr=subprocess.STDOUT, text=True)


class TuneTest(TuneCase):
    def test_finds_a_learning_rate_and_writes_its_job(self):
        self.tune(*QUADRATIC, "--trials=12")
        self.assertIn("The best of 12 trials is trial", self.out.getvalue())
        report, best = self.report(), core.load_job(self.path + "/best.textproto").json
        self.assertEqual(len(report["trials"]), 12)
        self.assertLessEqual(set(self.outcomes()), {"complete", "pruned", "diverged"})
        self.assertIn("pruned", self.outcomes())
        self.assertEqual(report["best"]["outcome"], "complete")
        self.assertTrue(0.005 < best["optimizer"]["learning_rate"] < 2, best)
        self.assertTrue(4 <= best["batch_size"] <= 16)
        self.assertEqual(int(best["samples"]), 8000)
        self.assertEqual(set(report["importance"]), {"optimizer.learning_rate", "batch_size"})
        with open(self.path + "/report.html", encoding="utf-8") as file:
            page = file.read()
        self.assertIn("share of the variance", page)
        self.assertIn("<svg", page)

    def test_samplers_and_pruners(self):
        for sampler, pruner in (("random", "none"), ("tpe", "hyperband")):
            self.tune(*QUADRATIC, "--trials=4", "--sampler=" + sampler, "--pruner=" + pruner, "--overwrite")
            self.assertEqual((self.report()["sampler"], self.report()["pruner"]), (sampler, pruner))
            self.assertEqual("pruned" in self.outcomes() and pruner == "none", False)

    def test_the_same_command_continues_with_the_same_values(self):
        self.tune(*QUADRATIC, "--trials=8")
        whole = [one["settings"] for one in self.report()["trials"]]
        self.tune(*QUADRATIC, "--trials=3", "--overwrite")
        self.tune(*QUADRATIC, "--trials=8")
        self.assertIn("3 of 8 trials are already done", self.out.getvalue())
        self.assertEqual([one["settings"] for one in self.report()["trials"]], whole)

    def test_several_processes_share_the_trials(self):
        processes = [self.process(*QUADRATIC, "--trials=6") for _ in range(2)]
        printed = [process.communicate(timeout=600)[0] for process in processes]
        self.assertEqual([process.returncode for process in processes], [0] * 2, printed)
        begun = sorted(int(n) for out in printed for n in re.findall(r"trial (\d+), 2 w", out))
        self.assertEqual(begun, list(range(1, 7)), printed)
        self.tune(*QUADRATIC, "--trials=6")
        self.assertEqual(len(self.report()["trials"]), 6)
        self.assertNotIn("open", self.outcomes())

    def test_a_killed_process_leaves_its_trial_to_the_next_command(self):
        hold = self.write("hold", "")
        self.train(SCORES % (self.root, "[ -e %s ]" % hold))
        for number in (signal.SIGKILL, signal.SIGINT):
            run = self.path + "/runs/trial-1/metrics.jsonl"
            if os.path.exists(run):
                os.remove(run)
            process = self.process(RATE, "--trials=2")
            while not os.path.exists(run) or not os.path.getsize(run):
                time.sleep(0.01)
            process.send_signal(number)
            out = process.communicate(timeout=600)[0]
            self.assertEqual(process.returncode, -9 if number == signal.SIGKILL else 130, out)
        os.remove(hold)
        self.tune(RATE, "--trials=2")
        self.assertEqual(len(self.report()["trials"]), 2)
        self.assertEqual(self.outcomes()[0], "complete")

    def test_a_run_that_is_worse_than_others_is_ended_early(self):
        # A minute is long enough to be ended.
        wait = "[ $n != 1 ] && [ $((i += 1)) -lt 6000 ]"
        self.train("trap 'finish STOPPED; end; exit' INT\n" + SCORES % (self.root, wait))
        self.tune(RATE, "--trials=3")
        self.assertEqual(self.outcomes(), ["complete", "pruned", "pruned"])
        self.assertIn("pruned after 12", self.out.getvalue())
        self.assertLess(self.report()["trials"][1]["samples"], 8000)

    def test_a_failed_run_is_repeated_by_the_same_command(self):
        self.train("more='\"reason\": \"no data\",'; finish FAILED; end 'no data'")
        self.tune(RATE, "--trials=2", exit_code=1)
        self.assertIn("no trial has a result", self.err.getvalue())
        self.assertEqual([one["reason"] for one in self.report()["trials"]], ["no data"] * 2)
        self.train("finish DONE; end")
        self.tune(RATE, "--trials=2")
        self.assertEqual(self.outcomes(), ["complete"] * 2)

    def test_what_a_directory_holds_is_named(self):
        self.tune(*QUADRATIC, "--trials=2")
        self.tune(*QUADRATIC, "--over=optimizer.momentum=0..0.9", "--trials=2", exit_code=1)
        self.assertIn("holds another study or comparison: --over is ", self.err.getvalue())
        record = self.path + "/compare.json"
        with open(record) as file:
            kept = json.load(file)
        for version in ({"tune": 2}, {"tune": None}):
            with open(record, "w") as file:
                json.dump({**kept, **version}, file)
            self.tune(*QUADRATIC, "--trials=2", exit_code=1)
            self.assertIn("holds a study of another version of `catchment tune`", self.err.getvalue())
        with open(record, "w") as file:
            json.dump(kept, file)
        with open(self.path + "/journal.log", "a") as file:
            file.write('{"op_code": 99, "worker_id": "x"}\n[]\n')
        self.tune(*QUADRATIC, "--trials=3", exit_code=1)
        self.assertIn("journal.log cannot be read by Optuna", self.err.getvalue())

    def test_names_what_is_wrong(self):
        rate = "--over=optimizer.learning_rate=log:0.01..1"
        for flags, reason in (
            ((), "--over=PATH=RANGE is required"),
            (("--over=optimizer.learing_rate=log:0.01..1",), "learning_rate"),
            (("--over=batch_size=1.2..1.8",), "batch_size"),
            (("--over=algorithm.preset=sync,downpoor", "--trials=2"), "downpoor"),
            ((rate, rate), "already has a range"),
            ((rate, "--over=workers=1..4"), "is the same in all trials"),
            ((rate, "--step=constant:50ms"), "add --simulate"),
            ((rate, "--simulate", "--straggler=5:2x", "--step=constant:1s"), "no run has a worker 5"),
            ((rate, "--simulate", "--launcher=slurm"), "--launcher"),
            ((rate, "--simulate"), "step"),
            ((rate, "--set=workers=3"), "--workers"),
            ((rate, "--sampler=grid"), "takes tpe or random"),
        ):
            with self.subTest(flags):
                out, err = io.StringIO(), io.StringIO()
                args = [self.job, *flags, "--out=" + self.path]
                self.assertNotEqual(tune.main(args, Streams(Stream(out), Stream(err))), 0)
                self.assertIn(reason, err.getvalue())
                self.assertFalse(os.path.exists(self.path + "/runs"))


class WithoutOptunaTest(TuneCase):
    def test_a_missing_or_old_optuna_is_named_with_the_remedy(self):
        for module, reason in ((None, "not installed"), (types.ModuleType("optuna"), "3.6.1 is installed")):
            if module:
                module.__version__ = "3.6.1"
            with mock.patch.dict(sys.modules, optuna=module):
                self.tune(RATE, exit_code=1)
            self.assertIn(reason, self.err.getvalue())
            self.assertIn("pip install catchment[tune]", self.err.getvalue())
            self.assertFalse(os.path.exists(self.path))


if __name__ == "__main__":
    unittest.main()
