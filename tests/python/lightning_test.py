"""catchment.lightning with the real daemons: tests/python/frameworks.sh lightning."""
import glob
import os
import unittest

from torch_case import FrameworkCase


class LightningTest(FrameworkCase):
    program = "lightning_program"

    def test_follows_the_same_program_without_a_job(self):
        for variant in ("plain", "processes", "clip", "manual", "parts", "scheduled", "callbacks", "bfloat16",
                        "skips", "clip-bfloat16",
                        "plain-old", "manual-old", "callbacks-old"):
            with self.subTest(variant):
                self.assert_as_alone(variant, self.trained(variant, *self.ALONE))

    def test_two_workers_train_all_samples_and_are_scored(self):
        for variant in ("plain", "processes", "batch_norm", "batch_norm-old"):
            with self.subTest(variant):
                out = self.trained(variant, "epochs=30", "optimizer.learning_rate=0.3", workers=2)
                self.assert_scored(out, 30 * 240)
                self.assertIn("the DataLoader's batch_size is 240, but the job's, 16, is used", self.logs)

    def test_local_steps_are_those_of_the_modules_optimizer(self):
        self.assert_as_alone("local", self.trained("local", "algorithm.preset=local_sgd", *self.ALONE[3:]))

    def test_one_worker_writes_checkpoints(self):
        self.trained("checkpoint", "epochs=2", workers=2)
        written = glob.glob(os.path.join(self.directory.name, "**", "*.ckpt"), recursive=True)
        self.assertEqual(len(written), 1, written)

    def test_a_loop_that_ends_first_leaves_the_job(self):
        for variant in ("stops", "limit"):
            with self.subTest(variant):
                self.trained(variant, "epochs=3", fails=True)
                self.assertNotIn("Traceback", self.logs)
                self.assertIn("left", self.logs)

    def test_a_job_that_fails_raises_in_fit(self):
        self.trained("diverges", "epochs=3", "faults.non_finite_limit=3", fails=True)
        self.assertIn("RuntimeError", self.logs)
        self.assertNotIn("weights {", self.logs)

    def test_says_what_does_not_fit(self):
        for variant, words in (("accumulates", "algorithm.contribution.gradient.push_period=2"),
                               ("resumes", "continue a job with catchment train --resume")):
            self.trained(variant, fails=True)
            self.assertIn(words, self.logs)
        self.trained("callbacks", "epochs=2")
        self.assertIn("set evaluation.patience=1000 in the job", self.logs)
        self.assertIn("validation_step logs no loss", self.evaluators_log(
            self.trained("silent", "epochs=2", fails=True)))


if __name__ == "__main__":
    unittest.main()
