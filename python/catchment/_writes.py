"""Finds weights that the program has written since they arrived, and that the servers' weights replace."""

import collections
from typing import TYPE_CHECKING, Counter, Dict, List, Optional

import torch

if TYPE_CHECKING:
    from ._weights import Parameter

_SAMPLES = 256  # values of the shared memory that each step compares
_ROUNDING = 8  # units of the largest value: weights that are changed and restored differ by less
_COMPARISONS = 8  # of a parameter that is copied, and is written and restored in every step


def _differ(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Both are of one type."""
    rounding = torch.finfo(one.dtype).eps * _ROUNDING
    one, other = one.to(torch.float32), other.to(torch.float32)
    return bool((one - other).abs().max() > other.abs().max() * rounding)


class Writes:
    """parameters: as catchment.torch has them.

    Parameters in the shared memory have no other copy here, so a sample of their values is kept. The shared
    memory still has the values of those that are copied, and they are compared if
    PyTorch has counted a write.
    """

    def __init__(self, parameters: List["Parameter"]) -> None:
        self._parameters = parameters
        self._comparisons: Counter[str] = collections.Counter()  # by name
        self._sample: Optional[torch.Tensor] = None
        self._versions: Dict[Parameter, int] = {}

    def note(self, vector: torch.Tensor) -> None:
        """Remembers weights that have arrived. vector: the shared memory, flat."""
        self._sample = self._take(vector).clone()
        self._versions = {
            parameter: parameter.tensor._version for parameter in self._parameters if not parameter.shared
        }

    @torch.no_grad()
    def find(self, vector: torch.Tensor) -> Optional[str]:
        """Returns the name of a parameter that has been written since note(); None if there is none."""
        sample = self._take(vector)
        if not torch.equal(sample, self._sample) and _differ(sample, self._sample):
            place = int((sample - self._sample).abs().argmax()) * self._stride(vector)
            return next(parameter.name for parameter in self._parameters if place < parameter.end)
        return next(
            (
                parameter.name
                for parameter in self._parameters
                if not parameter.shared and self._is_written(parameter)
            ),
            None,
        )

    def _stride(self, vector: torch.Tensor) -> int:
        return max(1, vector.numel() // _SAMPLES)

    def _take(self, vector: torch.Tensor) -> torch.Tensor:
        return vector[:: self._stride(vector)]

    def _is_written(self, parameter: "Parameter") -> bool:
        tensor = parameter.tensor.detach()
        if (
            self._versions.get(parameter) == tensor._version
            or self._comparisons[parameter.name] == _COMPARISONS
        ):
            return False
        self._comparisons[parameter.name] += 1
        # Rounded as a copy is.
        return _differ(tensor, parameter.weights.to(tensor.device, tensor.dtype))
