"""Reads a model and data sets for catchment.torch, and refuses those that it cannot train."""

import ctypes
import os
from typing import Any, Dict, Iterator, List, Tuple

import torch

from . import _counts, _groups
from ._minibatches import check_items, is_indexed
from ._warnings import warn

_NO_LENGTH = (
    "the %s set (%s) has %s, but the job assigns samples by index: give join() the number "
    "of samples, or samples_per_epoch for a stream"
)
_ONE_GPU = (
    "this is worker %d of its machine, and its model is on %s, which other workers may use, too: "
    "move the model to catchment.torch.device() before join()"
)
_NO_GPU = (
    "the model is on the CPU, and CUDA_VISIBLE_DEVICES=%s names no GPU that this program may use: with one "
    "GPU for each worker, as by Slurm's --gpus-per-task=1, leave the variable as it is"
)
_META = (
    "parameter %s is on the meta device, and has no values: give the model memory with "
    "model.to_empty(device=...), and weights, before join()"
)
_EMPTY = (
    "parameter %s of shape %s has no values to train: remove it, or call requires_grad_(False) on it "
    "before join()"
)
_SAME_MEMORY = (
    "parameters %s and %s are two tensors with the same memory, which would be trained apart: "
    "make them one, by assigning the first parameter itself instead of its data"
)
COMPILED = "_orig_mod."  # in the names of parameters of a compiled module


def named_parameters(model: torch.nn.Module, **options: Any) -> Iterator[Tuple[str, torch.Tensor]]:
    """Yields parameters with the names that they have if no module is compiled."""
    return ((name.replace(COMPILED, ""), p) for name, p in model.named_parameters(**options))


def _is_compiled(module: torch.nn.Module) -> bool:
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None


def unwrap(model: torch.nn.Module, group: Any) -> Tuple[torch.nn.Module, bool]:
    """Returns the user's module, and whether it or a part of it was compiled."""
    compiled = any(_is_compiled(module) for module in model.modules())
    while True:
        if hasattr(model, "_orig_mod"):
            model = model._orig_mod
        elif isinstance(model, torch.nn.parallel.DistributedDataParallel):
            if group is None:
                raise ValueError(
                    "the model is wrapped in DistributedDataParallel: give join() its process "
                    "group, group=torch.distributed.group.WORLD"
                )
            model = model.module
        else:
            return model, compiled


def check_parameters(parameters: List[Tuple[str, torch.Tensor]], group: Any) -> None:
    if not parameters:
        raise ValueError("the model has no parameter that requires a gradient, so there is nothing to train")
    for name, p in parameters:
        if torch.nn.parameter.is_lazy(p):
            raise ValueError(
                "parameter %s of a lazy module has no shape yet: pass a minibatch through the "
                "model before join()" % name
            )
        if p.is_meta:
            raise ValueError(_META % name)
        if p.numel() == 0:
            raise ValueError(_EMPTY % (name, tuple(p.shape)))
        if not p.dtype.is_floating_point:
            raise TypeError(
                "parameter %s has type %s, but the job's weights are float32: only "
                "floating-point parameters can be trained" % (name, p.dtype)
            )
        if type(p).__name__ == "FlatParameter" or "_fsdp_wrapped_module" in name:
            raise TypeError(
                "FullyShardedDataParallel replaces the model's parameters: shard the model with "
                "torch.distributed.fsdp.fully_shard"
            )
        if hasattr(p, "full_tensor") and group is None:
            raise ValueError(
                "parameter %s is sharded: give join() the process group, "
                "group=torch.distributed.group.WORLD" % name
            )
    _check_memory(parameters)


def _check_memory(parameters: List[Tuple[str, torch.Tensor]]) -> None:
    names: Dict[Any, str] = {}  # by memory
    for name, p in parameters:
        if hasattr(p, "full_tensor"):
            continue  # has no memory of its own
        place = p.device, p.data_ptr()
        if names.setdefault(place, name) != name:
            raise ValueError(_SAME_MEMORY % (names[place], name))


def device() -> torch.device:
    """Returns the device for this process: of the GPUs that it sees, those of its machine's workers in turn,
    and among the processes of a worker that torchrun has started, too. Without a GPU: the CPU.

    Under Slurm's --gpus-per-task a worker sees its own GPUs alone, numbered from 0; elsewhere it sees all."""
    gpus = torch.cuda.device_count()
    if gpus == 0:
        return torch.device("cpu")
    environ = os.environ
    worker = int(environ.get("CATCHMENT_LOCAL_INDEX", environ.get("SLURM_LOCALID", 0)))
    processes, rank = int(environ.get("LOCAL_WORLD_SIZE", 1)), int(environ.get("LOCAL_RANK", 0))
    return torch.device("cuda", (worker * processes + rank) % gpus)


def check_device(parameters: List[Tuple[str, torch.Tensor]]) -> None:
    index = int(os.environ.get("CATCHMENT_LOCAL_INDEX", 0))
    devices = {p.device for _, p in parameters if p.device.type == "cuda"}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if visible not in ("", "-1") and not devices and torch.version.cuda and not torch.cuda.is_available():
        warn(_NO_GPU % visible)
    if torch.device("cuda", 0) in devices and index % max(torch.cuda.device_count(), 1):
        warn(_ONE_GPU % (index, "cuda:0"))


def full(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the whole of a tensor. If this process has a shard of it,
    each process of the group must call this."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def bytes_of(tensor: torch.Tensor) -> bytes:
    """Returns the values as float32; PyTorch alone needs NumPy for it."""
    values = tensor.to("cpu", torch.float32).contiguous()
    return ctypes.string_at(values.data_ptr(), 4 * values.numel())


def count(data: Any, what: str) -> int:
    if _counts.is_number(data):
        return _counts.size(data, "join's %s set" % what, 0 if what == "test" else 1)
    check_items(data, what)
    if not hasattr(data, "__len__") or not is_indexed(data):
        raise TypeError(
            _NO_LENGTH % (what, type(data).__name__, "no index" if hasattr(data, "__len__") else "no length")
        )
    return len(data)


def device_of(parameters: List[Tuple[str, torch.Tensor]]) -> str:
    devices = sorted({str(p.device) for _, p in parameters})
    return ", ".join(devices)


def parameters_in(model: torch.nn.Module) -> List[Any]:
    """Returns the parameters of all modules, and None for unused places. Called in every step,
    so it is fast."""
    found, modules = [], [model]
    while modules:
        module = modules.pop()
        if module is not None:
            found.extend(module._parameters.values())
            modules.extend(module._modules.values())
    return found


def groups(given: Any, parameters: List[Tuple[str, torch.Tensor]]) -> List[_groups.Group]:
    """Returns the job's groups of what join got as `groups`. parameters: the job's."""
    if given is None:
        return []
    patterns = {id(p): _groups.exactly(name) for name, p in parameters}

    def pattern_of(item: Any) -> Any:
        item = item[1] if isinstance(item, tuple) else item  # of named_parameters()
        return item if isinstance(item, str) else patterns.get(id(item))

    optimizers = given if isinstance(given, (list, tuple)) else [given]
    if optimizers and all(isinstance(optimizer, torch.optim.Optimizer) for optimizer in optimizers):
        return _groups.of_optimizers(list(optimizers), pattern_of, patterns.values())
    return _groups.of_list(given, pattern_of)
