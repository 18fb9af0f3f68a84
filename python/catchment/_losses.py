"""The loss of a step whose program calls worker.optimizer().step(), which gets none: the values on which it
has called backward."""

import functools
from typing import TYPE_CHECKING, Any, Callable, List, Optional, Sequence, Tuple

import torch

from . import _scaler

if TYPE_CHECKING:
    from ._weights import Parameter

_watched: Optional["Losses"] = None  # the losses of this program's step


class Losses:
    """The values on which backward was called since the step began, and whose gradients are in the .grad of
    the job's parameters. A pass that reaches none of them, such as one for another model, or whose gradients
    the program has removed before the next, as those of an attack on the inputs, is not one of the step's.

    parameters: objects whose `tensor` is the parameter.
    """

    def __init__(self, parameters: List["Parameter"]) -> None:
        self._parameters = parameters
        self._values: List[Any] = []
        # The gradients that the last pass has left, and their versions.
        self._left: List[Tuple[Any, Optional[int]]] = []

    def watch(self) -> None:
        """Begins to note them."""
        global _watched
        _watched = self
        _watch()

    def __bool__(self) -> bool:
        return bool(self._values)

    def sum(self) -> float:
        return sum(float(value) for value in self._values)

    def forget(self) -> None:
        self._values, self._left = [], []

    def _note_pass(
        self,
        run: Callable[[], Any],
        tensors: Sequence[torch.Tensor],
        weights: Sequence[Optional[torch.Tensor]],
    ) -> Any:
        """Runs a backward pass; notes the sum of its tensors if it changes gradients of the job."""
        before = self._gradients()
        if self._values and self._are_gone(before):
            self.forget()
        result = run()
        after = self._gradients()
        if _differ(before, after):
            self._values.append(_value(tensors, weights))
        self._left = after
        return result

    def _gradients(self) -> List[Tuple[Any, Optional[int]]]:
        return [(parameter.tensor.grad, _version(parameter.tensor.grad)) for parameter in self._parameters]

    def _are_gone(self, now: List[Tuple[Any, Optional[int]]]) -> bool:
        """Returns whether none of the gradients of the passes so far is left. Only those that were changed
        since are read, because that waits for a GPU."""
        for (gradient, version), (left, left_version) in zip(now, self._left):
            if gradient is not None and (
                (gradient is left and version == left_version) or gradient.is_sparse or _local(gradient).any()
            ):
                return False
        return True


def _local(gradient: Any) -> Any:
    """Returns this process's part of a gradient that is sharded."""
    return getattr(gradient, "_local_tensor", gradient)


def _version(gradient: Any) -> Optional[int]:
    return None if gradient is None else _local(gradient)._version


def _differ(before: List[Tuple[Any, Optional[int]]], after: List[Tuple[Any, Optional[int]]]) -> bool:
    return any(
        one is not other or version != other_version
        for (one, version), (other, other_version) in zip(before, after)
    )


@torch.no_grad()
def _value(tensors: Any, weights: Any) -> Any:
    """Returns the sum of the tensors' values, each times its weight."""
    total = 0.0
    for tensor, weight in zip(tensors, weights):
        loss = _scaler.loss_of(tensor).detach()
        total = total + (loss if weight is None else loss * weight).sum()
    return total


def _as_tuple(tensors: Any, count: int = 1) -> Tuple[Any, ...]:
    if tensors is None:
        return (None,) * count
    return (tensors,) if isinstance(tensors, torch.Tensor) else tuple(tensors)


def _watch() -> None:
    """Starts watching torch.autograd.backward, which Tensor.backward calls."""
    backward = torch.autograd.backward
    if hasattr(backward, "__wrapped__"):
        return

    @functools.wraps(backward)
    def backward_and_note(tensors: Any, grad_tensors: Any = None, *arguments: Any, **named: Any) -> Any:
        def run() -> Any:
            return backward(tensors, grad_tensors, *arguments, **named)

        noted = _as_tuple(tensors)
        assert _watched is not None
        return _watched._note_pass(run, noted, _as_tuple(grad_tensors, len(noted)))

    torch.autograd.backward = backward_and_note
