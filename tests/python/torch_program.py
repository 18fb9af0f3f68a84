#!/usr/bin/env python3
"""A worker's program for torch_test.py: the built-in perceptron in PyTorch, on the rows of a CSV file.

    torch_program.py CSV VARIANT
"""
import copy
import os
import sys

import torch
import torch.nn.functional as F
import torch.nn.utils.prune
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import catchment.torch as catchment
import fake_cuda

# The variants that are compared with PyTorch's own SGD.
FOLLOWS = ("follow", "gpu", "sparse", "accumulate", "assign", "clip", "unscaled", "channels-last", "load", "average", "prune")


class Perceptron(nn.Module):
    """The parameters of dense2 are used by a function, without a forward pass of that module."""

    def __init__(self):
        super().__init__()
        self.dense1, self.dense2 = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        return F.linear(F.relu(self.dense1(x)), self.dense2.weight, self.dense2.bias)


class Deep(nn.Module):
    """Two embeddings that share their weight, a frozen part, one that no loss depends on, buffers, and more than one
    message's worth of gradient."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 700)
        self.inner = nn.ModuleList([nn.Linear(700, 700) for _ in range(3)])
        self.norm = nn.BatchNorm1d(700)
        self.last = nn.Linear(700, 3, bias=False)
        self.also_last = nn.Linear(700, 3, bias=False)
        self.also_last.weight = self.last.weight
        self.unused = nn.Linear(5, 5)
        self.frozen = nn.Linear(3, 3)
        self.frozen.requires_grad_(False)

    def forward(self, x):
        x = torch.relu(self.first(x))
        for layer in self.inner:
            x = x + torch.relu(layer(x)) / 10
        x = self.norm(x)
        return self.frozen(self.last(x) + self.also_last(x))


class Sparse(nn.Module):
    """Its first weight has sparse gradients."""

    def __init__(self):
        super().__init__()
        self.table, self.dense = nn.Embedding(12, 8, sparse=True), nn.Linear(8, 3)

    def forward(self, x):
        return self.dense(self.table((x > 0) + 2 * torch.arange(6)).sum(1))


class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.dense = nn.Conv2d(2, 4, (1, 3)), nn.Linear(4, 3)

    def forward(self, x):
        return self.dense(torch.relu(self.convolution(x.view(-1, 2, 1, 3))).flatten(1))


class Stream(IterableDataset):
    def __iter__(self):
        return iter(())


def train_by_index(model, samples):
    worker = catchment.join(model, len(samples))
    for indices in worker.minibatches(range(len(samples)), collate=list):
        loss = F.cross_entropy(model(samples[indices][0]), samples[indices][1])
        loss.backward()
        worker.step(loss)


def rows(path):
    with open(path) as file:
        values = torch.tensor([[float(word) for word in line.split(",")] for line in file])
    return TensorDataset(values[:, :6], values[:, 6].long())


def check_data(worker, samples):
    """The minibatches of DataLoaders, with processes of either kind, are those of the plan."""
    expected = [samples[index] for index in worker._attachment.plan.samples(1)]
    for context in ("fork", "spawn"):
        loader = DataLoader(worker.minibatches(), batch_size=None, num_workers=2, multiprocessing_context=context)
        x, y = next(iter(loader))
        assert torch.equal(x, torch.stack([e[0] for e in expected])), context
        assert torch.equal(y, torch.stack([e[1] for e in expected])), context


def train(model, worker, num_workers, before_step=None, scale=lambda loss: loss):
    for x, y in DataLoader(worker.minibatches(), batch_size=None, num_workers=num_workers):
        z = model(x)
        loss = F.cross_entropy(z.float(), y)
        scale(loss).backward()
        if before_step:
            before_step(loss)
        worker.step(loss, (z.argmax(1) == y).sum())


def change(model, variant, step):
    """Gives the parameters of a model that has joined other memory, as programs do."""
    if variant in ("channels-last", "load", "prune"):
        model(torch.ones(2, 6))  # waits for the weights
    if step == 3 and variant == "channels-last":
        copy.deepcopy(model)(torch.ones(2, 6))
        model.to(memory_format=torch.channels_last)
    if step == 3 and variant == "load":
        model.load_state_dict({name: p.clone() for name, p in model.state_dict().items()}, assign=True)
    if step == 3 and variant == "prune":
        nn.utils.prune.identity(model.dense, "bias")  # as bias_orig
    if step > 3 and variant == "average":  # evaluates with other weights
        own = [p.data.clone() for p in model.parameters()]
        for p in model.parameters():
            p.data = p.data * 0.5
        model(torch.ones(2, 6))
        for p, values in zip(model.parameters(), own):
            p.data = values


def train_after_interrupt(model, worker):
    """Trains as a notebook does whose user has interrupted the cell with the loop and runs it again."""
    gradients = []

    def interrupt(_):
        gradients.extend(p.grad.clone() for p in model.parameters())
        raise KeyboardInterrupt

    def compare(_):
        if gradients:
            assert all(torch.equal(p.grad, gradient) for p, gradient in zip(model.parameters(), gradients))
            gradients.clear()

    try:
        train(model, worker, 0, interrupt)
    except KeyboardInterrupt:
        train(model, worker, 0, compare)


def backward(model, x, y, variant):
    """Leaves a minibatch's gradient in .grad, in the way of the variant."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    if variant == "accumulate":
        for part in (slice(0, 5), slice(5, None)):
            (F.cross_entropy(model(x[part]), y[part], reduction="sum") / len(x)).backward()
        return
    loss = F.cross_entropy(model(x), y)
    if variant == "assign":
        for p, gradient in zip(parameters, torch.autograd.grad(loss, parameters, allow_unused=True)):
            p.grad = gradient
        return
    if variant == "unscaled":
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(loss).backward()
        scaler.unscale_(torch.optim.SGD(parameters, lr=0.1))
        return
    loss.backward()
    if variant == "clip":
        nn.utils.clip_grad_norm_(parameters, 1e-3)


def local_copy(model, samples, worker, steps, variant):
    """The same training with PyTorch's SGD, on the minibatches of the plan, for as many steps as are planned."""
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for step in range(1, steps + 1):
        batch = [samples[index] for index in worker._attachment.plan.samples(step)]
        optimizer.zero_grad()
        backward(model, torch.stack([b[0] for b in batch]), torch.stack([b[1] for b in batch]), variant)
        optimizer.step()
    return model


def main():
    path, variant = sys.argv[1:]
    overlap = variant.endswith("-overlap")
    variant = variant.replace("-overlap", "")
    torch.manual_seed(5)
    samples = rows(path)
    models = {"sparse": Sparse, "channels-last": Convolution, "load": Convolution, "average": Convolution,
              "prune": Convolution}
    model = models.get(variant, Deep if variant in ("deep", "collate") or variant in FOLLOWS else Perceptron)()
    if variant == "gpu":
        fake_cuda.install()
    if variant == "complex":
        model.phase = nn.Parameter(torch.zeros(2, dtype=torch.complex64))
    if variant == "bfloat16":
        model = model.bfloat16()
    if variant == "compiled":
        model = torch.compile(model, backend="eager")
    if variant == "unfrozen":
        model.frozen = nn.Linear(2, 2).requires_grad_(False)
    if variant == "lazy":
        model.lazy = nn.LazyLinear(3)
    initial = copy.deepcopy(model)
    if variant == "no-length":
        catchment.join(model, Stream())
    if variant == "stream":
        catchment.join(model, len(samples)).minibatches(Stream())
    if variant == "indices":
        return train_by_index(model, samples)
    test = samples if os.environ.get("TEST_SAMPLES") else None
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02) if variant in ("adamw", "replaced") else None
    collate = None
    if variant == "collate":  # PyTorch's own cannot make a minibatch of these
        data = [{"x": x, "y": y, "of": object()} for x, y in samples]

        def collate(samples):
            return {key: torch.stack([sample[key] for sample in samples]) for key in ("x", "y")}
    worker = catchment.join(model, data if collate else samples, test, optimizer, overlap=overlap)
    if worker.evaluates:
        x, y = samples.tensors

        def score():
            model.eval()
            with torch.no_grad():
                z = model(x)
            return F.cross_entropy(z, y), (z.argmax(1) == y).sum()
        if collate is not None:
            worker.evaluate(score, lambda minibatch: model(minibatch["x"]), collate=collate)
        worker.evaluate(score)
    if variant == "again":
        catchment.join(model, samples)
    if collate is not None:
        for minibatch in worker.minibatches(collate=collate):
            F.cross_entropy(model(minibatch["x"]), minibatch["y"]).backward()
            worker.step(0.0)
        return None
    if variant == "adamw":
        adamw = torch.optim.AdamW(initial.parameters(), lr=0.02)
        for step, (x, y) in enumerate(worker.minibatches(), 1):
            for p, q in zip(model.parameters(), initial.parameters()):
                # The job has one worker, and averages its weights: nothing changes them but AdamW.
                assert torch.allclose(p, q, atol=1e-6 * step), step
            for m in (model, initial):
                F.cross_entropy(m(x), y).backward()
            adamw.step()
            adamw.zero_grad()
            worker.step(0.0)
        return None
    if variant == "data":
        check_data(worker, samples)
    if variant == "bfloat16":
        original = model.forward
        model.forward = lambda x: original(x.bfloat16())
    if variant == "twice":
        return train(model, worker, 0, lambda loss: worker.step(loss) or worker.step(loss))
    if variant == "removed":
        model.dense2 = nn.Module()
        model.dense2.weight, model.dense2.bias = torch.zeros(3, 8), torch.zeros(3)
    if variant == "reshaped":
        model.dense2.weight.data, model.dense2.bias.data = torch.zeros(4, 8), torch.zeros(4)
    if variant == "replaced":
        model.load_state_dict(model.state_dict(), assign=True)
    if variant == "unfrozen":
        model.new = nn.Linear(2, 2)
        model.frozen.requires_grad_()
    if variant == "interrupted":
        return train_after_interrupt(model, worker)
    if variant == "diverges":
        train(model, worker, 0, scale=lambda loss: loss * float("nan"))
        print("the loop has ended as if the job were done", flush=True)
    if variant == "scaled":
        return train(model, worker, 0, scale=torch.amp.GradScaler("cpu").scale)
    if variant == "partly-scaled":
        scaler = torch.amp.GradScaler("cpu")
        head = torch.optim.SGD(model.dense2.parameters(), lr=0.1)
        return train(model, worker, 0, lambda loss: scaler.unscale_(head), scaler.scale)
    if variant == "changed":
        return train(model, worker, 0, lambda loss: nn.utils.clip_grad_norm_(model.parameters(), 1.0))
    if variant == "backward-twice":
        return train(model, worker, 0, lambda loss: F.cross_entropy(model(samples[:3][0]), samples[:3][1]).backward())
    if variant.startswith("batched"):
        for _ in DataLoader(worker.minibatches(), batch_size=4, num_workers=int(variant[-1])):
            pass
    if variant == "skip":
        for _ in DataLoader(worker.minibatches(), batch_size=None):
            pass
    if variant not in FOLLOWS:
        return train(model, worker, 2 if variant == "workers" else 0)
    # The first ten steps are compared with PyTorch's own.
    here = None  # the weights that were there when step() returned
    for step, (x, y) in enumerate(worker.minibatches(), 1):
        change(model, variant, step)
        backward(model, x, y, variant)
        expected = local_copy(copy.deepcopy(initial), samples, worker, min(step - 1, 10), variant)
        for (name, p), q in zip(model.named_parameters(), expected.parameters()):
            assert step > 10 or torch.allclose(p, q, atol=1e-6 * step), (step, name)
        for p, early in zip(model.parameters(), here or []):
            assert overlap or torch.equal(p, early), step
        worker.step(0.0)
        here = [p.detach().clone() for p in model.parameters()]


if __name__ == "__main__":
    main()
