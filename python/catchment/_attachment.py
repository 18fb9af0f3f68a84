"""A program's half of proto/attach.proto: the socket, the shared memory and the state of the current step.

Internal: users have catchment.Worker and catchment.torch.Worker.
"""

import atexit
import contextlib
import errno
import mmap
import os
import socket
import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NoReturn, Optional, Tuple, Type, Union

from . import _descriptors, _messages, _vectors
from ._description import Tensors
from ._plan import Plan

if TYPE_CHECKING:
    from ._group import GroupAttachment

VERSION = 2
_LARGEST_PACKET = 131072
_STATISTIC_BYTES = 16384 * 4
_TENSOR_BYTES = 64  # of a tensor in Hello, beside its name and 10 for each dimension

_OUT_OF_MEMORY = "out of memory (%s): set a smaller batch_size, or run fewer workers on this machine"

_ONE_SAMPLE = (
    "%s: batch norm cannot train on a minibatch of one sample, which the last one of an epoch may "
    "have: set a batch_size that does not leave one, or last_minibatch to DROP or MERGE"
)

_SHADOWS = (
    "the statistic %s of a batch norm is also a parameter of the model, which it would replace in "
    "files of weights: make it a buffer, as batch norm does"
)

_TRACEBACK = "Traceback (most recent call last):"
_REASON_END = 5000  # characters of a reason's beginning, and of its end

_REPLACED_SECONDS = 5
_current: Optional["Attachment"] = None  # the attachment to a worker that this program has started


class Attachment:
    """One for a program. tensors: (name, shape) in the order of the flat vectors. master: address of a job,
    for a program that no worker has started."""

    def __init__(
        self,
        tensors: Tensors,
        train_samples: int,
        test_samples: int,
        device: str,
        local_steps: bool = False,
        master: Optional[str] = None,
    ) -> None:
        self.tensors = [(str(name), tuple(int(n) for n in shape)) for name, shape in tensors]
        fds, self._worker = _descriptors.find(master)  # the worker that this program has started, if any
        self._socket = socket.socket(fileno=fds[0])
        self.weights = _map(fds[1])  # mmap objects of n float32 values
        self.gradient = _map(fds[2])
        self.plan = Plan(fds[3])
        self.step = 0  # that the program is at; 0: before the first
        self.begun = 0  # the last step that the daemon has begun
        self.here = 0  # of its weights, values from the first on
        self.progress, self.epoch, self.learning_rate = 0.0, 0, 0.0  # of the step that has begun
        self.restarted = False  # the weights of that step do not follow from the last one
        # A program that keeps its weights has the ranges of each fragment, an exchange that is due
        # ({"all": ..., "arrived": [fragment, ...]}), and a function that writes a fragment's difference.
        self.fragments: List[List[Tuple[int, int]]] = []
        self._exchange: Dict[str, Any] = {}
        self.on_send: Callable[[int], None] = lambda fragment: None
        self.stopped = self.left = False  # left: by the program, before the end
        self.hinted = False  # of a loop that begins after the end
        # Name -> sum and count of its values since the last Done.
        self._metrics: Dict[str, Tuple[float, int]] = {}
        self.on_result: Optional[Callable[[], None]] = None  # called when `weights` are the job's final ones
        self.test_samples = test_samples
        self._evaluate = False
        self.welcome: Optional[Dict[str, Any]] = None
        _report_exceptions(self)
        self._say_hello(train_samples, test_samples, device, local_steps)
        while self.welcome is None and not self.stopped:
            self._read()
        self.hinted = self.welcome is None  # a worker that comes after the end has no loop before it
        self._replace_previous()

    def _replace_previous(self) -> None:
        """Ends the worker of an earlier join(master=...), such as of the same notebook cell, because others
        would wait for it. Called after the new worker has joined, so that a job with a single worker always
        has one."""
        global _current
        if self._worker is None:
            return
        previous, _current = _current, self
        if previous is not None and previous._worker is not None and not previous.stopped:
            previous.fail("the program has called join() again")
            previous.stopped = True
            # It may be waiting for other workers, which wait for this one, so it is not given much time.
            previous._worker.end(_REPLACED_SECONDS)
            previous._socket.close()

    # ----------------------------------------------------------------------------------------------- training

    def next_step(self) -> None:
        """Advances to the next step, without waiting for it."""
        self.step += 1

    def await_begin(self) -> bool:
        """Waits until the step has begun. Returns whether it counts;
        send nothing more for one that does not."""
        while self.begun < self.step and not self.stopped:
            self._read()
        return self.begun == self.step and not self.stopped

    def await_step(self) -> bool:
        """The same, in a program that keeps its weights."""
        return self.await_begin()

    def fetch(self, ranges: List[Tuple[int, int]]) -> None:
        """Brings these ranges of the weights here, where they are already."""

    def await_weights(self, values: int) -> bool:
        """Waits for the step's first `values` weights. Returns whether the step counts."""
        while self.begun < self.step or (self.begun == self.step and self.here < values):
            if self.stopped:
                return False
            self._read()
        return self.begun == self.step

    def await_stop(self) -> None:
        """Waits for the end of the job. Raises RuntimeError if it has failed."""
        while not self.stopped:
            self._read()

    def leave(self, why: str = "") -> None:
        """Ends the worker in order, without the step that is under way. why: for the job's events."""
        if not self.stopped:
            self.left = True
            self._send("left", {"why": _shorten(why)})
        self.await_stop()

    def final(self, begin: int) -> None:
        """Announces that the gradient is final from value `begin` to its end."""
        self._send("final", {"begin": begin})

    def done(self, loss: float, correct: int) -> None:
        """Ends the step: all of its gradient is final."""
        metrics = [
            {"name": name, "sum": total, "count": count} for name, (total, count) in self._metrics.items()
        ]
        self._metrics = {}
        self._send("done", {"step": self.step, "loss": loss, "correct": correct, "metrics": metrics})

    def log(self, name: str, value: float) -> None:
        """Adds a value to a metric. The daemon receives it when the step is done."""
        total, count = self._metrics.get(name, (0.0, 0))
        self._metrics[name] = total + value, count + 1

    def span(self, name: str, begin: float, end: float) -> None:
        """Adds a span to the worker's trace. It is dropped if the worker does not read at present."""
        fields = {"name": name, "begin": begin, "end": end, "thread": threading.get_native_id()}
        with contextlib.suppress(OSError):
            self._socket.send(_messages.encode(_messages.FROM_PROGRAM, "span", fields), socket.MSG_DONTWAIT)

    # --------------------------------------------------------------------------------------------- evaluation

    def await_evaluation(self) -> bool:
        """Waits for weights to score. Returns False when there are no more."""
        while not self._evaluate and not self.stopped:
            self._read()
        self._evaluate = False
        return not self.stopped

    def statistic(self, name: str, values: bytes) -> None:
        """values: the bytes of float32 numbers."""
        if any(name == parameter for parameter, _ in self.tensors):
            raise ValueError(_SHADOWS % name)
        for begin in range(0, len(values), _STATISTIC_BYTES):
            self._send("statistic", {"name": name, "values": values[begin : begin + _STATISTIC_BYTES]})

    def scored(self, samples: int, loss_sum: float, correct: int) -> None:
        self._send("scored", {"samples": samples, "loss_sum": loss_sum, "correct": correct})

    # --------------------------------------------------------------------------------------------- the socket

    def _say_hello(self, train_samples: int, test_samples: int, device: str, local_steps: bool) -> None:
        hello = {
            "version": VERSION,
            "train_samples": train_samples,
            "test_samples": test_samples,
            "device": device,
            "local_steps": local_steps,
            "keeps_weights": local_steps,
        }
        size = 1000 + len(device)
        part: List[Dict[str, Any]] = []
        for name, shape in self.tensors:
            more = _TENSOR_BYTES + len(name.encode("utf-8")) + 10 * len(shape)
            if size + more > _LARGEST_PACKET:
                self._send("hello", dict(hello, tensors=part, more=True))
                hello, size, part = {"version": VERSION}, 1000, []
            size += more
            part.append({"name": name, "shape": shape})
        self._send("hello", dict(hello, tensors=part))

    def _send(self, kind: str, fields: Dict[str, Any]) -> None:
        try:
            self._socket.send(_messages.encode(_messages.FROM_PROGRAM, kind, fields))
        except OSError:
            # The daemon may have said why before it closed the socket.
            while not self.stopped:
                self._read()

    def fail(self, why: str) -> None:
        """Tells the daemon why the program ends, if it still listens."""
        with contextlib.suppress(OSError):
            self._socket.send(_messages.encode(_messages.FROM_PROGRAM, "failed", {"why": _shorten(why)}))

    def _read(self) -> None:
        """Takes the next message."""
        try:
            data = self._socket.recv(_LARGEST_PACKET)
        except ConnectionError:
            data = b""
        if not data:
            self._stop()
            raise ConnectionError(
                "the Catchment worker that started this program has ended; its log says why"
            )
        kind, fields = _messages.decode(_messages.TO_PROGRAM, data)
        if kind == "begin":
            self.begun, self.here = fields["step"], 0
            self.progress, self.epoch = fields.get("progress", 0.0), fields.get("epoch", 0)
            self.learning_rate = fields.get("learning_rate", 0.0)
            self.restarted = fields.get("restarted", False)
            self._note_exchange(fields)
        elif kind == "here":
            self.here = fields["values"]
        elif kind == "part":
            bounds = fields["bounds"]
            self.fragments += [[] for _ in range(fields.get("fragment", 0) + 1 - len(self.fragments))]
            self.fragments[-1] += zip(bounds[::2], bounds[1::2])
        elif kind == "send":
            self._note_exchange(fields)
            self.on_send(fields.get("fragment", 0))
            self._send("sent", {})
        elif kind == "evaluate":
            self._evaluate = True
        elif kind == "welcome":
            self.welcome = fields
        elif kind == "stop":
            self._stop()
            if fields.get("failed"):
                raise RuntimeError("the Catchment worker has ended: " + fields.get("why", ""))
            if fields.get("result") and self.on_result is not None:
                self.on_result()

    def _note_exchange(self, fields: Dict[str, Any]) -> None:
        """An exchange that has not been taken precedes the one in the message."""
        exchange = fields.get("exchange", {})
        if exchange.get("all"):
            self._exchange = {"all": True}
        self._exchange.setdefault("arrived", []).extend(exchange.get("arrived", []))

    def take_exchange(self) -> Tuple[bool, List[int]]:
        """Returns the parts of the model that are to follow `weights` before the next step or difference:
        whether all of them, and then the fragments that have arrived, in order."""
        exchange, self._exchange = self._exchange, {}
        return exchange.get("all", False), exchange.get("arrived", [])

    def _stop(self) -> None:
        self.stopped = True
        if self._worker is not None:
            self._worker.end()


# Both have the same methods.
AnyAttachment = Union[Attachment, "GroupAttachment"]


def describe_only() -> Optional[str]:
    """Returns the directory for a description; None if the program should train."""
    return os.environ.get("CATCHMENT_DESCRIBE")


def end_program() -> NoReturn:
    """Ends the program even if SystemExit would not: in a thread, or under code that catches it."""
    sys.stdout.flush()
    sys.stderr.flush()
    atexit._run_exitfuncs()
    os._exit(0)


def _map(fd: int) -> mmap.mmap:
    return mmap.mmap(fd, os.fstat(fd).st_size)


def _shorten(text: str) -> str:
    """Leaves out the middle of a text that is too long."""
    return text if len(text) <= 2 * _REASON_END else text[:_REASON_END] + " ... " + text[-_REASON_END:]


def describe_exception(kind: Type[BaseException], value: BaseException) -> str:
    """Returns one line."""
    text = (
        "%s: %s" % (kind.__name__, " ".join(_without_traceback(str(value)).split()))
        if str(value)
        else kind.__name__
    )
    if "Expected more than 1 value per channel" in str(value):
        return _ONE_SAMPLE % text
    if "cannot modify read-only memory" in str(value):  # of a memoryview
        return "%s: %s" % (text, _vectors.READ_ONLY)
    return _OUT_OF_MEMORY % text if _is_out_of_memory(kind, value) else text


def _without_traceback(text: str) -> str:
    """Leaves out the frames in the message of an exception that another process has raised: its last line is
    the cause."""
    before, header, traceback = text.rpartition(_TRACEBACK)
    if not header:
        return text
    lines = traceback.splitlines()
    cause = next((i for i, line in enumerate(lines) if line and not line[0].isspace()), len(lines))
    return (
        "%s ... %s" % ("\n".join(before.splitlines()[:1]), "\n".join(lines[cause:]))
        if lines[cause:]
        else text
    )


def _is_out_of_memory(kind: Type[BaseException], value: BaseException) -> bool:
    # The last two are PyTorch's, of a GPU's memory and of this machine's.
    return (
        isinstance(value, MemoryError)
        or getattr(value, "errno", None) == errno.ENOMEM
        or kind.__name__ == "OutOfMemoryError"
        or "can't allocate memory" in str(value)
    )


def _report_exceptions(attachment: Attachment) -> None:
    """Makes the worker's log name an exception that ends the program.
    At an interpreter's prompt none does."""
    last, program = sys.excepthook, os.getpid()

    def hook(kind: Type[BaseException], value: BaseException, traceback: Optional[TracebackType]) -> None:
        interactive = hasattr(sys, "ps1") or sys.flags.interactive
        if not attachment.stopped and os.getpid() == program and not interactive:
            attachment.fail(describe_exception(kind, value))
        last(kind, value, traceback)

    sys.excepthook = hook
