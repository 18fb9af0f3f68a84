#!/usr/bin/env python3
"""The benchmarks of jobs, with programs that stand in for Catchment and for an interpreter with PyTorch."""

import json
import os
import subprocess
import sys
import tempfile
import time
import types
import unittest
import unittest.mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, HERE)
import attached
import jobs

CATCHMENT = """#!/bin/bash
for flag; do [[ $flag != --out=* ]] || mkdir -p "${flag#--out=}/logs"; done
case "$*" in
  *--workers=1*preset=downpour*) echo '{"samples_per_second": 300}' ;;
  *--workers=2*preset=downpour*) echo '{"samples_per_second": 500}' ;;
  *preset=sync*) echo '{"samples_per_second": 200}' ;;
esac
"""
# Finds every module; a run leaves a process behind, whose id it writes down.
PYTHON = """#!/bin/bash
if [[ $1 == -c ]]; then exit 0; fi
sleep 1000 >/dev/null 2>&1 &
echo $! >> "$0.children"
echo 100
"""


def write_program(directory, name, text):
    path = os.path.join(directory, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, 0o755)
    return path


def run_jobs(*words):
    return subprocess.run(
        [sys.executable, os.path.join(HERE, "jobs.py"), *words],
        capture_output=True,
        text=True,
    )


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class PeersTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name
        write_program(self.directory, "cli/catchment", CATCHMENT)
        self.python = write_program(self.directory, "python", PYTHON)

    def run_peers(self, *flags):
        rows = os.path.join(self.directory, "rows.json")
        done = run_jobs(
            "peers", f"--bin={self.directory}", f"--json={rows}", "--rounds=1", "--seconds=0.1", *flags
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(rows) as file:
            return {(row["system"], row["workers"]): row for row in json.load(file)}, done.stderr

    def test_ratio_is_of_downpour_with_as_many_workers(self):
        rows, _ = self.run_peers("--python=/no/python", "--tensorflow=/no/python")
        self.assertEqual(set(rows), {("downpour", 1), ("sync", 1), ("downpour", 2), ("sync", 2)})
        self.assertEqual(rows["downpour", 1]["samples_per_second"], 300)
        self.assertEqual(rows["downpour", 1]["ratio"], 1)
        self.assertEqual(rows["sync", 1]["ratio"], 1.5)
        self.assertEqual(rows["sync", 2]["ratio"], 2.5)

    def test_peer_that_is_not_installed_is_named_and_left_out(self):
        rows, errors = self.run_peers(f"--python={self.python}", "--tensorflow=/no/python", "--workers=1")
        self.assertEqual({system for system, _ in rows}, {"downpour", "sync", "pytorch_ddp", "pytorch_rpc"})
        self.assertIn("tensorflow_ps: tensorflow is not installed", errors)
        self.assertNotIn("pytorch_ddp", errors)

    def test_run_that_fails_is_named_and_has_no_row(self):
        failing = write_program(
            self.directory, "failing", "#!/bin/bash\n[[ $1 == -c ]] || { echo broken >&2; exit 3; }\n"
        )
        rows, errors = self.run_peers(f"--python={failing}", "--tensorflow=/no/python", "--workers=1")
        self.assertEqual({system for system, _ in rows}, {"downpour", "sync"})
        self.assertIn("pytorch_ddp, 1 workers", errors)
        self.assertIn("ended with 3", errors)
        self.assertIn("broken", errors)

    def test_processes_that_a_run_leaves_behind_are_killed(self):
        self.run_peers(f"--python={self.python}", "--tensorflow=/no/python", "--workers=1")
        with open(self.python + ".children") as file:
            children = [int(line) for line in file]
        self.assertEqual(len(children), 2)
        for child in children:
            while is_running(child):
                time.sleep(0.01)

    def test_run_that_exceeds_its_limit_is_stopped(self):
        with self.assertRaisesRegex(RuntimeError, "no result within"):
            jobs.run_group(["sleep", "1000"], 0.2)


class AttachedTest(unittest.TestCase):
    def setUp(self):
        self.bench = attached.Bench(types.SimpleNamespace(rounds=3, seconds=2))
        self.asked = []

    def run_case(self, case, *arguments):
        return list(getattr(self.bench, case)(*arguments))

    def test_one_worker_is_compared_with_the_local_loop_of_its_round(self):
        local = iter([100.0, 200.0, 400.0])
        kept = {"attached": iter([90.0, 190.0, 200.0]), "overlapped": iter([95.0, 196.0, 400.0])}
        self.bench.local = lambda model: next(local)
        self.bench.attached = lambda model, workers, samples, kind: (
            self.asked.append((workers, samples)) or next(kept[kind])
        )
        self.assertEqual(
            self.run_case("one", "cnn"),
            [
                {"case": "cnn: one worker / local SGD", "ratio": 0.9, "promised": 0.95, "local_ms": 640.0},
                {
                    "case": "cnn: one worker with overlap / local SGD",
                    "ratio": 0.98,
                    "promised": 0.95,
                    "local_ms": 640.0,
                },
            ],
        )
        self.assertEqual(self.asked, [(1, 200.0)] * 2 + [(1, 400.0)] * 2 + [(1, 800.0)] * 2)

    def test_two_workers_are_compared_with_twice_one_and_with_two_processes(self):
        self.bench.local = lambda model: 100.0
        self.bench.attached = lambda model, workers, samples: 100.0 if workers == 1 else 170.0
        self.bench.ddp = lambda model, workers: 160.0
        rows = self.run_case("two", "cnn")
        self.assertEqual([(row["ratio"], row["promised"]) for row in rows], [(0.85, 0.85), (1.062, 1.0)])

    def test_an_empty_step_is_what_is_beyond_the_built_in_one_and_the_copies(self):
        self.bench.attached = lambda model, workers, samples: attached.BATCH / 0.060
        self.bench.train = lambda *arguments, samples: ({"samples_per_second": attached.BATCH / 0.050}, "")
        self.bench.python = lambda *arguments: types.SimpleNamespace(
            communicate=lambda: ("speed %f\n" % (attached.BATCH / 0.004), None)
        )
        (row,) = self.run_case("empty")
        self.assertAlmostEqual(row["ratio"], 2 / 3, places=3)
        self.assertEqual((row["attached_ms"], row["built_in_ms"], row["copies_ms"]), (60.0, 50.0, 8.0))

    def test_two_workers_are_compared_with_the_parameter_servers_that_are_installed(self):
        self.bench.args.python = self.bench.args.tensorflow = "python"
        self.bench.local = lambda model: 100.0
        self.bench.attached = lambda model, workers, samples: (
            self.asked.append((model, workers, samples)) or 300.0
        )
        speeds = iter([100.0, None, 200.0])
        with unittest.mock.patch.multiple(
            attached.peers,
            is_installed=lambda args, system: system == "pytorch_rpc",
            measure=lambda args, system, workers: next(speeds),
        ):
            (row,) = self.run_case("peers")
        self.assertEqual(
            row, {"case": "mnist_mlp: two workers / two of pytorch_rpc", "ratio": 2.25, "promised": 1.0}
        )
        self.assertEqual(
            self.asked, [("mnist_mlp", 2, 400.0)] * 2
        )  # of three rounds, of which one has failed

    def test_speeds_of_several_processes_are_added(self):
        self.assertEqual(attached.speeds("a line\nspeed 1.5\nspeed 2\n"), 3.5)
        with self.assertRaises(SystemExit):
            attached.speeds("Traceback")


class JobsTest(unittest.TestCase):
    def test_every_case_describes_itself_and_refuses_a_name_that_it_does_not_know(self):
        for case in jobs.CASES:
            self.assertIn("--json", run_jobs(case, "--help").stdout, case)
        done = run_jobs("vs_pytorch", "--models=mnist_cnn,alexnet")
        self.assertEqual(done.returncode, 2)
        self.assertIn("alexnet: known are mnist_cnn, mnist_mlp, hep_lstm, resnet20", done.stderr)
        self.assertIn("--isa=sse4: known are native, avx2", run_jobs("vs_pytorch", "--isa=sse4").stderr)
        self.assertIn("attached, diloco_peers, images", run_jobs().stderr)

    def test_a_program_that_is_not_there_is_named_with_the_command_that_builds_it(self):
        done = run_jobs("two_workers", "--bin=/none")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/none/cli/catchment is not a program: bazel build //cli:catchment", done.stderr)

    def test_two_workers_keep_the_median_of_what_each_round_kept(self):
        case = jobs.importlib.import_module("two_workers")
        args = types.SimpleNamespace(models=["mnist_cnn"], rounds=3)
        speeds = iter([100, 150, 100, 190, 200, 360])
        with unittest.mock.patch.object(
            jobs, "train", lambda args, **settings: ({"samples_per_second": next(speeds)}, "")
        ):
            self.assertEqual(
                list(case.run(args)),
                [
                    dict(
                        model="mnist_cnn",
                        one_worker_samples_per_s=100,
                        two_workers_samples_per_s=190,
                        kept=0.9,
                    )
                ],
            )


if __name__ == "__main__":
    unittest.main()
