#!/usr/bin/env python3
"""A worker's program for keras_test.py: small models in Keras, on the rows of a CSV file.

keras_program.py CSV VARIANT
"""

import asyncio
import os
import re
import sys
import warnings

import keras
import numpy as np
from keras import layers

import catchment.keras as catchment

RATE, BATCH = 0.1, 16
WEIGHTS = {0: 0.5, 1: 1.0, 2: 2.0}
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def load(path):
    rows = np.loadtxt(path, delimiter=",", dtype=np.float32)
    return rows[:, :6], rows[:, 6].astype(np.int32)


def perceptron(inputs=6):
    keras.utils.set_random_seed(1)
    return keras.Sequential([keras.Input((inputs,)), layers.Dense(8, "tanh"), layers.Dense(3)])


def normed():
    keras.utils.set_random_seed(1)
    return keras.Sequential(
        [keras.Input((6,)), layers.Dense(8), layers.BatchNormalization(), layers.ReLU(), layers.Dense(3)]
    )


def two_inputs():
    """An embedding, a penalty, batch norm, and a weight that is frozen."""
    keras.utils.set_random_seed(1)
    numbers, words = keras.Input((6,), name="numbers"), keras.Input((6,), name="words", dtype="int32")
    x = layers.Dense(8, kernel_regularizer=keras.regularizers.L2(0.01))(numbers)
    table = layers.Flatten()(layers.Embedding(12, 2)(words))
    frozen = layers.Dense(4, trainable=False)
    x = layers.BatchNormalization()(layers.Concatenate()([x, frozen(table)]))
    return keras.Model({"numbers": numbers, "words": words}, layers.Dense(3)(x))


class OwnStep(keras.Model):
    """Makes its steps itself, with clipped gradients, as Keras's guides to train_step
    do it for each backend."""

    reports, applies = True, 1

    def train_step(self, *arguments):
        return getattr(self, "_train_in_" + keras.backend.backend())(*arguments)

    def _train_in_jax(self, state, data):
        import jax

        trainable, others, of_optimizer, of_metrics = state
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)

        def loss_of(trainable):
            z, changed, penalties = self.stateless_call(
                trainable, others, x, training=True, return_losses=True
            )
            return LOSS(y, z, weights) + sum(penalties), changed

        (loss, others), gradients = jax.value_and_grad(loss_of, has_aux=True)(trainable)
        self._report(loss)
        for _ in range(self.applies):
            trainable, of_optimizer = self.optimizer.stateless_apply(
                of_optimizer, clipped(gradients), trainable
            )
        return {"own_loss": loss}, (trainable, others, of_optimizer, of_metrics)

    def _train_in_torch(self, data):
        import torch

        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        self.zero_grad()
        z = self(x, training=True)
        loss = self.compute_loss(x, y, z, weights)
        self._report(loss)
        loss.backward()
        with torch.no_grad():
            for _ in range(self.applies):
                self.optimizer.apply(
                    clipped([v.value.grad for v in self.trainable_weights]), self.trainable_weights
                )
        return self._update_metrics(loss, y, z)

    def _train_in_tensorflow(self, data):
        import tensorflow as tf

        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            z = self(x, training=True)
            loss = self.compute_loss(x, y, z, weights)
        gradients = tape.gradient(loss, self.trainable_weights)
        self._report(loss)
        for _ in range(self.applies):
            self.optimizer.apply(clipped(gradients), self.trainable_weights)
        return self._update_metrics(loss, y, z)

    def _update_metrics(self, loss, *of_minibatch):
        for metric in self.metrics:
            metric.update_state(*([loss] if metric.name == "loss" else of_minibatch))
        return {metric.name: metric.result() for metric in self.metrics}

    def _report(self, loss):
        if self.reports:
            self.optimizer.scale_loss(loss)


def clipped(gradients):
    return [keras.ops.clip(gradient, -0.02, 0.02) for gradient in gradients]


def with_own_step(**changes):
    """Returns a model with a step of its own, a penalty and batch norm."""
    keras.utils.set_random_seed(1)
    x = keras.Input((6,))
    z = layers.Dense(8, kernel_regularizer=keras.regularizers.L2(0.01))(x)
    model = OwnStep(x, layers.Dense(3)(layers.ReLU()(layers.BatchNormalization()(z))))
    for name, value in changes.items():
        setattr(model, name, value)
    return model


def parts(x):
    return {"numbers": x, "words": (x > 0) + 2 * np.arange(6, dtype=np.int32)}


def largest_difference(model, other):
    return max(
        np.abs(keras.ops.convert_to_numpy(a) - keras.ops.convert_to_numpy(b)).max()
        for a, b in zip(model.weights, other.weights)
        if "seed" not in a.path
    )


class Recorder:
    """The minibatches and losses of a worker's steps."""

    def __init__(self, worker, minibatch):
        self.samples, self.losses, self._minibatch = {}, [], minibatch
        done = worker._attachment.done
        worker._attachment.done = lambda loss, correct: (self.losses.append(loss), done(loss, correct))

    def load(self, samples):
        # A minibatch is asked for twice if Keras builds a part of the model with it.
        self.samples[tuple(samples)] = None
        return self._minibatch(samples)


def follow(make, x, y, train, weights=None, **options):
    """Trains, and after that as Keras alone does. weights: of the classes."""
    model, mine = make(), make()
    worker = catchment.join(model, len(y))
    mine.set_weights(model.get_weights())
    recorder = Recorder(
        worker, lambda samples: (keras.tree.map_structure(lambda part: part[samples], x), y[samples])
    )
    model.compile(optimizer=worker.optimizer(), loss=LOSS, metrics=["accuracy"], **options)
    train(model, worker, recorder)
    mine.compile(optimizer=keras.optimizers.SGD(RATE), loss=LOSS)
    assert worker.steps == len(recorder.samples) == 15, (worker.steps, len(recorder.samples))
    for samples, loss in zip(recorder.samples, recorder.losses):
        mine.reset_metrics()
        own = float(mine.train_on_batch(*recorder._minibatch(np.array(samples)), class_weight=weights))
        assert abs(own - loss) < 1e-5, (own, loss)
    difference = largest_difference(model, mine)
    assert difference < 1e-6, difference
    assert abs(float(worker.optimizer().learning_rate) - RATE) < 1e-6


def fit(model, worker, recorder, **options):
    return model.fit(worker.data(recorder.load), callbacks=[worker.callback()], verbose=2, **options)


def fit_in_parts(model, worker, recorder):
    """Several epochs of Keras, in two calls."""
    for epochs in (2, 20):
        assert len(fit(model, worker, recorder, epochs=epochs, steps_per_epoch=4).epoch) == 2


def train_on_batches(model, worker, recorder):
    for samples in worker.minibatches():
        model.train_on_batch(*recorder.load(samples))


def fit_with_callbacks(model, worker, recorder):
    """Callbacks of Keras and of a program, which see epochs of five steps."""
    directory = os.path.dirname(sys.argv[1])
    path = os.path.join(directory, "%s-%d" % (keras.backend.backend(), os.getpid()))
    seen = {"batches": 0, "epochs": 0}

    class Counts(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen["batches"] += 1

        def on_epoch_end(self, epoch, logs=None):
            seen["epochs"] += 1
            seen["weights"] = self.model.get_weights()

    callbacks = [
        keras.callbacks.CSVLogger(path + ".csv"),
        keras.callbacks.TerminateOnNaN(),
        keras.callbacks.ModelCheckpoint(path + "-{epoch}.weights.h5", save_weights_only=True),
        keras.callbacks.EarlyStopping("loss", patience=100),
        keras.callbacks.LambdaCallback(on_train_end=lambda logs: seen.update(ended=True)),
        Counts(),
    ]
    model.fit(
        worker.data(recorder.load),
        callbacks=[worker.callback(), *callbacks],
        verbose=2,
        epochs=1000,
        steps_per_epoch=5,
    )
    assert (seen["batches"], seen["epochs"], seen["ended"]) == (15, 3, True), seen
    with open(path + ".csv") as file:
        assert len(file.readlines()) == 1 + 3
    for own, last in zip(model.get_weights(), seen["weights"]):
        np.testing.assert_array_equal(own, last)
    saved = perceptron()
    saved.load_weights(path + "-3.weights.h5")
    assert largest_difference(saved, model) == 0


def fit_weighted(model, worker, recorder):
    fit(model, worker, recorder, class_weight=WEIGHTS)


def fit_with_weights(model, worker, recorder):
    """Each minibatch has weights of its samples."""
    minibatch = recorder._minibatch
    recorder._minibatch = lambda samples: (
        *minibatch(samples),
        np.float32(0.5) + np.float32(0.01) * samples.astype(np.float32),
    )
    fit(model, worker, recorder)


def fit_ahead(model, worker, recorder):
    """As on a GPU, for which Keras loads one minibatch ahead with JAX."""
    import jax

    jax.default_backend = lambda: "gpu"
    fit(model, worker, recorder)


def acc_percent(y, z):
    return 97.0 + 0.0 * keras.ops.sum(z)


def train(x, y, metric="accuracy"):
    model = normed()
    worker = catchment.join(model, (x, y), test=(x, y))
    model.compile(optimizer=worker.optimizer(), loss=LOSS, metrics=[metric])
    if worker.evaluates:
        worker.evaluate()
        return
    history = model.fit(
        worker.data(), callbacks=[worker.callback()], validation_data=(x, y), epochs=3, verbose=2
    ).history
    assert len(history["val_loss"]) == 1
    np.savez(
        "%s.worker%d.npz" % (sys.argv[1], worker.index),
        **{v.path.replace("/", "|"): keras.ops.convert_to_numpy(v) for v in model.trainable_variables},
    )


def diverge(x, y):
    model = perceptron()
    worker = catchment.join(model, (x * np.float32(np.nan), y))
    model.compile(optimizer=worker.optimizer(), loss=LOSS)
    model.fit(worker.data(), callbacks=[worker.callback()], verbose=2)
    print("fit() has ended as if the job was done")


def fit_in_bfloat16(x, y):
    keras.config.set_dtype_policy("bfloat16")
    model = perceptron()
    worker = catchment.join(model, (x, y))
    model.compile(optimizer=worker.optimizer(), loss=LOSS)
    model.fit(worker.data(), callbacks=[worker.callback()], verbose=2)
    assert worker.steps == 15 and model.evaluate(x, y) < 1.0
    for variable, values in zip(model.trainable_variables, worker.parameters.values()):
        assert variable.dtype == "bfloat16"
        np.testing.assert_allclose(keras.ops.convert_to_numpy(variable).astype("float32"), values, rtol=0.01)


def forget_callback(x, y):
    model = perceptron()
    worker = catchment.join(model, (x, y))
    model.compile(optimizer=worker.optimizer(), loss=LOSS)
    model.fit(worker.data(), verbose=2)


def fit_own_step(x, y, **changes):
    model = with_own_step(**changes)
    worker = catchment.join(model, (x, y))
    model.compile(optimizer=worker.optimizer(), loss=LOSS)
    model.fit(worker.data(), callbacks=[worker.callback()], verbose=2)


def apply_twice_in_own_loop(x, y):
    model = with_own_step(applies=2)
    worker = catchment.join(model, (x, y))
    model.compile(optimizer=worker.optimizer(), loss=LOSS)
    for samples in worker.minibatches():
        model.train_on_batch(x[samples], y[samples])


class Decay(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        self.model.set_weights([0.999 * weights for weights in self.model.get_weights()])


def fails(text, call):
    try:
        call()
    except (RuntimeError, TypeError, ValueError) as error:
        assert re.search(text, str(error)), (text, str(error))
    else:
        raise AssertionError("nothing was said of " + text)


def make_mistakes(x, y):
    """Makes several that raise in this program, and trains after that."""
    model = perceptron()
    worker = catchment.join(model, (x, y))
    optimizer = worker.optimizer()

    def fit_compiled(*callbacks, optimizer=optimizer):
        model.compile(optimizer=optimizer, loss=LOSS)
        model.fit(worker.data(), callbacks=[worker.callback(), *callbacks], verbose=2)

    fails(r"no clipnorm.*--set optimizer.clip_norm=", lambda: worker.optimizer(clipnorm=1.0))
    fails(
        r"another optimizer \(Adam\).*compile\(optimizer=worker.optimizer\(\)",
        lambda: fit_compiled(optimizer="adam"),
    )
    model.compile(optimizer=optimizer, loss=LOSS, steps_per_execution=2)
    fails("steps_per_execution=2", lambda: model.fit(worker.data(), callbacks=[worker.callback()]))
    fails("mixed_bfloat16", lambda: fit_compiled(optimizer=keras.optimizers.LossScaleOptimizer(optimizer)))
    fails(
        "the job sets the learning rate",
        lambda: fit_compiled(keras.callbacks.LearningRateScheduler(lambda epoch: 0.5)),
    )
    model.layers[0].trainable = False
    fails(r"whether weight \S+kernel is trainable has changed", fit_compiled)
    model.layers[0].trainable = True
    fails("no test data", worker.evaluate)
    model.compile(optimizer=optimizer, loss=LOSS)
    fails("other data than the job's", lambda: model.fit(x, y, callbacks=[worker.callback()], verbose=2))
    assert worker.steps == 0
    model.set_weights([weights + 1 for weights in model.get_weights()])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(worker.data(), callbacks=[worker.callback(), Decay()], epochs=7, verbose=2)
    for text in (
        "epochs=7, but the job's budget ends it",
        "weights were loaded into the model after join()",
        "the program has changed weights of the model",
    ):
        assert sum(text in str(one.message) for one in caught) == 1, (text, caught)
    assert worker.steps == 15
    fails("the job is over", worker.data)
    model.save(sys.argv[1] + ".keras")
    assert largest_difference(keras.models.load_model(sys.argv[1] + ".keras"), model) == 0


def evaluate_frozen(x, y):
    """A batch norm with the statistics of other data, in a part that is frozen, and one that learns."""
    keras.utils.set_random_seed(1)
    base = keras.Sequential([keras.Input((6,)), layers.BatchNormalization(name="pretrained")], name="base")
    base.layers[0].moving_mean.assign(np.full(6, 0.5))
    base.layers[0].moving_variance.assign(np.full(6, 4.0))
    base.trainable = False
    model = keras.Sequential(
        [
            keras.Input((6,)),
            base,
            layers.Dense(8),
            layers.BatchNormalization(name="learned"),
            layers.ReLU(),
            layers.Dense(3),
        ]
    )
    worker = catchment.join(model, (x, y), test=(x, y))
    model.compile(optimizer=worker.optimizer(), loss=LOSS, metrics=["accuracy"])
    if worker.evaluates:
        worker.evaluate()
        return
    model.fit(worker.data(), callbacks=[worker.callback()], verbose=2)
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(base.layers[0].moving_mean), np.full(6, 0.5))


class Restores(keras.callbacks.Callback):
    """Ends with the weights that the model had at the beginning."""

    def on_train_begin(self, logs=None):
        self.weights = self.model.get_weights()

    def on_train_end(self, logs=None):
        self.model.set_weights(self.weights)


def restore(x, y):
    """Callbacks that would end with other weights than the job's, in front of the worker's and behind it."""
    model = perceptron()
    worker = catchment.join(model, (x, y))
    model.compile(optimizer=worker.optimizer(), loss=LOSS)
    stops = keras.callbacks.EarlyStopping("loss", mode="max", patience=1000, restore_best_weights=True)
    model.fit(
        worker.data(),
        callbacks=[Restores(), worker.callback(), stops, Restores()],
        steps_per_epoch=1,
        epochs=1000,
        verbose=2,
    )
    assert worker.steps == 15
    np.savez(
        "%s.worker%d.npz" % (sys.argv[1], worker.index),
        **{v.path.replace("/", "|"): keras.ops.convert_to_numpy(v) for v in model.trainable_variables},
    )


def check_rows(x, y):
    """Does what each row of the table in docs/keras.md is about."""
    path = "%s-%s" % (sys.argv[1], keras.backend.backend())
    keras.utils.set_random_seed(1)
    with warnings.catch_warnings(record=True) as joined:
        warnings.simplefilter("always")
        model = keras.Sequential(
            [
                keras.Input((6,)),
                layers.Normalization(),
                layers.Dense(8),
                layers.BatchNormalization(),
                layers.Dense(3),
            ]
        )
        worker = catchment.join(model, (x, y))
    optimizer, callbacks = worker.optimizer(), keras.callbacks

    def fit(*more, optimizer=optimizer, steps_per_epoch=1, **options):
        model.compile(optimizer=optimizer, loss=LOSS, **options)
        model.fit(
            worker.data(), callbacks=[*more, worker.callback()], steps_per_epoch=steps_per_epoch, verbose=2
        )

    def fit_epochs():
        model.compile(optimizer=optimizer, loss=LOSS)
        model.fit(worker.data(), callbacks=[worker.callback()], epochs=3, verbose=2)

    def fit_frozen():
        model.layers[1].trainable = False
        try:
            fit()
        finally:
            model.layers[1].trainable = True

    def load_weights():
        model.set_weights([weights + 1 for weights in model.get_weights()])
        fit()

    def fit_others():
        model.compile(optimizer=optimizer, loss=LOSS)
        model.fit(x, y, callbacks=[worker.callback()], verbose=2)

    def join_constrained():
        other = keras.Sequential([keras.Input((6,)), layers.Dense(3, kernel_constraint="non_neg")])
        catchment.join(other, (x, y))

    def warn_again():
        for one in joined:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)

    refused = {
        "`LearningRateScheduler`": (
            "optimizer.schedule in the job",
            lambda: fit(callbacks.LearningRateScheduler(lambda epoch: 0.5)),
        ),
        "`ReduceLROnPlateau`": ("schedule.decay=PLATEAU", lambda: fit(callbacks.ReduceLROnPlateau("loss"))),
        "`SwapEMAWeights`": (
            "SwapEMAWeights, which would put averages",
            lambda: fit(callbacks.SwapEMAWeights()),
        ),
        "`BackupAndRestore`": ("--resume continues", lambda: fit(callbacks.BackupAndRestore(path))),
        "options of the optimizer, such as `clipnorm` and `use_ema`": (
            "no use_ema: the servers",
            lambda: worker.optimizer(use_ema=True),
        ),
        "another optimizer in `compile`": (r"another optimizer \(Adam\)", lambda: fit(optimizer="adam")),
        "`mixed_float16`": (
            "use mixed_bfloat16",
            lambda: fit(optimizer=keras.optimizers.LossScaleOptimizer(optimizer)),
        ),
        "`steps_per_execution` above 1": ("steps_per_execution=2", lambda: fit(steps_per_execution=2)),
        "constraints of weights": ("has a constraint", join_constrained),
        "layers that are frozen or unfrozen after `join`": ("is trainable has changed", fit_frozen),
        "`fit(x, y)` with data of its own": ("other data than the job's", fit_others),
    }
    warned = {
        "moving statistics without test data": (
            "not have the moving statistics of .*batch_normalization,",
            warn_again,
        ),
        "other weights that no gradient moves, such as those of `Normalization`": (
            "not have .*normalization/mean, .*normalization/variance,",
            warn_again,
        ),
        "weights that are loaded after `join`": ("were loaded into the model after join", load_weights),
        "`EarlyStopping`": (
            "EarlyStopping, which sees .*evaluation.patience",
            lambda: fit(callbacks.EarlyStopping("loss")),
        ),
        "`EarlyStopping(restore_best_weights=True)`": (
            "restores nothing.*evaluation.keep_best",
            lambda: fit(callbacks.EarlyStopping("loss", restore_best_weights=True)),
        ),
        "`ModelCheckpoint(save_best_only=True)`": (
            "which sees the epochs of this worker alone.*evaluation.keep_best",
            lambda: fit(callbacks.ModelCheckpoint(path + ".keras", "loss", save_best_only=True)),
        ),
        "a callback that changes weights": (
            "has changed weights of the model",
            lambda: fit(Decay(), steps_per_epoch=2),
        ),
        "`fit(epochs=...)` without `steps_per_epoch`": ("epochs=3, but the job's budget ends it", fit_epochs),
    }
    exact = {
        "`CSVLogger`, `TerminateOnNaN`, `ModelCheckpoint`, callbacks of your own": ("callbacks",),
        "a loop of `train_on_batch`, or a `train_step` of its own": ("batches", "own-step"),
        "`BatchNormalization`": ("own-step", "train"),
        "`BatchNormalization` with `trainable=False`": ("frozen",),
    }
    rows = re.findall(r"^\| ([^|]+) \| (exact|warned|refused)\b", open("docs/keras.md").read(), re.MULTILINE)
    assert sorted(rows) == sorted(
        [
            *((row, "refused") for row in refused),
            *((row, "warned") for row in warned),
            *((row, "exact") for row in exact),
        ]
    ), rows
    for text, call in refused.values():
        fails(text, call)
    assert worker.steps == 0
    for text, call in warned.values():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        files = [one.filename for one in caught if re.search(text, str(one.message))]
        assert files == [__file__], (text, [(one.filename, one.lineno, str(one.message)) for one in caught])
    assert all(variant in VARIANTS for variants in exact.values() for variant in variants)
    assert worker.steps == 15


def run_page(x, y):
    """Runs the first program of docs/keras.md with other data."""
    block = re.search(r"```python\n(.*?)```", open("docs/keras.md").read(), re.DOTALL)[1]
    names = {
        "keras": keras,
        "model": perceptron(),
        "x_train": x,
        "y_train": keras.utils.to_categorical(y),
        "x_test": x,
        "y_test": keras.utils.to_categorical(y),
    }
    names["model"].add(layers.Softmax())
    exec(block, names)


def in_thread(train):
    return lambda x, y: asyncio.run(asyncio.to_thread(train, x, y))


VARIANTS = {
    "fit": lambda x, y: follow(perceptron, x, y, fit),
    "eager": lambda x, y: follow(perceptron, x, y, fit, run_eagerly=True),
    "ahead": lambda x, y: follow(perceptron, x, y, fit_ahead),
    "inputs": lambda x, y: follow(two_inputs, parts(x), y, fit_in_parts),
    "weighted": lambda x, y: follow(perceptron, x, y, fit_weighted, weights=WEIGHTS),
    "callbacks": lambda x, y: follow(perceptron, x, y, fit_with_callbacks),
    "batches": lambda x, y: follow(perceptron, x, y, train_on_batches),
    "own-step": lambda x, y: follow(with_own_step, x, y, fit),
    "own-step-weights": lambda x, y: follow(with_own_step, x, y, fit_with_weights),
    "own-step-eager": lambda x, y: follow(with_own_step, x, y, fit_in_parts, run_eagerly=True),
    "own-step-batches": lambda x, y: follow(with_own_step, x, y, train_on_batches),
    "no-loss": lambda x, y: fit_own_step(x, y, reports=False),
    "applies-twice": lambda x, y: fit_own_step(x, y, applies=2),
    "applies-twice-batches": apply_twice_in_own_loop,
    "bfloat16": fit_in_bfloat16,
    "train": train,
    "percent": lambda x, y: train(x, y, acc_percent),
    "thread": in_thread(lambda x, y: follow(perceptron, x, y, fit)),
    "thread-ahead": in_thread(lambda x, y: follow(perceptron, x, y, fit_ahead)),
    "diverges": diverge,
    "no-callback": forget_callback,
    "mistakes": make_mistakes,
    "frozen": evaluate_frozen,
    "restores": restore,
    "rows": check_rows,
    "page": run_page,
}


if __name__ == "__main__":
    VARIANTS[sys.argv[2]](*load(sys.argv[1]))
