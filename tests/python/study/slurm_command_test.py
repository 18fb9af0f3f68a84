#!/usr/bin/env python3
"""Tests `catchment slurm` in a folder like an installation, with a shell script in place of sbatch.
tests/deploy/slurm_test.sh submits to a real Slurm."""

import io
import os
import shlex
import shutil
import unittest
from unittest import mock

from catchment.study import core, slurm
from catchment.study.command_line import Stream, Streams
from launcher_case import LauncherCase

CATCHMENT = os.path.abspath(shutil.which(os.environ.get("CATCHMENT_BINARY", "cli/catchment")))
JOB = os.path.abspath("examples/drawn_digits.textproto")
SBATCH = os.path.abspath("deploy/slurm/catchment.sbatch")


class SlurmCommandTest(LauncherCase):
    def setUp(self):
        super().setUp()
        os.makedirs(self.root + "/bin")
        os.makedirs(self.root + "/deploy/slurm")
        shutil.copy(SBATCH, self.root + "/deploy/slurm")
        self.program("bin/catchment", 'cd "$OLDPWD"\nexec %s "$@"' % shlex.quote(CATCHMENT))
        self.program("bin/sbatch", "cat >script\necho 12")
        environment = {
            "CATCHMENT_BINARY": self.root + "/bin/catchment",
            "PATH": self.root + "/bin:/usr/bin:/bin",
        }
        patch = mock.patch.dict(os.environ, environment)
        patch.start()
        self.addCleanup(patch.stop)
        self.assertEqual(core.binary(), self.root + "/bin/catchment")

    def slurm(self, *args):
        """Returns the exit code, the output and the errors."""
        out, err = io.StringIO(), io.StringIO()
        return slurm.main(args, Streams(Stream(out), Stream(err))), out.getvalue(), err.getvalue()

    def test_the_script_is_complete(self):
        passed = [
            "--stage=/tmp",
            "--trace=t",
            "--metrics_port=0",
            "--set=epochs=1",
            "--overwrite",
            "--no-evaluator",
        ]
        passed += ["--out=o o"]
        layout = ["--nodes=2", "--workers=8", "--threads=4", "--time=2:00:00"]
        renamed = ["--worker_flag=--log_format=json", "--requeue_at_limit", "--sbatch_flag=--account=a b"]
        code, script, _ = self.slurm(JOB, *layout, *passed, *renamed)
        self.assertEqual(code, 0)
        lines = script.splitlines()
        self.assertEqual(lines[0], "#!/bin/bash")
        for line in (
            "--requeue",
            "--signal=B:TERM@60",
            "--nodes=2",
            "--ntasks=8",
            "--cpus-per-task=4",
            "--time=2:00:00",
        ):
            self.assertIn("#SBATCH " + line, lines)
        self.assertIn("#SBATCH '--account=a b'", lines)
        command = shlex.split(script.partition("\nexec ")[2].replace("\\\n", " "))
        self.assertEqual(command[0], self.root + "/deploy/slurm/catchment.sbatch")
        self.assertEqual(command[-1], JOB)
        passed += ["--worker-flag=--log_format=json", "--requeue-at-limit"]
        self.assertEqual(sorted(command[1:-1]), sorted(passed))

    def test_a_worker_has_a_gpu(self):
        script = self.slurm(JOB, "--nodes=2", "--gpus_per_node=4")[1]
        for line in ("--ntasks=8", "--ntasks-per-node=4", "--gpus-per-node=4"):
            self.assertIn("\n#SBATCH %s\n" % line, script)
        self.assertIn("8 GPUs", self.slurm(JOB, "--nodes=2", "--gpus_per_node=4", "--workers=3")[2])

    def test_the_script_that_is_printed_is_the_one_that_is_submitted(self):
        code, out, _ = self.slurm(JOB, "--nodes=2", "--out=out", "--submit")
        self.assertEqual(code, 0)
        self.assertIn("submitted as Slurm job 12", out)
        self.assertIn("catchment stop out\n", out)
        self.assertEqual(self.read("script"), self.slurm(JOB, "--nodes=2", "--out=out")[1])

    def test_what_cannot_run_is_not_submitted(self):
        os.makedirs(self.root + "/done")
        self.write("done/summary.json", '{"phase": "DONE"}')
        for args, code, said in (
            (["--set=epohcs=1"], 1, "did you mean epochs?"),
            (["--servers=100000"], 1, "servers"),
            (["--out=%s/done" % self.root], 2, "contains the result of a finished run"),
            (["--overwrite", "--resume=auto"], 2, "choose one"),
            (["--resume=yes"], 2, "takes auto or true"),
            (["--name=a\nb"], 2, "one line"),
        ):
            done = self.slurm(JOB, "--submit", *args)
            self.assertEqual((done[0], self.read("script")), (code, ""), done)
            self.assertIn(said, done[2])
        self.assertEqual(self.slurm(JOB, "--submit", "--out=%s/done" % self.root, "--overwrite")[0], 0)

    def test_refusals_of_slurm_are_quoted(self):
        self.program("bin/sbatch", "echo 'sbatch: error: invalid partition specified: none' >&2; exit 1")
        code, _, err = self.slurm(JOB, "--partition=none", "--submit")
        self.assertEqual(code, 1)
        self.assertIn("Slurm refuses the job: sbatch: error: invalid partition specified: none", err)
        os.remove(self.root + "/bin/sbatch")
        with mock.patch.dict(os.environ, PATH=self.root + "/bin"):
            self.assertIn(
                "no sbatch in PATH; run the command on a login node", self.slurm(JOB, "--submit")[2]
            )
        shutil.rmtree(self.root + "/deploy")
        self.assertIn("use a wheel", self.slurm(JOB)[2])


if __name__ == "__main__":
    unittest.main()
