"""Follows what Accelerate has set up in this program: its loops look ahead,
divide losses and move minibatches."""

import sys
from typing import Any, Iterator

_ACCUMULATES = (
    "Accelerator(gradient_accumulation_steps=%d) makes a step of several minibatches, but each minibatch of "
    "the job is a step: set it to 1, and algorithm.contribution.gradient.push_period=%d in the job"
)


def check() -> None:
    """Raises ValueError if the program accumulates gradients by Accelerate."""
    state = _shared("GradientState")
    if state is not None and state.num_steps != 1:
        raise ValueError(_ACCUMULATES % (state.num_steps, state.num_steps))


def on_device(minibatches: Iterator[Any]) -> Iterator[Any]:
    """Returns the iterator of minibatches with all of them on Accelerate's device, as a loader that it has
    prepared does."""
    state = _shared("AcceleratorState")
    return minibatches if state is None else _moved(minibatches, state.device)


def _moved(minibatches: Iterator[Any], device: Any) -> Iterator[Any]:
    from accelerate.utils import send_to_device

    for minibatch in minibatches:
        yield send_to_device(minibatch, device)


def _shared(name: str) -> Any:
    """Returns the state that all objects of Accelerate share; None if the program has made none."""
    kind: Any = getattr(sys.modules.get("accelerate.state"), name, None)
    return kind() if getattr(kind, "_shared_state", None) else None
