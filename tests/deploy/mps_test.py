#!/usr/bin/env python3
"""Tests of deploy/gpu/mps.py with a program in the place of NVIDIA's."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, "deploy/gpu")
import mps  # pylint: disable=wrong-import-position


class MpsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.log = self.folder.name + "/log"
        self.env = dict(os.environ, PATH=f"{self.folder.name}:/usr/bin:/bin")

    def install(self, status=0):
        path = f"{self.folder.name}/{mps.CONTROL}"
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\necho "$CUDA_MPS_PIPE_DIRECTORY $* $(cat)" >> {self.log}\nexit {status}\n')
        os.chmod(path, 0o755)

    def calls(self):
        with open(self.log, encoding="utf-8") as file:
            return file.read().split("\n")[:-1]

    def test_says_that_there_is_none(self):
        service = mps.Mps(self.env)
        service.start(works=lambda: self.fail("is not to be tried"))
        self.assertEqual(service.state, "time-sliced: there is no nvidia-cuda-mps-control")
        service.stop()
        self.assertNotIn("CUDA_MPS_PIPE_DIRECTORY", self.env)

    def test_runs_from_start_to_stop(self):
        self.install()
        service = mps.Mps(self.env)
        service.start(works=lambda: None)
        self.assertEqual(service.state, "at the same time, by MPS")
        folder = self.env["CUDA_MPS_PIPE_DIRECTORY"]
        self.assertTrue(os.path.isdir(folder))
        service.stop()
        self.assertEqual(self.calls(), [f"{folder} -d ", f"{folder}  quit"])
        self.assertFalse(os.path.exists(folder))
        self.assertNotIn("CUDA_MPS_PIPE_DIRECTORY", self.env)

    def test_stops_where_programs_fail_under_it(self):
        self.install()

        def fails():
            raise RuntimeError("CUDA error 805")

        service = mps.Mps(self.env)
        service.start(works=fails)
        self.assertEqual(service.state, "time-sliced: MPS does not work: CUDA error 805")
        self.assertNotIn("CUDA_MPS_PIPE_DIRECTORY", self.env)
        self.assertTrue(self.calls()[-1].endswith("quit"))

    def test_does_without_where_it_does_not_start(self):
        self.install(status=1)
        service = mps.Mps(self.env)
        service.start(works=lambda: self.fail("is not to be tried"))
        self.assertIn("time-sliced: MPS does not work: ", service.state)


if __name__ == "__main__":
    unittest.main()
