#!/usr/bin/env python3
"""catchment.keras with the real daemons: keras_program.py.
Needs an interpreter with Keras 3 and its backends:

    /path/to/venv/bin/python tests/python/keras_test.py

BACKENDS names those to test; by default all three.
"""

import os
import sys
import unittest

import numpy as np

sys.path.insert(0, "tests/python")
sys.path.insert(0, os.path.abspath("python"))
from program_case import SAMPLES, ProgramCase, tensors

BACKENDS = os.environ.get("BACKENDS", "jax torch tensorflow").split()
os.environ.setdefault("KERAS_BACKEND", BACKENDS[0])
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

# As keras_program.py does it.
SGD = ("optimizer.learning_rate=0.1", "optimizer.momentum=0", "optimizer.schedule.decay=CONSTANT")


class KerasTest(ProgramCase):
    PROGRAM = "keras_program.py"

    def on_each_backend(self, variants, *changes, **options):
        for backend in BACKENDS:
            for variant in variants:
                with self.subTest(backend + " " + variant):
                    yield backend, self.train(variant, *changes, KERAS_BACKEND=backend, **options)

    def test_programs_train_as_they_do_in_keras(self):
        for _, out in self.on_each_backend(
            (
                "fit",
                "eager",
                "inputs",
                "batches",
                "weighted",
                "callbacks",
                "own-step",
                "own-step-eager",
                "own-step-batches",
                "own-step-weights",
            ),
            "epochs=1",
            *SGD,
        ):
            self.assertEqual(self.summary(out)["samples"], SAMPLES)
            self.assertNotIn("the program has changed weights", self.logs)
        if "jax" in BACKENDS:
            for variant in ("ahead", "thread-ahead"):
                self.train(variant, "epochs=1", *SGD, KERAS_BACKEND="jax")
        self.train("bfloat16", "epochs=1", *SGD)

    def test_two_workers_have_the_jobs_weights_after_fit(self):
        for backend, out in self.on_each_backend(("train",), "epochs=10", *SGD, workers=2):
            final = tensors(out + "/model.safetensors")
            for index in range(2):
                own = np.load("%s.worker%d.npz" % (self.rows, index))
                for name in own:
                    self.assertEqual(
                        own[name].ravel().tolist(),
                        final[name.replace("|", "/")].tolist(),
                        (backend, index, name),
                    )
            statistics = [
                name for name in final if name.endswith(("/batch_normalization.running_mean", ".running_var"))
            ]
            self.assertEqual(len(statistics), 2)
            kernel = np.reshape(final["sequential/dense/kernel"], (6, 8))
            np.testing.assert_allclose(
                final["sequential/batch_normalization.running_mean"],
                self.mean_row() @ kernel + final["sequential/dense/bias"],
                atol=1e-5,
            )
            summary = self.summary(out)
            self.assertGreater(summary["test_accuracy"], 0.7)
            self.assertLess(summary["test_loss"], 0.7)

    def test_frozen_statistics_are_scored_and_written(self):
        for _, out in self.on_each_backend(("frozen",), "epochs=10", *SGD):
            final = tensors(out + "/model.safetensors")
            self.assertEqual(set(final["base/pretrained.running_mean"]), {0.5})
            self.assertEqual(set(final["base/pretrained.running_var"]), {4.0})
            kernel = np.reshape(final["sequential/dense/kernel"], (6, 8))
            np.testing.assert_allclose(
                final["sequential/learned.running_mean"],
                (self.mean_row() - 0.5) / np.sqrt(4.001) @ kernel + final["sequential/dense/bias"],
                atol=1e-4,
            )
            self.assertGreater(self.summary(out)["test_accuracy"], 0.6)

    def test_model_has_the_jobs_weights_after_all_callbacks(self):
        for backend, out in self.on_each_backend(("restores",), "epochs=1", *SGD):
            final = tensors(out + "/model.safetensors")
            own = np.load("%s.worker0.npz" % self.rows)
            self.assertEqual(len(own.files), len(final))
            for name in own:
                self.assertEqual(
                    own[name].ravel().tolist(), final[name.replace("|", "/")].tolist(), (backend, name)
                )

    def test_rows_of_the_page(self):
        for _ in self.on_each_backend(("rows",), "epochs=1", *SGD):
            pass

    def mean_row(self):
        return np.loadtxt(self.rows, delimiter=",")[:, :6].mean(axis=0)

    def test_page_shows_what_works(self):
        for _, out in self.on_each_backend(("page",), "epochs=10", *SGD):
            self.assertGreater(self.summary(out)["test_accuracy"], 0.5)

    def test_fit_of_a_job_that_fails_raises(self):
        for _ in self.on_each_backend(("diverges",), "epochs=100", fails=True):
            self.assertIn("RuntimeError: the Catchment worker has ended: ", self.logs)
            self.assertNotIn("fit() has ended as if", self.logs)

    def test_names_what_the_program_did_wrong(self):
        for _ in self.on_each_backend(("mistakes",), "epochs=1"):
            pass
        for _ in self.on_each_backend(("no-loss",), "epochs=1"):
            self.assertEqual(self.logs.count("the optimizer got gradients without a loss"), 1, self.logs)
        for _ in self.on_each_backend(("no-callback",), fails=True):
            self.assertIn("fit() lacks the worker's callback", self.logs)
        for _ in self.on_each_backend(("applies-twice", "applies-twice-batches"), fails=True):
            self.assertRegex(self.logs, "the optimizer several times for one|the second one for the same")

    def test_a_percentage_is_not_an_accuracy(self):
        for _ in self.on_each_backend(("percent",), "epochs=1", fails=True):
            self.assertIn(
                "the metric acc_percent is the test accuracy, a share from 0 to 1, got 97: rename it",
                self.logs,
            )

    def test_names_what_join_does_not_accept(self):
        import keras
        from keras import layers

        import catchment.keras as catchment

        def model(**options):
            return keras.Sequential([keras.Input((6,)), layers.Dense(3, **options)])

        x, y = np.zeros((10, 6)), np.zeros(10)
        for arguments, text in (
            (
                (keras.Sequential([layers.Dense(3)]), (x, y)),
                "the model has no weights yet: give it a keras.Input",
            ),
            ((model(trainable=False), (x, y)), "the model has no trainable weight"),
            ((model(kernel_constraint="non_neg"), (x, y)), r"kernel has a constraint"),
            ((model(), (x, y[1:])), "the parts of the training set have 9 and 10 samples"),
            (
                (model(), (x, y), (x, iter(y))),
                r"the test set has a part of type .*iterator.*worker.data\(load\)",
            ),
            ((model(), (x, y)), "was not started by a Catchment worker"),
        ):
            with self.assertRaisesRegex((RuntimeError, TypeError, ValueError), text):
                catchment.join(*arguments)


if __name__ == "__main__":
    unittest.main()
