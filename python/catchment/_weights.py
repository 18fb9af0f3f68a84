"""The job's weights in the model of a PyTorch program: brings them there, and detects what the program does
to them."""

from typing import Any, Dict, List, Optional, Set, Tuple

import torch

from . import _copies, _model
from ._attachment import AnyAttachment
from ._warnings import warn
from ._writes import Writes

_REMOVED = "parameter %s of the job has been removed from the model: change the model before join()"
_RESHAPED = "parameter %s had shape %s when join() was called, and has %s now: change the model before join()"
_REPLACED = (
    "parameter %s has been replaced since join(), but the optimizer given to join() updates the old "
    "one: load weights into the parameters that are there, without assign=True"
)
_NOT_TRAINED = (
    "parameter %s requires a gradient now, but did not, or was not in the model, when join() was "
    "called: the job does not train it, so only this program changes it"
)
_ROUNDED = (
    "parameter %s is in %s, and the optimizer given to join() moves it there for all steps between two "
    "exchanges: moves below its precision are lost, as without a job; keep the parameters in float32, and "
    "compute with torch.autocast"
)


class Parameter:
    """A parameter of the model, and its places in the flat vectors."""

    def __init__(
        self,
        name: str,
        tensor: torch.Tensor,
        begin: int,
        weights: torch.Tensor,
        gradient: torch.Tensor,
        copied: bool,
    ) -> None:
        self.name, self.tensor = name, tensor
        self.begin, self.end = begin, begin + tensor.numel()
        self.weights = weights[self.begin : self.end].view(tensor.shape)
        self.gradient = gradient[self.begin : self.end].view(tensor.shape)
        self.shape, self.pointer = tensor.shape, self.weights.data_ptr()
        # Otherwise, on a GPU, in another precision or order of dimensions, as a view of a larger tensor, or
        # for an optimizer here, weights are copied.
        self.shared = (
            not copied
            and tensor.device.type == "cpu"
            and tensor.dtype == torch.float32
            and tensor.is_contiguous()
            and tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
        )
        self.ready = False  # the gradient, in this step
        self.moves = False  # has had a gradient
        self.sent: Optional[Tuple[torch.Tensor, int]] = (
            None  # the .grad that was sent during the backward pass, and its version
        )


class Weights:
    """tensors: (name, tensor) of the job's parameters, in the order of the flat vectors. has_optimizer:
    whether an optimizer of the program moves them. wait_for_all: whether a step begins only when it has all
    of its weights."""

    def __init__(
        self,
        attachment: AnyAttachment,
        model: torch.nn.Module,
        tensors: List[Tuple[str, torch.Tensor]],
        has_optimizer: bool,
        wait_for_all: bool,
    ) -> None:
        self._attachment, self._model = attachment, model
        self._has_optimizer, self._wait_for_all = has_optimizer, wait_for_all
        weights = torch.frombuffer(attachment.weights, dtype=torch.float32)
        gradient = torch.frombuffer(attachment.gradient, dtype=torch.float32)
        self._vectors = weights, gradient
        self.size = self._vectors[0].numel()
        self.parameters: List[Parameter] = []
        begin = 0
        copied = has_optimizer or hasattr(attachment, "rank")
        for name, tensor in tensors:
            self.parameters.append(Parameter(name, tensor, begin, weights, gradient, copied))
            begin = self.parameters[-1].end
        self.copies = _copies.choose(self.parameters, self._vectors)
        self.counts = False  # the step, as far as is known
        self._taken = 0  # values that the parameters have of the step
        self._warned: Set[str] = set()  # of names
        for parameter in self.parameters:
            if parameter.shared:
                parameter.tensor.data = parameter.weights
        self._copied = [parameter for parameter in self.parameters if not parameter.shared]
        self._learn()
        # An optimizer's weights are the program's own.
        self._writes = None if copied else Writes(self.parameters)

    # ------------------------------------------------------------------------------------------- to the model

    def begin_step(self) -> None:
        """Advances to the next step, without waiting for it unless it needs all weights."""
        self._attachment.next_step()
        self._taken, self.counts = 0, True
        self.take_if_whole()

    def take_if_whole(self) -> None:
        if self._wait_for_all:
            self.take(self.size)

    def take(self, values: int) -> None:
        """Waits until the parameters have the first `values` of the step's weights."""
        if values > self._taken:
            self.counts = self._attachment.await_weights(values)
            here = self._attachment.here if self.counts else self.size
            if self.counts:
                self._copy(self._taken, here)
            self._taken = here
            if self.counts and here == self.size and self._writes is not None:
                self._writes.note(self._vectors[0])
        self.copies.wait_for(values)

    def take_all(self, *_: Any) -> None:
        self.take(self.size)

    def copy_all(self) -> None:
        """Copies weights into the model that belong to no step."""
        self._copy(0, self.size)
        self.copies.wait_for(self.size)

    @torch.no_grad()
    def _copy(self, begin: int, end: int) -> None:
        """Copies parameters outside the shared memory. A parameter is copied when the last of
        its values has arrived."""
        for parameter in self._copied:
            if begin < parameter.end <= end:
                self.copies.bring(parameter)

    # ----------------------------------------------------------------------------------------- by the program

    def find_written(self) -> Optional[str]:
        """Returns the name of a parameter that the program has written in this step;
        None if there is none."""
        return self._writes.find(self._vectors[0]) if self.counts and self._writes is not None else None

    def follow(self) -> List[Parameter]:
        """Detects parameters that the program has replaced, moved to other memory or unfrozen since join.
        Returns those that have a new tensor."""
        if not self._follows:
            return []
        replaced = []
        if list(map(id, _model.parameters_in(self._model))) != self._ids:
            replaced = self._find()
        if any(p.requires_grad for p in self._frozen):
            self._warn_of_untrained()
        moved = []
        for parameter in self.parameters:
            if parameter.tensor.shape != parameter.shape:
                raise RuntimeError(
                    _RESHAPED % (parameter.name, tuple(parameter.shape), tuple(parameter.tensor.shape))
                )
            if parameter.shared and parameter.tensor.data_ptr() != parameter.pointer:
                moved.append(parameter)
        if moved:
            self._copy_from_now_on(moved)
        return replaced

    def _learn(self) -> None:
        self._found = _model.parameters_in(self._model)
        self._ids = list(map(id, self._found))
        trained = {id(parameter.tensor) for parameter in self.parameters}
        self._frozen = [p for p in self._found if p is not None and id(p) not in trained]
        # fully_shard exchanges them by itself.
        self._follows = not any(hasattr(parameter.tensor, "placements") for parameter in self.parameters)

    def _find(self) -> List[Parameter]:
        """Finds the job's parameters in a model whose parameters have changed.
        Returns those that have a new tensor."""
        names = dict(_model.named_parameters(self._model, remove_duplicate=False))
        present, replaced = set(map(id, names.values())), []
        for parameter in self.parameters:
            tensor = names.get(parameter.name)
            if tensor is None and id(parameter.tensor) not in present:
                raise RuntimeError(_REMOVED % parameter.name)
            if tensor is not None and tensor is not parameter.tensor:
                if self._has_optimizer:
                    raise RuntimeError(_REPLACED % parameter.name)
                parameter.tensor = tensor
                replaced.append(parameter)
        self._learn()
        self._wait_for_all = True  # modules that are new do not wait for their weights
        return replaced

    def _warn_of_untrained(self) -> None:
        unfrozen = {id(p) for p in self._frozen if p.requires_grad}
        for name, p in self._model.named_parameters():
            if id(p) in unfrozen and name not in self._warned:
                self._warned.add(name)
                warn(_NOT_TRAINED % name)

    def _copy_from_now_on(self, parameters: List[Parameter]) -> None:
        for parameter in parameters:
            parameter.shared = False
        # share_memory() and processes that are given the model have moved all tensors with the same storage.
        self._vectors = torch.frombuffer(self._attachment.weights, dtype=torch.float32), self._vectors[1]
        for parameter in self.parameters:
            parameter.weights = self._vectors[0][parameter.begin : parameter.end].view(parameter.shape)
        self._copied = [parameter for parameter in self.parameters if not parameter.shared]
        if any(parameter.tensor.device.type == "cuda" for parameter in parameters):
            self.copies = _copies.choose(self.parameters, self._vectors, self.copies)


class KeptWeights(Weights):
    """The weights of a program whose optimizer moves them for several steps between two exchanges with the
    servers. They stay in the model, on its device: only the fragments that are exchanged are copied. The
    notation is that of worker/local_weights.h: y or d is in the shared weights, D or x in the shared
    gradient."""

    def __init__(
        self,
        attachment: AnyAttachment,
        model: torch.nn.Module,
        tensors: List[Tuple[str, torch.Tensor]],
        welcome: Dict[str, Any],
    ) -> None:
        super().__init__(attachment, model, tensors, has_optimizer=True, wait_for_all=True)
        self._sends = getattr(attachment, "rank", 0) == 0  # in a group, rank 0 does
        self._blend, self._elastic = welcome.get("blend", 0.0), welcome.get("elastic", False)
        self._parts: Dict[int, List[Part]] = {}  # by fragment
        attachment.on_send = self._write
        rounded = next((p for p in self.parameters if torch.finfo(p.tensor.dtype).bits < 32), None)
        if rounded is not None:
            warn(_ROUNDED % (rounded.name, str(rounded.tensor.dtype).replace("torch.", "")))

    def take(self, values: int) -> None:
        """Waits until the step has begun, and moves what has arrived into the model."""
        if self._taken < self.size:
            self.counts, self._taken = self._attachment.await_step(), self.size
            if self.counts:
                self._use_arrived()

    @torch.no_grad()
    def _use_arrived(self) -> None:
        everything, arrived = self._attachment.take_exchange()
        if everything:
            self._attachment.fetch([(0, self.size)])
            self.copy_all()
        for fragment in arrived:
            self._attachment.fetch(self._attachment.fragments[fragment])
            for parameter, ranges in self._parts_of(fragment):
                values = _model.full(parameter.tensor.detach()).reshape(-1)
                for begin, end in ranges:
                    x, y = values[begin:end], parameter.weights.view(-1)[begin:end]
                    if self._elastic:
                        y = x.float() - y.to(x.device)
                    elif self._blend != 0:
                        y = x.float() * self._blend + y.to(x.device) * (1 - self._blend)
                    x.copy_(y)
                # `values` is a copy of a shard, and of a tensor with another order of dimensions.
                if hasattr(parameter.tensor, "placements") or not parameter.tensor.is_contiguous():
                    _copies.assign(parameter.tensor, values.view(parameter.shape))

    @torch.no_grad()
    def _write(self, fragment: int) -> None:
        self._use_arrived()
        for parameter, ranges in self._parts_of(fragment):
            values = _model.full(parameter.tensor.detach()).reshape(-1)
            for begin, end in ranges if self._sends else ():
                x, y = values[begin:end], parameter.weights.view(-1)[begin:end]
                if self._elastic:
                    parameter.gradient.view(-1)[begin:end] = x
                    continue
                # The optimizer has not moved x by what rounding takes away.
                y = y.to(x.dtype).to(torch.float32)
                torch.sub(y, x.to("cpu", torch.float32), out=parameter.gradient.view(-1)[begin:end])

    def _parts_of(self, fragment: int) -> List["Part"]:
        if fragment not in self._parts:
            pieces = self._attachment.fragments[fragment]
            parts = [
                (
                    p,
                    [
                        (max(b, p.begin) - p.begin, min(e, p.end) - p.begin)
                        for b, e in pieces
                        if b < p.end and p.begin < e
                    ],
                )
                for p in self.parameters
            ]
            self._parts[fragment] = [part for part in parts if part[1]]
        return self._parts[fragment]


# A parameter and ranges of its values.
Part = Tuple[Parameter, List[Tuple[int, int]]]
