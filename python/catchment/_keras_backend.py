"""Hides what differs between the backends of Keras: calls from within a step, and data sets for fit()."""

from typing import Any, Callable, Iterator, List, Tuple

import keras
import numpy

_BACKEND = "Keras runs with backend %s, which does not train: set KERAS_BACKEND to jax, torch or tensorflow"


def _call_jax(function: Callable[..., Any], values: List[Any], shapes: List[Tuple[int, ...]]) -> Any:
    import jax
    from jax.experimental import io_callback

    results = [jax.ShapeDtypeStruct(shape, "float32") for shape in shapes]
    # Without a derivative, which a call of the host has not.
    return io_callback(function, results, *map(jax.lax.stop_gradient, values), ordered=True)


def _call_torch(function: Callable[..., Any], values: List[Any], shapes: List[Tuple[int, ...]]) -> Any:
    return function(*(value.detach().cpu().numpy() for value in values))


def _call_tensorflow(function: Callable[..., Any], values: List[Any], shapes: List[Tuple[int, ...]]) -> Any:
    import tensorflow as tf

    results = tf.numpy_function(function, values, [tf.float32] * len(shapes))
    return [tf.ensure_shape(result, shape) for result, shape in zip(results, shapes)] if shapes else []


_CALLS = {"jax": _call_jax, "torch": _call_torch, "tensorflow": _call_tensorflow}


def check() -> None:
    if keras.backend.backend() not in _CALLS:
        raise RuntimeError(_BACKEND % keras.backend.backend())


def call(function: Callable[..., Any], values: List[Any], shapes: List[Tuple[int, ...]]) -> Any:
    """Calls a function of arrays from within a step, in the order of the program. Returns its float32 arrays,
    which have these shapes."""
    return _CALLS[keras.backend.backend()](function, values, shapes)


class _Minibatches(keras.utils.PyDataset):
    """The job's minibatches for fit() with JAX and PyTorch, in the order in which it asks for them."""

    def __init__(self, make: Callable[[], Iterator[Any]]) -> None:
        super().__init__()
        self._make = make
        self._iterator: Iterator[Any] = iter(())

    @property
    def num_batches(self) -> None:
        return None  # the job ends the loop

    def __getitem__(self, index: int) -> Any:
        if index == 0:
            self._iterator = self._make()
        return next(self._iterator)


def _tensorflow_data(make: Callable[[], Any], first: Any) -> Any:
    """Returns a tf.data.Dataset, which loads nothing ahead."""
    import tensorflow as tf

    def signature(part: Any) -> Any:
        part = numpy.asarray(part)
        return tf.TensorSpec((None,) + part.shape[1:], part.dtype)

    data = tf.data.Dataset.from_generator(make, output_signature=keras.tree.map_structure(signature, first))
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False
    return data.with_options(options)


def data_set(make: Callable[[], Any], first: Callable[[], Any]) -> Any:
    """Returns a data set for fit(). make: returns an iterator of the minibatches. first:
    returns one of their form."""
    return _tensorflow_data(make, first()) if keras.backend.backend() == "tensorflow" else _Minibatches(make)


def await_steps() -> None:
    """Blocks until the calls from within started steps are done."""
    if keras.backend.backend() == "jax":
        import jax

        jax.effects_barrier()
