"""catchment.transformers, and Accelerate, with the real daemons: tests/python/frameworks.sh hugging."""
import glob
import json
import os
import unittest

from torch_case import FrameworkCase, tensors


class TransformersTest(FrameworkCase):
    program = "transformers_program"

    def test_follows_the_same_program_without_a_job(self):
        for variant in ("plain", "processes", "clip", "smooth", "bfloat16", "evaluates", "own-loss",
                        "loss-function",
                        "callback", "accelerate"):
            with self.subTest(variant):
                self.assert_as_alone(variant, self.trained(variant, *self.ALONE))

    def test_two_workers_train_all_samples_and_are_scored(self):
        for variant in ("plain", "processes"):
            with self.subTest(variant):
                out = self.trained(variant, "epochs=30", "optimizer.learning_rate=0.3", workers=2)
                self.assert_scored(out, 30 * 240)
                self.assertIn("per_device_train_batch_size is 240, but the job's batch_size, 16, is used",
                              self.logs)

    def test_the_log_shows_the_rate_of_the_job(self):
        self.trained("plain", "epochs=2", "optimizer.learning_rate=0.25", "optimizer.schedule.decay=CONSTANT")
        self.assertRegex(self.logs, r"'learning_rate': '?0\.25")

    def test_local_steps_are_those_of_the_trainers_optimizer(self):
        self.assert_as_alone("local", self.trained("local", "algorithm.preset=local_sgd", *self.ALONE[3:]))

    def test_model_has_the_jobs_weights_after_local_steps_with_each_preset(self):
        for preset, *fields in (("diloco",), ("streaming_diloco",), ("diloco_async",),
                                ("decoupled_diloco", "algorithm.contribution.pseudo_gradient.fragments=4")):
            with self.subTest(preset):
                out = self.attached("local-" + preset, "--workers=2", "--evaluator=false",
                                    *self.sets("algorithm.preset=" + preset, "epochs=6", *fields),
                                    program=self.program)
                with open(out + "/summary.json") as file:
                    summary = json.load(file)
                self.assertEqual(summary["samples"], 6 * 240)
                self.assertGreater(summary["updates"], 1)
                final, initial = tensors(out + "/model.safetensors"), tensors(out + "/initial.safetensors")
                for name, values in self.weights_in(self.logs).items():
                    self.assertEqual(values, final[name].flatten().tolist(), name)
                    self.assertNotEqual(values, initial[name].flatten().tolist(), name)

    def test_one_worker_saves(self):
        self.trained("save", "epochs=2", workers=2)
        self.assertEqual(len(glob.glob(os.path.join(self.directory.name, "checkpoint-*"))), 1)

    def test_a_loop_that_ends_first_leaves_the_job(self):
        self.trained("stops", "epochs=3", fails=True)
        self.assertNotIn("Traceback", self.logs)
        self.assertIn("left", self.logs)

    def test_a_job_that_fails_raises_in_train(self):
        self.trained("diverges", "epochs=3", "faults.non_finite_limit=3", fails=True)
        self.assertIn("RuntimeError", self.logs)
        self.assertNotIn("weights {", self.logs)

    def test_says_what_does_not_fit(self):
        for variant, words in (("accumulates", "algorithm.contribution.gradient.push_period=2"),
                               ("stops-early", "remove it, and set evaluation.patience=3 in the job"),
                               ("resumes", "continue a job with catchment train --resume")):
            self.trained(variant, fails=True)
            self.assertIn(words, self.logs)


if __name__ == "__main__":
    unittest.main()
