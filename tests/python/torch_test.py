#!/usr/bin/env python3
"""catchment.torch with the real daemons: torch_program.py. Needs an interpreter with PyTorch 2.1 or newer:

PYTHON=/path/to/venv/bin/python tests/python/torch_test.sh
"""

import glob
import json
import os
import re
import subprocess
import sys
import types
import unittest
import unittest.mock
import warnings

import torch

sys.path.insert(0, "tests/python")
sys.path.insert(0, os.path.abspath("python"))
import catchment.torch
import torch_loops
import torch_program
from catchment import _model
from fake_cuda import FakeCuda
from torch_case import TorchCase, read, tensors

BUILT_IN = """
model { layers { dense { units: 8 } } layers { relu {} } layers { dense { units: 3 } } initial_weights: "%s" }
data { table { train: "%s" shape: 6 classes: 3 } }
"""
# The fields that presets need to run with one worker, and with a model of 83 parameters.
ONE_WORKER = {
    "sync_backup": ["algorithm.consistency.synchronous.backup_workers=0"],
    "hybrid": ["algorithm.consistency.synchronous={}"],
    "decoupled_diloco": [
        "algorithm.consistency.synchronous={}",
        "algorithm.contribution.pseudo_gradient.fragments=4",
    ],
}

# As torch_program.py does it.
SGD = ("optimizer.learning_rate=0.1", "optimizer.momentum=0", "optimizer.schedule.decay=CONSTANT")
OWN = ("algorithm.preset=local_sgd",)
WRITTEN = "UserWarning: the program has changed weights of the model after join() (parameter "


class TorchTest(TorchCase):
    def test_follows_the_built_in_model_with_every_preset(self):
        presets = sorted(
            os.path.basename(path)[: -len(".textproto")]
            for path in glob.glob("examples/algorithms/*.textproto")
        )
        self.assertGreaterEqual(len(presets), 16)
        for preset in presets:
            changes = self.sets(
                "deterministic=true", "epochs=2", "algorithm.preset=" + preset, *ONE_WORKER.get(preset, [])
            )
            out = self.attached("perceptron", *changes)
            job = os.path.join(self.directory.name, "job.textproto")
            with open(job, "w") as file:
                file.write(BUILT_IN % (out + "/initial.safetensors", self.rows))
            built_in = tensors(
                self.catchment("built-in", [job, "--overwrite", *changes]) + "/model.safetensors"
            )
            mine = tensors(out + "/model.safetensors")
            self.assertEqual(sorted(mine), sorted(built_in))
            for name in mine:
                self.assertLess((mine[name] - built_in[name]).abs().max().item(), 1e-5, (preset, name))

    def test_weights_that_the_program_keeps_follow_those_that_the_daemon_moves(self):
        fields = ("local_steps=6", "fragments=3", "overlap_steps=2", "blend=0.5")
        changes = self.sets(
            *("algorithm.contribution.pseudo_gradient." + field for field in fields),
            *(
                "deterministic=true",
                "epochs=2",
                "batch_size=16",
                "workers=2",
                "algorithm.preset=streaming_diloco",
            ),
        )
        local = "{kind: SGD learning_rate: 0.05 momentum: 0.5 schedule { decay: CONSTANT }}"
        moved = self.attached(
            "perceptron",
            *changes,
            *self.sets("algorithm.contribution.pseudo_gradient.local_optimizer=" + local),
        )
        moved = tensors(moved + "/model.safetensors")
        for variant in ("keeps", "keeps-transposed"):
            kept = tensors(self.attached(variant, *changes) + "/model.safetensors")
            for name in moved:
                self.assertLess((moved[name] - kept[name]).abs().max().item(), 1e-6, (variant, name))

    def test_streams_are_counted(self):
        for variant in torch_program.STREAMS:
            if variant != "stream-ends":
                with self.subTest(variant):
                    out = self.attached(
                        variant, "--workers=2", *self.sets("epochs=2", "algorithm.preset=downpour")
                    )
                    with open(out + "/summary.json") as file:
                        self.assertEqual(json.load(file)["samples"], 2 * 480)

    def test_worker_whose_stream_has_ended_leaves(self):
        self.attached("stream-ends", "--workers=1", *self.sets("epochs=2"), fails=True)
        self.assertIn(
            "the stream of samples ended at step 3 and cannot be read again: this worker leaves the job",
            self.logs,
        )

    def follow(self, variants):
        for variant in variants:
            with self.subTest(variant):
                self.attached(variant, *self.sets("epochs=1", *SGD))
                self.assertNotIn("has changed weights", self.logs)

    def test_programs_train_as_they_do_in_pytorch(self):
        self.follow(torch_program.PROGRAMS)
        self.follow(
            name + "-overlap" for name, (_, _, overlaps) in torch_program.PROGRAMS.items() if overlaps
        )

    def test_loops_of_frameworks_train_as_they_do_in_pytorch(self):
        self.follow(
            name + overlap
            for name in torch_program.LOOPS
            for overlap in ("", "-overlap")
            if name + overlap != "scaler-overlap"
        )

    def test_programs_are_the_same_without_catchment(self):
        for variant in torch_loops.LOOPS:
            with self.subTest(variant):
                # One worker whose center takes its move as it is trains as its own optimizer does.
                fields = OWN if variant.endswith("-own") else SGD
                self.attached(variant, *self.sets("epochs=1", *fields), program="torch_loops")
                self.assertIn(variant + ": all of ", self.logs)

    def test_warns_of_a_gpu_that_the_first_worker_has(self):
        for index, device, count, warns in (
            (0, "cuda:0", 2, False),
            (1, "cuda:0", 2, True),
            (1, "cuda:1", 2, False),
            (3, "cuda:0", 2, True),
            (2, "cuda:0", 2, False),
            (1, "cuda:0", 1, False),
            (1, "cpu", 2, False),
        ):
            with unittest.mock.patch.dict(os.environ, CATCHMENT_LOCAL_INDEX=str(index)), unittest.mock.patch(
                "torch.cuda.device_count", return_value=count
            ), warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                _model.check_device([("weight", types.SimpleNamespace(device=torch.device(device)))])
            self.assertEqual(
                [str(one.message) for one in caught],
                [
                    "this is worker %d of its machine, and its model is on cuda:0, which other workers may "
                    "use, too: move the model to catchment.torch.device() before join()" % index
                ]
                * warns,
            )

    def gpu_of(self, gpus, environ, first):
        """Returns the GPU of the machine that a process of this environment uses: the first that it sees, or
        that of catchment.torch.device()."""
        with unittest.mock.patch.dict(os.environ, environ):
            if "CUDA_VISIBLE_DEVICES" not in environ:
                os.environ.pop("CUDA_VISIBLE_DEVICES", None)
            cuda = FakeCuda(gpus=gpus)
            with unittest.mock.patch("torch.cuda", cuda), warnings.catch_warnings():
                warnings.simplefilter("error")
                device = torch.device("cuda", 0) if first else catchment.torch.device()
                _model.check_device([("weight", types.SimpleNamespace(device=device))])
                return cuda.visible()[device.index] if device.type == "cuda" else "cpu"

    def test_each_worker_has_a_gpu_of_its_own_alone_and_under_slurm(self):
        with open("docs/lightning.md", encoding="utf-8") as file:
            (assignment,) = re.findall(r"--program='(CUDA_VISIBLE_DEVICES=\S+) python", file.read())
        # (GPUs that exist for each worker, CUDA_VISIBLE_DEVICES of worker i, GPUs of four workers)
        for gpus, visible, expected in (
            (4, lambda i: {}, [0, 1, 2, 3]),
            # Slurm's --gpus-per-task=1, without and with a cgroup for each task.
            (4, lambda i: {"CUDA_VISIBLE_DEVICES": str(i)}, [0, 1, 2, 3]),
            (1, lambda i: {"CUDA_VISIBLE_DEVICES": "0"}, [0, 0, 0, 0]),
        ):
            for first in (False, True):
                used = []
                for i in range(4):
                    environ = dict(visible(i), CATCHMENT_LOCAL_INDEX=str(i), SLURM_LOCALID=str(i))
                    if first:
                        shell = {"PATH": os.environ["PATH"], **environ}
                        command = ["sh", "-c", assignment + " sh -c 'echo $CUDA_VISIBLE_DEVICES'"]
                        environ["CUDA_VISIBLE_DEVICES"] = subprocess.run(
                            command, env=shell, check=True, text=True, stdout=subprocess.PIPE
                        ).stdout.strip()
                    used.append(self.gpu_of(gpus, environ, first))
                self.assertEqual(used, expected)

    def test_workers_share_the_gpus_of_a_list_in_turn(self):
        environ = {"CUDA_VISIBLE_DEVICES": "5,7"}
        used = [self.gpu_of(8, dict(environ, CATCHMENT_LOCAL_INDEX=str(i)), False) for i in range(4)]
        self.assertEqual(used, [5, 7, 5, 7])

    def test_a_process_of_torchrun_has_a_gpu_of_its_workers(self):
        group = {"LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "1"}
        used = [self.gpu_of(4, dict(group, CATCHMENT_LOCAL_INDEX=str(i)), False) for i in range(2)]
        self.assertEqual(used, [1, 3])
        # Slurm leaves the second worker its two alone.
        self.assertEqual(self.gpu_of(2, dict(group, CATCHMENT_LOCAL_INDEX="1"), False), 1)

    def test_an_evaluator_without_a_gpu_is_on_the_cpu(self):
        self.assertEqual(self.gpu_of(4, {"CUDA_VISIBLE_DEVICES": ""}, False), "cpu")

    def test_warns_of_devices_that_the_program_may_not_use(self):
        for visible, cuda, available, warns in (
            ("1", "13.0", False, True),
            ("0", "13.0", True, False),
            ("", "13.0", False, False),
            ("-1", "13.0", False, False),
            ("1", None, False, False),
        ):
            with unittest.mock.patch.dict(os.environ, CUDA_VISIBLE_DEVICES=visible), unittest.mock.patch(
                "torch.version.cuda", cuda
            ), unittest.mock.patch(
                "torch.cuda.is_available", return_value=available
            ), warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                _model.check_device([("weight", torch.zeros(1))])
            self.assertEqual(
                ["CUDA_VISIBLE_DEVICES=1 names no GPU" in str(w.message) for w in caught], [True] * warns
            )

    def test_warns_of_changes_that_the_servers_weights_replace(self):
        for variant, text in (
            ("other-optimizer", "SGD changes parameters of the job, but their weights are the servers'"),
            ("loaded-after", WRITTEN),
            ("own-scheduler", "the job sets the learning rate, so changes by the program"),
            (
                "own-decay",
                "the job sets weight_decay, so the program's has no effect: set optimizer.weight_decay in "
                "the job",
            ),
            (
                "freezes",
                "parameter dense1.bias has no gradient in this step. To the servers it is 0, so the job's "
                "momentum",
            ),
        ):
            self.attached(variant, *self.sets("epochs=1"))
            self.assertEqual(self.logs.count(text), 1, self.logs)
        for variant in torch_program.WRITES:
            for preset in ("sync", "easgd"):
                with self.subTest(variant, preset=preset):
                    self.attached(variant, *self.sets("epochs=1", "algorithm.preset=" + preset))
                    self.assertEqual(self.logs.count(WRITTEN), 1, self.logs)
                    self.assertRegex(self.logs, r"/torch_program\.py:\d+: " + re.escape(WRITTEN))
        for variant in ("swaps", "moves-and-returns"):
            self.attached(variant, *self.sets("epochs=1"))
            self.assertNotIn("Warning", self.logs)

    def test_model_has_the_jobs_weights_after_the_loop(self):
        for variant in ("result", "result-overlap"):
            for preset in ("sync", "downpour", "easgd"):
                out = self.attached(
                    variant, "--workers=2", *self.sets("epochs=3", "algorithm.preset=" + preset)
                )
                final = tensors(out + "/model.safetensors")
                for index in range(2):
                    own = torch.load("%s.worker%d" % (self.rows, index))
                    for name in final:
                        self.assertTrue(torch.equal(own[name], final[name]), (variant, preset, index, name))

    def test_worker_may_leave(self):
        out = self.attached("leave", "--workers=2", *self.sets("epochs=2"))
        self.assertIn("worker 0 has made 2 steps", self.logs)
        self.assertEqual(json.loads(read(out + "/summary.json"))["samples"], 480)

    def test_loop_of_a_job_that_fails_raises(self):
        for variant in ("diverges", "diverges-overlap"):
            self.attached(variant, *self.sets("epochs=100"), fails=True)
            self.assertIn("RuntimeError: the Catchment worker has ended: ", self.logs)
            self.assertNotIn("the loop has ended as if", self.logs)

    def test_loop_that_was_interrupted_after_backward_can_be_run_again(self):
        for variant in ("interrupted", "interrupted-overlap"):
            out = self.attached(variant, *self.sets("epochs=1"))
            self.assertEqual(json.loads(read(out + "/summary.json"))["samples"], 240, variant)

    def test_warns_of_parameters_that_the_job_does_not_have(self):
        self.attached("unfrozen", *self.sets("epochs=1"))
        for name in ("frozen.weight", "frozen.bias", "new.weight", "new.bias"):
            self.assertEqual(
                self.logs.count("parameter %s requires a gradient now, but did not" % name), 1, self.logs
            )

    def test_tied_unused_and_frozen_parameters(self):
        out = self.attached("deep", "--workers=2", *self.sets("epochs=2", "optimizer.learning_rate=0.1"))
        before, after = tensors(out + "/initial.safetensors"), tensors(out + "/model.safetensors")
        self.assertEqual(sorted(before), sorted(after))
        self.assertIn("last.weight", after)
        self.assertFalse([name for name in after if name.startswith(("also_last", "frozen"))])
        self.assertTrue(torch.equal(before["unused.weight"], after["unused.weight"]))
        self.assertFalse(torch.equal(before["first.weight"], after["first.weight"]))

    def test_models_that_are_compiled_or_in_another_precision(self):
        for variant in ("compiled", "scripted", "bfloat16"):
            out = self.attached(variant, *self.sets("epochs=20", "optimizer.learning_rate=0.5"))
            model, (x, y) = torch_program.Perceptron(), torch_program.rows(self.rows).tensors
            model.load_state_dict(tensors(out + "/model.safetensors"))
            self.assertLess(torch.nn.functional.cross_entropy(model(x), y).item(), 0.7, variant)

    def test_data_loaders_with_processes(self):
        self.attached("data", *self.sets("epochs=2"))
        self.attached("workers", "--workers=2", *self.sets("epochs=4", "algorithm.preset=downpour"))

    def test_description_ends_a_program_that_catches_everything(self):
        self.attached("swallows", fails=True)
        self.assertNotIn("join raised an exception", self.logs)
        self.assertIn("ended before the job was over: exit code 0", self.logs)
        self.assertIn("must call worker.leave(), and others train the rest", self.logs)

    def test_program_may_find_its_samples_by_their_indices(self):
        self.attached("indices", *self.sets("epochs=2"))

    def test_evaluator_scores_the_weights(self):
        os.environ["TEST_SAMPLES"] = "1"
        try:
            out = self.attached("perceptron", *self.sets("epochs=30", "optimizer.learning_rate=0.5"))
        finally:
            del os.environ["TEST_SAMPLES"]
        with open(out + "/summary.json") as file:
            self.assertGreater(json.load(file)["test_accuracy"], 0.7)

    def test_batch_norm_trains_all_samples_where_one_would_be_left(self):
        out = self.attached("deep", *self.sets("batch_size=239", "last_minibatch=MERGE", "epochs=3"))
        summary = json.loads(read(out + "/summary.json"))
        self.assertEqual((summary["samples"], summary["updates"]), (3 * 240, 3))

    def test_batch_norm_is_scored_with_statistics_that_are_in_the_file(self):
        for variant in ("deep", "collate"):
            self.check_batch_norm(variant)

    def check_batch_norm(self, variant):
        os.environ["TEST_SAMPLES"] = "1"
        try:
            out = self.attached(variant, *self.sets("epochs=4", "optimizer.learning_rate=0.1"))
        finally:
            del os.environ["TEST_SAMPLES"]
        after = tensors(out + "/model.safetensors")
        with open(out + "/summary.json") as file:
            summary = json.load(file)
        torch.manual_seed(5)
        model, (x, y) = torch_program.Deep(), torch_program.rows(self.rows).tensors
        missing, unexpected = model.load_state_dict(after, strict=False)
        self.assertFalse(unexpected)
        self.assertEqual(
            sorted(set(missing) - {"norm.num_batches_tracked"}),
            ["also_last.weight", "frozen.bias", "frozen.weight"],
        )
        model.eval()
        with torch.no_grad():
            z = model(x)
        self.assertAlmostEqual(torch.nn.functional.cross_entropy(z, y).item(), summary["test_loss"], places=5)

    def test_makes_local_steps_with_its_own_optimizer(self):
        unit = "={kind: SGD, learning_rate: 1, momentum: 0, schedule { decay: CONSTANT }}"
        local = "algorithm.contribution.pseudo_gradient.local_optimizer" + unit
        self.attached("adamw", *self.sets("epochs=3", "algorithm.preset=local_sgd"))
        # The same, but for rounding, whether the weights are here or, for its checkpoints, in the daemon.
        elastic = ["epochs=3", "algorithm.preset=easgd_sync"]
        kept = tensors(self.attached("adamw-elastic", *self.sets(*elastic)) + "/model.safetensors")
        saved = self.attached("adamw-elastic", *self.sets(*elastic, "checkpoint.worker_state=true"))
        for name, values in tensors(saved + "/model.safetensors").items():
            torch.testing.assert_close(kept[name], values, rtol=1e-5, atol=1e-6)
        other = "algorithm.contribution.pseudo_gradient.local_optimizer.learning_rate=0.5"
        self.attached("adamw", *self.sets("algorithm.preset=local_sgd", other), fails=True)
        self.assertIn("with its own optimizer, so the job must not change them; set " + local, self.logs)
        self.attached("adamw", fails=True)
        self.assertIn("use a preset such as local_sgd, diloco or easgd", self.logs)
        self.attached("replaced", *self.sets("algorithm.preset=local_sgd"), fails=True)
        self.assertIn("parameter dense1.weight has been replaced since join()", self.logs)

    def test_small_gpt_learns_with_its_own_optimizer(self):
        local = "kind: SGD, learning_rate: 1, momentum: 0, schedule { decay: CONSTANT }"
        out = self.catchment(
            "gpt",
            [
                "--program=%s examples/python/tiny_gpt_diloco.py" % sys.executable,
                "--workers=2",
                *self.sets(
                    "algorithm.preset=diloco",
                    # The preset's rate overshoots in the second round with some orders of samples.
                    "optimizer.learning_rate=0.4",
                    "samples=512",
                    "algorithm.contribution.pseudo_gradient={local_steps: 8, local_optimizer: {%s}}" % local,
                ),
            ],
        )
        summary = json.loads(read(out + "/summary.json"))
        self.assertEqual(summary["samples"], 512)
        self.assertEqual(summary["updates"], 2)
        # A model that has learned nothing gives each of about 100 characters the same probability:
        # log(100) = 4.6.
        self.assertLess(summary["test_loss"], 4.2)

    def test_names_what_the_program_did_wrong(self):
        for variant in ("twice", "two-steps"):
            self.attached(variant, fails=True)
            self.assertRegex(self.logs, r"worker.step\(\) was called twice for a minibatch")
        self.attached("no-backward", fails=True)
        self.assertRegex(self.logs, r"worker.step\(\) was called without a backward pass")
        self.attached("persistent", fails=True)
        self.assertRegex(self.logs, r"worker.loader\(persistent_workers=True, ...\)")
        self.attached("backward-twice-overlap", fails=True)
        self.assertRegex(self.logs, "a gradient was computed twice in one step.*join without overlap")
        self.attached("changed-overlap", fails=True)
        self.assertRegex(
            self.logs, "the gradient of parameter dense1.weight was changed .*: join without overlap"
        )
        self.attached("skip", fails=True)
        self.assertIn("the program failed: RuntimeError: step 1 was skipped", self.logs)
        self.attached("skips-third", fails=True)
        self.assertIn("the program failed: RuntimeError: step 3 was skipped", self.logs)
        self.attached("skip-sent-overlap", fails=True)
        self.assertRegex(
            self.logs, r"worker.skip\(\) was called after a backward pass, .*join without overlap"
        )
        for num_workers in (0, 2):
            self.attached("batched%d" % num_workers, fails=True)
            self.assertRegex(self.logs, "the program failed: TypeError: .*give it batch_size=None")
        for variant, text in (
            ("complex", "parameter phase has type torch.complex64"),
            ("no-values", r"parameter table of shape \(0, 3\) has no values to train"),
            (
                "same-memory",
                "parameters dense1.weight and dense3.weight are two tensors with the same memory",
            ),
            ("lazy", "parameter lazy.weight of a lazy module has no shape yet"),
            ("no-module", r"the model is a list: give join\(\) a torch.nn.Module"),
            ("meta-values", "parameter dense1.weight is on the meta device, and has no values"),
            ("scripts-overlap", r"torch.jit.script, which has no hooks for join\(overlap=True\)"),
            ("loader-set", "training set is a DataLoader, .*give its data set, loader.dataset"),
            ("columns", "training set is a tuple, and not a data set of samples.*TensorDataset"),
            ("no-index", r"training set \(Lines\) has no index.*samples_per_epoch for a stream"),
            ("own-group", r"add_param_group\(\) cannot give the servers' optimizer parameters"),
            ("no-loss", r"worker.step\(\) got no loss: give it the minibatch's mean loss"),
            ("no-length", r"training set \(Stream\) has no length.*: give join\(\) the number of samples"),
            ("no-samples", r"join got only the number of samples: give minibatches\(data\) the samples"),
            ("empty", r"the stream of samples \(Stream\) is empty"),
            ("lbfgs", "LBFGS calls the model several times in a step.*needs no closure"),
            (
                "own-samples",
                r"samples that the job has not assigned.*"
                r"loop over worker.minibatches\(\) or worker.loader\(\)",
            ),
            (
                "loader-batch",
                "loader.. yields whole minibatches .* does not accept batch_size: set batch_size in the job",
            ),
            ("again", r"join\(\) was already called in this program.*start a job for each"),
        ):
            self.attached(variant, fails=True)
            self.assertRegex(self.logs, text)
        self.attached("deep", *self.sets("batch_size=239", "last_minibatch=KEEP"), fails=True)
        self.assertRegex(
            self.logs, "Expected more than 1 value per channel .*: set a batch_size that does not leave one"
        )
        for variant, text in (
            ("scaled", "GradScaler .* parameter dense1.weight .*unscale_"),
            ("partly-scaled", "GradScaler .* parameter dense1.weight .*unscale_"),
            ("scaled-overlap", "GradScaler .*: join without overlap"),
            ("removed", "parameter dense2.weight of the job has been removed from the model"),
            ("reshaped", r"dense2.weight had shape \(3, 8\) when .* \(4, 8\) now"),
        ):
            self.attached(variant, fails=True)
            self.assertRegex(self.logs, text)


if __name__ == "__main__":
    unittest.main()
