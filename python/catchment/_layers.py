"""The layers of a job file as a PyTorch module, with the weights that the job has trained.

Catchment's own kernels compute the same functions (proto/job.proto), with PyTorch's names and shapes of
tensors.
"""

import json
import os
import subprocess
from typing import Any, Callable, Dict, List

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from . import _command, _result
from ._version import __version__
from ._warnings import warn

_NO_FILE = (
    "there is no %s: give model() the --out of a job that has ended, or a file of weights that it has written"
)
_NO_JOB = "%s does not contain its job: give model() a model.safetensors that Catchment has written"
_NO_PROGRAM = (
    "model() asks the program `catchment` what the job says, and there is none: install the wheel, or add it "
    "to the PATH"
)
_VERSION = "the job in %s is not one of this version, %s: load it with the version that has trained it (%s)"
_OF_PROGRAM = (
    "%s has the weights of a program's model: make that model, and load them with "
    "catchment.torch.load(model, path)"
)
_SYNTHETIC = "%s is of a job with model.synthetic, which has no layers"
_LACKS = "%s has no %s, which its job's layers need"
_NO_STATISTICS = (
    "%s has no running statistics of %s, because its job had no evaluator: estimate them, "
    "catchment.torch.load(model, path, train)"
)


def model(path: str) -> nn.Module:
    """Returns the model of a job file's layers with its trained weights, in evaluation mode: the function
    that the job's evaluator scores. Its outputs are those of the last layer, without the loss, and its input
    is a minibatch as the job has it: normalized, channels first.

    path: the directory of a run, whose model.safetensors is loaded, or such a file, like
    out/model-best.safetensors.

    Raises FileNotFoundError if there is no such file, and ValueError if it is not one of a job's layers.
    """
    path = os.fspath(path)
    if not path.endswith(".safetensors"):
        path = os.path.join(path, "model.safetensors")
    if not os.path.exists(path):
        raise FileNotFoundError(_NO_FILE % path)
    values, job = _result._read(path)
    settings = _settings(path, job).get("model", {})
    if "external" in settings:
        raise ValueError(_OF_PROGRAM % path)
    if "synthetic" in settings:
        raise ValueError(_SYNTHETIC % path)
    module = _Layers(settings.get("layers", []), _Tensors(path, values))
    without = [
        name
        for name, layer in module.named_modules()
        if isinstance(layer, _AnyBatchNorm) and name + ".running_mean" not in values
    ]
    if without:
        warn(_NO_STATISTICS % (path, _result._several(without)))
    return module.eval()


def _settings(path: str, job: str) -> Any:
    """Returns the fields of a job's text, as the program reads them."""
    if not job:
        raise ValueError(_NO_JOB % path)
    catchment = _command.find("catchment")
    if catchment is None:
        raise RuntimeError(_NO_PROGRAM)
    done = subprocess.run(
        [catchment, "validate", "--door"],
        input=json.dumps({"text": job, "complete": False}),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    answer = json.loads(done.stdout)
    if not answer["valid"]:
        raise ValueError(_VERSION % (path, __version__, answer["error"]))
    return answer["settings"]


class _Tensors:
    """The tensors of a file."""

    def __init__(self, path: str, values: Dict[str, torch.Tensor]) -> None:
        self._path, self._values = path, values

    def __getitem__(self, name: str) -> torch.Tensor:
        if name not in self._values:
            raise ValueError(_LACKS % (self._path, name))
        return self._values[name]

    def fill(self, layer: nn.Module, name: str) -> nn.Module:
        """Copies the tensors of a layer into it, but leaves statistics that the file does not have."""
        with torch.no_grad():
            for part, tensor in layer.state_dict().items():
                full = name + "." + part
                if part == "num_batches_tracked" or part.startswith("running_") and full not in self._values:
                    continue
                tensor.copy_(self[full])
        return layer


class _AnyBatchNorm(_BatchNorm):
    """Batch norm of images and vectors. In training mode it does not divide the minibatch by ghost_batch."""

    def _check_input_dim(self, input: torch.Tensor) -> None:
        pass


class _Lstm(nn.Module):
    """PyTorch's LSTM, with the names that the tensors have in the job's file."""

    def __init__(self, weight_ih: torch.Tensor, weight_hh: torch.Tensor, sequences: bool) -> None:
        super().__init__()
        self.weight_ih = nn.Parameter(torch.empty_like(weight_ih))
        self.weight_hh = nn.Parameter(torch.empty_like(weight_hh))
        self.bias_ih = nn.Parameter(torch.empty(len(weight_ih)))
        self.bias_hh = nn.Parameter(torch.empty(len(weight_hh)))
        self._sequences = sequences

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        start = x.new_zeros(1, x.shape[0], self.weight_hh.shape[1])
        weights = [self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh]
        states, _, _ = torch.lstm(x, [start, start], weights, True, 1, 0.0, self.training, False, True)
        return states if self._sequences else states[:, -1]


class _GlobalAveragePool(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(dim=(2, 3))


def _conv2d(at: Any, weight: torch.Tensor) -> nn.Module:
    filters, channels = weight.shape[:2]
    return nn.Conv2d(
        channels * at["groups"],
        filters,
        at["kernel_size"],
        at["stride"],
        at["padding"],
        groups=at["groups"],
        bias=at["bias"],
    )


# Makes a layer of each kind from its fields and its tensors by the last part of their names.
_KINDS: Dict[str, Callable[[Any, Callable[[str], torch.Tensor]], nn.Module]] = {
    "conv2d": lambda at, of: _conv2d(at, of("weight")),
    "dense": lambda at, of: nn.Linear(of("weight").shape[1], at["units"], bias=at["bias"]),
    "max_pool": lambda at, of: nn.MaxPool2d(at["size"], at["stride"], at["padding"]),
    "average_pool": lambda at, of: nn.AvgPool2d(at["size"], at["stride"], at["padding"]),
    "global_average_pool": lambda at, of: _GlobalAveragePool(),
    "flatten": lambda at, of: nn.Flatten(),
    "relu": lambda at, of: nn.ReLU(),
    "gelu": lambda at, of: nn.GELU(),
    "tanh": lambda at, of: nn.Tanh(),
    "sigmoid": lambda at, of: nn.Sigmoid(),
    "softmax": lambda at, of: nn.Softmax(dim=-1),
    "dropout": lambda at, of: nn.Dropout(at["rate"]),
    "batch_norm": lambda at, of: _AnyBatchNorm(of("weight").shape[0], at["epsilon"]),
    "layer_norm": lambda at, of: nn.LayerNorm(list(of("weight").shape), at["epsilon"]),
    "lstm": lambda at, of: _Lstm(of("weight_ih"), of("weight_hh"), at["sequences"]),
}


class _Layers(nn.Module):
    """A list of layers, in which a residual block is a pair of lists. A layer is a submodule by its name in
    the job, so that load() finds the tensors of the file."""

    def __init__(self, layers: List[Any], tensors: _Tensors) -> None:
        super().__init__()
        self._steps = self._added(layers, tensors)

    def _added(self, layers: List[Any], tensors: _Tensors) -> List[Any]:
        return [self._add(layer, tensors) for layer in layers]

    def _add(self, layer: Any, tensors: _Tensors) -> Any:
        name = layer["name"]
        kind, at = next(item for item in layer.items() if item[0] != "name")
        if kind == "residual":
            return tuple(self._added(at.get(branch, []), tensors) for branch in ("layers", "shortcut"))
        made = tensors.fill(_KINDS[kind](at, lambda part: tensors[name + "." + part]), name)
        parent: nn.Module = self
        *folders, last = name.split(".")
        for folder in folders:
            if folder not in parent._modules:
                parent.add_module(folder, nn.Module())
            parent = parent._modules[folder] or parent
        # A layer named "train" would hide a method.
        parent.add_module(last + "_" if hasattr(parent, last) else last, made)
        return made

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _passed(self._steps, x)


def _passed(steps: List[Any], x: torch.Tensor) -> torch.Tensor:
    """Returns the output of a list of layers for x."""
    for step in steps:
        x = _passed(step[0], x) + _passed(step[1], x) if isinstance(step, tuple) else step(x)
    return x
