"""catchment.lightning with the real daemons: tests/python/frameworks.sh lightning."""

import glob
import json
import shutil
import subprocess
import sys
import unittest

from torch.nn import functional as F
from torch.utils.data import BatchSampler, DataLoader

import lightning_program
import lightning_rows
from catchment import _loaders
from torch_case import FrameworkCase, RowsChecks, read, tensors


class LightningTest(FrameworkCase):
    program = "lightning_program"

    def test_follows_the_same_program_without_a_job(self):
        for variant in (
            "plain",
            "processes",
            "clip",
            "manual",
            "parts",
            "scheduled",
            "callbacks",
            "bfloat16",
            "skips",
            "clip-bfloat16",
            "two",
            "gan",
            "stream",
            "overwrites",
            "plain-old",
            "manual-old",
            "callbacks-old",
            "gan-old",
        ):
            with self.subTest(variant):
                self.assert_as_alone(variant, self.trained(variant, *self.ALONE))

    def test_the_loss_of_several_optimizers_is_their_sum(self):
        out = self.trained("gan", "epochs=2", "batch_size=50")
        self.assertIn("validation_step is empty, so the job has no test loss", self.logs)
        for line in read(out + "/metrics.jsonl").splitlines():
            # Each part has log(2) at first.
            self.assertAlmostEqual(json.loads(line)["train_loss"], 1.39, delta=0.1)

    def test_parameters_without_an_optimizer_stay_as_they_are(self):
        self.assert_as_alone("head", self.trained("head", *self.ALONE), ("layers.0.weight", "layers.0.bias"))

    def test_a_subset_by_a_sampler_is_what_is_trained_and_scored(self):
        out = self.trained("subset", *self.ALONE, "batch_size=120")
        self.assert_as_alone("subset", out)
        self.assertEqual(self.summary(out)["samples"], 15 * 120)
        module = lightning_program.Classifier()
        module.load_state_dict(tensors(out + "/model.safetensors"))
        x, y = lightning_program.read(self.rows)[1::2]
        self.assertAlmostEqual(self.summary(out)["test_loss"], float(F.cross_entropy(module(x), y)), places=5)

    def test_two_workers_train_all_samples_and_are_scored(self):
        for variant in ("plain", "processes", "batch_norm", "batch_norm-old", "manual_norm"):
            with self.subTest(variant):
                out = self.trained(variant, "epochs=30", "optimizer.learning_rate=0.3", workers=2)
                self.assert_scored(out, 30 * 240)
                self.assertIn("the DataLoader's batch_size is 240, but the job's, 16, is used", self.logs)

    def test_local_steps_are_those_of_the_modules_optimizer(self):
        self.assert_as_alone("local", self.trained("local", "algorithm.preset=local_sgd", *self.ALONE[3:]))

    def test_several_validation_loaders_are_one_test_set(self):
        losses = []
        for variant in ("plain", "loaders"):
            losses.append(self.summary(self.trained(variant, *self.ALONE))["test_loss"])
        self.assertAlmostEqual(*losses, places=6)

    def test_one_worker_writes_checkpoints(self):
        self.trained("checkpoint", "epochs=2", workers=2)
        written = glob.glob(self.directory.name + "/checkpoints/*.ckpt")
        self.assertEqual(len(written), 1, written)

    def test_epochs_of_the_job_are_the_trainers(self):
        for variant in ("epochs", "epochs-old"):
            self.trained(variant, "epochs=3", "batch_size=50")
            seen = self.epochs_in(self.logs)
            self.assertEqual(len(glob.glob(self.rows + ".epochs/*.ckpt")), 3)
            alone = subprocess.run(
                [sys.executable, "tests/python/lightning_program.py", self.rows, variant],
                text=True,
                stdout=subprocess.PIPE,
            )
            self.assertEqual(seen, self.epochs_in(alone.stdout))
            shutil.rmtree(self.rows + ".epochs")
        with self.subTest("of two workers"):
            self.trained("epochs", "epochs=3", "batch_size=50", workers=2)
            ended = [one for one in self.epochs_in(self.logs) if one[0] == "ends"]
            self.assertEqual([epoch for _, epoch, _, _ in ended], [0, 1, 2])

    def epochs_in(self, log):
        return json.loads(
            [line for line in log.splitlines() if "epochs [" in line][-1].split("epochs ", 1)[1]
        )

    def test_what_follows_fit_has_the_best_checkpoint_in_each_worker(self):
        for variant in ("best", "best-old"):
            self.trained(variant, "epochs=2", workers=2)
            self.assertNotIn("Traceback", self.logs)

    def test_what_a_callback_writes_at_the_end_is_not_the_result(self):
        self.trained("overwrites", "epochs=2")
        self.assertIn(
            "the weights of the module were changed at the end of fit() (parameter layers.0.weight)",
            self.logs,
        )

    def test_a_loop_that_ends_first_leaves_the_job(self):
        self.trained("stops", "epochs=3", fails=True)
        self.assertNotIn("Traceback", self.logs)
        self.assertIn("left", self.logs)

    def test_a_job_that_fails_raises_in_fit(self):
        self.trained("diverges", "epochs=3", "faults.non_finite_limit=3", fails=True)
        self.assertIn("RuntimeError", self.logs)
        self.assertNotIn("weights {", self.logs)

    def test_says_what_does_not_fit(self):
        for variant, words in (
            ("accumulates", "algorithm.contribution.gradient.push_period=2"),
            ("resumes", "continue a job with catchment train --resume"),
            ("monitors", "ModelCheckpoint(monitor='f1') waits for a metric"),
        ):
            self.trained(variant, "epochs=2", fails=True)
            self.assertIn(words, self.logs)
        for variant, words in (
            ("callbacks", "set evaluation.patience=1000 in the job"),
            ("drops", "set last_minibatch=DROP in the job"),
        ):
            self.trained(variant, "epochs=2", "batch_size=50")
            self.assertIn(words, self.logs)
        self.assertIn(
            "validation_step logs no loss",
            self.evaluators_log(self.trained("silent", "epochs=2", fails=True)),
        )
        self.assertIn(
            "the metric val_acc is the test accuracy, a share from 0 to 1, got 97: log a share",
            self.evaluators_log(self.trained("percent", "epochs=2", fails=True)),
        )


class RowsTest(RowsChecks, unittest.TestCase):
    rows, section = lightning_rows, "### What of a Lightning program counts"

    def test_a_selection_of_samples_is_what_its_sampler_draws(self):
        for sampler, drawn in lightning_rows.SELECTIONS:
            with self.subTest(type(sampler).__name__):
                batched = isinstance(sampler, BatchSampler)
                loader = DataLoader(
                    lightning_rows.ROWS, **{"batch_sampler" if batched else "sampler": sampler}
                )
                data = _loaders.training_data(loader, False, "Strategy")
                self.assertEqual(
                    [x.tolist() for x, _ in data], [lightning_rows.ROWS[i][0].tolist() for i in drawn]
                )

    def test_counts_the_samples_that_a_validation_loader_scores(self):
        for loader, limit, samples in lightning_rows.SCORED:
            self.assertEqual(_loaders.scored_samples(loader, limit), samples)


if __name__ == "__main__":
    unittest.main()
