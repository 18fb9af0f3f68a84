"""A worker's program for objects_test.py: what the objects of a program of PyTorch mean to the job.

objects_program.py CSV VARIANT
"""

import asyncio
import copy
import os
import queue
import sys
import threading

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Subset

import catchment.torch as catchment
from torch_program import Perceptron, compare, local_copy, losses_of, rows, simple

STEPS = 15


# ------------------------------------------------------------------------ losses of worker.optimizer().step()
# Each leaves the gradient of a minibatch in .grad and returns its loss, which the job's metrics must show.


def attack_and_clear(clear):
    """Trains on inputs that were moved against the model, by backward passes that also reach its
    parameters."""

    def backward(model, optimizer, x, y):
        moved = x.clone().requires_grad_()
        for _ in range(2):
            F.cross_entropy(model(moved), y).backward()
            moved = (moved + 0.01 * moved.grad.sign()).detach().requires_grad_()
        clear(model, optimizer)
        return passed(F.cross_entropy(model(moved), y))

    return backward


def passed(loss):
    loss.backward()
    return loss


def by_function(model, optimizer, x, y):
    loss = F.cross_entropy(model(x), y)
    torch.autograd.backward([loss])
    return loss


def of_samples(model, optimizer, x, y):
    losses = F.cross_entropy(model(x), y, reduction="none")
    losses.backward(torch.full_like(losses, 1 / len(x)))
    return losses.mean()


def of_another_model(model, optimizer, x, y):
    loss = passed(F.cross_entropy(model(x), y))
    critic = nn.Linear(6, 1)
    critic(x).square().mean().backward()
    return loss


def in_parts(model, optimizer, x, y):
    """The second pass adds to gradients that the program has clipped meanwhile."""
    half = len(x) // 2
    first = passed(F.cross_entropy(model(x[:half]), y[:half], reduction="sum") / len(x))
    nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    return first + passed(F.cross_entropy(model(x[half:]), y[half:], reduction="sum") / len(x))


def by_closure(model, optimizer, x, y):
    loss = F.cross_entropy(model(x), y)
    for p, gradient in zip(model.parameters(), torch.autograd.grad(loss, list(model.parameters()))):
        p.grad = gradient
    return loss


LOSSES = {
    "attack-optimizer-zero": attack_and_clear(
        lambda model, optimizer: optimizer.zero_grad(set_to_none=False)
    ),
    "attack-model-none": attack_and_clear(lambda model, optimizer: model.zero_grad()),
    "attack-model-zero": attack_and_clear(lambda model, optimizer: model.zero_grad(set_to_none=False)),
    "by-function": by_function,
    "of-samples": of_samples,
    "of-another-model": of_another_model,
    "in-parts": in_parts,
    "by-closure": by_closure,
}


def check_losses(model, worker, backward):
    optimizer, losses = worker.optimizer(), losses_of(worker)
    for x, y in worker.loader():
        loss = backward(model, optimizer, x, y).item()
        optimizer.step((lambda: loss) if backward is by_closure else None)
        assert abs(losses[-1] - loss) < 1e-6, (losses[-1], loss)


def without_loss(model, worker):
    optimizer = worker.optimizer()
    for x, y in worker.loader():
        by_closure(model, optimizer, x, y)
        optimizer.step()


def with_cycle(model, worker):
    """PyTorch's own schedulers of the momentum, too, do what others do: nothing, with a warning."""
    optimizer = worker.optimizer()
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=100)
    for x, y in worker.minibatches():
        simple(model, x, y)
        optimizer.step()
        scheduler.step()


# -------------------------------------------------------------------------------- who calls step(), and where


def step_own(optimizer, model, worker):
    """The loop of a program without a job, whose optimizer is also the one given to join()."""
    for x, y in worker.minibatches():
        optimizer.zero_grad()
        simple(model, x, y)
        optimizer.step()
        worker.step(0.0)


def step_another(model, worker):
    other = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in worker.minibatches():
        simple(model, x, y)
        other.step()
        worker.step(0.0)


def loop(model, worker, left_out=None):
    for step, (x, y) in enumerate(worker.minibatches(), 1):
        if step != left_out:
            simple(model, x, y)
            worker.step(0.0)


def produce(model, make):
    """A thread loads minibatches, as many as there are, for the one that trains."""
    worker, minibatches = make(), queue.Queue()

    def load():
        for minibatch in worker.minibatches():
            minibatches.put(minibatch)
        minibatches.put(None)

    threading.Thread(target=load, daemon=True).start()
    for x, y in iter(minibatches.get, None):
        simple(model, x, y)
        worker.step(0.0)
    return worker


def train_in_thread(model, make, left_out=None):
    worker = asyncio.run(asyncio.to_thread(make))
    asyncio.run(asyncio.to_thread(loop, model, worker, left_out))
    return worker


def returning(worker):
    return lambda: worker


THREADS = {
    "thread": train_in_thread,
    "thread-leaves-out": lambda model, make: train_in_thread(model, make, 4),
    "thread-of-loop-only": lambda model, make: train_in_thread(model, returning(make())),
    "thread-of-loop-only-leaves-out": lambda model, make: train_in_thread(model, returning(make()), 4),
    "producer": produce,
}


# ------------------------------------------------------------------------------------------ loops over epochs


def train_epochs(model, worker, num_workers=0, loader=False, divides=False):
    minibatches = worker.minibatches()
    if num_workers:
        minibatches = (
            worker.loader(num_workers=num_workers)
            if loader
            else DataLoader(minibatches, batch_size=None, num_workers=num_workers)
        )
    for _ in range(3):
        total = count = 0
        for x, y in minibatches:
            loss = passed(F.cross_entropy(model(x), y))
            worker.step(loss)
            total, count = total + loss.item(), count + 1
        if divides:
            total / count


EPOCHS = {
    "epochs": {},
    "epochs-processes": {"num_workers": 2},
    "epochs-loader": {"num_workers": 2, "loader": True},
    "epochs-divides": {"divides": True},
}


# ------------------------------------------------------------------------------------------------------- data


class Frame:
    """Has columns as its items, as a DataFrame of pandas has."""

    iloc = None

    def __init__(self, samples):
        self._size = len(samples)

    def __len__(self):
        return self._size

    def __getitem__(self, column):
        raise KeyError(column)


DATA = {
    "frame": lambda samples: (Frame(samples), None),
    "columns": lambda samples: (list(samples.tensors), None),
    "list-of-samples": lambda samples: ([samples[index] for index in range(len(samples))], None),
    "list-of-tensors": lambda samples: (list(samples.tensors[0]), None),
    "size-share": lambda samples: (0.5, None),
    "size-none": lambda samples: (0, None),
    "size-counted": lambda samples: (samples, 240.5),
    "own-empty": lambda samples: (Subset(samples, []), 240),
    "own-few": lambda samples: (Subset(samples, [0, 1, 2]), 240),
}


def train_data(model, samples, variant):
    data, samples_per_epoch = DATA[variant](samples)
    worker = catchment.join(model, data, samples_per_epoch=samples_per_epoch)
    for x in DataLoader(worker.minibatches(), batch_size=None, num_workers=4 if variant == "own-few" else 0):
        x = x[0] if isinstance(x, (list, tuple)) else x
        passed(model(x).square().mean())
        worker.step(0.0)


# ----------------------------------------------------------------------------------------------------- scores

RIGHT = {
    "share": lambda right: right.float().mean(),
    "above": lambda right: len(right) + 1,
    "each": lambda right: right,
    "sum": lambda right: right.float().sum(),
}


def count_right(model, worker, kind):
    for x, y in worker.minibatches():
        z = model(x)
        loss = passed(F.cross_entropy(z, y))
        worker.step(loss, RIGHT[kind](z.argmax(1) == y))


def score(model, worker, samples, kind):
    x, y = samples.tensors

    def result():
        with torch.no_grad():
            z = model(x)
        return F.cross_entropy(z, y), RIGHT[kind](z.argmax(1) == y)

    worker.evaluate(result)


def main():
    path, variant = sys.argv[1:]
    torch.manual_seed(5)
    samples, model = rows(path), Perceptron()
    initial = copy.deepcopy(model)

    def join(**options):
        return catchment.join(model, samples, **options)

    if variant in DATA:
        return train_data(model, samples, variant)
    if variant in THREADS:
        worker = THREADS[variant](model, join)
        assert worker.steps == STEPS, worker.steps
        return compare(model, local_copy(initial, samples, worker, STEPS, simple), 1e-6)
    if variant == "own-steps":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        worker = join(optimizer=optimizer)
        step_own(optimizer, model, worker)
        return compare(model, local_copy(initial, samples, worker, STEPS, simple), 1e-6)
    if variant == "another-steps":
        return step_another(model, join(optimizer=torch.optim.SGD(model.parameters(), lr=0.1)))
    worker = join(test=samples if os.environ.get("TEST_SAMPLES") else None)
    if worker.evaluates:
        return score(model, worker, samples, variant)
    if variant in RIGHT:
        return count_right(model, worker, "sum" if os.environ.get("TEST_SAMPLES") else variant)
    if variant in LOSSES:
        return check_losses(model, worker, LOSSES[variant])
    if variant in EPOCHS:
        return train_epochs(model, worker, **EPOCHS[variant])
    return {"without-loss": without_loss, "cycle": with_cycle}[variant](model, worker)


if __name__ == "__main__":
    main()
