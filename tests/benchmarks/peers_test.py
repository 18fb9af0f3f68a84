#!/usr/bin/env python3
"""peers.py with programs that stand in for Catchment and for an interpreter with PyTorch."""

import json
import os
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, HERE)
import peers

CATCHMENT = """#!/bin/bash
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
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, 0o755)
    return path


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
        self.catchment = write_program(self.directory, "catchment", CATCHMENT)
        self.python = write_program(self.directory, "python", PYTHON)

    def run_peers(self, *flags):
        rows = os.path.join(self.directory, "rows.json")
        done = subprocess.run(
            [
                sys.executable,
                os.path.join(HERE, "peers.py"),
                f"--catchment={self.catchment}",
                f"--json={rows}",
                "--rounds=1",
                "--seconds=0.1",
                *flags,
            ],
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(rows) as file:
            return {(row["system"], row["workers"]): row for row in json.load(file)}, done.stderr

    def test_ratio_is_of_downpour_with_as_many_workers(self):
        rows, _ = self.run_peers("--torch=/no/python", "--tensorflow=/no/python")
        self.assertEqual(set(rows), {("downpour", 1), ("sync", 1), ("downpour", 2), ("sync", 2)})
        self.assertEqual(rows["downpour", 1]["samples_per_second"], 300)
        self.assertEqual(rows["downpour", 1]["ratio"], 1)
        self.assertEqual(rows["sync", 1]["ratio"], 1.5)
        self.assertEqual(rows["sync", 2]["ratio"], 2.5)

    def test_peer_that_is_not_installed_is_named_and_left_out(self):
        rows, errors = self.run_peers(f"--torch={self.python}", "--tensorflow=/no/python", "--workers=1")
        self.assertEqual({system for system, _ in rows}, {"downpour", "sync", "pytorch_ddp", "pytorch_rpc"})
        self.assertIn("tensorflow_ps: tensorflow is not installed", errors)
        self.assertNotIn("pytorch_ddp", errors)

    def test_run_that_fails_is_named_and_has_no_row(self):
        failing = write_program(
            self.directory, "failing", "#!/bin/bash\n[[ $1 == -c ]] || { echo broken >&2; exit 3; }\n"
        )
        rows, errors = self.run_peers(f"--torch={failing}", "--tensorflow=/no/python", "--workers=1")
        self.assertEqual({system for system, _ in rows}, {"downpour", "sync"})
        self.assertIn("pytorch_ddp, 1 workers", errors)
        self.assertIn("ended with 3", errors)
        self.assertIn("broken", errors)

    def test_processes_that_a_run_leaves_behind_are_killed(self):
        self.run_peers(f"--torch={self.python}", "--tensorflow=/no/python", "--workers=1")
        with open(self.python + ".children") as file:
            children = [int(line) for line in file]
        self.assertEqual(len(children), 2)
        for child in children:
            while is_running(child):
                time.sleep(0.01)

    def test_run_that_exceeds_its_limit_is_stopped(self):
        with self.assertRaisesRegex(RuntimeError, "no result within"):
            peers.run_group(["sleep", "1000"], 0.2)


if __name__ == "__main__":
    unittest.main()
