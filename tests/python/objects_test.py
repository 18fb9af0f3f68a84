#!/usr/bin/env python3
"""The table of docs/python_reference.md, "Accepted and refused objects": objects_program.py with the real
daemons. Run as torch_test.py is."""

import json
import os
import sys
import unittest

sys.path.insert(0, "tests/python")
sys.path.insert(0, os.path.abspath("python"))
import objects_program
from torch_case import TorchCase, read

SGD = ("optimizer.learning_rate=0.1", "optimizer.momentum=0", "optimizer.schedule.decay=CONSTANT")
OVER = (
    "UserWarning: the job is over, so this loop has no minibatches: one loop over the worker's minibatches "
    "is the whole job"
)
# Runs its file again in each process of its DataLoader.
UNGUARDED = """
import sys
sys.path.insert(0, "tests/python")
import torch_program, catchment.torch as catchment
from torch.utils.data import DataLoader
model, samples = torch_program.Perceptron(), torch_program.rows(%r)
worker = catchment.join(model, samples)
for x, y in DataLoader(worker.minibatches(), batch_size=None, num_workers=1, multiprocessing_context="spawn"):
    pass
"""


class ObjectsTest(TorchCase):
    def train(self, variant, *fields, **more):
        return self.attached(
            variant, *self.sets("epochs=1", *(fields or SGD)), program="objects_program", **more
        )

    def test_loss_of_the_optimizers_step_is_that_of_the_gradients(self):
        for variant in objects_program.LOSSES:
            with self.subTest(variant):
                self.train(variant)
                self.assertNotIn("got no loss", self.logs)
        self.train("without-loss")
        self.assertEqual(
            self.logs.count("UserWarning: the optimizer's step() got no loss, so the job's metrics show 0"),
            1,
            self.logs,
        )

    def test_schedulers_of_the_program_have_no_effect(self):
        self.train("cycle")
        self.assertIn("the job sets the learning rate, so changes by the program", self.logs)
        self.assertIn("the job sets momentum, so the program's has no effect", self.logs)

    def test_own_optimizer_makes_one_step_for_each_minibatch(self):
        self.train("own-steps", "algorithm.preset=local_sgd")
        self.assertNotIn("Warning", self.logs)
        self.train("another-steps", "algorithm.preset=local_sgd")
        self.assertEqual(
            self.logs.count("SGD moves parameters of the job, as does the optimizer given to join()"),
            1,
            self.logs,
        )

    def test_any_thread_may_train(self):
        for variant in objects_program.THREADS:
            with self.subTest(variant):
                left_out = variant.endswith("leaves-out")
                self.train(variant, fails=left_out)
                self.assertEqual(
                    "the program failed: RuntimeError: step 4 was skipped" in self.logs, left_out, self.logs
                )

    def test_one_loop_is_the_whole_job(self):
        for variant, options in objects_program.EPOCHS.items():
            with self.subTest(variant):
                self.train(variant, fails=options.get("divides", False))
                # Each loop of processes that the program has made itself warns.
                self.assertEqual(self.logs.count(OVER), 2 if variant == "epochs-processes" else 1, self.logs)

    def test_data_that_are_no_samples_are_named(self):
        for variant in ("list-of-samples", "list-of-tensors"):
            self.train(variant)
        for variant, text in (
            ("frame", "the training set is a Frame, and not a data set of samples.*TensorDataset"),
            ("columns", "the training set is a list, and not a data set of samples.*TensorDataset"),
            (
                "size-share",
                "join's training set is the number of samples of a data set, a whole number from 1, got 0.5",
            ),
            (
                "size-none",
                "join's training set is the number of samples of a data set, a whole number from 1, got 0",
            ),
            ("size-counted", "join's samples_per_epoch is the number of samples .* got 240.5"),
            ("own-empty", r"this worker has no samples of its own: its training set \(Subset\) is empty"),
            (
                "own-few",
                r"training set \(Subset\) has 3 samples, which is too few for 4 processes.*num_workers",
            ),
        ):
            with self.subTest(variant):
                self.train(variant, fails=True)
                self.assertRegex(self.logs, text)
                self.assertNotIn("_OwnSamples", self.logs)

    def test_numbers_of_right_samples_are_checked(self):
        line = r"\(z.argmax\(1\) == y\).sum\(\)"
        for variant, value in (("share", r"0\.\d+"), ("above", "17"), ("each", r"tensor\(\[.*")):
            with self.subTest(variant):
                self.train(variant, fails=True)
                self.assertRegex(
                    self.logs,
                    "ValueError: step's second value is a number of samples, from 0 to 16, got %s: "
                    r"worker.step\(loss, %s\)" % (value, line),
                )
        self.train("sum")
        os.environ["TEST_SAMPLES"] = "1"
        self.addCleanup(os.environ.pop, "TEST_SAMPLES")
        out = self.train("sum")
        self.assertLessEqual(json.loads(read(out + "/summary.json"))["test_accuracy"], 1)
        for variant, value in (("share", r"0\.\d+"), ("above", "241"), ("each", r"tensor\(\[.*")):
            with self.subTest(variant):
                out = self.train(variant, fails=True)
                self.assertRegex(
                    self.evaluators_log(out),
                    "ValueError: evaluate's second value is a number of samples, "
                    "from 0 to 240, got %s: return %s" % (value, line),
                )

    def test_spawned_processes_need_the_guard(self):
        program = os.path.join(self.directory.name, "unguarded.py")
        with open(program, "w") as file:
            file.write(UNGUARDED % self.rows)
        self.catchment(
            "unguarded", ["--program=%s %s" % (sys.executable, program), *self.sets("epochs=1")], fails=True
        )
        self.assertIn("runs the program's file again", self.logs)
        self.assertIn('if __name__ == "__main__":', self.logs)


if __name__ == "__main__":
    unittest.main()
