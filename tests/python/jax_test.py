#!/usr/bin/env python3
"""catchment.jax with the real daemons: jax_program.py. Needs an interpreter with JAX, Flax and Optax:

/path/to/venv/bin/python tests/python/jax_test.py
"""

import re
import sys
import unittest

import numpy as np

sys.path.insert(0, "tests/python")
from program_case import SAMPLES, ProgramCase, read, tensors

# As jax_program.py does it.
SGD = ("optimizer.learning_rate=0.1", "optimizer.momentum=0", "optimizer.schedule.decay=CONSTANT")
# Programs that train as they do without Catchment, that are warned, and that end with an error.
FOLLOW = (
    "plain",
    "bfloat16",
    "float16",
    "optax",
    "optax-eager",
    "optax-callback",
    "optax-chain",
    "optax-bfloat16",
    "flax",
    "nnx",
    "nnx-eager",
    "nnx-pure",
)
WARNED = {
    "own-params": "they are gradients of other weights than the servers'",
    "flax": "update() got no loss",
}
REFUSED = {
    "integer": r"leaf \['steps'\] of the parameters is of type int32.*only the floating-point arrays",
    "function": r"leaf \['activation'\] of the parameters is of type .*equinox.partition",
    "empty": "the parameters have no leaf",
    "no-length": r"the test set \(generator\) has no length.*: give join\(\) the number of samples",
    "less": r"the gradients have no leaf \['layers'\]\[0\]\[0\]",
    "more": r"the gradients have a leaf \['extra'\]",
    "shape": r"the gradient of leaf \['scale'\] has shape \(3,\), but the parameter has \(\)",
    "left-out": "step 1 was skipped",
    "twice": "a step was made without a minibatch, or the second one for the same",
    "share": r"step's second value is a number of samples, from 0 to 16, got 0.5",
    "accumulates": "algorithm.contribution.gradient.push_period in the job",
    "own-samples": r"a step was made without a minibatch.*loop over worker.minibatches\(\)",
    "own-samples-optax": r"a step was made without a minibatch.*loop over worker.minibatches\(\)",
    "elsewhere": r"leaf \['hidden'\]\['bias'\] of the parameters has different values than the job's weights",
    "no-params": r"call update\(grads, state, params, value=loss\)",
    "statistics": r"leaf \['batch_stats'\]\['mean'\] of the parameters is a batch statistic",
    "statistics-nnx": (
        r"leaf \['norm'\]\['mean'\] of the parameters is a batch statistic.*nnx.state\(model, nnx.Param\)"
    ),
}
# The rows of the table in docs/jax.md, and the programs that do what each is about.
ROWS = {
    "gradients at `worker.params()`, and `worker.step`": ("plain", "bfloat16", "float16"),
    "`worker.transformation()`, compiled or not": ("optax", "optax-eager", "optax-bfloat16"),
    "`optax.chain` of transformations of the gradient before it": ("optax-chain",),
    "`nnx.Optimizer(model, worker.transformation(), wrt=nnx.Param)`": ("nnx", "nnx-eager", "nnx-pure"),
    "`update` without `value=loss`, as by `TrainState.apply_gradients`": ("flax",),
    "gradients at parameters of your own, without `worker.params()`": ("own-params",),
    "`init` with other values than `worker.params()`": ("elsewhere",),
    "`update` without `params`": ("no-params",),
    "`optax.MultiSteps`": ("accumulates",),
    "batch statistics in the parameters given to `join`": ("statistics", "statistics-nnx"),
    "leaves that are not floating-point arrays": ("integer", "function"),
    "gradients with fewer or more leaves, or other shapes": ("less", "more", "shape"),
    "two steps for a minibatch, or none": ("twice", "left-out"),
    "samples that the job has not assigned": ("own-samples", "own-samples-optax"),
}
NAMES = ["hidden.bias", "hidden.kernel", "layers.0.0", "layers.0.1", "scale"]


class JaxTest(ProgramCase):
    PROGRAM = "jax_program.py"

    def test_programs_train_as_they_do_without_catchment(self):
        for variant in FOLLOW:
            with self.subTest(variant):
                out = self.train(variant, "epochs=1", *SGD)
                self.assertEqual(self.summary(out)["samples"], SAMPLES)
                if "nnx" not in variant:
                    self.assertEqual(sorted(tensors(out + "/model.safetensors")), NAMES)
                self.assertEqual("got no loss" in self.logs, variant == "flax", self.logs)
                self.assertNotIn("of other weights than the servers'", self.logs)

    def test_warns_of_gradients_of_other_weights(self):
        self.train("own-params", "epochs=1")
        self.assertEqual(self.logs.count(WARNED["own-params"]), 1, self.logs)

    def test_table_of_the_page_is_held_by_these_programs(self):
        page = read("docs/jax.md")
        rows = re.findall(r"^\| ([^|]+) \| (exact|warned|refused)\b", page, re.MULTILINE)
        self.assertEqual([row for row, _ in rows], list(ROWS))
        kinds = {"exact": FOLLOW, "warned": WARNED, "refused": REFUSED}
        for row, kind in rows:
            for variant in ROWS[row]:
                self.assertIn(variant, kinds[kind], row)

    def test_page_shows_what_works(self):
        for variant in ("page0", "page1"):
            self.train(variant, "epochs=1", *SGD)

    def test_two_workers_have_the_jobs_weights_after_the_loop(self):
        for preset in ("sync", "downpour", "easgd"):
            out = self.train("train", "epochs=20", "algorithm.preset=" + preset, workers=2)
            final = tensors(out + "/model.safetensors")
            for index in range(2):
                own = np.load("%s.worker%d.npz" % (self.rows, index))
                for name in NAMES:
                    self.assertEqual(own[name].ravel().tolist(), final[name].tolist(), (preset, index, name))
            # The loss of equal probabilities is log(3) = 1.1.
            self.assertLess(self.summary(out)["test_loss"], 0.9, preset)

    def test_evaluator_scores_the_weights(self):
        out = self.train("train", "epochs=20")
        summary = self.summary(out)
        self.assertAlmostEqual(summary["test_accuracy"], 7 / SAMPLES, places=5)
        self.assertLess(summary["test_loss"], 0.6)

    def test_worker_may_leave(self):
        out = self.train("leave", "epochs=2", workers=2)
        self.assertIn("worker 0 has made 2 steps", self.logs)
        self.assertEqual(self.summary(out)["samples"], 2 * SAMPLES)

    def test_loop_of_a_job_that_fails_raises(self):
        for variant in ("diverges", "diverges-optax", "diverges-optax-eager"):
            self.train(variant, "epochs=100", fails=True)
            self.assertIn("RuntimeError: the Catchment worker has ended: ", self.logs)
            self.assertNotIn("the loop has ended as if", self.logs)

    def test_names_what_the_program_did_wrong(self):
        for variant, text in REFUSED.items():
            with self.subTest(variant):
                self.train(variant, fails=True)
                self.assertRegex(self.logs, text)


if __name__ == "__main__":
    unittest.main()
