"""The weights and the gradient of a program without a framework: flat vectors, and their parts by name."""

import collections.abc
import math
from typing import Any, Callable, Dict, Iterator, MutableMapping, Optional, Tuple

from ._description import Tensors

try:
    import numpy
except ImportError:
    numpy = None

READ_ONLY = (
    "the weights are the servers', so the program cannot change them: write the gradient, "
    "worker.gradients[NAME] = gradient, and worker.step(loss) has the job's optimizer apply it"
)
_NO_PARAMETER = "the job has no parameter %r: it has %s"
_FIXED = (
    "the gradients are those of the job's parameters, which cannot be removed: to leave one out, set it to 0"
)
_SHAPE = "the gradient of %s has shape %s, but the parameter has %s"
_FLAT_SHAPE = "worker.gradient has shape %s, but got %s"
_NO_MAPPING = (
    "worker.gradients got %s: give it a dict of gradients by the parameters' names, or one of them, "
    "worker.gradients[NAME] = gradient"
)
_NO_FLOATS = (
    "%s has values of type %s: without NumPy it must have float32 values, such as array.array('f') or a "
    "memoryview of it"
)
_NO_NUMBERS = "%s got values of type %s, which are not real numbers"


def as_floats(value: Any, what: str) -> Any:
    """Returns a contiguous array of float32 with a shape and tobytes(). Raises TypeError."""
    if numpy is not None:
        array = numpy.asarray(value)
        if not numpy.can_cast(array.dtype, numpy.float32, "same_kind"):
            raise TypeError(_NO_NUMBERS % (what, array.dtype))
        # ascontiguousarray would give a scalar a dimension.
        return numpy.asarray(array, dtype=numpy.float32, order="C")
    try:
        view = memoryview(value)
    except TypeError:
        raise TypeError(_NO_FLOATS % (what, type(value).__name__)) from None
    if view.format != "f":
        raise TypeError(_NO_FLOATS % (what, "format %r" % view.format))
    return view


if numpy is not None:

    class _Weights(numpy.ndarray):
        """An array that names the remedy where a program writes weights. What is computed from it is an array
        as any other."""

        def __array_ufunc__(
            self, ufunc: Any, method: str, *inputs: Any, out: Any = (), **options: Any
        ) -> Any:
            written = inputs[:1] if method == "at" else out
            if any(isinstance(array, _Weights) and not array.flags.writeable for array in written):
                raise ValueError(READ_ONLY)
            if out:
                options["out"] = tuple(map(_plain, out))
            return getattr(ufunc, method)(*map(_plain, inputs), **options)

        def __setitem__(self, place: Any, values: Any) -> None:
            if not self.flags.writeable:
                raise ValueError(READ_ONLY)
            super().__setitem__(place, values)

        def fill(self, value: Any) -> None:
            self[...] = value

    def _plain(array: Any) -> Any:
        return array.view(numpy.ndarray) if isinstance(array, _Weights) else array


class _Vector(MutableMapping[str, Any]):
    """flat: all values of a shared memory, an array of NumPy or a memoryview. As a mapping, the parts by name
    in the parameters' shapes."""

    def __init__(self, memory: Any, tensors: Tensors) -> None:
        self.flat = self._array(memory, None)
        self._parts: Dict[str, Any] = {}
        begin = 0
        for name, shape in tensors:
            size = math.prod(shape)
            self._parts[name] = self._array(memory[4 * begin : 4 * (begin + size)], shape)
            begin += size

    def _array(self, memory: Any, shape: Optional[Tuple[int, ...]]) -> Any:
        if numpy is None:
            return memory.cast("f", shape) if shape else memory.cast("f")
        array = numpy.frombuffer(memory, dtype=numpy.float32)
        return array if shape is None else array.reshape(shape)

    def __getitem__(self, name: str) -> Any:
        if name not in self._parts:
            raise KeyError(_NO_PARAMETER % (name, ", ".join(map(repr, self._parts))))
        return self._parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __contains__(self, name: object) -> bool:
        return name in self._parts

    def __repr__(self) -> str:
        return repr(self._parts)

    def copy(self) -> Dict[str, Any]:
        """Returns a dict of the parts, which share this memory."""
        return dict(self._parts)

    def __reduce__(self) -> Tuple[Any, ...]:
        # copy.deepcopy and pickle make a dict of copies.
        return dict, (
            self._parts if numpy is None else {name: numpy.array(part) for name, part in self.items()},
        )


class Parameters(_Vector):
    """The weights, which a program reads."""

    def __init__(self, memory: Any, tensors: Tensors) -> None:
        super().__init__(memoryview(memory).cast("B").toreadonly(), tensors)

    def _array(self, memory: Any, shape: Optional[Tuple[int, ...]]) -> Any:
        array = super()._array(memory, shape)
        return array if numpy is None else array.view(_Weights)

    def refuse(self, *_: Any) -> None:
        raise ValueError(READ_ONLY)

    __setitem__ = __delitem__ = refuse


class Gradients(_Vector):
    """The gradient, which a program writes: an assignment copies."""

    def __init__(self, memory: Any, tensors: Tensors) -> None:
        super().__init__(memoryview(memory).cast("B"), tensors)

    def __setitem__(self, name: str, values: Any) -> None:
        part = self[name]
        if values is not part:  # as by +=
            _copy(
                values,
                part,
                "the gradient of %s" % name,
                lambda shape: _SHAPE % (name, shape, tuple(part.shape)),
            )

    def __delitem__(self, name: str) -> None:
        raise TypeError(_FIXED)

    def assign(self, mapping: Any) -> None:
        if mapping is not self:
            if not isinstance(mapping, collections.abc.Mapping):
                raise TypeError(_NO_MAPPING % type(mapping).__name__)
            self.update(mapping)

    def assign_flat(self, values: Any) -> None:
        if values is not self.flat:
            _copy(
                values,
                self.flat,
                "worker.gradient",
                lambda shape: _FLAT_SHAPE % (tuple(self.flat.shape), shape),
            )

    def set_to_zero(self) -> None:
        if numpy is None:
            self.flat.cast("B")[:] = bytes(self.flat.nbytes)
        else:
            self.flat.fill(0)


def _copy(values: Any, destination: Any, what: str, mismatch: Callable[[Tuple[int, ...]], str]) -> None:
    array = as_floats(values, what)
    # Without NumPy it is hard to make anything but a flat vector.
    fits = array.shape == destination.shape if numpy is not None else array.nbytes == destination.nbytes
    if not fits:
        raise ValueError(mismatch(tuple(array.shape)))
    if numpy is not None:
        destination[...] = array
    else:
        destination.cast("B")[:] = array.cast("B")
