"""Copies between a model's parameters and the memory that is shared with the worker."""

import collections
import contextlib
from typing import TYPE_CHECKING, Any, Deque, Dict, List, Optional, Set, Tuple

import torch

from ._warnings import warn

if TYPE_CHECKING:
    from ._weights import Parameter

_PORTABLE = 1  # cudaHostRegisterPortable


def choose(
    parameters: List["Parameter"],
    memories: Tuple[torch.Tensor, ...],
    before: Optional["HostCopies"] = None,
) -> "HostCopies":
    """Returns the copies for a model: parameters as catchment.torch has them; memories: the flat shared
    tensors; before: the copies of the same model until some of its parameters moved."""
    devices = {parameter.tensor.device for parameter in parameters if parameter.tensor.device.type == "cuda"}
    if isinstance(before, CudaCopies):  # which may be under way
        before.add(devices)
        return before
    return CudaCopies(memories, devices) if devices else HostCopies()


def assign(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Sets a parameter, or this rank's shard of it, to `values`, which are on the same device."""
    if hasattr(tensor, "placements"):
        from torch.distributed.tensor import distribute_tensor

        # Every rank has all values, so that nothing is sent.
        values = distribute_tensor(
            values.to(tensor.dtype), tensor.device_mesh, tensor.placements, src_data_rank=None
        )
    tensor.copy_(values)


def _record(gradient: torch.Tensor, stream: Any) -> None:
    """Keeps the gradient's memory from being used again before the work on `stream` is complete."""
    parts = (gradient,) if gradient.layout is torch.strided else (gradient._indices(), gradient._values())
    for part in parts:
        part.record_stream(stream)


def dense(gradient: torch.Tensor) -> torch.Tensor:
    """Returns a gradient, such as a sparse one of torch.nn.Embedding,
    with a place for each value of its parameter."""
    return gradient if gradient.layout is torch.strided else gradient.to_dense()


def launch(device: Any) -> None:
    """Runs a kernel. It raises the last error of a call to CUDA that failed, which is thereby forgotten."""
    torch.ones(1, device=device)


class HostCopies:
    """Copies that are complete when the calls return."""

    def bring(self, parameter: "Parameter") -> None:
        """Begins to copy a parameter's weights from the shared memory."""
        assign(parameter.tensor, parameter.weights.to(parameter.tensor.device))

    def wait_for(self, values: int) -> None:
        """Makes later computations wait for the parameters among the first `values`."""

    def take(self, parameter: "Parameter", gradient: torch.Tensor) -> None:
        """Begins to copy a gradient to the shared memory."""
        parameter.gradient.copy_(dense(gradient))

    def is_final(self, parameter: "Parameter") -> bool:
        """Returns whether the parameter's last gradient is in the shared memory."""
        return True

    def finish(self) -> None:
        """Blocks until all copies are complete."""


class CudaCopies(HostCopies):
    """Copies on side streams, one in each direction for each GPU, while the GPU computes.

    The shared memory is pinned for all GPUs, in the context of one that the model uses. If that fails, copies
    block the program instead, after one warning. Values in another precision are converted on the GPU.
    devices: the GPUs; parameters elsewhere are copied as by HostCopies. cuda: torch.cuda, or what a test has
    in its place.
    """

    def __init__(self, memories: Tuple[torch.Tensor, ...], devices: Set[Any], cuda: Any = torch.cuda) -> None:
        self._devices, self._cuda = set(devices), cuda
        self._streams: Dict[Any, Tuple[Any, Any]] = {}  # device -> the streams to it and from it
        # (end, device, event) of weights that are not waited for yet.
        self._arriving: Deque[Tuple[int, Any, Any]] = collections.deque()
        self._leaving: Dict[Parameter, Any] = {}  # parameter -> event of its gradient
        failures = [failure for failure in map(self._pin, memories) if failure]
        if failures:
            warn(
                "the memory that is shared with the Catchment worker could not be pinned (%s), so "
                "copies to and from the GPU do not overlap with computation; the limit of locked "
                "memory (ulimit -l) may be too low" % failures[0]
            )

    def add(self, devices: Set[Any]) -> None:
        """Adds GPUs to which parameters have moved."""
        self._devices |= devices

    def _pin(self, memory: torch.Tensor) -> Optional[str]:
        """Returns why pinning failed; None if it succeeded."""
        device = min(self._devices, key=str)
        size = memory.numel() * memory.element_size()
        try:
            cudart = self._cuda.cudart()
            with self._cuda.device(device):
                result = cudart.cudaHostRegister(memory.data_ptr(), size, _PORTABLE)
        except RuntimeError as error:
            return str(error)
        if result == cudart.cudaError.success:
            return None
        with contextlib.suppress(RuntimeError):
            launch(device)
        return "cudaHostRegister: %s" % result

    def _streams_of(self, device: Any) -> Tuple[Any, Any]:
        if device not in self._streams:
            self._streams[device] = (self._cuda.Stream(device), self._cuda.Stream(device))
        return self._streams[device]

    def bring(self, parameter: "Parameter") -> None:
        device = parameter.tensor.device
        if device not in self._devices:
            super().bring(parameter)
            return
        stream, computing = self._streams_of(device)[0], self._cuda.current_stream(device)
        stream.wait_stream(computing)  # the last step may still read the old weights
        with self._cuda.stream(stream):
            assign(parameter.tensor, parameter.weights.to(device, non_blocking=True))
            event = self._cuda.Event()
            event.record(stream)
        self._arriving.append((parameter.end, device, event))

    def wait_for(self, values: int) -> None:
        while self._arriving and self._arriving[0][0] <= values:
            _, device, event = self._arriving.popleft()
            self._cuda.current_stream(device).wait_event(event)

    def take(self, parameter: "Parameter", gradient: torch.Tensor) -> None:
        device = gradient.device
        if device not in self._devices:
            super().take(parameter, gradient)
            return
        stream = self._streams_of(device)[1]
        stream.wait_stream(self._cuda.current_stream(device))
        with self._cuda.stream(stream):
            parameter.gradient.copy_(dense(gradient).to(torch.float32), non_blocking=True)
            event = self._cuda.Event()
            event.record(stream)
        _record(gradient, stream)
        self._leaving[parameter] = event

    def is_final(self, parameter: "Parameter") -> bool:
        return parameter not in self._leaving or self._leaving[parameter].query()

    def finish(self) -> None:
        # Weights, too: the worker writes the next ones when the step is done.
        for streams in self._streams.values():
            for stream in streams:
                stream.synchronize()
        self._leaving.clear()
