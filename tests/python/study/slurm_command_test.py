#!/usr/bin/env python3
"""Tests `catchment slurm` in a folder like an installation, with a shell script in place of sbatch.
tests/deploy/slurm_test.sh submits to a real Slurm."""

import io
import os
import shlex
import shutil
import subprocess
import unittest
from unittest import mock

from catchment.study import core, slurm
from catchment.study.command_line import Stream, Streams
from launcher_case import LauncherCase

CATCHMENT = os.path.abspath(shutil.which(os.environ.get("CATCHMENT_BINARY", "cli/catchment")))
JOB = os.path.abspath("examples/drawn_digits.textproto")
SCRIPTS = os.path.abspath("deploy/slurm")


class SlurmCommandTest(LauncherCase):
    def setUp(self):
        super().setUp()
        os.makedirs(self.root + "/bin")
        shutil.copytree(SCRIPTS, self.root + "/deploy/slurm")
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

    def on_two_partitions(self, *args):
        """Has a Slurm with the partitions stable and spot, and an sbatch that numbers its jobs."""
        self.program("bin/sinfo", "printf 'stable\\nspot\\nspot\\n'")
        count = "number=$(($(cat count 2>/dev/null) + 1))\necho $number >count\n"
        self.program("bin/sbatch", count + 'printf "%s\\n" "$@" >job-$number\necho "$number;cluster"')
        partitions = ["--servers_partition=stable", "--workers_partition=spot"]
        return self.slurm(JOB, *partitions, "--out=o o", *args)

    def test_servers_and_workers_on_two_partitions(self):
        args = [
            "--workers=8",
            "--servers=2",
            "--threads=4",
            "--time=1:00:00",
            "--set=epochs=1",
            "--device=cpu",
        ]
        args += ["--stage=/tmp", "--worker_flag=--log_format=json", "--server_flag=--pin_threads", "--name=n"]
        args += ["--sbatch_flag=--account=a b", "--insecure"]
        code, out, _ = self.on_two_partitions("--submit", *args)
        self.assertEqual(code, 0)
        self.assertIn("jobs 1, the servers, and 2, the workers", out)
        self.assertIn("catchment stop 'o o'\n", out)
        script = self.root + "/deploy/slurm/%s.sbatch"
        both = ["--parsable", "--chdir=" + os.getcwd(), "--time=1:00:00", "--account=a b", "--nodes=1"]
        both += ["--out=o o", "--stage=/tmp", "--worker-flag=--log_format=json", "--insecure"]
        servers = ["--ntasks=2", "--cpus-per-task=4", "--job-name=n-servers", "--partition=stable"]
        servers += [script % "servers", "--workers=8", "--servers=2", "--server-flag=--pin_threads"]
        servers += ["--set=epochs=1", JOB]
        workers = ["--array=1-8", "--dependency=after:1", "--ntasks=1", "--cpus-per-task=4"]
        workers += ["--job-name=n-workers", "--partition=spot", script % "workers", "--servers-job=1"]
        workers += ["--device=cpu"]
        self.assertEqual(sorted(self.read("job-1").splitlines()), sorted(both + servers))
        self.assertEqual(sorted(self.read("job-2").splitlines()), sorted(both + workers))
        # The script that is printed submits the same.
        submitted = [self.read("job-%d" % number) for number in (1, 2)]
        os.remove(self.root + "/count")
        printed = self.on_two_partitions(*args)[1]
        out = subprocess.run(
            ["bash", "-c", printed], cwd=self.root, check=True, capture_output=True, text=True
        )
        self.assertEqual(out.stdout, "submitted as Slurm jobs 1 and 2\n")
        self.assertEqual([self.read("job-%d" % number) for number in (1, 2)], submitted)

    def test_a_task_of_workers_is_a_node_with_gpus(self):
        self.assertEqual(self.on_two_partitions("--workers=8", "--gpus_per_node=4", "--submit")[0], 0)
        for flag in ("--array=1-2", "--ntasks=4", "--ntasks-per-node=4", "--gpus-per-node=4"):
            self.assertIn(flag, self.read("job-2").splitlines())
        self.assertNotIn("gpus", self.read("job-1"))

    def test_what_cannot_run_on_two_partitions_is_not_submitted(self):
        for args, code, said in (
            (["--workers_partition=spott"], 1, "Slurm has no partition spott; it has spot, stable"),
            (["--servers_partition=spot,none"], 1, "Slurm has no partition none"),
            (["--partition=spot"], 2, "--partition for all in one job"),
            (["--workers_partition="], 2, "give --servers_partition and --workers_partition"),
            (["--gpus_per_node=3"], 2, "a task of the array has 3 GPUs"),
            (["--out=o-%a"], 2, "share a directory"),
            (["--set=epohcs=1"], 1, "did you mean epochs?"),
        ):
            done = self.on_two_partitions("--workers=8", "--submit", *args)
            self.assertEqual((done[0], self.read("job-1")), (code, ""), done)
            self.assertIn(said, done[2])
        self.assertIn("both --workers=N and --out=DIR", self.on_two_partitions("--submit")[2])

    def test_servers_without_workers_are_cancelled(self):
        self.on_two_partitions()
        self.program("bin/scancel", 'echo "$@" >cancelled')
        self.program(
            "bin/sbatch", 'case "$*" in *workers.sbatch*) echo "no account" >&2; exit 1;; esac\necho 7'
        )
        with mock.patch.object(slurm, "_check_partitions"):
            flags = ["--servers_partition=stable", "--workers_partition=spot", "--workers=2", "--out=out"]
            code, _, err = self.slurm(JOB, *flags, "--submit")
        self.assertEqual((code, self.read("cancelled")), (1, "7\n"))
        self.assertIn("no account; job 7, the servers', is cancelled", err)


if __name__ == "__main__":
    unittest.main()
