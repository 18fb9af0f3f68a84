"""Three ways in which the gradient of a step reaches the worker: after the backward pass, during it, and as
the change of the weights that an optimizer of the program makes."""

import functools
from typing import TYPE_CHECKING, Any, List

import torch

from . import _model, _scaler
from ._handed import Handed
from ._losses import Losses
from ._modules import Hook
from ._warnings import warn
from ._weights import Weights

if TYPE_CHECKING:
    from ._weights import Parameter

_PART = (1 << 20) // 4  # values of the gradient that are announced at once, at least
_NO_BACKWARD = (
    "worker.step() was called without a backward pass since the last step: call it once for each "
    "minibatch, after loss.backward()"
)
_CHANGED = (
    "the gradient of parameter %s was changed between loss.backward() and worker.step(), but with "
    "join(overlap=True) it has already been sent: join without overlap"
)
_SKIPS_SENT = (
    "worker.skip() was called after a backward pass, whose gradients have been sent: call it "
    "before backward, or join without overlap"
)
_TWICE = (
    "a gradient was computed twice in one step, but with join(overlap=True) it is sent after the first "
    "backward pass: join without overlap, or call worker.step(loss) after each loss.backward()"
)
_SCALED = (
    "GradScaler has scaled the loss, so the gradient of parameter %s would be sent with that scale: "
    "call scaler.unscale_(optimizer) before worker.step(loss), with an optimizer of all parameters, "
    "or compute in bfloat16, which needs no scaler"
)
_SCALED_OVERLAP = (
    "GradScaler has scaled the loss, but with join(overlap=True) gradients are sent before they can be "
    "divided by the scale: join without overlap, or compute in bfloat16, which needs no scaler"
)
_RESTARTED = (
    "the worker has registered again, and continues with the servers' weights: the optimizer given "
    "to join() %s"
)
_STILL_MOVES = (
    "parameter %s has no gradient in this step. To the servers it is 0, so the job's momentum and "
    "weight decay still move the parameter, which an optimizer of PyTorch would leave as it is"
)


class Gradients:
    """Base class of the three ways.

    accumulates: whether further backward passes of the step follow.
    """

    accumulates = False

    def __init__(self, attachment: Any, weights: Weights) -> None:
        self._attachment, self._weights, self._parameters = attachment, weights, weights.parameters
        self.losses = Losses(self._parameters)
        self._grouped = hasattr(attachment, "rank")
        self._sends = getattr(attachment, "rank", 0) == 0  # in a group, rank 0 does
        self._final = self._announced = len(self._parameters)
        self._warned = False

    def take(self) -> None:
        """Takes the gradients of the step that ends."""
        raise NotImplementedError

    def drop(self) -> None:
        """Begins a step, or begins it again, without gradients."""
        self.losses.forget()
        for parameter in self._parameters:
            parameter.ready, parameter.sent, parameter.tensor.grad = False, None, None
        self._final = self._announced = len(self._parameters)

    def restart(self) -> None:
        """Drops the gradients of a minibatch in which the previous loop was interrupted."""
        _scaler.next_step()
        if self._announced == len(self._parameters):
            self.drop()

    def follow(self, parameters: List["Parameter"]) -> None:
        """Called with parameters whose tensors are new."""

    def makes(self, optimizer: Any) -> bool:
        """Called after each step of an optimizer. Returns whether it is one of join's optimizer."""
        return False

    def skip(self) -> None:
        """Begins to end a step that has no gradients."""
        self._weights.take_all()

    def finish(self) -> None:
        """Sends zeros for the gradients that are not there. Blocks until all have been copied."""
        self._weights.take_all()
        for parameter in self._parameters:
            if not parameter.ready and self._sends:
                parameter.gradient.zero_()
        self._weights.copies.finish()

    def _check_scale(self) -> None:
        if _scaler.scaled():
            for parameter in self._parameters:
                if parameter.tensor.grad is not None and _scaler.is_scaled(parameter.tensor):
                    raise RuntimeError(_SCALED % parameter.name)
            _scaler.next_step()

    def _check_backward(self, has_gradients: bool) -> None:
        if not has_gradients and not self._attachment.stopped:
            raise RuntimeError(_NO_BACKWARD)

    def _note(self, parameter: "Parameter", has_gradient: bool) -> None:
        if not has_gradient and parameter.moves and not self._warned:
            self._warned = True
            warn(_STILL_MOVES % parameter.name)
        parameter.moves |= has_gradient

    def _announce(self) -> None:
        """Announces which end of the gradient is final, if that is worth a message."""
        while self._final > 0 and self._is_final(self._parameters[self._final - 1]):
            self._final -= 1
        if self._final == self._announced:
            return
        begin = self._parameters[self._final].begin
        if self._parameters[self._announced - 1].end - begin < _PART or not self._weights.counts:
            return
        self._attachment.final(begin)
        self._announced = self._final

    def _is_final(self, parameter: "Parameter") -> bool:
        return parameter.ready and self._weights.copies.is_final(parameter)


class AfterBackward(Gradients):
    """Sends the gradients as they are in .grad when the step ends, the last ones first."""

    @torch.no_grad()
    def take(self) -> None:
        self._check_scale()
        self._check_backward(any(parameter.tensor.grad is not None for parameter in self._parameters))
        self._weights.take_all()
        for parameter in reversed(self._parameters):
            gradient = parameter.tensor.grad
            self._note(parameter, gradient is not None)
            if gradient is not None:
                gradient = _model.full(gradient)
                if self._sends:
                    self._weights.copies.take(parameter, gradient)
            elif self._sends:
                parameter.gradient.zero_()
            parameter.ready = True
            if not self._grouped:
                self._announce()


class DuringBackward(Gradients):
    """Sends each gradient as soon as the backward pass has it, for join(overlap=True). handed: the loop's
    minibatches; gradients of a placeholder are not sent."""

    def __init__(self, attachment: Any, weights: Weights, handed: Handed) -> None:
        super().__init__(attachment, weights)
        self._handed = handed

    def follow(self, parameters: List["Parameter"]) -> None:
        for parameter in parameters:
            take = Hook(functools.partial(self._take_ready, parameter))
            parameter.tensor.register_post_accumulate_grad_hook(take)
            if parameter.tensor.grad is not None and not parameter.ready:
                take(parameter.tensor)

    def _take_ready(self, parameter: "Parameter", tensor: torch.Tensor) -> None:
        if self.accumulates or (self._handed and not self._handed[0]):
            return
        if parameter.ready:
            raise RuntimeError(_TWICE)
        self._weights.take_all()  # the last gradient may still be read until they are here
        parameter.ready = True
        self._weights.copies.take(parameter, tensor.grad)
        parameter.sent = (tensor.grad, tensor.grad._version)
        self._announce()

    def take(self) -> None:
        if _scaler.scaled():
            raise RuntimeError(_SCALED_OVERLAP)
        for parameter in self._parameters:
            gradient = parameter.tensor.grad
            sent, version = parameter.sent or (None, None)
            if gradient is not None and (gradient is not sent or gradient._version != version):
                raise RuntimeError(_CHANGED % parameter.name)
            self._note(parameter, parameter.ready)
        self._check_backward(any(parameter.ready for parameter in self._parameters))

    def skip(self) -> None:
        if any(parameter.ready for parameter in self._parameters):
            raise RuntimeError(_SKIPS_SENT)
        super().skip()


class LocalSteps(Gradients):
    """Moves the weights with an optimizer of the program, and uses their change in place of a gradient."""

    def __init__(self, attachment: Any, weights: Weights, optimizer: Any) -> None:
        super().__init__(attachment, weights)
        self._optimizer = optimizer
        self._making = self._made = False  # the optimizer's step; made: by the program

    def makes(self, optimizer: Any) -> bool:
        own = optimizer is self._optimizer
        self._made |= own and not self._making
        return own or self._making

    def drop(self) -> None:
        super().drop()
        self._made = False

    def _move(self) -> None:
        self._check_scale()
        self.skip()
        if not self._made:  # otherwise the program, as in a loop without a job, has called it
            self._making = True
            self._optimizer.step()
            self._making = False
        self._optimizer.zero_grad()

    @torch.no_grad()
    def take(self) -> None:
        self._move()
        for parameter in self._parameters:
            moved = _model.full(parameter.tensor.detach())
            if self._sends:
                # From where the model began the step, which is not the float32 weight in another precision:
                # the difference is not a move of the optimizer.
                began = parameter.weights.to(moved.dtype).to(torch.float32)
                parameter.gradient.copy_(began - moved.to("cpu", torch.float32))
            parameter.ready = True

    def skip(self) -> None:
        super().skip()
        if self._attachment.restarted:
            self._forget_moments()

    def _forget_moments(self) -> None:
        """Resets the optimizer, whose moments belong to weights that are gone, as the job's own local
        optimizer is reset."""
        state: Any = getattr(self._optimizer, "state", None)
        resets = hasattr(state, "clear")
        if resets:
            state.clear()
        keeps = "keeps moments that belong to other weights, as it has no `state` to reset"
        warn(_RESTARTED % ("has been reset" if resets else keeps))


class KeptSteps(LocalSteps):
    """The steps of a program that keeps its weights: a step sends nothing (KeptWeights)."""

    def take(self) -> None:
        self._move()

    def finish(self) -> None:
        """Nothing is sent in place of gradients that are not there."""
