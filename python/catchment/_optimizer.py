"""The servers' optimizer as frameworks expect one: objects of torch.optim whose step is the worker's."""

from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

import torch
from torch.optim.lr_scheduler import LRScheduler

from . import _scaler
from ._warnings import warn

if TYPE_CHECKING:
    from .torch import Worker

_RATE = (
    "the job sets the learning rate, so changes by the program, such as those of its scheduler, have no "
    "effect: use worker.scheduler(), and set optimizer.learning_rate and optimizer.schedule in the job"
)
_GROUP = (
    "add_param_group() cannot give the servers' optimizer parameters that the job does not have: put their "
    "modules into the model before join()"
)
_OPTION = "the job sets %s, so the program's has no effect: set optimizer.%s in the job"
_NO_LOSS = (
    "the optimizer's step() got no loss, so the job's metrics show 0: call loss.backward() on the "
    "minibatch's mean loss, or give the step a function that returns it, optimizer.step(lambda: loss)"
)


class Optimizer(torch.optim.Optimizer):
    """step() is worker.step(loss), with the closure's result, or else the sum of the values on which the
    program has called backward since the last step, as far as zero_grad() has not removed their gradients. It
    is worker.skip() if the closure returns None without calling backward.
    Its learning rate shows the job's."""

    @property
    def _step_supports_amp_scaling(self) -> bool:
        # GradScaler.step then leaves the division by the scale to this object, and never leaves the step out:
        # a gradient with an infinity is refused by the servers. Others, such as Lightning before it clips
        # gradients, would conclude that step() divides them.
        return _scaler.is_stepping()

    def __init__(self, worker: "Worker", parameters: Any) -> None:
        # Schedulers that cycle the momentum, too, need one. The job's is not known here.
        super().__init__(parameters, {"lr": worker._attachment.learning_rate, "momentum": 0.0})
        self._worker = worker
        self._warned = False  # of a step without a loss
        self._options = self._options_of_groups()
        self._rate = worker._attachment.learning_rate  # as the groups show it
        worker._gradients.losses.watch()

    def step(self, closure: Any = None) -> Any:
        loss = None
        if any(group["lr"] != self._rate for group in self.param_groups):
            warn(_RATE)
        options = self._options_of_groups()
        for name in sorted({name for (_, name), _ in options.items() ^ self._options.items()}):
            warn(_OPTION % (name, name))
        self._options = options
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        # Lightning's training_step may leave out a minibatch.
        if closure is not None and loss is None and not self._worker._gradients.losses:
            self._worker.skip()
        else:
            self._end_step(loss)
        self._rate = self._worker._attachment.learning_rate
        for group in self.param_groups:
            group["lr"] = self._rate
        return loss

    def _options_of_groups(self) -> Dict[Tuple[int, str], str]:
        """Returns what the groups have beside parameters, rates and notes of schedulers:
        {(group, name): value}."""
        return {
            (index, name): repr(value)
            for index, group in enumerate(self.param_groups)
            for name, value in group.items()
            if name not in ("params", "param_names") and not name.endswith(("lr", "_momentum"))
        }

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        if hasattr(self, "_worker"):
            raise ValueError(_GROUP)
        super().add_param_group(param_group)

    def _end_step(self, loss: Any) -> None:
        if hasattr(self, "grad_scale"):  # set by GradScaler.step; None: the gradients are divided
            self._divide_gradients(self.grad_scale)
        self._worker.step(self._take_loss(loss))

    def _take_loss(self, loss: Any) -> Any:
        """Returns the loss of a step that ends, for which step() got this one or None,
        and begins the next."""
        losses = self._worker._gradients.losses
        if loss is None and not losses and not self._warned:
            self._warned = True
            warn(_NO_LOSS)
        taken = losses.sum() if loss is None else loss
        losses.forget()
        return taken

    def zero_grad(self, set_to_none: bool = True) -> None:
        super().zero_grad(set_to_none)
        self._worker._gradients.losses.forget()

    @torch.no_grad()
    def _divide_gradients(self, scale: Optional[torch.Tensor]) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if scale is not None and p.grad is not None:
                    p.grad.div_(scale.to(p.grad.device))
        _scaler.next_step()

    def __deepcopy__(self, memo: Any) -> "Optimizer":
        return self

    def __getstate__(self) -> Dict[str, Any]:
        return {key: value for key, value in super().__getstate__().items() if key != "_worker"}


class Scheduler(LRScheduler):
    """Shows the job's learning rate, for code that logs it."""

    def get_lr(self) -> List[float]:
        self.optimizer._rate = self.optimizer._worker._begun().learning_rate
        return [self.optimizer._rate for _ in self.optimizer.param_groups]
