#!/usr/bin/env python3
"""join(group=...): two processes with gloo as one worker (group_program.py), with the real daemons. Run as
torch_test.py is."""

import json
import os
import re
import sys
import unittest

import torch

sys.path.insert(0, "tests/python")
sys.path.insert(0, os.path.abspath("python"))
import torch_program
from torch_case import TorchCase, read, tensors

# 240 rows, so that the last minibatch of an epoch has 2 of them, and of others 17,
# which two processes cannot divide.
BATCH = "batch_size=17"
SGD = (
    "optimizer.kind=SGD",
    "optimizer.learning_rate=0.1",
    "optimizer.momentum=0",
    "optimizer.schedule.decay=CONSTANT",
)


class GroupTest(TorchCase):
    def group(self, variant, *fields, processes=2, workers=1, **more):
        command = "-m torch.distributed.run --standalone --nproc-per-node=%d" % processes
        return self.attached(
            variant,
            "--workers=%d" % workers,
            *self.sets(BATCH, *fields),
            command=command,
            program="group_program",
            **more,
        )

    def ranks(self):
        return sorted(re.findall(r"rank (\d+) trained (\d+) steps", self.logs))

    def test_trains_on_the_mean_gradient_of_all_processes(self):
        out = self.group("ddp", "epochs=3", *SGD)
        steps = str(3 * 15)
        self.assertEqual(self.ranks(), [("0", steps), ("1", steps)], self.logs)
        summary = json.loads(read(out + "/summary.json"))
        self.assertEqual((summary["samples"], summary["updates"]), (720, 45))
        with open(out + "/metrics.jsonl") as file:
            last = [json.loads(line) for line in file][-1]
        self.assertLessEqual(last["train_accuracy"], 1.0)

    def test_data_loaders_with_processes(self):
        self.group("workers", "epochs=2", *SGD)
        self.assertEqual(self.ranks(), [("0", "30"), ("1", "30")], self.logs)

    def test_sharded_parameters(self):
        out = self.group("fsdp", "epochs=2", *SGD)
        self.assertEqual(self.ranks(), [("0", "30"), ("1", "30")], self.logs)
        self.assertEqual(json.loads(read(out + "/summary.json"))["samples"], 480)

    def test_keeps_its_weights_between_exchanges(self):
        saved = {}
        streaming = ("fragments=2", "overlap_steps=1", "blend=0.25", "local_steps=4")
        for preset, fields in (
            ("diloco", ()),
            ("easgd_sync", ()),
            ("local_sgd", ["algorithm.contribution.pseudo_gradient." + field for field in streaming]),
        ):
            fields = ("epochs=2", "algorithm.preset=" + preset, *fields)
            for variant in ("adamw", "adamw-fsdp"):
                with self.subTest(variant, preset=preset):
                    kept = tensors(self.group(variant, *fields) + "/model.safetensors")
                    if variant == "adamw":  # the daemon has the weights, too, for its checkpoints
                        out = self.group(variant, *fields, "checkpoint.worker_state=true")
                        saved = tensors(out + "/model.safetensors")
                    for name, values in saved.items():
                        torch.testing.assert_close(kept[name], values, rtol=1e-5, atol=1e-6)

    def test_several_groups_train_one_job_and_one_scores(self):
        os.environ["TEST_SAMPLES"] = "1"
        try:
            out = self.group("several", "epochs=6", "algorithm.preset=downpour", workers=2)
        finally:
            del os.environ["TEST_SAMPLES"]
        summary = json.loads(read(out + "/summary.json"))
        self.assertEqual(summary["samples"], 6 * 240)
        model, (x, y) = torch_program.Perceptron(), torch_program.rows(self.rows).tensors
        with torch.no_grad():
            model.load_state_dict(tensors(out + "/model.safetensors"))
            z = model(x)
        self.assertAlmostEqual(torch.nn.functional.cross_entropy(z, y).item(), summary["test_loss"], places=5)
        self.assertAlmostEqual((z.argmax(1) == y).float().mean().item(), summary["test_accuracy"], places=5)

    def test_failures_reach_every_process(self):
        self.group("shape", fails=True)
        for prefix in ("rank 0: ", "rank 1: rank 0 of the group has failed: RuntimeError: "):
            self.assertRegex(
                self.logs, prefix + ".*tensor 0: expected dense1.weight 8x6, got dense1.weight 8x7"
            )
        self.group("raise", fails=True)
        self.assertIn("ValueError: rank 1 has failed", self.logs)
        self.group("stop", fails=True)
        for prefix in ("rank 0: ", "rank 1: rank 0 of the group has failed: RuntimeError: "):
            self.assertIn(
                prefix + "the Catchment worker has ended: the program failed: rank 0 has failed", self.logs
            )
        self.assertEqual(self.ranks(), [])

    def test_processes_without_their_group_are_refused(self):
        self.group("alone", fails=True)
        self.assertIn("give join() their process group, group=torch.distributed.group.WORLD", self.logs)


if __name__ == "__main__":
    unittest.main()
