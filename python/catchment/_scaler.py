"""Watches torch.amp.GradScaler, so that gradients of a scaled loss are not sent before they are divided by
the scale."""

import functools
import weakref
from typing import Any, List, Set

import torch

# Scaler that has scaled a loss -> ids of the tensors that it has unscaled since
_unscaled: "weakref.WeakKeyDictionary[Any, Set[int]]" = weakref.WeakKeyDictionary()
_stepping: List[Any] = []  # scalers whose step() is under way


def watch() -> None:
    """Begins to watch all scalers of this program."""
    scaler = torch.amp.GradScaler if hasattr(torch.amp, "GradScaler") else torch.cuda.amp.GradScaler
    if hasattr(scaler.scale, "__wrapped__"):
        return
    scale, unscale, step = scaler.scale, scaler.unscale_, scaler.step

    @functools.wraps(scale)
    def scale_and_note(self: Any, outputs: Any) -> Any:
        if self.is_enabled():
            _unscaled.setdefault(self, set())
        scaled_outputs = scale(self, outputs)
        if isinstance(outputs, torch.Tensor) and scaled_outputs is not outputs:
            scaled_outputs._catchment_loss = outputs
        return scaled_outputs

    @functools.wraps(unscale)
    def unscale_and_note(self: Any, optimizer: Any) -> Any:
        result = unscale(self, optimizer)
        if self in _unscaled:
            _unscaled[self].update(id(p) for group in optimizer.param_groups for p in group["params"])
        return result

    @functools.wraps(step)
    def step_and_note(self: Any, *arguments: Any, **named: Any) -> Any:
        _stepping.append(self)
        try:
            return step(self, *arguments, **named)
        finally:
            _stepping.pop()

    scaler.scale, scaler.unscale_, scaler.step = scale_and_note, unscale_and_note, step_and_note


def is_stepping() -> bool:
    """Returns whether a scaler makes the step of an optimizer."""
    return bool(_stepping)


def loss_of(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the loss that was scaled, if the tensor is a scaled one."""
    return getattr(tensor, "_catchment_loss", tensor)


def scaled() -> bool:
    """Returns whether a loss was scaled in this step."""
    return bool(_unscaled)


def is_scaled(tensor: torch.Tensor) -> bool:
    """Returns whether the tensor's gradient may still be that of a scaled loss."""
    return any(id(tensor) not in ids for ids in _unscaled.values())


def next_step() -> None:
    """Call when a step begins without a scaled loss, or when all gradients of this step have been divided by
    the scale."""
    _unscaled.clear()
