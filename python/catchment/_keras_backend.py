"""Hides what differs between the backends of Keras: calls from within a step, and data sets for fit()."""

import keras
import numpy

_BACKEND = "Keras runs with backend %s, which does not train: set KERAS_BACKEND to jax, torch or tensorflow"


def _call_jax(function, values, shapes):
    import jax
    from jax.experimental import io_callback

    results = [jax.ShapeDtypeStruct(shape, "float32") for shape in shapes]
    # Without a derivative, which a call of the host has not.
    return io_callback(function, results, *map(jax.lax.stop_gradient, values), ordered=True)


def _call_torch(function, values, shapes):
    return function(*(value.detach().cpu().numpy() for value in values))


def _call_tensorflow(function, values, shapes):
    import tensorflow as tf

    results = tf.numpy_function(function, values, [tf.float32] * len(shapes))
    return [tf.ensure_shape(result, shape) for result, shape in zip(results, shapes)] if shapes else []


_CALLS = {"jax": _call_jax, "torch": _call_torch, "tensorflow": _call_tensorflow}


def check():
    if keras.backend.backend() not in _CALLS:
        raise RuntimeError(_BACKEND % keras.backend.backend())


def call(function, values, shapes):
    """Calls a function of arrays from within a step, in the order of the program. Returns its float32 arrays,
    which have these shapes."""
    return _CALLS[keras.backend.backend()](function, values, shapes)


class _Minibatches(keras.utils.PyDataset):
    """The job's minibatches for fit() with JAX and PyTorch, in the order in which it asks for them."""

    def __init__(self, make):
        super().__init__()
        self._make, self._iterator = make, None

    @property
    def num_batches(self):
        return None  # the job ends the loop

    def __getitem__(self, index):
        if index == 0:
            self._iterator = self._make()
        return next(self._iterator)


def _tensorflow_data(make, first):
    """Returns a tf.data.Dataset, which loads nothing ahead."""
    import tensorflow as tf

    def signature(part):
        part = numpy.asarray(part)
        return tf.TensorSpec((None,) + part.shape[1:], part.dtype)

    data = tf.data.Dataset.from_generator(make, output_signature=keras.tree.map_structure(signature, first))
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False
    return data.with_options(options)


def data_set(make, first):
    """Returns a data set for fit(). make: returns an iterator of the minibatches. first:
    returns one of their form."""
    return _tensorflow_data(make, first()) if keras.backend.backend() == "tensorflow" else _Minibatches(make)


def await_steps():
    """Blocks until the calls from within started steps are done."""
    if keras.backend.backend() == "jax":
        import jax

        jax.effects_barrier()
