#!/usr/bin/env python3
"""Tests what attached.py makes of the times that it measures."""

import contextlib
import io
import sys
import types
import unittest
import unittest.mock

sys.dont_write_bytecode = True
sys.path.insert(0, "tests/benchmarks")
import attached


class AttachedTest(unittest.TestCase):
    def setUp(self):
        self.bench = attached.Bench(types.SimpleNamespace(rounds=3, seconds=2))
        self.asked = []

    def run_case(self, case, *arguments):
        with contextlib.redirect_stdout(io.StringIO()):
            getattr(self.bench, case)(*arguments)
        return self.bench.rows

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
        self.bench.train = lambda arguments, samples: ({"samples_per_second": attached.BATCH / 0.050}, "")
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
        # Three rounds, of which one has failed.
        self.assertEqual(self.asked, [("mnist_mlp", 2, 400.0)] * 2)

    def test_speeds_of_several_processes_are_added(self):
        self.assertEqual(attached.speeds("a line\nspeed 1.5\nspeed 2\n"), 3.5)
        with self.assertRaises(SystemExit):
            attached.speeds("Traceback")


if __name__ == "__main__":
    unittest.main()
