#!/usr/bin/env python3
"""A worker's program for jax_test.py: a perceptron in JAX, on the rows of a CSV file.

jax_program.py CSV VARIANT
"""

import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

import catchment.jax as catchment

RATE = 0.1


def load(path):
    rows = np.loadtxt(path, delimiter=",", dtype=np.float32)
    return rows[:, :6], rows[:, 6].astype(np.int32)


def initial(dtype=jnp.float32):
    keys = jax.random.split(jax.random.key(1), 2)
    return {
        "hidden": {"kernel": jax.random.normal(keys[0], (6, 8), dtype), "bias": jnp.zeros(8, dtype)},
        "scale": jnp.ones((), dtype),
        "layers": [(jax.random.normal(keys[1], (8, 3), dtype), jnp.zeros(3, dtype))],
    }


def loss_of(params, x, y):
    hidden = jax.nn.relu(x @ params["hidden"]["kernel"] + params["hidden"]["bias"])
    kernel, bias = params["layers"][0]
    z = params["scale"] * (hidden @ kernel + bias)
    return -jnp.take_along_axis(jax.nn.log_softmax(z.astype(jnp.float32)), y[:, None], 1).mean()


loss_and_gradients = jax.jit(jax.value_and_grad(loss_of))


def check(theirs, mine, tolerance=1e-6):
    """Raises an error if the weights differ."""
    for their, own in zip(jax.tree.leaves(theirs), jax.tree.leaves(mine)):
        difference = np.abs(np.asarray(their) - np.asarray(own)).max()
        assert difference < tolerance, difference


def descend(params, grads):
    """A step of plain SGD with float32 weights."""
    return jax.tree.map(lambda p, g: p - RATE * g.astype(jnp.float32), params, grads)


def follow(worker, x, y, dtype=jnp.float32, tolerance=1e-6):
    """Trains, and beside that as plain JAX does."""
    mine = jax.tree.map(lambda p: p.astype(jnp.float32), initial(dtype))
    kept = []
    for samples in worker.minibatches():
        params = worker.params()
        assert all(leaf.dtype == dtype for leaf in jax.tree.leaves(params))
        kept.append((params, jax.tree.map(np.array, params)))
        loss, grads = loss_and_gradients(params, x[samples], y[samples])
        _, own = loss_and_gradients(jax.tree.map(lambda p: p.astype(dtype), mine), x[samples], y[samples])
        mine = descend(mine, own)
        worker.step(grads, loss)
    assert worker.steps == len(kept) == 15 and worker.progress > 0.9 and worker.epoch == 0
    for params, values in kept:  # are not in the memory that changes
        jax.tree.map(np.testing.assert_array_equal, params, values)
    jax.tree.map(
        lambda p, values: np.testing.assert_array_equal(p, values.astype(dtype)),
        worker.params(),
        jax.tree.unflatten(jax.tree.structure(mine), worker.parameters.values()),
    )
    check(list(worker.parameters.values()), mine, tolerance)


def follow_with_optax(worker, x, y, compiled=True, chained=False):
    import optax

    optimizer, plain = worker.transformation(), optax.sgd(RATE)
    if chained:
        optimizer, plain = (optax.chain(optax.clip_by_global_norm(0.5), one) for one in (optimizer, plain))

    def step(optimizer, state, params, x, y):
        loss, grads = jax.value_and_grad(loss_of)(params, x, y)
        updates, state = optimizer.update(grads, state, params, value=loss)
        return optax.apply_updates(params, updates), state

    make = jax.jit if compiled else lambda call, **_: call
    theirs, own = (
        make(lambda *arguments, one=one: step(one, *arguments))
        for one in (optimizer, optax.with_extra_args_support(plain))
    )
    params, mine = worker.params(), initial()
    state, my_state = optimizer.init(params), plain.init(mine)
    for samples in worker.minibatches():
        params, state = theirs(state, params, x[samples], y[samples])
        mine, my_state = own(my_state, mine, x[samples], y[samples])
    assert worker.steps == 15
    check(worker.params(), mine)
    check(params, mine)


class Values:
    """An array of a callback, without the operators that would begin a computation of JAX."""

    def __init__(self, array):
        self._array = array

    def __array__(self, *arguments, **options):
        return self._array.__array__(*arguments, **options)


def follow_without_computing(*arguments):
    """The callback may only read its arrays: a computation in it can wait for ever."""

    def call(function, shapes, *values, **options):
        return io_callback(lambda *arrays: function(*map(Values, arrays)), shapes, *values, **options)

    catchment.io_callback = call
    follow_with_optax(*arguments)


def accumulate(worker, x, y):
    """Leaves out every second update."""
    import optax

    optimizer = optax.MultiSteps(worker.transformation(), 2)
    params = worker.params()
    state = optimizer.init(params)
    for samples in worker.minibatches():
        grads = jax.grad(loss_of)(params, x[samples], y[samples])
        updates, state = optimizer.update(grads, state, params, value=0.0)
        params = optax.apply_updates(params, updates)


def follow_in_bfloat16(worker, x, y):
    """A chain of Optax, whose parameters are bfloat16; the servers' weights are float32."""
    import optax

    clip = optax.clip_by_global_norm(0.5)
    optimizer = optax.chain(clip, worker.transformation())
    params, mine = worker.params(), jax.tree.map(lambda p: p.astype(jnp.float32), initial(jnp.bfloat16))
    state, my_state = optimizer.init(params), clip.init(mine)

    @jax.jit
    def step(state, params, x, y):
        loss, grads = jax.value_and_grad(loss_of)(params, x, y)
        updates, state = optimizer.update(grads, state, params, value=loss)
        return optax.apply_updates(params, updates), state

    for samples in worker.minibatches():
        params, state = step(state, params, x[samples], y[samples])
        assert all(leaf.dtype == jnp.bfloat16 for leaf in jax.tree.leaves(params))
        grads = jax.grad(loss_of)(
            jax.tree.map(lambda p: p.astype(jnp.bfloat16), mine), x[samples], y[samples]
        )
        mine = descend(mine, clip.update(grads, my_state)[0])
    assert worker.steps == 15
    check(list(worker.parameters.values()), mine, 2e-3)


def follow_flax(worker, x, y):
    """The train state of Flax's own examples."""
    from flax.training.train_state import TrainState

    @jax.jit
    def step(state, x, y):
        return state.apply_gradients(grads=jax.grad(loss_of)(state.params, x, y))

    state = TrainState.create(apply_fn=loss_of, params=worker.params(), tx=worker.transformation())
    mine = initial()
    for samples in worker.minibatches():
        state = step(state, x[samples], y[samples])
        mine = descend(mine, jax.grad(loss_of)(mine, x[samples], y[samples]))
    check(worker.params(), mine)


def network():
    from flax import nnx

    class Network(nnx.Module):
        """Normalizes with statistics of the minibatch, and keeps running ones."""

        def __init__(self, rngs):
            self.hidden, self.norm = nnx.Linear(6, 8, rngs=rngs), nnx.BatchNorm(8, rngs=rngs)
            self.layers = nnx.List([nnx.Linear(8, 3, rngs=rngs)])

        def __call__(self, x):
            return self.layers[0](nnx.relu(self.norm(self.hidden(x))))

    return Network(nnx.Rngs(1))


def follow_nnx(x, y, compiled, pure):
    """The loop of Flax's own first example."""
    import optax
    from flax import nnx

    model, mine = network(), network()
    params = nnx.state(model, nnx.Param)
    worker = catchment.join(nnx.to_pure_dict(params) if pure else params, len(x))
    nnx.update(model, worker.params())
    optimizer = nnx.Optimizer(model, worker.transformation(), wrt=nnx.Param)
    own = nnx.Optimizer(mine, optax.with_extra_args_support(optax.sgd(RATE)), wrt=nnx.Param)
    metrics = nnx.MultiMetric(accuracy=nnx.metrics.Accuracy(), loss=nnx.metrics.Average("loss"))

    def loss_of(model, x, y):
        logits = model(x)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), logits

    def train_step(model, optimizer, metrics, x, y):
        (loss, logits), grads = nnx.value_and_grad(loss_of, has_aux=True)(model, x, y)
        metrics.update(loss=loss, logits=logits, labels=y)
        optimizer.update(model, grads, value=loss)

    step = nnx.jit(train_step) if compiled else train_step
    model.train()
    for samples in worker.minibatches():
        step(model, optimizer, metrics, x[samples], y[samples])
        step(mine, own, metrics, x[samples], y[samples])
    assert worker.steps == 15
    check(nnx.state(model), nnx.state(mine))
    check(worker.params(), nnx.state(mine, nnx.Param))


def train_own_params(worker, x, y):
    """Never asks for the servers' weights after the first ones."""
    params = worker.params()
    for samples in worker.minibatches():
        loss, grads = loss_and_gradients(params, x[samples], y[samples])
        worker.step(grads, loss)
        params = descend(params, grads)


def join_statistics(nnx_state):
    if not nnx_state:
        return catchment.join({"params": initial(), "batch_stats": {"mean": jnp.ones(3)}}, 240)
    from flax import nnx

    return catchment.join(nnx.state(network()), 240)


def train(worker, x, y):
    params = worker.params()
    for samples in worker.minibatches():
        params = worker.params()
        loss, grads = loss_and_gradients(params, x[samples], y[samples])
        worker.step(grads, loss)
    print("the loop has ended as if the job was done")
    np.savez(
        "%s.worker%d.npz" % (sys.argv[1], worker.index),
        **dict(zip(worker.parameters, jax.tree.leaves(worker.params()))),
    )


def step_once(change):
    """Returns a program whose first gradients are changed."""

    def run(worker, x, y):
        for samples in worker.minibatches():
            loss, grads = loss_and_gradients(worker.params(), x[samples], y[samples])
            worker.step(change(grads), loss)

    return run


def leave_out(worker, x, y):
    for _ in worker.minibatches():
        worker.params()


def step_with_share(worker, x, y):
    for samples in worker.minibatches():
        loss, grads = loss_and_gradients(worker.params(), x[samples], y[samples])
        worker.step(grads, loss, jnp.asarray(0.5))


def step_twice(worker, x, y):
    for samples in worker.minibatches():
        for _ in range(2):
            loss, grads = loss_and_gradients(worker.params(), x[samples], y[samples])
            worker.step(grads, loss)


def train_own_samples(worker, x, y):
    for part in range(0, len(x), 16):
        loss, grads = loss_and_gradients(worker.params(), x[part : part + 16], y[part : part + 16])
        worker.step(grads, loss)


def update_own_samples(worker, x, y):
    optimizer, params = worker.transformation(), worker.params()
    state = optimizer.init(params)
    for part in range(0, len(x), 16):
        loss, grads = loss_and_gradients(params, x[part : part + 16], y[part : part + 16])
        updates, state = optimizer.update(grads, state, params, value=loss)
        params = jax.tree.map(jnp.add, params, updates)


def diverge(worker, x, y, compiled):
    import optax

    optimizer = worker.transformation()
    step = jax.jit if compiled else lambda call: call

    @step
    def update(state, params):
        grads = jax.tree.map(lambda p: p * jnp.nan, params)
        updates, state = optimizer.update(grads, state, params, value=1.0)
        return optax.apply_updates(params, updates), state

    params = worker.params()
    state = optimizer.init(params)
    for _ in worker.minibatches():
        params, state = update(state, params)
    print("the loop has ended as if the job was done")


def run_page(path, x, y):
    """Runs the blocks of docs/jax.md, each of which joins: the last character of the variant chooses one."""
    blocks = re.findall(r"```python\n(.*?)```", open("docs/jax.md").read(), re.DOTALL)
    names = {"jax": jax, "params": initial(), "x": x, "y": y, "loss_and_gradients": loss_and_gradients}
    exec(blocks[int(path[-1])], names)
    check(names["worker"].params(), names["params"])
    assert names["worker"].steps == 15


def begin_elsewhere(worker, x, y):
    worker.transformation().init(jax.tree.map(lambda p: p + 1, initial()))


def update_without_params(worker, x, y):
    optimizer = worker.transformation()
    optimizer.update(initial(), optimizer.init(worker.params()))


def leave(worker, x, y):
    for samples in worker.minibatches():
        loss, grads = loss_and_gradients(worker.params(), x[samples], y[samples])
        worker.step(grads, loss)
        if worker.index == 0 and worker.steps == 2:
            worker.leave()
    print("worker %d has made %d steps" % (worker.index, worker.steps))


VARIANTS = {
    "plain": follow,
    "bfloat16": lambda *arguments: follow(*arguments, dtype=jnp.bfloat16, tolerance=2e-3),
    "float16": lambda *arguments: follow(*arguments, dtype=jnp.float16, tolerance=2e-4),
    "optax": follow_with_optax,
    "optax-eager": lambda *arguments: follow_with_optax(*arguments, compiled=False),
    "optax-callback": follow_without_computing,
    "optax-chain": lambda *arguments: follow_with_optax(*arguments, chained=True),
    "optax-bfloat16": follow_in_bfloat16,
    "flax": follow_flax,
    "train": train,
    "leave": leave,
    "diverges": step_once(lambda grads: jax.tree.map(lambda g: g * jnp.nan, grads)),
    "diverges-optax": lambda *arguments: diverge(*arguments, compiled=True),
    "diverges-optax-eager": lambda *arguments: diverge(*arguments, compiled=False),
    "less": step_once(lambda grads: {name: grads[name] for name in ("hidden", "scale")}),
    "more": step_once(lambda grads: dict(grads, extra=grads["scale"])),
    "shape": step_once(lambda grads: dict(grads, scale=grads["layers"][0][1])),
    "left-out": leave_out,
    "twice": step_twice,
    "share": step_with_share,
    "accumulates": accumulate,
    "own-params": train_own_params,
    "own-samples": train_own_samples,
    "own-samples-optax": update_own_samples,
    "elsewhere": begin_elsewhere,
    "no-params": update_without_params,
}
JOIN = {
    "nnx": lambda x, y: follow_nnx(x, y, compiled=True, pure=False),
    "nnx-eager": lambda x, y: follow_nnx(x, y, compiled=False, pure=False),
    "nnx-pure": lambda x, y: follow_nnx(x, y, compiled=True, pure=True),
    "statistics": lambda x, y: join_statistics(nnx_state=False),
    "statistics-nnx": lambda x, y: join_statistics(nnx_state=True),
}
DTYPES = {"bfloat16": jnp.bfloat16, "optax-bfloat16": jnp.bfloat16, "float16": jnp.float16}
PARAMS = {
    "integer": {"steps": jnp.zeros(3, jnp.int32)},
    "function": {"weight": jnp.ones(3), "activation": jax.nn.relu},
    "empty": {},
}


def main():
    path, variant = sys.argv[1:]
    x, y = load(path)
    if variant.startswith("page"):
        run_page(variant, x, y)
        return
    if variant in JOIN:
        JOIN[variant](x, y)
        return
    params = PARAMS.get(variant, initial(DTYPES.get(variant, jnp.float32)))
    worker = catchment.join(params, len(x), (part for part in (x, y)) if variant == "no-length" else x)
    if worker.evaluates:
        worker.evaluate(lambda: (loss_of(worker.params(), x, y), 7))
    else:
        VARIANTS[variant](worker, x, y)


if __name__ == "__main__":
    main()
