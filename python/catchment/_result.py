"""A file of weights and the model that it belongs to: what the file lacks, and how it is loaded."""

import json
import re
import struct
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

from . import _model, _statistics
from ._warnings import warn

_MOST_NAMES = 3
_BATCH_SIZE = 64  # of a file whose job does not say it
_COUNT = ".num_batches_tracked"  # of batch norm; not needed where there are means

_NO_STATISTICS = (
    "model.safetensors will not have the running statistics of %s, because an evaluator's program estimates "
    "them, and this job has no evaluator: give join() a test set and call worker.evaluate(), or load the "
    "file with catchment.torch.load(model, path, train), which estimates them from training samples"
)
_NO_BUFFERS = (
    "model.safetensors will not have the model's buffers %s. If they change in training, each worker has its "
    "own: save those of one in the program, by torch.save(model.state_dict(), path) if worker.index == 0"
)
_MISSING = "%s has no %s: the model keeps its own%s"
_NOT_ESTIMATED = (
    ". Running statistics of training samples are estimated if load() gets the training set, "
    "load(model, path, train)"
)
_UNEXPECTED = "%s has %s, which the model does not have"
_SHAPE = "%s has %s with shape %s, but the model has it with %s: the file is that of another model"
_NO_FILE = "%s is not a file of weights: give load() the model.safetensors of a job"


def lacks(model: torch.nn.Module, evaluated: bool) -> List[str]:
    """Returns sentences about the parts of a model that will not be in its job's file of weights, beside
    frozen parameters. evaluated: whether the job has an evaluator."""
    layers, said = _statistics.layers_of(model), []
    if layers and not evaluated:
        said.append(_NO_STATISTICS % _several([name or "the model" for name, _ in layers]))
    statistics = {name for name, _ in _statistics.values_of(layers)}
    parameters = {name for name, _ in _model.named_parameters(model, remove_duplicate=False)}
    buffers = [
        name for name in _state(model) if name not in parameters | statistics and not name.endswith(_COUNT)
    ]
    if buffers:
        said.append(_NO_BUFFERS % _several(buffers))
    return said


def load(
    model: torch.nn.Module,
    path: str,
    train: Any = None,
    forward: Optional[Callable[[Any], Any]] = None,
    collate: Optional[Callable[[Any], Any]] = None,
) -> Any:
    """Loads a job's file of weights, such as out/model.safetensors, into a model. Warns of what the file
    lacks, which stays as it is in the model, and of what the model lacks.

    train: the training set, from about 1000 samples of which the running statistics of batch norm are
    estimated if the file does not have them. forward, collate: as for worker.evaluate().

    Returns (missing_keys, unexpected_keys), as load_state_dict(strict=False) does. Raises ValueError if the
    file is not one of weights, or a tensor has another shape.
    """
    model, _ = _model.unwrap(model, group=True)
    values, job = _read(path)
    state = _state(model)
    known = [name for name in values if name in state]
    for name in known:
        if values[name].shape != state[name].shape:
            raise ValueError(_SHAPE % (path, name, tuple(values[name].shape), tuple(state[name].shape)))
    loaded = set()
    with torch.no_grad():
        for name in known:
            state[name].copy_(values[name])
            loaded.add((state[name].data_ptr(), state[name].shape))
    # Tied parameters are in the file once.
    missing = [
        name
        for name, tensor in state.items()
        if name not in values
        and not name.endswith(_COUNT)
        and (tensor.data_ptr(), tensor.shape) not in loaded
    ]
    statistics = {name for name, _ in _statistics.values_of(_statistics.layers_of(model))}
    if train is not None and statistics.intersection(missing):
        estimated = _statistics.estimate(model, train, collate, forward, _batch_size(job))
        missing = [name for name in missing if name not in dict(estimated)]
    unexpected = [name for name in values if name not in state]
    if missing:
        unknown = _NOT_ESTIMATED if statistics.intersection(missing) else ""
        warn(_MISSING % (path, _several(missing), unknown))
    if unexpected:
        warn(_UNEXPECTED % (path, _several(unexpected)))
    return torch.nn.modules.module._IncompatibleKeys(missing, unexpected)


def _state(model: torch.nn.Module) -> Dict[str, torch.Tensor]:
    """Returns the model's parameters and persistent buffers by their names in files."""
    return {
        name.replace(_model.COMPILED, ""): tensor
        for name, tensor in model.state_dict().items()
        if isinstance(tensor, torch.Tensor)
    }


def _several(names: List[str]) -> str:
    rest = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (" and %d more" % rest if rest > 0 else "")


def _batch_size(job: str) -> int:
    found = re.search(r"^batch_size: (\d+)$", job, re.MULTILINE)
    return int(found[1]) if found else _BATCH_SIZE


def _read(path: str) -> Tuple[Dict[str, torch.Tensor], str]:
    """Returns the tensors of a safetensors file of float32 values by their names, and the text of its job."""
    with open(path, "rb") as file:
        data = bytearray(file.read())
    try:
        begin = 8 + struct.unpack_from("<Q", data)[0]
        header = json.loads(data[8:begin])
        metadata = header.pop("__metadata__", {})
        tensors = {}
        for name, about in header.items():
            first, last = about["data_offsets"]
            if about["dtype"] != "F32" or begin + last > len(data):
                raise ValueError(name)
            values = (
                torch.frombuffer(data, dtype=torch.float32, count=(last - first) // 4, offset=begin + first)
                if last > first
                else torch.empty(0)
            )
            tensors[name] = values.view(about["shape"])
    except (KeyError, TypeError, ValueError, struct.error, RuntimeError) as error:
        raise ValueError(_NO_FILE % path) from error
    return tensors, metadata.get("catchment.job", "")
