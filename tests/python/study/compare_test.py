#!/usr/bin/env python3
"""Tests `catchment compare` with the binary of $CATCHMENT_BINARY, of which a script takes the place for runs.

compare_test.py                   all tests
compare_test.py --interrupts=20   interrupts a comparison that often instead of three times, by each signal
"""

import glob
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import reference
from catchment.study import compare, core, files, options
from catchment.study.command_line import Stream, Streams
from catchment.study.directory import CompareDirectory, compare_record
from catchment.study.options import CompareOptions, compare_command_line

ROOT = os.getcwd()
reference.use_binary()
BINARY = os.environ["CATCHMENT_BINARY"]
JOB = "examples/mnist_mlp.textproto"
INTERRUPTS = 3
DONE = "finish DONE; end"
# A program that describes a model, and has learned nothing.
PROGRAM = """cat >"$CATCHMENT_DESCRIBE/model.textproto" <<END
model { external { tensors { name: "w" shape: 3 } } }
data { external { train_samples: 1000 test_samples: %d } }
END
date +%%N >"$CATCHMENT_DESCRIBE/weights.safetensors"
"""


def recorded(name):
    with open(os.path.join(reference.DATA, name), encoding="utf-8") as file:
        return json.load(file)


class CompareCase(unittest.TestCase):
    def setUp(self):
        self.root = os.path.realpath(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        self.path = self.root + "/out"
        before = os.getcwd()
        os.chdir(ROOT)
        self.addCleanup(os.chdir, before)
        core.DOOR.close()
        patch = mock.patch.dict(os.environ, CATCHMENT_BINARY=self.root + "/catchment")
        patch.start()
        self.addCleanup(patch.stop)
        self.train(DONE)

    def write(self, name, text):
        with open(os.path.join(self.root, name), "w") as file:
            file.write(text)
        return os.path.join(self.root, name)

    def train(self, body, daemons=""):
        """Sets what `catchment train` does with the run named NAME in the directory RUN: `finish` writes its
        results with a phase and `more`, and `end` is its last word, with an error and a signal. The accuracy
        depends only on the job."""
        script = self.write(
            "catchment",
            """#!/bin/sh
case $1 in
  simulate) read request; echo '{"version": 1, "daemons": "%s"}'; read end; exit;;
  train) ;;
  *) exec %s "$@";;
esac
for word; do case $word in --out=*) RUN=${word#--out=};; esac; done
NAME=${RUN##*/}
echo $NAME >>%s/trained
accuracy=${accuracy-0.$(cksum "$2" | cut -c1-2)}
finish() {
  echo "{\\"test_accuracy\\": $accuracy, \\"tested_at_seconds\\": 2, \\"tested_at_samples\\": 9}" \\
    >>$RUN/metrics.jsonl
  echo "{\\"phase\\": \\"$1\\", $more \\"test_accuracy\\": $accuracy, \\"wall_seconds\\": 3}" >$RUN/master.run
  mv $RUN/master.run $RUN/summary.json
}
end() { echo "{\\"version\\": 1, \\"error\\": \\"$1\\", \\"signal\\": ${2:-0}}"; }
%s
"""
            % (daemons, BINARY, self.root, body),
        )
        os.chmod(script, 0o700)

    def run_main(self, args):
        self.out, self.err = io.StringIO(), io.StringIO()
        return options.main(args, Streams(Stream(self.out), Stream(self.err)))

    def compare(self, *args, algorithms="sync,downpour", job=JOB):
        self.write("trained", "")
        flags = ["--algorithms=" + algorithms, "--workers=1", "--seeds=2", "--budget=samples:1000"]
        rest = [arg for arg in ("--search=none", *args) if arg]
        return self.run_main([*([job] if job else []), *flags, "--out=" + self.path, *rest])

    def trained(self):
        """Returns the names of the runs that the last compare() trained."""
        return files.read_text(self.root + "/trained").split()

    def report(self):
        return files.read_summary(self.path + "/report.json")

    def assertCompared(self, exit_code=0, *args, **keywords):
        self.assertEqual(self.compare(*args, **keywords), exit_code, self.err.getvalue())


class CompareTest(CompareCase):
    def test_every_run_is_trained_once_and_reported(self):
        self.assertCompared()
        names = [
            "%s-1-workers-seed-%d" % (algorithm, seed)
            for seed in (1, 2)
            for algorithm in ("sync", "downpour")
        ]
        self.assertEqual(self.trained(), names)
        self.assertEqual([run["done"] for run in self.report()["runs"]], [True] * 4)
        self.assertIn("[1/4] sync, 1 worker, seed 1: ", self.out.getvalue())
        page = "\n\nreport  %s/report.html\nfigures %s/report.json\n" % (self.path, self.path)
        self.assertTrue(self.out.getvalue().endswith(page), self.out.getvalue())
        self.assertTrue(os.path.exists(self.path + "/report.html"))
        sentence = self.report()["answer"]["sentence"]
        self.assertTrue(sentence.startswith("Learning rates come from the job and the presets and were not"))
        self.assertEqual(self.report()["search"], [])

    def test_a_second_start_carries_out_only_missing_runs(self):
        self.assertCompared()
        shutil.rmtree(self.path + "/runs/downpour-1-workers-seed-1")
        # A run that was killed has no summary.
        os.remove(self.path + "/runs/sync-1-workers-seed-2/summary.json")
        self.assertCompared()
        self.assertEqual(self.trained(), ["downpour-1-workers-seed-1", "sync-1-workers-seed-2"])
        self.assertIn("2 of 4 runs are already done\n", self.out.getvalue())
        self.assertCompared(0, "--target=0.25")
        self.assertEqual(self.trained(), [])
        self.assertEqual(self.report()["target"]["test_accuracy"], 0.25)

    def test_another_comparison_in_the_same_place_is_refused_by_name(self):
        self.assertCompared()
        end = "; choose another --out, or start again with --overwrite (deletes it)\n"
        for args, difference in (
            (("--seeds=3",), "--seeds is 3, but was 2"),
            (("--set=batch_size=32",), "the job has `batch_size: 32`, but had `batch_size: 64`"),
        ):
            self.assertCompared(1, *args)
            text = "catchment compare: %s holds another comparison: %s%s" % (self.path, difference, end)
            self.assertEqual(self.err.getvalue(), text)
            self.assertEqual(self.trained(), [])
        self.assertCompared(0, "--set=batch_size=32", "--overwrite")
        self.assertEqual(len(self.trained()), 4)

    def test_the_directory_is_used_by_one_command_at_a_time(self):
        self.assertCompared()
        record = json.loads(files.read_text(self.path + "/compare.json"))
        record.pop("data")
        directory = CompareDirectory(self.path, False, record)
        self.assertCompared(1)
        directory.close()
        self.assertIn("is in use by another running `catchment compare` on host ", self.err.getvalue())

    def test_a_run_that_fails_is_reported_and_the_others_go_on(self):
        self.train("case $NAME in down*-1) end 'out of memory'; exit 1;; esac; " + DONE)
        self.assertCompared(1)
        self.assertIn("downpour, 1 worker, seed 1: failed: out of memory | ", self.out.getvalue())
        self.assertEqual(
            self.err.getvalue(),
            "catchment compare: 1 of 4 runs failed and are not in the report; the same command repeats "
            "them\n",
        )
        self.assertFalse(self.report()["runs"][1]["done"])
        self.train(DONE)
        self.assertCompared()
        self.assertEqual(self.trained(), ["downpour-1-workers-seed-1"])

    def test_without_its_programs_nothing_begins(self):
        self.train(DONE, daemons="no program catchment_server: looked for /a and /b")
        self.assertCompared(1)
        message = "catchment compare: no program catchment_server: looked for /a and /b\n"
        self.assertEqual(self.err.getvalue(), message)
        self.assertFalse(os.path.exists(self.path))

    def test_a_run_that_diverges_is_a_result(self):
        diverged = 'more=\'"reason": "training has diverged",\'; finish FAILED; end x; exit 1'
        self.train("case $NAME in down*) %s;; esac; %s" % (diverged, DONE))
        self.assertCompared()
        line = "\n2 of 4 runs diverged: downpour with 1 worker, seed 1; downpour with 1 worker, seed 2\n"
        self.assertTrue(self.out.getvalue().endswith(line), self.out.getvalue())
        self.assertEqual([run["diverged"] for run in self.report()["runs"]], [False, True] * 2)
        self.assertCompared()
        self.assertEqual(self.trained(), [])

    def test_without_any_run_there_is_no_report(self):
        self.train("end lost; exit 1")
        self.assertCompared(1)
        text = "catchment compare: no run has finished, so there is nothing to report\n"
        self.assertEqual(self.err.getvalue(), text)
        self.assertFalse(os.path.exists(self.path + "/report.json"))

    def test_a_search_takes_the_presets_own_trial_if_none_is_better_and_is_not_repeated(self):
        self.train("accuracy=0.5; " + DONE)
        search = ("--search=halving", "--seeds=1")
        self.assertCompared(0, *search, algorithms="downpour")
        self.assertEqual(len(self.trained()), 11 + 3 + 1)
        report = self.report()
        self.assertEqual(len(report["search"]), 14)
        # All have the same score, and the first is chosen.
        self.assertTrue(report["search"][11]["chosen"])
        self.assertEqual(report["search"][11]["seed"], 2)
        standing = report["standings"][0]
        self.assertAlmostEqual(standing["momentum"], 0.8, 6)
        self.assertAlmostEqual(standing["learning_rate"], 0.03, 6)
        self.assertAlmostEqual(standing["search_cost"], 1, 9)
        self.assertTrue(
            self.out.getvalue().startswith(
                "searching for 1 learning rate, which costs as much as 1 more run; --search=none keeps those "
                "of the job\ndownpour, 1 worker, rung 1: "
            )
        )
        self.assertIn("downpour, 1 worker, learning rate 0.03, momentum 0.8: 50.00 %", self.out.getvalue())
        self.assertIn("\ndownpour, 1 worker: learning rate 0.03, momentum 0.8\n", self.out.getvalue())
        self.assertNotIn("not tuned", report["answer"]["sentence"])
        self.assertCompared(0, *search, algorithms="downpour")
        self.assertEqual(self.trained(), [])

    def test_trials_that_fail_lose_and_if_all_do_the_rate_is_the_presets(self):
        self.train("case $RUN in */search/*) end lost; exit 1;; esac; " + DONE)
        self.assertCompared(0, "--search=halving", "--seeds=1", algorithms="downpour")
        self.assertEqual(len(self.trained()), 11 + 1)
        self.assertEqual([trial["chosen"] for trial in self.report()["search"]], [False] * 11)
        self.assertAlmostEqual(self.report()["standings"][0]["learning_rate"], 0.03, 6)

    def test_runs_of_a_program_begin_with_the_weights_that_it_described_first(self):
        program = "--program=sh " + self.write("program.sh", PROGRAM % 5)
        self.assertCompared(0, program, job="")
        weights = files.read_text(self.path + "/initial.safetensors")
        job = files.read_text(self.path + "/runs/sync-1-workers-seed-1/job.textproto")
        self.assertIn('initial_weights: "%s/initial.safetensors"\n' % self.path, job)
        self.assertCompared(0, program, job="")
        self.assertEqual(self.trained(), [])
        self.assertEqual(files.read_text(self.path + "/initial.safetensors"), weights)

    def test_a_program_without_a_test_set_is_refused(self):
        program = "--program=sh " + self.write("program.sh", PROGRAM % 0)
        self.assertCompared(1, program, job="")
        self.assertEqual(
            self.err.getvalue(),
            "catchment compare: data.external.test_samples: is 0, but runs are compared by their test "
            "scores; pass a test set to join()\n",
        )
        self.assertFalse(os.path.exists(self.path))

    def test_a_signal_ends_the_description_of_a_program(self):
        self.assertCompared(1, "--program=kill -INT %d; exec sleep 1000" % os.getpid(), job="")
        self.assertEqual(self.err.getvalue(), "catchment compare: stopped before training began\n")

    def test_wrong_command_lines_and_plans_are_answered_as_they_always_were(self):
        for case in recorded("compare_outputs.json"):
            shutil.rmtree(self.path, ignore_errors=True)
            with mock.patch.dict(os.environ, PATH="/nothing"):
                code = self.run_main([*case["args"], "--out=" + self.path])
            texts = [stream.getvalue().replace(self.root, "@") for stream in (self.out, self.err)]
            error = case["err"].replace("@presets", ", ".join(core.presets()))
            self.assertEqual((code, *texts), (case["exit"], case["out"], error), case["args"])
            self.assertEqual(self.read_names(), [] if case["exit"] != 1 else mock.ANY)

    def read_names(self):
        return os.listdir(self.path) if os.path.exists(self.path) else []

    def test_the_record_is_the_same_as_ever(self):
        for case in recorded("compare_records.json"):
            options = CompareOptions()
            compare_command_line(options).parse([*case["args"], "--out=" + self.path])
            door = core.Door(options.job)
            given = compare.given_job(options, door, None)
            door.close()
            CompareDirectory(self.path, True, compare_record(options, given)).close()
            self.assertEqual(files.read_text(self.path + "/compare.json"), case["text"], case["args"])


class InterruptTest(CompareCase):
    """A comparison that is interrupted at random has, when it is repeated, the report of one that is not."""

    COMMAND = [JOB, "--algorithms=sync,downpour,easgd", "--workers=1,2", "--seeds=1", "--search=halving"]
    # A run takes a moment, in which it writes, and stops at a signal.
    RUN = """trap 'finish STOPPED; end "" 2; exit 1' INT
for i in 1 2; do echo '{"progress": "epoch 1"}'; echo '{"samples": 1}' >>$RUN/metrics.jsonl; sleep 0.01; done
"""

    def start(self, path):
        arguments = [sys.executable, "-m", "catchment.study", "compare", *self.COMMAND]
        arguments += ["--set=algorithm.preset=sync", "--budget=samples:1000", "--out=" + path]
        quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(compare.__file__))))
        environment = dict(os.environ, PYTHONPATH=package)
        return subprocess.Popen(arguments, start_new_session=True, env=environment, **quiet)

    def finish(self, process):
        _, errors = process.communicate()
        return process.returncode, errors.decode()

    def files_of(self, path):
        """Returns the report and the record, and the names of all runs' files, except those of processes that
        were killed while they wrote."""
        names = {name[len(path) :] for name in glob.glob(path + "/*/*/*") if not name.endswith(".tmp")}
        return files.read_text(path + "/report.json"), files.read_text(path + "/compare.json"), names

    def test_its_report_is_that_of_one_that_was_not_interrupted(self):
        self.train(self.RUN + DONE)
        begin = time.monotonic()
        path = self.root + "/a/out"
        self.assertEqual(self.finish(self.start(path)), (0, ""))
        seconds = time.monotonic() - begin
        wanted, generator = self.files_of(path), random.Random(7)
        for number in (signal.SIGINT, signal.SIGKILL):
            shutil.rmtree(self.root + "/b", ignore_errors=True)
            interrupted, path = 0, self.root + "/b/out"
            while interrupted < INTERRUPTS:
                process = self.start(path)
                time.sleep(generator.uniform(0, seconds / 2))
                process.send_signal(number)
                code, errors = self.finish(process)
                if code == 0:
                    shutil.rmtree(self.root + "/b")
                    continue
                interrupted += 1
                if number == signal.SIGINT and code == 128 + number:
                    self.assertEqual(
                        errors,
                        "catchment compare: interrupted; the same command continues with the missing runs\n",
                    )
            for _ in range(2):
                self.assertEqual(self.finish(self.start(path)), (0, ""))
                for found, expected in zip(self.files_of(path), wanted):
                    self.assertEqual(found, expected)


if __name__ == "__main__":
    for argument in [argument for argument in sys.argv if argument.startswith("--interrupts=")]:
        sys.argv.remove(argument)
        INTERRUPTS = int(argument.partition("=")[2])
    unittest.main()
