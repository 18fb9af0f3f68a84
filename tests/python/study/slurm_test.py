#!/usr/bin/env python3
"""Tests runs as jobs of Slurm with shell scripts in place of sbatch, squeue and scancel. The file `queue` is
what squeue prints; a test's `batch` is what becomes of a job when it is submitted.
tests/deploy/slurm_test.sh has the real commands."""

import os
import signal
import unittest
from unittest import mock

from catchment.study.errors import Usage
from catchment.study.halving import Rung
from catchment.study.launchers import Interrupted, slurm
from catchment.study.options import CompareOptions
from catchment.study.search import Search, run_searches
from launcher_case import LauncherCase, planned

DONE = "finish; state COMPLETED"
PROGRAMS = slurm.SlurmPrograms(
    "/usr/bin/sbatch", "/usr/bin/squeue", "/usr/bin/scancel", "/b/catchment.sbatch"
)


class SlurmJobTest(unittest.TestCase):
    def command(self, workers, **options):
        options = CompareOptions(**options)
        run = planned("downpour", workers, directory="runs/downpour-4-workers-seed-2")
        return " ".join(slurm.sbatch_command(PROGRAMS, options, run, "/scratch/out/run"))

    def test_a_worker_is_a_task(self):
        self.assertEqual(
            self.command(4, nodes=2, threads=3),
            "/usr/bin/sbatch --parsable --no-requeue --job-name=downpour-4-workers-seed-2 "
            "--output=/scratch/out/run/logs/slurm.log --nodes=2 --ntasks=4 --cpus-per-task=3 "
            "/b/catchment.sbatch --out=/scratch/out/run --servers=1 /scratch/out/run/job.textproto",
        )

    def test_a_worker_has_a_gpu(self):
        self.assertEqual(
            self.command(8, nodes=2, gpus_per_node=4, partition="gpu", servers=2, program="python train.py"),
            "/usr/bin/sbatch --parsable --no-requeue --job-name=downpour-4-workers-seed-2 "
            "--output=/scratch/out/run/logs/slurm.log --nodes=2 --ntasks=8 --cpus-per-task=1 "
            "--ntasks-per-node=4 --gpus-per-node=4 --partition=gpu /b/catchment.sbatch "
            "--out=/scratch/out/run --servers=2 --program=python train.py /scratch/out/run/job.textproto",
        )

    def test_workers_are_divided_equally_between_the_fewest_nodes(self):
        for nodes, gpus, workers, layout in (
            (0, 0, 4, (1, 0)),
            (4, 0, 2, (2, 0)),
            (4, 0, 6, (4, 0)),
            (4, 4, 4, (1, 4)),
            (4, 4, 6, (2, 3)),
            (4, 4, 16, (4, 4)),
        ):
            self.assertEqual(slurm.lay_out(CompareOptions(nodes=nodes, gpus_per_node=gpus), workers), layout)
        for workers in (7, 17):
            with self.assertRaisesRegex(
                Usage,
                "--gpus_per_node=4: %d workers cannot be divided equally between at most 4 nodes with 4 GPUs "
                "each; give more --nodes, or other --workers" % workers,
            ):
                slurm.check_for_slurm(CompareOptions(workers=[workers], nodes=4, gpus_per_node=4))

    def test_a_time_limit_is_slurms(self):
        with self.assertRaisesRegex(Usage, "--stall_seconds: Slurm's time limit ends a run"):
            slurm.check_for_slurm(CompareOptions(stall_seconds=5))

    def test_the_number_of_a_job_is_found_beside_warnings(self):
        for output, job in (
            ("12\n", "12"),
            ("12;cluster\n", "12"),
            ("sbatch: warning: can't run 1 processes on 2 nodes, setting nnodes to 1\n12\n", "12"),
            ("11\n12", "12"),
            ("sbatch: error: invalid partition specified: none\n", ""),
            ("", ""),
        ):
            self.assertEqual(slurm.parse_job_id(output), job)

    def test_the_queue_has_a_state_for_each_job(self):
        output = "12 RUNNING\n  13  PENDING\n14_1 RUNNING\nslurm_load_jobs error: ...\n"
        self.assertEqual(slurm.parse_queue(output), {"12": "RUNNING", "13": "PENDING"})


class SlurmLauncherTest(LauncherCase):
    def setUp(self):
        super().setUp()
        self.options.launcher = "slurm"
        self.write("queue", "")
        self.program("squeue", "cat queue")
        self.program("scancel", 'echo "$@" >>cancelled')
        self.batch(DONE)

    def batch(self, body):
        """Sets what sbatch does with job JOB, named NAME, in the directory DIR: `finish` writes the result,
        and `state` puts the job into the queue."""
        self.program(
            "sbatch",
            """
for word; do
  case $word in --out=*) DIR=${word#--out=};; --job-name=*) NAME=${word#--job-name=};; esac
done
finish() { echo '{"phase": "DONE", "test_accuracy": 0.5, "wall_seconds": 3}' >"$DIR/summary.json"; }
state() { sed -i "/^$JOB /d" queue; echo "$JOB $1" >>queue; }
echo "$NAME" >>submitted
JOB=$(wc -l <submitted)
%s
echo $JOB"""
            % body,
        )

    def submitted(self):
        """Returns the names of the runs that were submitted."""
        return self.read("submitted").split()

    def launcher(self):
        paths = (os.path.join(self.root, name) for name in ("sbatch", "squeue", "scancel"))
        launcher = slurm.SlurmLauncher(
            self.options, slurm.SlurmPrograms(*paths, "catchment.sbatch"), self.signals
        )
        launcher.poll_seconds, launcher.silence_seconds, launcher.visible_seconds = 0.02, 0, 0.1
        return launcher

    def test_every_run_is_a_job_and_done_runs_are_not_submitted_again(self):
        self.batch("mkdir $DIR/checkpoints; " + DONE)
        self.launch()
        self.assertEqual(self.submitted(), ["sync-2-workers-seed-1", "downpour-2-workers-seed-1"])
        self.assertPrinted(
            "sync, 2 workers, seed 1: submitted as Slurm job 1\n",
            "[2/2] downpour, 2 workers, seed 1: 50.00 % in 3.0 s\n",
        )
        self.assertFalse(os.path.exists(self.options.out + "/runs/sync-2-workers-seed-1/checkpoints"))
        self.launch()
        self.assertEqual(len(self.submitted()), 2)
        self.assertEqual(self.out.getvalue(), "2 of 2 runs are already done\n")

    def test_a_signal_leaves_the_jobs_and_the_same_command_finds_them(self):
        self.batch("state RUNNING")
        os.kill(os.getpid(), signal.SIGINT)
        error = self.refused(self.launch)
        self.assertIsInstance(error, Interrupted)
        self.assertEqual(error.exit_code, 128 + signal.SIGINT)
        self.assertPrinted("Slurm jobs 1 2 continue; `scancel 1 2` cancels them\n")
        self.assertEqual(self.read("cancelled"), "")
        # The jobs end at the second request for the queue.
        self.program(
            "squeue",
            'cat queue\nfor run in out/runs/*; do echo \'{"phase": "DONE"}\' >$run/summary.json; done\n'
            "sed -i s/RUNNING/COMPLETED/ queue",
        )
        self.launch()
        self.assertPrinted("sync, 2 workers, seed 1: is Slurm job 1 already\n", "[2/2]")
        self.assertEqual(len(self.submitted()), 2)

    def test_a_job_that_trains_something_else_is_named(self):
        self.batch("state RUNNING")
        os.kill(os.getpid(), signal.SIGTERM)
        self.refused(self.launch)
        path = self.options.out + "/runs/sync-2-workers-seed-1"
        self.write(path + "/job.textproto", "another")
        self.assertEqual(
            self.refused(self.launch).message,
            "Slurm job 1 trains another job in %s; cancel it with `scancel 1`" % path,
        )

    def test_a_lost_job_is_submitted_again(self):
        self.batch("if [ $JOB = 1 ]; then state NODE_FAIL; else %s; fi" % DONE)
        self.launch()
        names = ["sync-2-workers-seed-1", "downpour-2-workers-seed-1", "sync-2-workers-seed-1"]
        self.assertEqual(self.submitted(), names)
        self.assertPrinted(
            "sync, 2 workers, seed 1: Slurm job 1 was lost (NODE_FAIL)\n",
            "[2/2] sync, 2 workers, seed 1: 50.00 %",
        )

    def test_a_job_that_is_always_lost_is_a_failure(self):
        self.batch("case $NAME in sync*) state NODE_FAIL;; *) %s;; esac" % DONE)
        self.launch()
        self.assertEqual(len(self.submitted()), 6, "five of sync, one of downpour")
        self.assertPrinted("[2/2] sync, 2 workers, seed 1: failed: Slurm job 6 ended as NODE_FAIL")

    def test_a_failure_is_reported_with_the_end_of_its_log_and_the_others_go_on(self):
        self.batch(
            "case $NAME in sync*) echo no such data >$DIR/logs/slurm.log; state FAILED;; *) %s;; esac" % DONE
        )
        self.launch()
        self.assertPrinted(
            "failed: Slurm job 1 ended as FAILED; the last lines of ",
            "slurm.log:\n    no such data | ",
            "[2/2]",
        )
        self.batch(DONE)
        self.launch()
        self.assertEqual(len(self.submitted()), 3, "a run that failed is submitted again by the next command")

    def test_a_time_limit_is_named(self):
        self.batch("echo ended >$DIR/logs/slurm.log; state TIMEOUT")
        self.launch()
        self.assertPrinted("before its budget was spent; SBATCH_TIMELIMIT")

    def test_a_directory_that_nodes_do_not_see_ends_everything(self):
        self.batch("if [ $JOB = 1 ]; then state FAILED; else state PENDING; fi")
        error = self.refused(self.launch)
        log = self.options.out + "/runs/sync-2-workers-seed-1/logs/slurm.log"
        self.assertIn("Slurm job 1 ended as FAILED, and left no %s: the nodes" % log, error.message)
        self.assertIn("choose an --out on a file system that this machine and all nodes share", error.message)
        self.assertEqual(self.read("cancelled"), "1 2\n")

    def test_a_refused_run_is_submitted_again_when_another_has_ended(self):
        # One job at a time.
        self.batch(
            """if [ -s queue ] && grep -q RUNNING queue; then
  sed -i '$d' submitted
  echo "sbatch: error: QOSMaxSubmitJobPerUserLimit" >&2
  exit 1
fi
finish; state RUNNING"""
        )
        self.program("squeue", "sed -i s/RUNNING/COMPLETED/ queue; cat queue")
        self.launch()
        self.assertEqual(self.submitted(), ["sync-2-workers-seed-1", "downpour-2-workers-seed-1"])

    def test_a_refusal_without_other_jobs_is_the_failure(self):
        self.batch("echo 'sbatch: error: invalid partition specified: none' >&2; exit 1")
        self.launch()
        failure = (
            "failed: sbatch failed (exit code 1):\n    sbatch: error: invalid partition specified: none\n"
        )
        self.assertPrinted("[1/2] sync, 2 workers, seed 1: " + failure.rstrip(), "[2/2] downpour", failure)

    def test_no_number_of_a_job_is_a_failure(self):
        self.batch("JOB=queued")
        self.launch()
        self.assertPrinted("failed: sbatch printed no number of a job:\n    queued")

    def test_no_queue_is_an_error(self):
        self.program("squeue", "echo 'squeue: error: Unable to contact slurm controller' >&2; exit 1")
        self.assertIn("Unable to contact slurm controller", self.refused(self.launch).message)
        self.assertEqual(self.submitted(), [])
        self.program("squeue", "[ ! -e submitted ] || exit 1")
        self.assertIn(
            "squeue failed (exit code 1):\n    (nothing)\nSlurm jobs 1 2 may continue; the same command",
            self.refused(self.launch).message,
        )

    def test_a_directory_with_active_jobs_is_not_deleted(self):
        self.batch("state RUNNING")
        os.kill(os.getpid(), signal.SIGINT)
        self.refused(self.launch)
        out = self.options.out
        with mock.patch.dict(os.environ, PATH="%s:%s" % (self.root, os.environ["PATH"])):
            message = self.refused(slurm.check_no_jobs, out).message
            self.write("queue", "1 COMPLETED\n")
            slurm.check_no_jobs(out)
        self.assertIn(
            "--overwrite: Slurm jobs that write to %s have not ended; cancel them with `scancel" % out,
            message,
        )
        self.assertEqual(sorted(message.partition("`scancel ")[2].partition("`")[0].split()), ["1", "2"])

    def test_without_slurm_the_program_is_named(self):
        with mock.patch.dict(os.environ, PATH=self.root + "/nothing"):
            message = self.refused(slurm.find_programs).message
        self.assertEqual(
            message,
            "--launcher=slurm: no sbatch in PATH; run the command on a login node of the cluster, or leave "
            "out --launcher to train on this machine",
        )

    def test_a_trial_goes_on_while_others_of_its_rung_train(self):
        # The first rung ends when a trial has begun the second.
        self.batch(
            """case $DIR in
*-rung-1) case $JOB in [123]) finish; state COMPLETED;; *) state RUNNING;; esac;;
*) finish; state COMPLETED
  for run in out/search/*-rung-1; do cp $DIR/summary.json $run; done
  sed -i s/RUNNING/COMPLETED/ queue;;
esac"""
        )

        def plan(trial, rung, share):
            name = "search/downpour-2-workers-trial-%d-rung-%d" % (trial + 1, rung + 1)
            return planned("downpour", directory=name, trial="learning rate 0.1")

        search = Search("downpour, 2 workers", [Rung(9, 0.1), Rung(3, 0.3)], plan)
        for _ in range(2):
            directory = self.directory()
            (result,) = run_searches([search], directory, self.launcher(), self.streams())
            directory.close()
            self.assertEqual(len(self.submitted()), 9 + 3)
            self.assertEqual([len(runs) for runs in result.runs], [9, 3])
            if _ == 0:
                self.assertPrinted(
                    "downpour, 2 workers, rung 1: 10.00 %", "downpour, 2 workers, rung 2: 30.00 %"
                )
        self.assertPrinted("downpour, 2 workers, 12 of 12 runs are already done")


if __name__ == "__main__":
    unittest.main()
