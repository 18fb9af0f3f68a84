"""catchment.transformers, and Accelerate, with the real daemons: tests/python/frameworks.sh hugging."""

import glob
import json
import os
import shutil
import subprocess
import sys
import unittest

import transformers_rows
from torch_case import FrameworkCase, RowsChecks, tensors


class TransformersTest(FrameworkCase):
    program = "transformers_program"

    def test_follows_the_same_program_without_a_job(self):
        for variant in (
            "plain",
            "processes",
            "clip",
            "smooth",
            "bfloat16",
            "evaluates",
            "own-loss",
            "loss-function",
            "callback",
            "accelerate",
            "accelerate-all",
            "model-init",
            "stream",
        ):
            with self.subTest(variant):
                self.assert_as_alone(variant, self.trained(variant, *self.ALONE))

    def test_a_subset_by_a_sampler_is_what_is_trained(self):
        out = self.trained("subset", *self.ALONE, "batch_size=120")
        self.assert_as_alone("subset", out)

    def test_several_evaluation_sets_are_one_test_set(self):
        losses, accuracies = zip(
            *(
                (summary["test_loss"], summary["test_accuracy"])
                for variant in ("plain", "sets")
                for summary in [self.summary(self.trained(variant, *self.ALONE))]
            )
        )
        self.assertAlmostEqual(*losses, places=6)
        self.assertAlmostEqual(*accuracies, places=6)

    def test_epochs_of_the_job_are_the_trainers(self):
        self.trained("epochs", "epochs=3", "batch_size=50")
        seen = self.epochs_in(self.logs)
        self.assertEqual(len(glob.glob(os.path.join(self.directory.name, "checkpoint-*"))), 3)
        alone = subprocess.run(
            [sys.executable, "tests/python/transformers_program.py", self.rows, "epochs"],
            text=True,
            stdout=subprocess.PIPE,
        )
        self.assertEqual(seen, self.epochs_in(alone.stdout))
        for path in glob.glob(os.path.join(self.directory.name, "checkpoint-*")):
            shutil.rmtree(path)

    def epochs_in(self, log):
        return json.loads(
            [line for line in log.splitlines() if "epochs [" in line][-1].split("epochs ", 1)[1]
        )

    def test_two_workers_train_all_samples_and_are_scored(self):
        for variant in ("plain", "processes"):
            with self.subTest(variant):
                out = self.trained(variant, "epochs=30", "optimizer.learning_rate=0.3", workers=2)
                self.assert_scored(out, 30 * 240)
                self.assertIn(
                    "per_device_train_batch_size is 240, but the job's batch_size, 16, is used", self.logs
                )

    def test_the_log_shows_the_rate_of_the_job(self):
        self.trained("plain", "epochs=2", "optimizer.learning_rate=0.25", "optimizer.schedule.decay=CONSTANT")
        self.assertRegex(self.logs, r"'learning_rate': '?0\.25")

    def test_local_steps_are_those_of_the_trainers_optimizer(self):
        for variant in ("local", "local-own"):
            self.assert_as_alone(
                variant, self.trained(variant, "algorithm.preset=local_sgd", *self.ALONE[3:])
            )

    def test_model_has_the_jobs_weights_after_local_steps_with_each_preset(self):
        for preset, *fields in (
            ("diloco",),
            ("streaming_diloco",),
            ("diloco_async",),
            ("decoupled_diloco", "algorithm.contribution.pseudo_gradient.fragments=4"),
        ):
            with self.subTest(preset):
                out = self.attached(
                    "local-" + preset,
                    "--workers=2",
                    "--evaluator=false",
                    *self.sets("algorithm.preset=" + preset, "epochs=6", *fields),
                    program=self.program,
                )
                summary = self.summary(out)
                self.assertEqual(summary["samples"], 6 * 240)
                self.assertGreater(summary["updates"], 1)
                final, initial = tensors(out + "/model.safetensors"), tensors(out + "/initial.safetensors")
                for name, values in self.weights_in(self.logs).items():
                    self.assertEqual(values, final[name].flatten().tolist(), name)
                    self.assertNotEqual(values, initial[name].flatten().tolist(), name)

    def test_one_worker_saves(self):
        self.trained("save", "epochs=2", "batch_size=60", workers=2)
        written = glob.glob(os.path.join(self.directory.name, "checkpoint-*"))
        self.assertEqual(len(written), 2, written)  # one in each epoch
        for path in written:
            shutil.rmtree(path)
        self.trained("writes", "epochs=1", workers=2)
        self.assertEqual(len(glob.glob(os.path.join(self.directory.name, "written-*"))), 1)

    def test_a_loop_that_ends_first_leaves_the_job(self):
        self.trained("stops", "epochs=3", fails=True)
        self.assertNotIn("Traceback", self.logs)
        self.assertIn("left", self.logs)

    def test_a_job_that_fails_raises_in_train(self):
        self.trained("diverges", "epochs=3", "faults.non_finite_limit=3", fails=True)
        self.assertIn("RuntimeError", self.logs)
        self.assertNotIn("weights {", self.logs)

    def test_says_what_does_not_fit(self):
        for variant, words in (
            ("accumulates", "algorithm.contribution.gradient.push_period=2"),
            ("stops-early", "remove it, and set evaluation.patience=3 in the job"),
            ("resumes", "continue a job with catchment train --resume"),
            (
                "accelerate-accumulates",
                "Accelerator(gradient_accumulation_steps=2) makes a step of several minibatches",
            ),
            (
                "accelerate-by-hand",
                "for updates of several minibatches, such as by gradient "
                "accumulation, set algorithm.contribution.gradient.push_period",
            ),
            ("accelerate-own-loader", "give accelerator.prepare() worker.loader(num_workers=1)"),
        ):
            self.trained(variant, fails=True)
            self.assertIn(words, self.logs)
        self.assertRegex(
            self.evaluators_log(self.trained("percent", "epochs=2", fails=True)),
            "the metric eval_accuracy is the test accuracy, a share from 0 to 1, got .*: "
            "have compute_metrics",
        )


class RowsTest(RowsChecks, unittest.TestCase):
    rows, section = transformers_rows, "### What of a program with Trainer counts"


if __name__ == "__main__":
    unittest.main()
