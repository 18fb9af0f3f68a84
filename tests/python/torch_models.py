#!/usr/bin/env python3
"""A worker's program for torch_models_test.py, on the rows of a CSV file.

torch_models.py CSV VARIANT
"""

import copy
import sys

import torch
import torch.nn.functional as F
from torch import nn

import catchment.torch as catchment
from torch_program import rows

# The fields that presets need beside their names, so that an exchange moves the servers' weights by a part of
# the move.
PART = ["optimizer.learning_rate=0.3", "optimizer.momentum=0", "optimizer.nesterov=false"]
PRESETS = {
    "local_sgd": PART + ["algorithm.contribution.pseudo_gradient.local_steps=2"],
    "diloco": PART + ["algorithm.contribution.pseudo_gradient.local_steps=4"],
    "streaming_diloco": PART
    + [
        "algorithm.contribution.pseudo_gradient.local_steps=4",
        "algorithm.contribution.pseudo_gradient.fragments=2",
    ],
    "decoupled_diloco": PART
    + [
        "algorithm.consistency.synchronous={}",
        "algorithm.contribution.pseudo_gradient.local_steps=4",
        "algorithm.contribution.pseudo_gradient.fragments=2",
    ],
    "easgd": [
        "algorithm.contribution.elastic.communication_period=2",
        "algorithm.contribution.elastic.moving_rate=0.3",
    ],
}


class Frozen(nn.Module):
    """A batch norm with the statistics of other data, which no parameter of it would change, and a layer."""

    def __init__(self):
        super().__init__()
        self.norm, self.dense = nn.BatchNorm1d(6), nn.Linear(6, 3)
        self.norm.running_mean.fill_(0.5)
        self.norm.running_var.fill_(4.0)
        self.norm.requires_grad_(False)

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x):
        return self.dense(self.norm(x))


def train_frozen(samples):
    model = Frozen()
    worker = catchment.join(model, samples, samples)

    def score():
        model.eval()
        x, y = samples.tensors
        with torch.no_grad():
            z = model(x)
        if model.norm.running_mean.eq(0.5).all() and model.norm.running_var.eq(4).all():
            print("the evaluator's model has the frozen statistics", flush=True)
        return F.cross_entropy(z, y), (z.argmax(1) == y).sum()

    if worker.evaluates:
        worker.evaluate(score)
    for x, y in worker.minibatches():
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        worker.step(loss)


class Rests(torch.optim.Optimizer):
    """Moves all weights a little in its first four steps, and not at all after them."""

    def __init__(self, parameters):
        super().__init__(parameters, {})
        self.steps = 0

    @torch.no_grad()
    def step(self):
        self.steps += 1
        for group in self.param_groups:
            for p in group["params"]:
                if self.steps <= 4:
                    p.add_(p.abs() * 2**-6)


def rest(samples, precision):
    """Trains in a precision; sends no move for what the servers' float32 weights
    have more than the model's."""
    model = nn.Linear(6, 64, bias=False).to(precision)
    optimizer = Rests(model.parameters())
    worker = catchment.join(model, samples, optimizer=optimizer)
    rounded = 0
    for x, _ in worker.minibatches():
        weights = torch.frombuffer(worker._attachment.weights, dtype=torch.float32).clone()
        loss = model(x.to(precision)).float().square().mean()
        loss.backward()
        worker.step(loss)
        moves = torch.frombuffer(worker._attachment.gradient, dtype=torch.float32)
        if optimizer.steps > 4:
            assert not moves.any(), (optimizer.steps, moves.abs().max())
            rounded = max(rounded, (weights != weights.to(precision)).sum().item())
    assert optimizer.steps == 15 and (rounded > 100 or precision == torch.float32), (optimizer.steps, rounded)
    print("no move was sent", flush=True)


def train_gan(samples, freezes):
    """The steps of PyTorch's tutorial of DCGAN, with one step of the worker in place of those of two
    optimizers, and beside them plain PyTorch's, in which each loss moves its own model."""
    discriminator = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1), nn.Sigmoid())
    generator = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 6), nn.Tanh())
    own_discriminator, own_generator = copy.deepcopy(discriminator), copy.deepcopy(generator)
    worker = catchment.join(nn.ModuleDict({"discriminator": discriminator, "generator": generator}), samples)
    for own, given in ((own_discriminator, discriminator), (own_generator, generator)):
        own.load_state_dict(given.state_dict())
    criterion = nn.BCELoss()
    optimizers = [torch.optim.SGD(own.parameters(), lr=0.1) for own in (own_discriminator, own_generator)]
    for real, _ in worker.minibatches():
        ones, zeros, noise = torch.ones(len(real)), torch.zeros(len(real)), torch.randn(len(real), 3)
        discriminator.zero_grad()
        of_real = criterion(discriminator(real).view(-1), ones)
        of_real.backward()
        fake = generator(noise)
        of_fake = criterion(discriminator(fake.detach()).view(-1), zeros)
        of_fake.backward()
        generator.zero_grad()
        discriminator.requires_grad_(not freezes)
        criterion(discriminator(fake).view(-1), ones).backward()
        discriminator.requires_grad_(True)

        fake = own_generator(noise)
        loss = criterion(own_discriminator(fake).view(-1), ones)
        gradients = torch.autograd.grad(loss, list(own_generator.parameters()))
        for optimizer in optimizers:
            optimizer.zero_grad()
        (
            criterion(own_discriminator(real).view(-1), ones)
            + criterion(own_discriminator(fake.detach()).view(-1), zeros)
        ).backward()
        for p, gradient in zip(own_generator.parameters(), gradients):
            p.grad = gradient
        for optimizer in optimizers:
            optimizer.step()
        worker.step(of_real + of_fake)
    assert worker.steps == 15
    difference = max(
        (a - b).abs().max().item()
        for own, given in ((own_discriminator, discriminator), (own_generator, generator))
        for a, b in zip(own.parameters(), given.parameters())
    )
    print("the models differ by %s" % ("less than 1e-6" if difference < 1e-6 else difference), flush=True)


class Quantized(nn.Module):
    """Learns a batch norm, a frozen layer's weights not, and a codebook, a buffer, without gradients."""

    def __init__(self):
        super().__init__()
        self.dense, self.norm, self.last = nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)
        self.tied = nn.Linear(4, 3)
        self.tied.weight = self.last.weight
        self.frozen = nn.Linear(3, 3).requires_grad_(False)
        self.register_buffer("codebook", torch.zeros(4))
        self.register_buffer("scratch", torch.zeros(4), persistent=False)

    def forward(self, x):
        z = self.norm(self.dense(x))
        if self.training:
            with torch.no_grad():
                self.codebook.lerp_(z.detach().mean(0) + 1, 0.1)
        return self.frozen(self.last(z) + self.tied(z))


def train_quantized(samples):
    model = Quantized()
    worker = catchment.join(model, samples)
    for x, y in worker.minibatches():
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        worker.step(loss)


VARIANTS = {
    "gan": lambda samples: train_gan(samples, freezes=False),
    "gan-frozen": lambda samples: train_gan(samples, freezes=True),
    "quantized": train_quantized,
    "frozen": train_frozen,
    "rests-bfloat16": lambda samples: rest(samples, torch.bfloat16),
    "rests-float16": lambda samples: rest(samples, torch.float16),
    "rests-float32": lambda samples: rest(samples, torch.float32),
}


if __name__ == "__main__":
    torch.manual_seed(5)
    VARIANTS[sys.argv[2]](rows(sys.argv[1]))
