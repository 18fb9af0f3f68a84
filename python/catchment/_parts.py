"""The servers' optimizer in parts, for programs with an optimizer for each part of the model,
such as a GAN's two."""

from typing import TYPE_CHECKING, Any, Dict, List, Optional

import torch

from ._optimizer import Optimizer, Scheduler

if TYPE_CHECKING:
    from .torch import Worker

_TWICE = (
    "an optimizer made two steps for one minibatch, but a minibatch is one step of the job: call step() of "
    "each optimizer at most once for each minibatch, after the last backward pass of its part"
)


class Part(Optimizer):
    """step() keeps the gradients of its parameters, as they are then in .grad, for the step of all parts."""

    _step_supports_amp_scaling = False  # GradScaler divides the gradients before step()

    def __init__(self, worker: "Worker", parameters: List[torch.Tensor]) -> None:
        super().__init__(worker, parameters)
        # Since step(): {parameter: gradient}, and the loss.
        self.kept: Optional[Dict[torch.Tensor, torch.Tensor]] = None
        self.loss: Any = 0.0

    def step(self, closure: Any = None) -> Any:
        result = None
        if closure is not None:
            with torch.enable_grad():
                result = closure()
        super().step()
        return result

    def _end_step(self, loss: Any) -> None:
        if self.kept is not None:
            raise RuntimeError(_TWICE)
        self.loss = self._take_loss(loss)
        self.kept = {
            p: p.grad.detach().clone()
            for group in self.param_groups
            for p in group["params"]
            if p.grad is not None
        }


class Parts:
    """The parts of a worker's optimizer. A parameter whose part makes no step for a minibatch has the
    gradient 0 there.
    parameters: a list for each part."""

    def __init__(self, worker: "Worker", parameters: List[List[torch.Tensor]]) -> None:
        self._whole = worker.optimizer()
        self.optimizers = [Part(worker, part) for part in parameters]

    def end_step(self) -> None:
        """Makes the step of the worker, if a part has made its own since the last one."""
        kept, loss = [], 0.0
        for part in self.optimizers:
            if part.kept is not None:
                kept.append(part.kept)
                loss += float(part.loss)
                part.kept = None
        if not kept:
            return
        for group in self._whole.param_groups:
            for p in group["params"]:
                own = [gradients[p] for gradients in kept if p in gradients]
                p.grad = sum(own[1:], own[0]) if own else None
        self._whole.step(lambda: loss)


class ShownSchedule(Scheduler):
    """Shows the job's rate, however the program steps its schedules."""

    def step(self, *_: Any, **__: Any) -> None:
        super().step()
