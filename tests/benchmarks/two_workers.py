"""Measures how much of twice one worker's speed two workers on two cores keep, with a server on them, too.

Asynchronous (preset downpour), every step pushes its gradient and fetches weights, minibatches of 128, one
thread a worker. One worker and two take turns, with a server each time; the median round counts.
"""

import statistics

import jobs

SAMPLES = dict(mnist_cnn=40000, mnist_mlp=800000)  # of one worker: some 20 seconds
FLAGS = dict(models=tuple(SAMPLES), rounds=3)


def samples_per_second(args, model, workers):
    # The default size of a block. With all processors busy, each further block costs more than its overlap
    # with computing brings.
    return jobs.train(
        args, example=model, workers=workers, batch_size=128, block_kib=1024, samples=SAMPLES[model] * workers
    )[0]["samples_per_second"]


def run(args):
    for model in args.models:
        rounds = [
            [samples_per_second(args, model, workers) for workers in (1, 2)] for _ in range(args.rounds)
        ]
        one, two = (statistics.median(column) for column in zip(*rounds))
        yield dict(
            model=model,
            one_worker_samples_per_s=round(one, 1),
            two_workers_samples_per_s=round(two, 1),
            kept=round(statistics.median(two / (2 * one) for one, two in rounds), 3),
        )
