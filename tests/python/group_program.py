#!/usr/bin/env python3
"""A worker's program for group_test.py: the processes of a group train one perceptron as one worker.

    group_program.py CSV VARIANT

Each process compares its weights with those that PyTorch's SGD has after the same minibatches.
"""

import copy
import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import catchment.torch as catchment
from torch_program import Perceptron, rows

LEARNING_RATE = 0.1


def full(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def expected_weights(model, samples, steps):
    """Trains on the minibatches in `steps`, each filled up to a multiple of the group's size as
    docs/python.md says."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    for batch in steps:
        batch = [samples[i] for i in batch] + [
            samples[i] for i in batch[: -len(batch) % dist.get_world_size()]
        ]
        optimizer.zero_grad()
        F.cross_entropy(
            model(torch.stack([b[0] for b in batch])), torch.stack([b[1] for b in batch])
        ).backward()
        optimizer.step()
    return model


def shard(model):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (model.dense1, model):
        fully_shard(layer, mesh=mesh)


def main():
    path, variant = sys.argv[1:]
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(5)
    samples, model = rows(path), Perceptron()
    initial = copy.deepcopy(model)
    if variant.endswith("fsdp"):
        shard(model)
    elif rank != 0:
        torch.nn.init.zeros_(model.dense1.weight)  # The weights are rank 0's.
    if variant == "shape" and "CATCHMENT_DESCRIBE" not in os.environ:
        model.dense1 = torch.nn.Linear(7, 8)
    wrapped = model if variant.endswith("fsdp") else DistributedDataParallel(model)
    group = None if variant == "alone" else dist.group.WORLD
    test = samples if os.environ.get("TEST_SAMPLES") else None
    own = torch.optim.AdamW(model.parameters(), lr=0.01) if variant.startswith("adamw") else None
    worker = catchment.join(
        wrapped.module if variant == "alone" else wrapped, samples, test, optimizer=own, group=group
    )
    if worker.evaluates:

        def score():
            with torch.no_grad():
                z = wrapped(samples.tensors[0])
            return F.cross_entropy(z, samples.tensors[1]), (z.argmax(1) == samples.tensors[1]).sum()

        worker.evaluate(score)
    steps, seen = 0, []
    for x, y in DataLoader(
        worker.minibatches(), batch_size=None, num_workers=2 if variant == "workers" else 0
    ):
        if steps < 10 and variant in ("ddp", "fsdp", "workers"):
            expected = expected_weights(copy.deepcopy(initial), samples, seen)
            for (name, p), q in zip(model.named_parameters(), expected.parameters()):
                assert torch.allclose(full(p), q, atol=1e-5 * (steps + 1)), (rank, steps, name)
            seen.append(worker._attachment.plan.samples(steps + 1))
        steps += 1
        if variant == "raise" and steps == 3 and rank == 1:
            raise ValueError("rank 1 has failed")
        if variant == "stop" and steps == 3 and rank == 0:
            worker._attachment._attachment.fail("rank 0 has failed")
        z = wrapped(x)
        loss = F.cross_entropy(z, y)
        loss.backward()
        worker.step(loss, (z.argmax(1) == y).sum())
    print("rank %d trained %d steps" % (rank, steps), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    try:
        main()
    except RuntimeError as error:
        print("rank %d: %s" % (dist.get_rank(), error), flush=True)
        if sys.argv[2] in ("shape", "stop"):
            dist.barrier()  # The launcher ends all processes as soon as one has failed.
        raise
