#!/usr/bin/env python3
"""Tests catchment.torch.model: models of job files, trained for a few steps by the real daemons, have in
PyTorch the test loss and accuracy that the job's evaluator has measured. Needs PyTorch 2.1 or newer and
NumPy."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
import warnings

import numpy
import torch
from torch.nn import functional

sys.path.insert(0, "tests/python")
sys.path.insert(0, os.path.abspath("python"))
import catchment.torch as catchment
from program_case import CATCHMENT, read

os.environ["PATH"] = os.path.dirname(os.path.abspath(CATCHMENT)) + ":" + os.environ["PATH"]
TRAIN, TEST = 96, 40

# Beside the examples: each kind with the fields that they leave out.
IMAGES = """
  layers { name: "stem" conv2d { filters: 6 kernel_size: 3 stride: 2 padding: 2 groups: 3 } }
  layers { name: "stem.norm" batch_norm { ghost_batch: 8 epsilon: 0.01 } }
  layers { gelu {} }
  layers { residual {
    layers { conv2d { filters: 8 kernel_size: 3 padding: 1 bias: false } }
    layers { layer_norm { epsilon: 0.1 } }
    layers { residual { layers { tanh {} } } }
    shortcut { conv2d { filters: 8 kernel_size: 1 } }
  } }
  layers { max_pool { size: 3 stride: 2 padding: 1 } }
  layers { average_pool { size: 2 stride: 1 padding: 1 } }
  layers { flatten {} }
  layers { name: "train" dense { units: 12 bias: false } }
  layers { batch_norm {} }
  layers { sigmoid {} }
  layers { dropout { rate: 0.5 } }
  layers { layer_norm {} }
  layers { dense { units: 4 } }
"""
SEQUENCES = """
  layers { softmax {} }
  layers { lstm { units: 7 sequences: true } }
  layers { layer_norm {} }
  layers { lstm { units: 5 } }
  layers { relu {} }
  layers { dense { units: 4 } }
"""
JOB = 'model { %s }\nalgorithm { preset: "sync" }\n'
# The shape of a sample, and the classes, of each example with layers.
EXAMPLES = {
    "drawn_digits": ([1, 28, 28], 10),
    "hep_lstm": ([50, 19], 3),
    "mnist_cnn": ([1, 28, 28], 10),
    "mnist_mlp": ([1, 28, 28], 10),
    "resnet18_images": ([3, 64, 64], 1000),
    "resnet20_cifar10": ([3, 32, 32], 10),
    "resnet50": ([3, 64, 64], 1000),
    "table_csv": ([2], 3),
}


class LayersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.directory = cls.scratch.name

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def write_data(self, name, shape, classes):
        """Writes samples whose classes can be learned; returns the field of the job that names them."""
        numbers = numpy.random.default_rng(1)
        for part, count in (("train", TRAIN), ("test", TEST)):
            labels = numbers.integers(0, classes, count)
            centers = numpy.random.default_rng(2).standard_normal((classes, *shape))
            features = centers[labels] + 0.5 * numbers.standard_normal((count, *shape))
            path = os.path.join(self.directory, "%s-%s-" % (name, part))
            numpy.save(path + "features.npy", features.astype(numpy.float32))
            numpy.save(path + "labels.npy", labels.astype(numpy.int64))
        files = ", ".join('%s: "%s-%s-features.npy"' % (part, name, part) for part in ("train", "test"))
        sides = ", ".join("shape: %d" % side for side in shape)
        return 'data={table: {%s, directory: "%s", %s, classes: %d}}' % (
            files,
            self.directory,
            sides,
            classes,
        )

    def train(self, job, name, shape, classes, samples=32, evaluator=True):
        out = os.path.join(self.directory, name)
        command = [CATCHMENT, "train", job, "--workers=1", "--overwrite", "--out=" + out]
        settings = ("batch_size=8", "samples=%d" % samples, "optimizer.learning_rate=0.05", "device=CPU")
        for change in (self.write_data(name, shape, classes), *settings):
            command += ["--set", change]
        done = subprocess.run(
            command + ([] if evaluator else ["--evaluator=false"]),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.assertEqual(done.returncode, 0, done.stdout)
        if evaluator and json.loads(read(out + "/summary.json")).get("test_loss") is None:
            # The job was over before its evaluator had started.
            return self.train(job, name, shape, classes, 4 * samples)
        return out

    def scored(self, out):
        path = out + "-test-"
        return tuple(torch.from_numpy(numpy.load(path + part + ".npy")) for part in ("features", "labels"))

    def expect_scores(self, out, model, accuracy=2e-5):
        x, y = self.scored(out)
        with torch.no_grad():
            z = model(x)
        summary = json.loads(read(out + "/summary.json"))
        loss = functional.cross_entropy(z, y).item()
        self.assertLess(abs(loss / summary["test_loss"] - 1), accuracy, (loss, summary["test_loss"]))
        self.assertAlmostEqual((z.argmax(1) == y).float().mean().item(), summary["test_accuracy"], places=5)

    def write_job(self, name, layers):
        path = os.path.join(self.directory, name + ".textproto")
        with open(path, "w") as file:
            file.write(JOB % layers)
        return path

    def test_examples_have_the_scores_of_their_jobs(self):
        models = {
            name[: -len(".textproto")]
            for name in os.listdir("examples")
            if name.endswith(".textproto") and "layers {" in read("examples/" + name)
        }
        self.assertEqual(models, set(EXAMPLES))
        for name, (shape, classes) in EXAMPLES.items():
            with self.subTest(name):
                out = self.train("examples/%s.textproto" % name, name, shape, classes)
                # Winograd's convolutions round to some 1e-5 each, and add up over 50 layers.
                self.expect_scores(out, catchment.model(out), 2e-3 if name == "resnet50" else 2e-5)

    def test_every_kind_of_layer_computes_what_the_job_does(self):
        kinds = re.search(r"\nmessage Layer \{.*?oneof kind \{(.*?)\}", read("proto/job.proto"), re.DOTALL)[1]
        kinds = set(re.findall(r"\w+ (\w+) = \d+;", kinds))
        covered = set(re.findall(r"(\w+) \{", IMAGES + SEQUENCES)) | {"global_average_pool"}  # of resnet20
        self.assertEqual(covered - {"layers", "shortcut"}, kinds)
        for name, layers, shape in (("images", IMAGES, [3, 9, 11]), ("sequences", SEQUENCES, [6, 5])):
            with self.subTest(name):
                out = self.train(self.write_job(name, layers), name, shape, 4, samples=320)
                model = catchment.model(out)
                self.assertFalse(model.training)
                self.expect_scores(out, model)
                self.expect_scores(out, catchment.model(out + "/model.safetensors"))

    def test_missing_statistics_are_warned_of_and_can_be_estimated(self):
        layers = "layers { batch_norm {} } layers { dense { units: 4 } }"
        out = self.train(self.write_job("bare", layers), "bare", [6], 4, evaluator=False)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            model = catchment.model(out)
        self.assertIn("has no running statistics of batch_norm1", str(told[-1].message))
        x, y = (torch.from_numpy(numpy.load(out + "-train-%s.npy" % part)) for part in ("features", "labels"))
        catchment.load(model, out + "/model.safetensors", torch.utils.data.TensorDataset(x, y))
        self.assertLess((model.batch_norm1.running_mean - x.mean(0)).abs().max().item(), 0.2)

    def test_what_is_not_of_layers_is_refused(self):
        none = os.path.join(self.directory, "nowhere")
        with self.assertRaisesRegex(FileNotFoundError, "there is no .*nowhere/model.safetensors: give model"):
            catchment.model(none)
        for name, job, expected in (
            ("program", "model { external {} }", "weights of a program's model.*catchment.torch.load"),
            ("synthetic", "model { synthetic {} }", "model.synthetic, which has no layers"),
            ("newer", "model { layers { attention {} } }", "not one of this version.*attention: no such"),
            ("foreign", "", "does not contain its job"),
        ):
            with self.subTest(name):
                path = os.path.join(self.directory, name + ".safetensors")
                head = json.dumps({"__metadata__": {"catchment.job": job} if job else {}}).encode()
                with open(path, "wb") as file:
                    file.write(len(head).to_bytes(8, "little") + head)
                with self.assertRaisesRegex(ValueError, expected):
                    catchment.model(path)


if __name__ == "__main__":
    unittest.main()
