"""Detects that the losses of several models that are trained together add up where they should not."""

from typing import Any, Dict, List, Set, Tuple

import torch

from ._modules import Hook
from ._warnings import warn

_STEPS = 20  # that are watched

_ADD_UP = (
    "two losses of a step have trained %s: its own, and one that reaches another part of the model through "
    "it, as a generator's loss does. The step sends the sum of both gradients. If only its own loss should "
    "train it, call requires_grad_(False) on it before the forward pass of the other loss, and "
    "requires_grad_(True) after its backward pass"
)


class AddedLosses:
    """Watches the first steps, in which each backward pass notes the parts of the model that it reaches, in
    their order. Parts are the model's submodules, of the first level that has several. parameters: (name,
    tensor) of the job's."""

    def __init__(self, parameters: List[Tuple[str, torch.Tensor]]) -> None:
        self._steps = 0
        self._handles: List[Any] = []
        # By the graph tasks of this step: names of the parameters that they reached, in that order.
        self._passes: Dict[int, Dict[str, None]] = {}
        self._parts: Dict[str, Set[str]] = {}  # part -> names of its parameters
        current = getattr(torch._C, "_current_graph_task_id", None)
        depth = _depth_of_parts([name for name, _ in parameters])
        for name, _ in parameters:
            self._parts.setdefault(".".join(name.split(".")[:depth]), set()).add(name)
        if current is None or len(self._parts) < 2:
            return
        for name, tensor in parameters:
            note = Hook(lambda _, name=name: self._passes.setdefault(current(), {}).setdefault(name))
            self._handles.append(tensor.register_post_accumulate_grad_hook(note))

    def end_step(self) -> None:
        """Ends a step. Warns of parts that two of its losses have trained."""
        if not self._handles:
            return
        self._steps += 1
        passes, self._passes = [list(reached) for reached in self._passes.values()], {}
        every = set().union(*passes)
        shared = next(
            filter(None, (self._trained_by(one, other, every) for one in passes for other in passes)), None
        )
        if shared:
            warn(_ADD_UP % " and ".join(shared))
        if shared or self._steps == _STEPS:
            for handle in self._handles:
                handle.remove()
            self._handles = []

    def _trained_by(self, own: List[str], other: List[str], reached: Set[str]) -> List[str]:
        """Returns the parts that `own` has reached, if the other pass has gone through them to the rest of
        what it reached; otherwise nothing. Losses of shared layers reach these last. reached: by any pass."""
        if not set(own) < set(other):
            return []
        parts = [name for name, members in self._parts.items() if not members.isdisjoint(own)]
        members = reached & set().union(*(self._parts[name] for name in parts))
        return parts if members == set(own) == set(other[: len(own)]) else []


def _depth_of_parts(names: List[str]) -> int:
    """Returns how many components of the parameters' names they have in common, and one more."""
    paths = [name.split(".")[:-1] for name in names]
    depth = 0
    while all(len(path) > depth and path[depth] == paths[0][depth] for path in paths):
        depth += 1
    return depth + 1
