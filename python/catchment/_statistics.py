"""Running statistics of normalization layers, which an evaluator's program estimates for the
weights that it scores."""

import contextlib
from typing import Any, Callable, Iterator, List, Optional, Tuple

import torch
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.utils.data import default_collate

from . import _model
from ._indices import STATISTICS_SAMPLES, evenly
from ._minibatches import is_indexed
from ._stream import Stream
from ._warnings import warn

_KINDS = ("running_mean", "running_var")

_NO_SAMPLES = (
    "the running statistics of %s and other layers are those that the model was created with, because "
    "there are no training samples to estimate them from: give join() or evaluate() the data set, and "
    "not only its size"
)


@torch.no_grad()
def estimate(
    model: torch.nn.Module,
    data: Any,
    collate: Optional[Callable[[Any], Any]],
    forward: Optional[Callable[[Any], Any]],
    batch_size: int,
) -> List[Tuple[str, torch.Tensor]]:
    """Returns (name, values) of all running statistics. Those that learn are means over minibatches of
    `data`, as for the job's own models (worker/loop/evaluator.cc). The others are the model's own: those of
    layers whose parameters are all frozen, and of layers that stay in evaluation mode in model.train().
    forward: passes a minibatch through the model; None: the model gets it, or its first part. collate: makes
    a minibatch from a list of samples; None: PyTorch's default_collate."""
    layers = layers_of(model)
    without_data = data is None or isinstance(data, int)
    with _training(model, [module for _, module in layers]) as learning:
        for number, samples in enumerate(
            () if not learning or without_data else _minibatches(data, batch_size)
        ):
            for module in learning:
                if isinstance(module, _InstanceNorm):
                    module.momentum = 1 / (number + 1)
            minibatch = (collate or default_collate)(samples)
            if forward is not None:
                forward(minibatch)
            else:
                model(minibatch[0] if isinstance(minibatch, (list, tuple)) else minibatch)
    if without_data and learning:
        warn(_NO_SAMPLES % next(name for name, module in layers if module in learning))
        layers = [(name, module) for name, module in layers if module not in learning]
    return [(name, values.to("cpu", torch.float32)) for name, values in values_of(layers)]


def layers_of(model: torch.nn.Module) -> List[Tuple[str, torch.nn.Module]]:
    """Returns (name, module) of all layers whose running statistics are in files of weights."""
    return [
        ((name + ".").replace(_model.COMPILED, "")[:-1], module)
        for name, module in model.named_modules()
        if _has_statistics(module)
    ]


def values_of(layers: List[Tuple[str, torch.nn.Module]]) -> List[Tuple[str, torch.Tensor]]:
    """Returns (name, values) of the statistics of layers_of()."""
    return [
        (name + "." + kind if name else kind, getattr(module, kind))
        for name, module in layers
        for kind in _KINDS
    ]


def _has_statistics(module: torch.nn.Module) -> bool:
    buffers = dict(module.named_buffers(recurse=False))
    values = [buffers.get(kind) for kind in _KINDS]
    if any(value is None or torch.nn.parameter.is_lazy(value) or value.dim() != 1 for value in values):
        return False
    # Another kind of layer learns its statistics in a way of its own, unless all of it is frozen.
    return isinstance(module, _NormBase) or not any(p.requires_grad for p in module.parameters())


def _learns(module: torch.nn.Module) -> bool:
    """Returns whether forward passes in training mode change a layer's statistics,
    and the layer is not frozen."""
    if not isinstance(module, _NormBase) or not module.track_running_stats or module.momentum == 0:
        return False
    if module.momentum is None and isinstance(module, _InstanceNorm):  # the same as 0 there
        return False
    parameters = list(module.parameters())
    return not parameters or any(p.requires_grad for p in parameters)


@contextlib.contextmanager
def _training(model: torch.nn.Module, layers: List[torch.nn.Module]) -> Iterator[List[torch.nn.Module]]:
    """Puts the model into training mode, but not its frozen layers. Returns the layers that learn, whose
    statistics become the means over all forward passes. Instance norm, which counts none, needs a momentum
    for each minibatch."""
    modes = {module: module.training for module in model.modules()}
    model.train()
    learning = [module for module in layers if module.training and _learns(module)]
    for module in layers:
        module.training = module in learning
    before = {
        module: (module.momentum, {name: values.clone() for name, values in module.named_buffers()})
        for module in learning
    }
    for module in learning:
        if not isinstance(module, _InstanceNorm):
            module.momentum = None
            module.reset_running_stats()
        elif not all(getattr(module, kind).isfinite().all() for kind in _KINDS):
            module.reset_running_stats()  # the mean with NaN is NaN
    try:
        yield learning
    finally:
        for module, (momentum, buffers) in before.items():
            module.momentum = momentum
            # If no minibatch has reached it.
            if module.num_batches_tracked == 0 and not isinstance(module, _InstanceNorm):
                for name, values in buffers.items():
                    getattr(module, name).copy_(values)
        for module, mode in modes.items():
            module.training = mode


def _minibatches(data: Any, batch_size: int) -> Iterator[Any]:
    """Yields lists of training samples: evenly from the whole set, or the first ones of a stream."""
    if is_indexed(data):
        for indices in evenly(len(data), batch_size):
            yield [data[index] for index in indices]
        return
    stream = Stream(data)
    for _ in range(0, STATISTICS_SAMPLES, batch_size):
        samples = stream.take(batch_size)
        if samples is None:
            return
        yield samples
