"""TensorFlow's side of peers.py: ParameterServerStrategy with one parameter server, asynchronous.

    peers_tensorflow.py tensorflow_ps WORKERS SECONDS BATCH DIRECTORY

Prints the samples per second of all workers together. The coordinator deals out functions of STEPS training
steps each, since every function that it schedules costs a separate call. All processes listen on free ports
of 127.0.0.1.
"""

import json
import multiprocessing
import os
import socket
import sys
import time

LEARNING_RATE = 0.01
STEPS = 20  # in a function that is scheduled
AHEAD = 4  # functions a worker, scheduled before the last ones are waited for
BATCHES = 50  # minibatches in memory
LAYERS = ((784, 256), (256, 128), (128, 10))


def free_addresses(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return addresses


def set_task(cluster, kind, index):
    os.environ["TF_CONFIG"] = json.dumps(dict(cluster=cluster, task=dict(type=kind, index=index)))
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    return tf


def serve(cluster, kind, index):
    tf = set_task(cluster, kind, index)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1)
    tf.distribute.Server(
        resolver.cluster_spec(), job_name=kind, task_index=index, protocol="grpc", config=config, start=True
    ).join()


def make_function(tf, strategy, batch):
    """A function of STEPS training steps on the worker that it is scheduled on."""
    with strategy.scope():
        weights = [tf.Variable(tf.random.normal(shape, stddev=0.05)) for shape in LAYERS]
        biases = [tf.Variable(tf.zeros(shape[1])) for shape in LAYERS]

    def loss_of(x, y):
        for weight, bias in list(zip(weights, biases))[:-1]:
            x = tf.nn.relu(tf.matmul(x, weight) + bias)
        logits = tf.matmul(x, weights[-1]) + biases[-1]
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(x, y)
        for variable, gradient in zip(weights + biases, tape.gradient(loss, weights + biases)):
            variable.assign_sub(LEARNING_RATE * gradient)

    @tf.function
    def run_steps(iterator):
        for _ in tf.range(STEPS):
            strategy.run(step, next(iterator))

    def make_dataset(_):
        samples = (
            tf.random.normal((BATCHES * batch, 784)),
            tf.random.uniform((BATCHES * batch,), maxval=10, dtype=tf.int64),
        )
        return tf.data.Dataset.from_tensor_slices(samples).batch(batch).cache().repeat().prefetch(2)

    return run_steps, make_dataset


def coordinate(cluster, workers, seconds, batch):
    tf = set_task(cluster, "chief", 0)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    run_steps, make_dataset = make_function(tf, strategy, batch)
    dataset = coordinator.create_per_worker_dataset(
        lambda: strategy.distribute_datasets_from_function(make_dataset)
    )
    iterator = iter(dataset)

    def run(functions):
        for _ in range(functions):
            coordinator.schedule(run_steps, args=(iterator,))
        coordinator.join()

    run(2 * AHEAD * workers)
    start, functions = time.monotonic(), 0
    while time.monotonic() - start < seconds:
        run(AHEAD * workers)
        functions += AHEAD * workers
    return functions * STEPS * batch / (time.monotonic() - start)


def main():
    _, workers, seconds, batch, _ = sys.argv[1:]
    workers = int(workers)
    addresses = free_addresses(workers + 2)
    cluster = dict(chief=addresses[:1], ps=addresses[1:2], worker=addresses[2:])
    context = multiprocessing.get_context("spawn")
    tasks = [("ps", 0)] + [("worker", index) for index in range(workers)]
    servers = [context.Process(target=serve, args=(cluster, *task), daemon=True) for task in tasks]
    for server in servers:
        server.start()
    print(coordinate(cluster, workers, float(seconds), int(batch)), flush=True)
    # The coordinator's threads would wait for servers that never end.
    for server in servers:
        server.kill()
    os._exit(0)


if __name__ == "__main__":
    main()
