#!/usr/bin/env python3
"""Tests how runs are carried out on this machine: what is printed, what is done again, and signals. A script
in place of `catchment` trains."""

import os
import signal
import unittest
from unittest import mock

from catchment.study import runs
from catchment.study.collect import reported_command
from catchment.study.directory import CompareDirectory, RunData, data_of, describe_difference, read_data
from catchment.study.launchers import Interrupted, local
from launcher_case import LauncherCase, planned

DONE = """echo '{"version": 1, "progress": "epoch 0.50"}'
finish DONE; end"""


class TextTest(LauncherCase):
    def test_a_result_is_one_line(self):
        os.mkdir(self.root + "/run")
        for summary, line in (
            (
                '{"phase": "DONE", "wall_seconds": 4.2, "test_accuracy": 0.97812, "test_loss": 1}',
                "97.81 % in 4.2 s",
            ),
            ('{"phase": "DONE", "wall_seconds": 72, "test_loss": 0.123456}', "loss 0.1235 in 1 min 12 s"),
            ('{"phase": "DONE", "test_accuracy": null}', "0.0 s"),
            (
                '{"wall_seconds": 4, "test_accuracy": 0.5, "goodput": 0.875, "uptime": 1}',
                "50.00 % in 4.0 s, goodput 0.88, uptime 1.00",
            ),
            ('{"phase": "FAILED", "reason": "two\\nlines"}', "failed: two\\nlines"),
            ("[]", self.root + "/run/summary.json is not a JSON object"),
        ):
            self.write("run/summary.json", summary)
            self.assertEqual(runs.result_line(self.root + "/run"), line)
        path = self.root + "/none/summary.json"
        self.assertEqual(
            runs.result_line(self.root + "/none"), "cannot open %s: No such file or directory" % path
        )

    def test_progress_has_the_time_left_for_all_runs(self):
        now = [0.0]
        streams = self.streams()
        progress = runs.CompareProgress(streams, 9, lambda: now[0])
        progress.begin("sync, 1 worker, seed 1")
        progress.update("epoch 1.00")
        now[0] = 4.0
        progress.end("50.00 % in 4.0 s")
        progress.expect(2)
        progress.begin("sync, 1 worker, seed 2")
        progress.end("failed: x\x1b[2J")
        self.assertEqual(
            self.out.getvalue(),
            "[1/9] sync, 1 worker, seed 1: 50.00 % in 4.0 s | 32 s left\n"
            "[ 2/11] sync, 1 worker, seed 2: failed: x\\x1b[2J | 18 s left\n",
        )

    def test_on_a_terminal_the_current_run_is_below_the_lines(self):
        streams = self.streams()
        size = [80, 24]
        for patch in (
            mock.patch.object(type(streams.out), "size", lambda _: size),
            mock.patch.dict(os.environ, NO_COLOR="1"),
        ):
            patch.start()
            self.addCleanup(patch.stop)
        progress = runs.CompareProgress(streams, 2)
        progress.begin("downpour, 4 workers, seed 1")
        progress.update("50 % | test 97.81 % | a part that has no room | 3.0 s left")
        progress.note("worker-1 died")
        progress.update("epoch\x07")
        size[0] = 40
        progress.update("epoch 1.00")
        progress.clear()
        bar = "─" * 10
        self.assertEqual(
            self.out.getvalue(),
            "\r\x1b[K%s [0/2] downpour, 4 workers, seed 1 | 50 %% | test 97.81 %% | 3.0 s left" % bar
            + "\r\x1b[Kworker-1 died\n"
            + "\r\x1b[K%s [0/2] downpour, 4 workers, seed 1 | epoch\\x07" % bar
            + "\x1b[1A\r\x1b[J\r\x1b[K───── [0/2] downpour, 4 workers, seed 1\r\x1b[K",
        )

    def test_a_reported_command_has_no_directories_of_this_machine(self):
        for args, text in (
            (
                ["/home/me/job.textproto", "--workers=1,2", "--out=/tmp/out/", "--out", "/tmp/a"],
                "job.textproto --workers=1,2 --out=out --out a",
            ),
            (
                ["a/job.textproto", "--set=data={a: 1}", "--out=a/b"],
                "a/job.textproto '--set=data={a: 1}' --out=a/b",
            ),
            (["/", "//", "/a//", "--out=/", "/a b\n"], "'' '' '' --out= 'a b\n'"),
        ):
            self.assertEqual(reported_command("catchment compare", args), "catchment compare " + text)

    def test_a_run_is_named_by_its_seed_or_its_trial(self):
        self.assertEqual(runs.label_of(planned("sync", 1, 3)), "sync, 1 worker, seed 3")
        self.assertEqual(runs.label_of(planned("sync", 2, trial="rate 1")), "sync, 2 workers, rate 1")


class DataTest(unittest.TestCase):
    def test_the_first_difference_of_what_is_known_is_described(self):
        all_known = dict(train_samples=1200, test_samples=60, data_checksum="a")
        for before, now, text in (
            (all_known, all_known, ""),
            (all_known, {}, ""),
            ({}, all_known, ""),
            (all_known, {"train_samples": 300}, "300 training samples, which were 1,200"),
            (all_known, {"test_samples": 50.0, "train_samples": True}, "50 test samples, which were 60"),
            (all_known, {"data_checksum": "b"}, "as many samples, with other contents"),
            ({"samples": 1200, "epochs": 2}, {"train_samples": 300}, "300 training samples, which were 600"),
        ):
            self.assertEqual(data_of(before).difference(data_of(now)), text)
        for damaged in (None, [], {"train_samples": "1", "data_checksum": 7}):
            self.assertEqual(read_data(damaged), RunData())

    def test_another_comparison_is_named_by_its_first_difference(self):
        record = {"workers": [1, 2], "device": "", "job": "a\n  b: 1\nc"}
        for now, text in (
            (record, ""),
            ({**record, "workers": [1]}, "--workers is [1], but was [1,2]"),
            ({**record, "nodes": 2}, "--nodes is 2, but was none"),
            ({"job": record["job"], "device": ""}, "--workers is none, but was [1,2]"),
            ({**record, "job": "a\n  b: 2\nc"}, "the job has `b: 2`, but had `b: 1`"),
            ({**record, "job": "a"}, "the job no longer has `b: 1`"),
            ({**record, "job": "a\n  new: 3\n  b: 1\nc"}, "the job has `new: 3`, which it did not have"),
            ({**record, "job": 'a\n  b: 1\nc\n"'}, 'the job has `"`, which it did not have'),
        ):
            self.assertEqual(describe_difference(record, now), text)


class LocalLauncherTest(LauncherCase):
    def setUp(self):
        super().setUp()
        self.train(DONE)
        patch = mock.patch.dict(os.environ, CATCHMENT_BINARY=self.root + "/catchment")
        patch.start()
        self.addCleanup(patch.stop)

    def train(self, body):
        """Sets what `catchment train` does with the run named NAME in the directory RUN: `finish` writes its
        summary with a phase and `more`, and `end` is its last word, with an error and a signal."""
        self.program(
            "catchment",
            """echo "$@" >>commands
for word; do case $word in --out=*) RUN=${word#--out=};; esac; done
NAME=${RUN##*/}
echo $NAME >>trained
finish() {
  echo "{\\"phase\\": \\"$1\\", $more \\"test_accuracy\\": 0.5, \\"wall_seconds\\": 3}" >$RUN/summary.json
}
end() { echo "{\\"version\\": 1, \\"error\\": \\"$1\\", \\"signal\\": ${2:-0}}"; }
"""
            + body,
        )

    def launcher(self):
        return local.LocalLauncher(self.options, self.signals)

    def launch(self):
        self.write("trained", "")
        super().launch()

    def trained(self):
        """Returns the names of the runs that the last launch() trained."""
        return self.read("trained").split()

    def test_every_run_is_trained_once_with_the_options(self):
        self.options.servers, self.options.threads, self.options.stall_seconds = 2, 3, 0.5
        self.options.device, self.options.program = "cpu", "python 'a b'"
        self.runs[1].seconds = 2.5
        self.train("mkdir -p $RUN/checkpoints/checkpoint-1\n" + DONE)
        self.launch()
        self.assertPrinted("[1/2] sync, 2 workers, seed 1: 50.00 % in 3.0 s | ", " left\n[2/2] downpour")
        self.assertEqual(self.trained(), ["sync-2-workers-seed-1", "downpour-2-workers-seed-1"])
        run = self.options.out + "/runs/downpour-2-workers-seed-1"
        self.assertEqual(
            self.read("commands").splitlines()[1],
            "train %s/job.textproto --door --overwrite --out=%s --servers=2 --threads=3 --stall_seconds=0.5 "
            "--seconds=2.5 --evaluator_nice=0 --device=cpu --program=python 'a b'" % (run, run),
        )
        self.assertEqual(self.read(run + "/job.textproto"), self.runs[1].job.text)
        self.assertFalse(os.path.exists(run + "/checkpoints"))
        self.launch()
        self.assertEqual(self.trained(), [])
        self.assertEqual(self.out.getvalue(), "2 of 2 runs are already done\n")

    def test_only_results_of_its_job_count(self):
        self.launch()
        run = self.options.out + "/runs/sync-2-workers-seed-1"
        with open(run + "/job.textproto", "a") as file:
            file.write("# changed\n")
        # An earlier version has written it, without a field that has the same meaning by default.
        with mock.patch("catchment.study.core.parse_job") as parse:
            parse.return_value.text = self.runs[0].job.text
            self.launch()
            self.assertEqual(self.trained(), [])
            parse.return_value.text = "another"
            os.remove(self.options.out + "/runs/downpour-2-workers-seed-1/summary.json")
            self.launch()
        self.assertEqual(self.trained(), ["sync-2-workers-seed-1", "downpour-2-workers-seed-1"])

    def test_a_run_that_was_stopped_is_done_if_its_time_was_up(self):
        self.runs[0].seconds = 0.2
        self.train('more=\'"reason": "the budget of 0.2 s is spent",\'\n' + DONE.replace("DONE;", "STOPPED;"))
        self.launch()
        self.launch()
        self.assertEqual(self.trained(), ["downpour-2-workers-seed-1"], "its time was not limited")

    def test_notes_and_failures_are_printed_and_the_others_go_on(self):
        self.train(
            "case $NAME in sync*) echo '{\"note\": \"worker-1 died\"}'; end 'all workers are lost'; exit 1;; "
            "esac\n" + DONE
        )
        self.launch()
        self.assertPrinted("worker-1 died\n[1/2] sync, 2 workers, seed 1: failed: all workers are lost | ")
        self.assertPrinted("[2/2] downpour, 2 workers, seed 1: 50.00 % in 3.0 s\n")
        self.launch()
        self.assertEqual(self.trained(), ["sync-2-workers-seed-1"])

    def test_a_process_that_dies_is_a_failure(self):
        self.train("kill -KILL $$")
        self.launch()
        self.assertPrinted("seed 1: failed: `catchment train` ended (killed by SIGKILL (9)) | ")
        with mock.patch.dict(os.environ, CATCHMENT_BINARY=self.root + "/none"):
            message = self.refused(self.launch).message
        self.assertEqual(
            message, "cannot start catchment train: %s/none: No such file or directory" % self.root
        )

    def test_a_signal_is_passed_on_and_ends_everything(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            self.train(
                "trap 'echo got >>trained; finish STOPPED; end \"\" %d; exit' %d\n" % (number, number)
                + "kill -%d $PPID; while :; do sleep 0.01; done" % number
            )
            error = self.refused(self.launch)
            self.assertIsInstance(error, Interrupted)
            self.assertEqual(error.exit_code, 128 + number)
            self.assertEqual(self.trained(), ["sync-2-workers-seed-1", "got"])

    def test_a_signal_at_the_end_of_a_run_is_not_lost(self):
        self.train("trap '' INT; kill -INT $PPID\n" + DONE)
        self.assertEqual(self.refused(self.launch).exit_code, 128 + signal.SIGINT)
        self.train(DONE)
        self.launch()
        self.assertEqual(self.trained(), ["downpour-2-workers-seed-1"])

    def test_runs_of_old_data_are_done_again_when_the_data_have_changed(self):
        both = ["sync-2-workers-seed-1", "downpour-2-workers-seed-1"]
        self.train("case $NAME in down*) end lost; exit 1;; esac\nmore='\"train_samples\": 600,'\n" + DONE)
        self.launch()
        self.train("more='\"train_samples\": 300,'\n" + DONE)
        directory = self.directory()
        for again in (both[1:], both[:1], []):
            self.write("trained", "")
            streams = self.streams()
            runs.run_missing(self.runs, directory, self.launcher(), streams)
            self.assertEqual(self.trained(), again)
            changed = directory.take_change(streams.out)
            self.assertEqual(changed, again == both[1:])
            if changed:
                self.assertPrinted(
                    "the data have changed: 300 training samples, which were 600; runs of the old data are "
                    "done again\n"
                )
        directory.close()
        self.assertIn('"data": {\n    "train_samples": 300,', self.read("out/compare.json"))

    def test_data_that_go_on_changing_are_an_error(self):
        self.train('more="\\"train_samples\\": $(cat commands | wc -l),"\n' + DONE)
        directory = self.directory()
        for _ in range(3):
            runs.run_missing(self.runs, directory, self.launcher(), self.streams())
            self.assertTrue(directory.take_change(self.streams().out))
        runs.run_missing(self.runs, directory, self.launcher(), self.streams())
        error = self.refused(directory.take_change, self.streams().out)
        self.assertIn("the data differ from run to run (", error.message)

    def test_files_of_the_user_are_never_taken_for_a_comparison(self):
        os.makedirs(self.options.out + "/runs")
        self.write("out/runs/events.log", "TensorBoard's")
        for self.overwrite in (False, True):
            for function in (self.launch, lambda: CompareDirectory.check(self.options.out)):
                message = self.refused(function).message
                self.assertIn(self.options.out + "/runs was not written by Catchment", message)
        self.assertEqual(os.listdir(self.options.out), ["runs"])

    def test_overwrite_deletes_runs_and_nothing_else(self):
        self.launch()
        run = "out/runs/sync-2-workers-seed-1/"
        os.mkdir(self.root + "/mine")
        for name in ("mine/run.yaml", "out/report.md", run + "notes.txt", "out/report.html"):
            self.write(name, "mine")
        os.symlink(self.root + "/mine", self.root + "/" + run + "manifests")
        os.symlink(self.root + "/mine", self.root + "/out/runs/link")
        self.record = {"job": "another"}
        self.assertIn(
            "holds another comparison: the job has `another`, but", self.refused(self.launch).message
        )
        self.overwrite, self.runs = True, self.runs[1:]
        self.launch()
        for name in ("mine/run.yaml", "out/report.md", run + "notes.txt"):
            self.assertEqual(self.read(name), "mine")
        self.assertFalse(os.path.exists(self.root + "/out/report.html"))
        self.assertFalse(os.path.exists(self.root + "/" + run + "summary.json"), "an earlier run")
        os.rename(self.root + "/out/runs", self.root + "/runs")
        os.symlink(self.root + "/runs", self.root + "/out/runs")
        self.assertIn(
            "/out/runs is a symbolic link, whose files are not deleted", self.refused(self.launch).message
        )

    def test_the_record_of_an_earlier_version_is_recognized_and_a_damaged_one_named(self):
        os.mkdir(self.options.out)
        self.record = {"algorithms": [], "job": ""}
        self.write("out/compare.json", '{"algorithms": [], "job": ""}')
        self.launch()
        self.write("out/compare.json", '{"algorithms": []')
        message = self.refused(self.launch).message
        self.assertEqual(
            message,
            "%s holds another comparison: its compare.json is damaged; choose another --out, or start again "
            "with --overwrite (deletes it)" % self.options.out,
        )


if __name__ == "__main__":
    unittest.main()
