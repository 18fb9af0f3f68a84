"""Trains parameters of JAX, Flax or Equinox with Catchment's parameter servers.
docs/jax.md begins with an example.

    import catchment.jax as catchment

    worker = catchment.join(params, len(x))
    for samples in worker.minibatches():
        loss, grads = loss_and_gradients(worker.params(), x[samples], y[samples])
        worker.step(grads, loss)
"""

import sys
from typing import Any, List, NamedTuple, Optional, Tuple, Union

import jax
import jax.numpy as jnp
import numpy
from jax.experimental import io_callback
from jax.tree_util import GetAttrKey, keystr, tree_flatten_with_path, tree_leaves, tree_map, tree_unflatten

from . import _attachment, _counts, _description, _groups
from ._exchange import ExchangingWorker
from ._warnings import warn

__all__ = ["Worker", "join"]

_NOT_A_NUMBER = (
    "leaf %s of the parameters is of type %s, but the job's weights are float32: give join() "
    "only the floating-point arrays, such as those of nnx.state(model, nnx.Param) or of "
    "equinox.partition(model, equinox.is_inexact_array)"
)
_STATISTICS = (
    "leaf %s of the parameters is a batch statistic, which no gradient moves: give join() only what "
    'learns by gradients, variables["params"] or nnx.state(model, nnx.Param)'
)
_OLD_WEIGHTS = (
    "worker.step() got gradients, but worker.params() was not called since the step before, so they "
    "are gradients of other weights than the servers': compute them at worker.params(), or let "
    "worker.transformation() move your own parameters to the servers' weights"
)
_NO_LEAF = (
    "the gradients have no leaf %s, but the parameters given to join() do: differentiate with "
    "respect to all of worker.params()"
)
_OTHER_LEAF = (
    "the gradients have a leaf %s, but the parameters given to join() do not: differentiate only "
    "with respect to worker.params()"
)
_OTHER_SHAPE = "the gradient of leaf %s has shape %s, but the parameter has %s"
_NO_LENGTH = (
    "the %s set (%s) has no length, but the job assigns samples by index: give join() the number of samples"
)
_NO_PARAMS = (
    "worker.transformation() moves parameters to the servers' weights: call update(grads, state, "
    "params, value=loss)"
)
_NO_LOSS = "update() got no loss, so the job's metrics show 0: call update(grads, state, params, value=loss)"
_DROPPED = (
    "the optimizer's state is not that of the last update, whose result was left out, as by "
    "optax.MultiSteps: keep the state and the parameters of each update; for updates of several "
    "minibatches set algorithm.contribution.gradient.push_period in the job"
)
_OTHER_PARAMS = (
    "leaf %s of the parameters has different values than the job's weights: start from "
    "worker.params(), because each worker has drawn its own initial values"
)


def join(
    params: Any, train: Any, test: Any = None, master: Optional[str] = None, groups: Any = ()
) -> "Worker":
    """Joins the job that this program was started for; returns a Worker. Call it once, before training.

    params: the initial values, a pytree of floating-point arrays. All workers must have the same structure
    and shapes. The job's initial weights are those of the program's first run; the values of other workers
    are ignored.
    train, test: the data sets, with a length, or their sizes. Without `test` the job has no evaluator.
    master: "HOST:PORT" of a running job, for a notebook or a program that another launcher has started: join
    starts a worker of that job.
    groups: optimizer.groups of a new job, a list of dicts with "params", and "weight_decay", "frozen", or
    "lr_scale", a factor of the job's learning rate. "params" is a mask as Optax has it, a pytree of truth
    values or a function of the parameters that returns one, or a list of patterns of the names in the job.

    Raises RuntimeError if the program was not started by a Catchment worker and `master` is not given, or if
    its model or its data are not the job's.
    """
    tree = _Tree(params)
    train_samples, test_samples = _count(train, "training"), 0 if test is None else _count(test, "test")
    tensors = [(name, leaf.shape) for name, leaf in zip(tree.names, tree.leaves)]
    directory = _attachment.describe_only()
    if directory is not None:
        values = [numpy.asarray(leaf, dtype=numpy.float32).tobytes() for leaf in jax.device_get(tree.leaves)]
        _description.describe(
            directory,
            tensors,
            values,
            train_samples,
            test_samples,
            groups=_groups.of_list(tree.in_groups(groups, params), str),
        )
        _attachment.end_program()
    device = "JAX %s, %s" % (jax.__version__, jax.default_backend())
    return Worker(_attachment.Attachment(tensors, train_samples, test_samples, device, master=master), tree)


def _count(data: Any, what: str) -> int:
    if _counts.is_number(data):
        return _counts.size(data, "join's %s set" % what, 0 if what == "test" else 1)
    if not hasattr(data, "__len__"):
        raise TypeError(_NO_LENGTH % (what, type(data).__name__))
    return len(data)


def _path_of(keys: Any) -> str:
    """Returns the path of a leaf, the same for a state of flax.nnx and for its pure arrays."""
    last = keys[-1] if keys else None
    return keystr(keys[:-1] if isinstance(last, GetAttrKey) and last.name == "value" else keys)


class _Tree:
    """The pytree that join was given. paths: of its leaves; names: those of the job's tensors."""

    def __init__(self, params: Any) -> None:
        found, self._structure = tree_flatten_with_path(params)
        if not found:
            raise ValueError("the parameters have no leaf, so there is nothing to train")
        self.paths = [_path_of(path) for path, _ in found]
        for path, (_, leaf) in zip(self.paths, found):
            if not _is_float(leaf):
                raise TypeError(_NOT_A_NUMBER % (path, getattr(leaf, "dtype", type(leaf).__name__)))
        _check_statistics(params)
        self.leaves = [jnp.asarray(leaf) for _, leaf in found]
        self._places = [leaf.sharding if leaf.committed else None for leaf in self.leaves]
        names = [keystr(path, simple=True, separator=".") for path, _ in found]
        self.names = (
            names
            if all(names) and len(set(names)) == len(names)
            else ["params" + keystr(path) for path, _ in found]
        )

    def in_groups(self, groups: Any, params: Any) -> Any:
        """Returns the groups with patterns of names in the place of masks."""

        def patterns(mask: Any) -> Any:
            mask = mask(params) if callable(mask) else mask
            if isinstance(mask, str) or (isinstance(mask, list) and all(isinstance(m, str) for m in mask)):
                return mask
            # A truth value may stand for a subtree, as in optax.masked().
            leaves = tree_leaves(tree_map(lambda on, part: tree_map(lambda _: bool(on), part), mask, params))
            return [_groups.exactly(name) for name, on in zip(self.names, leaves) if on]

        return [
            dict(group, params=patterns(group["params"])) if "params" in group else group for group in groups
        ]

    def on_devices(self, arrays: Any) -> Any:
        """Returns a pytree of the values, with the parameters' types and devices."""
        return tree_unflatten(
            self._structure,
            [
                jax.device_put(values.astype(leaf.dtype, copy=False), place)
                for values, leaf, place in zip(arrays, self.leaves, self._places)
            ],
        )

    def leaves_of(self, tree: Any) -> List[Any]:
        """Returns the leaves of a tree that is like the parameters. Raises ValueError if it is not."""
        found = {_path_of(path): leaf for path, leaf in tree_flatten_with_path(tree)[0]}
        for path, leaf in zip(self.paths, self.leaves):
            if path not in found:
                raise ValueError(_NO_LEAF % path)
            if jnp.shape(found[path]) != leaf.shape:
                raise ValueError(_OTHER_SHAPE % (path, jnp.shape(found[path]), leaf.shape))
        if len(found) > len(self.paths):
            raise ValueError(_OTHER_LEAF % next(path for path in found if path not in self.paths))
        return [found[path] for path in self.paths]

    def like(self, tree: Any, leaves: List[Any]) -> Any:
        """Returns the leaves, which are in the order of the parameters,
        in the form of a tree that has them."""
        places, structure = tree_flatten_with_path(tree)
        by_path = dict(zip(self.paths, leaves))
        return tree_unflatten(structure, [by_path[_path_of(path)] for path, _ in places])


def _check_statistics(params: Any) -> None:
    """Raises TypeError for the batch statistics of Flax."""
    nnx = sys.modules.get("flax.nnx")
    kind = getattr(nnx, "BatchStat", ())
    for path, leaf in tree_flatten_with_path(params, is_leaf=lambda node: isinstance(node, kind))[0]:
        if isinstance(leaf, kind) or "batch_stats" in [getattr(key, "key", None) for key in path[:1]]:
            raise TypeError(_STATISTICS % keystr(path))


def _is_float(leaf: Any) -> bool:
    return isinstance(leaf, float) or (hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating))


class _State(NamedTuple):
    """The state of transformation(). updates: their number so far."""

    updates: Any


class Worker(ExchangingWorker):
    """This program's place in the job: like catchment.Worker, with pytrees."""

    def __init__(self, attachment: _attachment.Attachment, tree: _Tree) -> None:
        super().__init__(attachment)
        self._tree = tree
        self._updates = 0  # of transformation()
        # The step whose weights params() has returned last; False: the program was warned.
        self._given: Union[int, None, bool] = None

    def params(self) -> Any:
        """Returns the weights as a pytree like that given to join, with its types and devices: the weights of
        the current minibatch, or the job's final ones when it is over. It may be kept."""
        self._settle()
        if not self.evaluates and not self._attachment.stopped:
            self._begin_step()
            if self._given is not False:
                self._given = self._attachment.step
        return self._tree.on_devices(self._copy_weights())

    def step(self, grads: Any, loss: Any, correct: Any = 0) -> None:
        """Submits the gradients and ends the step: call it once for each minibatch.

        grads: the gradients of the mean loss over the minibatch, a pytree like the parameters. loss: that
        mean.
        correct: the number of samples classified correctly, for metrics.
        """
        if self._due and self._given is not False and self._given != self._attachment.step:
            self._given = False
            warn(_OLD_WEIGHTS)
        self._write(jax.device_get(self._tree.leaves_of(grads)))
        self._end_step("step", float(loss), correct)

    def _await_steps(self) -> None:
        jax.effects_barrier()

    def transformation(self) -> Any:
        """Returns the servers' optimizer as an optax.GradientTransformationExtraArgs, for code that has one.
        Its update ends the step and returns the difference between the next weights and `params`; it may be
        compiled. `value` is the loss."""
        import optax

        return optax.GradientTransformationExtraArgs(self._init, self._update)

    def _init(self, params: Any) -> _State:
        leaves = self._tree.leaves_of(params)
        if not self.evaluates and not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            for path, leaf, weights in zip(self._tree.paths, leaves, tree_leaves(self.params())):
                if not numpy.array_equal(leaf, weights, equal_nan=True):
                    raise ValueError(_OTHER_PARAMS % path)
        return _State(jnp.asarray(self._updates, jnp.int32))

    def _update(
        self, updates: Any, state: _State, params: Any = None, *, value: Any = None, **_: Any
    ) -> Tuple[Any, _State]:
        if params is None:
            raise ValueError(_NO_PARAMS)
        if value is None:
            warn(_NO_LOSS)
        gradients = self._tree.leaves_of(updates)
        shapes = [jax.ShapeDtypeStruct(leaf.shape, jnp.float32) for leaf in gradients]
        weights = io_callback(
            self._exchange_arrays,
            shapes,
            state.updates,
            jnp.asarray(0.0 if value is None else value),
            *gradients,
            ordered=True,
        )
        # In float32 whatever the parameters are, so that apply_updates rounds only once.
        moves = [new - old.astype(jnp.float32) for new, old in zip(weights, self._tree.leaves_of(params))]
        return self._tree.like(updates, moves), _State(state.updates + 1)

    def _exchange_arrays(self, *arrays: Any) -> List[Any]:
        # Without a computation of JAX, which might wait for the one that waits for this callback.
        updates, loss, *gradients = map(numpy.asarray, arrays)
        mistake = _DROPPED if updates != self._updates else None
        self._updates += 1
        return self._exchange(loss, gradients, mistake)
