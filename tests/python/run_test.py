#!/usr/bin/env python3
"""catchment.train and catchment.compare with real daemons and functions that need
neither NumPy nor cloudpickle."""

import contextlib
import json
import math
import os
import shlex
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, "python")
sys.modules["cloudpickle"] = None  # as where it is not installed
import catchment
from catchment import _descriptors, _run, _version

FOLDER = "cli" if os.path.exists("cli/catchment") else "bazel-bin/cli"
os.environ["PATH"] = os.path.abspath(FOLDER) + ":" + os.environ["PATH"]
DIGITS = {"data.drawn_digits": {"train_samples": 256, "test_samples": 64}, "samples": 512}
OUTSIDE = 3


def least_squares():
    """Moves four weights to 1. `math` is a module, which may be imported outside."""
    import array

    import catchment

    zeros = memoryview(array.array("f", [0.0] * 4)).cast("B").cast("f", (2, 2))
    worker = catchment.join({"w": zeros}, train_samples=256, test_samples=16)

    def loss():
        return math.fsum((w - 1) ** 2 for w in worker.weights)

    if worker.evaluates:
        worker.evaluate(lambda: (loss(), 8))
    for _ in worker.minibatches():
        for i, w in enumerate(worker.weights):
            worker.gradient[i] = 2 * (w - 1)
        worker.step(loss())


def logs():
    import array

    import catchment

    worker = catchment.join(
        {"w": memoryview(array.array("f", [0.0] * 4))}, train_samples=256, test_samples=16
    )
    if worker.evaluates:
        worker.evaluate(lambda: (0.5, 8))
    for _ in worker.minibatches():
        worker.log({"share/one": worker.steps > 0, "mean": 1})
        worker.log({"mean": 3.5})
        worker.step(0.5)


def joins():
    import sys

    sys.exit("catchment.join()")


def streams():
    """Two workers, of which the second has a stream that ends."""
    import array

    import catchment

    worker = catchment.join({"w": memoryview(array.array("f", [0.0] * 4))}, train_samples=256)
    passes = []

    def numbers():
        passes.append(len(passes))
        return iter(range(20))

    expected = 0
    for samples in worker.minibatches((i for i in range(20)) if worker.index == 1 else numbers):
        assert samples == [(expected + i) % 20 for i in range(8)], samples
        expected += 8
        worker.step(0.5)
    assert worker.index == 1 or len(passes) > 2, passes
    assert worker.index == 0 or worker.steps <= 2, worker.steps


class RunTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="run-")
        self.addCleanup(directory.cleanup)
        self.out = os.path.join(directory.name, "out")

    def train(self, *arguments, **more):
        return catchment.train(*arguments, out=self.out, progress=False, **more)

    def error(self, *arguments, **more):
        with self.assertRaises((RuntimeError, TypeError, ValueError)) as caught:
            self.train(*arguments, **more)
        return str(caught.exception)

    def test_a_function_trains(self):
        run = self.train(
            least_squares,
            workers=2,
            algorithm="downpour",
            settings={"epochs": 20, "batch_size": 8, "optimizer": {"learning_rate": 0.02, "momentum": 0}},
        )
        self.assertEqual((run.summary["phase"], run.summary["algorithm"]), ("DONE", "downpour"))
        self.assertEqual((run.summary["job"], run.summary["workers"]), ("least_squares", 2))
        self.assertEqual(run.metrics[-1]["samples"], 20 * 256)
        self.assertFalse(
            [value for row in run.metrics for value in row.values() if isinstance(value, (dict, list))]
        )
        self.assertEqual(run.scores[-1]["samples"], 20 * 256)
        self.assertEqual(run.scores[-1]["test_accuracy"], 0.5)
        self.assertLess(run.scores[-1]["test_loss"], 0.1)
        self.assertTrue(os.path.getsize(run.weights))
        self.assertIn("<td>50.00 %</td>", run._repr_html_())
        self.assertIn("test accuracy: 50.00 %", repr(run))
        self.assertIn("--overwrite", self.error(least_squares))

    def test_a_job_file_trains(self):
        run = self.train("examples/drawn_digits.textproto", settings=DIGITS, evaluator=False)
        self.assertEqual((run.summary["samples"], run.scores), (512, []))

    def test_a_python_file_trains(self):
        path = self.out + ".py"
        with open(path, "w") as file:
            file.write(
                "import sys\nsys.path[:0] = %r\nfrom run_test import least_squares\nleast_squares()\n"
                % [os.path.abspath("python"), os.path.dirname(os.path.abspath(__file__))]
            )
        self.assertEqual(self.train(path, settings={"samples": 256}).summary["samples"], 256)

    def test_metrics_of_the_program_are_written(self):
        run = self.train(logs, workers=2, settings={"batch_size": 8, "epochs": 4})
        lines = [row for row in run.metrics if "program/mean" in row]
        self.assertTrue(lines)
        for row in lines:
            self.assertEqual(row["program/mean"], 2.25)
            self.assertGreaterEqual(row["program/share/one"], 0)
        events = b""
        for name in os.listdir(self.out + "/tensorboard"):
            with open(os.path.join(self.out, "tensorboard", name), "rb") as file:
                events += file.read()
        self.assertEqual(events.count(b"program/mean"), len(lines))

    def test_streams_are_counted(self):
        run = self.train(streams, workers=2, algorithm="downpour", settings={"batch_size": 8, "epochs": 4})
        self.assertEqual((run.summary["phase"], run.summary["samples"]), ("DONE", 1024))

    def test_errors_are_those_of_the_command(self):
        self.assertIn(
            "did you mean learning_rate?", self.error(least_squares, settings={"optimizer.learning_rat": 1})
        )
        self.assertIn("unknown flag --worker", self.error(least_squares, worker=2))

        def fails():
            raise OSError("no data here")

        self.assertIn("OSError: no data here", self.error(fails))

    def test_functions_that_another_process_cannot_have(self):
        inside = 4
        self.assertIn("uses OUTSIDE, inside,", self.error(lambda: [OUTSIDE + inside for _ in range(2)]))
        self.assertIn("must take no arguments", self.error(lambda x: x))

    def test_workers_execute_only_what_this_user_alone_has_written(self):
        folder = os.path.join(self.out, "function")
        path = os.path.join(folder, "function.pickle")
        victim = self.out + ".victim"
        os.makedirs(folder, 0o700)
        with open(victim, "w") as file:
            file.write("mine")
        os.symlink(victim, path)
        command = shlex.split(_run._program(least_squares, self.out))
        with open(victim) as file:
            self.assertEqual(file.read(), "mine")
        modes = [stat.S_IMODE(os.lstat(one).st_mode) for one in (folder, path)]
        self.assertEqual(modes, [0o700, 0o600])

        def ran():
            return subprocess.run(command, capture_output=True, text=True, timeout=600).stderr

        _run._program(joins, self.out)
        self.assertIn("catchment.join()", ran())
        self.assertIn("catchment.join()", ran(), "the same file again, as by a restarted worker")
        for mode in (0o620, 0o602, 0o666):
            os.chmod(path, mode)
            self.assertIn("is not executed", ran())
        os.chmod(path, 0o600)
        os.rename(path, path + ".moved")
        os.symlink(path + ".moved", path)
        self.assertIn("cannot be read", ran())
        os.replace(path + ".moved", path)
        with contextlib.suppress(OSError):  # only root may give files away
            os.chown(path, 1, -1)
            self.assertIn("is not executed", ran())
        self.assertEqual(_run._program(joins, self.out), shlex.join(command))
        self.assertIn("catchment.join()", ran())
        for mode in (0o770, 0o755, 0o701):
            os.chmod(folder, mode)
            self.assertIn("mode 0700", self.error(least_squares))
        os.rename(folder, folder + ".moved")
        os.chmod(folder + ".moved", 0o700)
        os.symlink(folder + ".moved", folder)
        self.assertIn("mode 0700", self.error(least_squares))
        self.assertEqual(os.listdir(folder), ["function.pickle"])

    def test_an_interrupt_stops_the_job(self):
        measured = os.path.join(self.out, "metrics.jsonl")

        def interrupt():
            while not os.path.exists(measured) or not os.path.getsize(measured):
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt, daemon=True).start()
        with self.assertRaises(KeyboardInterrupt):
            self.train(least_squares, settings={"epochs": 1e6})
        with open(os.path.join(self.out, "summary.json")) as file:
            self.assertEqual(json.load(file)["phase"], "STOPPED")

    def test_algorithms_are_compared(self):
        comparison = catchment.compare(
            "examples/drawn_digits.textproto",
            ["sync", "downpour"],
            workers=[1, 2],
            seeds=1,
            budget="samples:512",
            search="none",
            settings={key: DIGITS[key] for key in DIGITS if key != "samples"},
            straggler=["1:2x"],
            out=self.out,
            progress=False,
        )
        self.assertEqual(
            {(run["algorithm"], run["workers"], run["done"]) for run in comparison.runs},
            {(name, n, True) for name in ("sync", "downpour") for n in (1, 2)},
        )
        self.assertEqual(len(comparison.standings), 4)
        self.assertGreater(comparison.standings[0]["test_accuracy"], 0)
        self.assertIn("Test accuracy over time, 2 workers", comparison.pictures)
        page = comparison._repr_html_()
        self.assertTrue(page.count("<svg ") == page.count("</svg>") == 1, page)
        self.assertEqual(comparison.report["stragglers"], ["1:2x"])
        with self.assertRaisesRegex(RuntimeError, "algorithms"):
            catchment.compare("examples/drawn_digits.textproto", out=self.out, progress=False)

    def test_directories_of_killed_joins_are_deleted_and_those_in_use_stay(self):
        os.mkdir(self.out)
        for name in ("TMPDIR", "XDG_RUNTIME_DIR"):
            before = os.environ.get(name)
            self.addCleanup(os.environ.__setitem__ if before else os.environ.pop, name, before)
            os.environ[name] = self.out
        left, used = (tempfile.mkdtemp(prefix="catchment-join-", dir=self.out) for _ in range(2))
        script = (
            "import os, sys; sys.path[:0] = ['python']; from catchment import _descriptors as d; "
            "lock = d._lock(sys.argv[1]); os.kill(os.getpid(), 9)"
        )
        self.assertEqual(subprocess.run([sys.executable, "-c", script, left], timeout=600).returncode, -9)
        with _descriptors._lock(used):
            catchment.train(
                "examples/drawn_digits.textproto",
                settings=DIGITS,
                evaluator=False,
                progress=False,
                out=os.path.join(self.out, "run"),
            )
        self.assertEqual(sorted(os.listdir(self.out)), sorted([os.path.basename(used), "run"]))

    def test_no_job_is_started_by_a_worker(self):
        os.environ["CATCHMENT_DESCRIBE"] = "/nowhere"
        self.addCleanup(os.environ.pop, "CATCHMENT_DESCRIBE")
        self.assertIn("in a program that a worker runs", self.error(least_squares))


class TextTest(unittest.TestCase):
    def test_settings(self):
        self.assertEqual(
            list(_run._settings({"a.b": True, "c": {"d": {}, "e": {"f": 0.1}}, "g": "SGD"})),
            [("a.b", "true"), ("c.d", "{}"), ("c.e.f", "0.1"), ("g", "SGD")],
        )

    def test_the_last_measurement_is_read_while_it_is_written(self):
        row = {
            "epochs": 1,
            "samples": 1000,
            "samples_per_second": 20,
            "train_loss": 0.5,
            "test_accuracy": None,
            "staleness_mean": 1,
        }
        with tempfile.NamedTemporaryFile("w") as file:
            self.assertEqual(_run._position(file.name), "")
            file.write(json.dumps(row) + "\n" + json.dumps(row)[:20])
            file.flush()
            self.assertEqual(
                _run._position("/nowhere", file.name),
                "epoch 1.00 | 1,000 samples | 20/s | loss 0.5000 | staleness 1.00",
            )

    def test_the_version_is_that_of_the_programs(self):
        with os.popen(os.path.join(FOLDER, "catchment") + " --version") as program:
            self.assertEqual(program.readline().split()[:2], ["catchment", _version.__version__])


if __name__ == "__main__":
    unittest.main()
