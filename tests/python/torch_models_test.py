#!/usr/bin/env python3
"""Tests what the job makes of models whose parts do not all learn by gradients: frozen and running
statistics, buffers, low precision, several models in one. With the real daemons: torch_models.py. Needs
PyTorch 2.1 or newer."""

import os
import re
import sys
import tempfile
import unittest
import warnings

import torch
from torch import nn
from torch.utils.data import TensorDataset, default_collate

sys.path.insert(0, "tests/python")
sys.path.insert(0, os.path.abspath("python"))
import catchment.torch as catchment
import torch_models
from catchment import _description, _model, _statistics
from catchment._added_losses import AddedLosses
from torch_case import TorchCase, tensors

SAMPLES, BATCH = 64, 16
# As torch_models.py does it.
SGD = ("optimizer.learning_rate=0.1", "optimizer.momentum=0", "optimizer.schedule.decay=CONSTANT")


def pretrained(layer):
    layer.running_mean.fill_(5.0)
    layer.running_var.fill_(9.0)
    return layer


def changed(layer, **attributes):
    for name, value in attributes.items():
        setattr(layer, name, value)
    return layer


class AlwaysEvaluates(nn.BatchNorm1d):
    def train(self, mode=True):
        return super().train(False)


class OfBuffers(nn.Module):
    """As the frozen batch norm of torchvision."""

    def __init__(self):
        super().__init__()
        for name, value in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
            self.register_buffer(name, torch.full((4,), value))

    def forward(self, x):
        scale = (self.running_var + 1e-5).rsqrt().view(1, -1, 1) * self.weight.view(1, -1, 1)
        return (x - self.running_mean.view(1, -1, 1)) * scale + self.bias.view(1, -1, 1)


FROZEN = {
    "all parameters frozen": lambda: nn.BatchNorm1d(4).requires_grad_(False),
    "train() overridden": lambda: AlwaysEvaluates(4),
    "momentum 0": lambda: nn.BatchNorm1d(4, momentum=0.0),
    "tracking turned off": lambda: changed(nn.BatchNorm1d(4), track_running_stats=False),
    "instance norm, frozen": lambda: nn.InstanceNorm1d(
        4, affine=True, track_running_stats=True
    ).requires_grad_(False),
    "instance norm without momentum": lambda: nn.InstanceNorm1d(4, track_running_stats=True, momentum=None),
    "buffers only": OfBuffers,
}
LEARNING = {
    "batch norm": lambda: nn.BatchNorm1d(4),
    "without parameters": lambda: nn.BatchNorm1d(4, affine=False),
    "cumulative": lambda: nn.BatchNorm1d(4, momentum=None),
    "synchronized": lambda: nn.SyncBatchNorm(4),
    "compiled": lambda: torch.compile(nn.BatchNorm1d(4), backend="eager"),
    "NaN before": lambda: nn.BatchNorm1d(4),
    "instance norm": lambda: nn.InstanceNorm1d(4, affine=True, track_running_stats=True),
}


class StatisticsTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        self.x = 2 + 3 * torch.randn(SAMPLES, 4, 5)

    def estimate(self, model, data=None):
        return dict(
            _statistics.estimate(
                model, TensorDataset(self.x) if data is None else data, default_collate, None, BATCH
            )
        )

    def test_frozen_layers_keep_theirs_beside_one_that_learns(self):
        for name, make in FROZEN.items():
            with self.subTest(name):
                model = nn.Sequential(pretrained(make()), nn.BatchNorm1d(4))
                found = self.estimate(model)
                self.assertEqual(found["0.running_mean"].tolist(), [5.0] * 4)
                self.assertEqual(found["0.running_var"].tolist(), [9.0] * 4)
                self.assertLess((found["1.running_mean"] + 1).abs().max().item(), 0.5)  # of (x - 5) / 3

    def test_others_get_the_mean_over_minibatches(self):
        parts = self.x.split(BATCH)
        means = torch.stack([part.mean((0, 2)) for part in parts]).mean(0)
        for name, make in LEARNING.items():
            with self.subTest(name):
                model = nn.Sequential(pretrained(make()))
                if name == "NaN before":
                    model[0].running_mean.fill_(float("nan"))
                momentum = model[0].momentum
                self.estimate(model, TensorDataset(-self.x))
                found = self.estimate(model)
                variances = torch.stack(
                    [
                        part.var(2).mean(0)
                        if "instance" in name
                        else part.transpose(1, 2).reshape(-1, 4).var(0)
                        for part in parts
                    ]
                ).mean(0)
                torch.testing.assert_close(found["0.running_mean"], means)
                torch.testing.assert_close(found["0.running_var"], variances)
                self.assertEqual(model[0].momentum, momentum)

    def test_layer_that_no_sample_reaches_keeps_its_own(self):
        class Unused(nn.Sequential):
            def forward(self, x):
                return self[0](x)

        found = self.estimate(Unused(nn.BatchNorm1d(4), pretrained(nn.BatchNorm1d(4))))
        self.assertEqual(found["1.running_mean"].tolist(), [5.0] * 4)

    def test_layers_without_statistics_have_none(self):
        self.assertEqual(
            self.estimate(
                nn.Sequential(
                    nn.BatchNorm1d(4, track_running_stats=False), nn.InstanceNorm1d(4), nn.GroupNorm(2, 4)
                )
            ),
            {},
        )

    def test_modes_of_modules_remain(self):
        model = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout())
        model[1].eval()
        self.estimate(model)
        self.assertEqual([module.training for module in model.modules()], [True, True, False])

    def test_without_samples_only_frozen_layers_have_some(self):
        model = nn.Sequential(pretrained(nn.BatchNorm1d(4).requires_grad_(False)), nn.BatchNorm1d(4))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = self.estimate(model, 64)
        self.assertEqual(sorted(found), ["0.running_mean", "0.running_var"])
        self.assertRegex(
            str(caught[0].message), r"running statistics of 1 .* give join\(\) or evaluate\(\) the"
        )


class Branches(nn.Module):
    """Parts that a loss reaches in an order of its own: the first one before the second,
    or a third beside it."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)


# Functions of a model and an input: the values on which a step calls backward, and the parts that are named,
# or none.
STEPS = {
    "a generator's loss passes through the discriminator": (
        lambda m, x: (m.first(x), m.first(m.second(x))),
        "first",
    ),
    "the generator's comes before": (lambda m, x: (m.first(m.second(x)), m.first(x)), "first"),
    "two discriminators": (
        lambda m, x: (m.first(x) + m.third(x), m.first(m.second(x)) + m.third(m.second(x))),
        "first and third",
    ),
    "heads of shared layers": (lambda m, x: (m.second(m.first(x)), m.third(m.first(x))), None),
    "a loss of early layers": (lambda m, x: (m.first(x), m.second(m.first(x))), None),
    "accumulation": (lambda m, x: (m.second(m.first(x)), m.second(m.first(x + 1))), None),
    "a penalty on a weight of the last layer": (
        lambda m, x: (m.second(m.first(x)), m.second.weight.square()),
        None,
    ),
    "models apart": (lambda m, x: (m.first(x), m.second(x)), None),
}


class LossesTest(unittest.TestCase):
    def test_names_what_two_losses_train(self):
        for name, (make, expected) in STEPS.items():
            with self.subTest(name), warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                model = torch.nn.ModuleDict({"net": Branches()})
                losses = AddedLosses(list(model.named_parameters()))
                for _ in range(2):
                    for value in make(model["net"], torch.ones(2, 3)):
                        value.sum().backward()
                    losses.end_step()
                said = [re.search("trained (.*): its own", str(one.message))[1] for one in caught]
                parts = " and ".join("net." + part for part in expected.split(" and ")) if expected else None
                self.assertEqual(said, [parts] if parts else [])


class ResultTest(unittest.TestCase):
    def write(self, model, left_out=()):
        """Writes a job's file of a model's weights. Returns its path."""
        found = [
            (name, tensor)
            for name, tensor in model.state_dict().items()
            if tensor.is_floating_point() and name not in left_out
        ]
        path = os.path.join(self.directory.name, "model.safetensors")
        _description.write_weights(
            path,
            [(name, tensor.shape) for name, tensor in found],
            [_model.bytes_of(tensor) for _, tensor in found],
        )
        return path

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        torch.manual_seed(3)
        self.trained = torch_models.Quantized()
        with torch.no_grad():
            for tensor in self.trained.state_dict().values():
                tensor.add_(torch.rand(tensor.shape).to(tensor.dtype))
        self.statistics = ["norm.running_mean", "norm.running_var"]

    def load(self, *arguments, says=()):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = catchment.load(*arguments)
        self.assertEqual(len(caught), len(says), [str(one.message) for one in caught])
        for one, text in zip(caught, says):
            self.assertRegex(str(one.message), text)
            self.assertEqual(one.filename, __file__)
        return result

    def test_whole_model_is_loaded_without_a_word(self):
        for model in (torch_models.Quantized(), torch.compile(torch_models.Quantized(), backend="eager")):
            self.assertEqual(self.load(model, self.write(self.trained, ["tied.weight"])), ([], []))
            for name, tensor in self.trained.state_dict().items():
                if tensor.is_floating_point():
                    state = {
                        key.replace("_orig_mod.", ""): value for key, value in model.state_dict().items()
                    }
                    torch.testing.assert_close(state[name], tensor)

    def test_names_what_is_missing_or_unexpected(self):
        path = self.write(self.trained, ["codebook"] + self.statistics)
        missing, unexpected = self.load(
            torch_models.Quantized(),
            path,
            says=["has no codebook, norm.running_mean, norm.running_var: the model keeps .*training set"],
        )
        self.assertEqual(([*missing], [*unexpected]), (["codebook"] + self.statistics, []))
        other = torch_models.Quantized()
        del other.frozen
        _, unexpected = self.load(
            other, self.write(self.trained), says=["frozen.weight, frozen.bias, which the model"]
        )
        self.assertEqual(unexpected, ["frozen.weight", "frozen.bias"])

    def test_estimates_missing_statistics_from_training_samples(self):
        data = TensorDataset(torch.randn(64, 6) + 2, torch.zeros(64))
        model = torch_models.Quantized()
        missing, _ = self.load(model, self.write(self.trained, self.statistics), data)
        self.assertEqual(missing, [])
        with torch.no_grad():
            expected = self.trained.dense(data.tensors[0]).mean(0)
        torch.testing.assert_close(model.norm.running_mean, expected)

    def test_refuses_files_of_others(self):
        path = self.write(self.trained)
        model = torch_models.Quantized()
        model.last = model.tied = nn.Linear(4, 5, bias=False)
        with self.assertRaisesRegex(
            ValueError, r"last.weight with shape \(3, 4\), but the model has it with \(5, 4\)"
        ):
            catchment.load(model, path)
        with open(path, "rb") as file:
            cut = file.read()[:-8]
        for content in (b"", b"PK" + bytes(100), cut):
            with open(path, "wb") as file:
                file.write(content)
            with self.assertRaisesRegex(ValueError, "is not a file of weights"):
                catchment.load(torch_models.Quantized(), path)


class ModelsTest(TorchCase):
    def trained(self, variant, *fields, **more):
        return self.attached(variant, *self.sets("epochs=1", *fields), program="torch_models", **more)

    def test_frozen_statistics_are_scored_and_written(self):
        out = self.trained("frozen")
        final = tensors(out + "/model.safetensors")
        for name, value in (("norm.running_mean", 0.5), ("norm.running_var", 4.0)):
            self.assertEqual(final[name].tolist(), [value] * 6)
        self.assertIn("the evaluator's model has the frozen statistics", self.evaluators_log(out))

    def test_optimizer_that_moves_nothing_moves_no_weight(self):
        for preset, precision in (
            *((preset, "bfloat16") for preset in torch_models.PRESETS),
            ("diloco", "float16"),
            ("diloco", "float32"),
        ):
            with self.subTest(preset, precision=precision):
                self.trained(
                    "rests-" + precision, "algorithm.preset=" + preset, *torch_models.PRESETS[preset]
                )
                self.assertIn("no move was sent", self.logs)

    def test_gan_trains_as_in_pytorch_with_the_discriminator_frozen_for_the_generator(self):
        self.trained("gan-frozen", *SGD)
        self.assertIn("the models differ by less than 1e-6", self.logs)
        self.assertNotIn("two losses of a step", self.logs)
        self.trained("gan", *SGD)
        self.assertRegex(self.logs, r"the models differ by 0\.")
        self.assertEqual(self.logs.count("two losses of a step have trained discriminator"), 1, self.logs)

    def test_says_first_what_the_file_of_weights_will_not_have(self):
        out = self.trained("quantized", "optimizer.learning_rate=0.1")
        said = (
            "model.safetensors will not have the running statistics of norm,",
            "model.safetensors will not have the model's buffers codebook.",
        )
        for text in said:
            self.assertEqual(self.logs.count(text), 2, self.logs)  # of the command and the worker
        self.assertEqual([text in line for text, line in zip(said, self.logs.splitlines())], [True, True])
        model = torch_models.Quantized()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            missing, _ = catchment.load(model, out + "/model.safetensors", torch_models.rows(self.rows))
        self.assertEqual(missing, ["codebook", "frozen.weight", "frozen.bias"])
        with torch.no_grad():
            expected = model.dense(torch_models.rows(self.rows).tensors[0]).mean(0)
        torch.testing.assert_close(model.norm.running_mean, expected, atol=1e-5, rtol=0)


if __name__ == "__main__":
    unittest.main()
