#!/usr/bin/env python3
"""Programs for torch_test.py that are the same with Catchment and without it. Each trains as a worker, and
after that alone, with PyTorch's SGD on the same minibatches; then all its results must be the same.

    torch_loops.py CSV VARIANT
"""

import copy
import io
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

import catchment.torch as catchment
from torch_program import Perceptron, Smooth, rows

RATE, STEPS = 0.1, 15
OWN_MOMENTUM = 0.8  # of an optimizer that is given to join


class Normed(nn.Module):
    """Batch norm, and a weight that is divided by its spectral norm, whose estimate is a buffer."""

    def __init__(self):
        super().__init__()
        self.dense1 = nn.utils.parametrizations.spectral_norm(nn.Linear(6, 8))
        self.norm, self.dense2 = nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, x):
        return self.dense2(torch.relu(self.norm(self.dense1(x))))


class Tied(nn.Module):
    """A weight that embeds, and that the outputs are computed with."""

    def __init__(self):
        super().__init__()
        self.table, self.dense, self.out = nn.Embedding(12, 8), nn.Linear(8, 8), nn.Linear(8, 12, bias=False)
        self.out.weight = self.table.weight

    def forward(self, x):
        return self.out(torch.tanh(self.dense(self.table((x > 0) + 2 * torch.arange(6)).mean(1))))[:, :3]


class Flat(Smooth):
    """Its parameters are parts of one vector, which is read as a whole."""

    def __init__(self):
        super().__init__()
        self.vector, begin = nn.utils.parameters_to_vector(self.parameters()).detach(), 0
        for p in self.parameters():
            p.data = self.vector[begin : begin + p.numel()].view(p.shape)
            begin += p.numel()

    def __deepcopy__(self, memo):
        other = Flat()
        other.vector.copy_(self.vector)
        return other

    def forward(self, x):
        return super().forward(x) * (1 + self.vector.norm())


class Hooked(nn.Module):
    """A hook divides a weight by its spectral norm before its module's forward pass."""

    def __init__(self):
        super().__init__()
        self.dense1, self.dense2 = nn.utils.spectral_norm(nn.Linear(6, 8)), nn.Linear(8, 3)

    def forward(self, x):
        return self.dense2(torch.relu(self.dense1(x)))


class Scheduled(Perceptron):
    """Drops its hidden layer's outputs more and more often."""

    def forward(self, x):
        z = F.dropout(F.relu(self.dense1(x)), getattr(self, "dropout", 0.0))
        return F.linear(z, self.dense2.weight, self.dense2.bias)


class Half(Perceptron):
    def __init__(self):
        super().__init__()
        self.half()

    def forward(self, x):
        return super().forward(x.half()).float()


class Recorded:
    """An iterable of minibatches, which keeps those that a step was made with."""

    def __init__(self, minibatches, used):
        self._minibatches, self._used = minibatches, used

    def __iter__(self):
        for minibatch in self._minibatches:
            self._used[-1:] = [minibatch]
            yield minibatch


class Again:
    """The minibatches that were kept; each loop continues behind the last step."""

    def __init__(self, used, count):
        self._used, self._count = used, count

    def __iter__(self):
        while self._count() < len(self._used):
            yield self._used[self._count()]


# ------------------------------------------------------------------------------------------------------ loops
# Each gets a model, a function that returns the minibatches, and one that ends a step, without an update if
# the loss is None. It may return a list of tensors to be compared in addition to the model's.


def plain(model, minibatches, step):
    for x, y in minibatches():
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        step(loss)


def skips(model, minibatches, step):
    """Leaves out some minibatches: before their forward pass, and when their gradients are there."""
    for count, (x, y) in enumerate(minibatches()):
        if count % 5 == 1:
            step(None)
            continue
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        step(None if count % 5 == 3 else loss)


def skips_first(model, minibatches, step):
    """Leaves out minibatches before their backward pass, the very first one, too."""
    for count, (x, y) in enumerate(minibatches()):
        loss = F.cross_entropy(model(x), y) if count > 0 else None
        if count % 3 == 0:
            step(None)
            continue
        loss.backward()
        step(loss)


def average(model, minibatches, step):
    """An exponential average of the weights, which is evaluated in each step."""
    averaged = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.8)
    )
    scores = []
    for x, y in minibatches():
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        step(loss)
        averaged.update_parameters(model)
        with torch.no_grad():
            scores.append(F.cross_entropy(averaged(x), y))
    return [*averaged.module.parameters(), *scores]


def target_network(model, minibatches, step):
    """Q learning: one copy of the model follows it slowly, another one in jumps."""
    slow, jumping = copy.deepcopy(model), copy.deepcopy(model)
    for count, (x, y) in enumerate(minibatches()):
        with torch.no_grad():
            best = F.one_hot(y, 3) + 0.5 * slow(x).max(1, keepdim=True).values + 0.1 * jumping(x)
        loss = F.smooth_l1_loss(model(x), best)
        loss.backward()
        step(loss)
        with torch.no_grad():
            for p, q in zip(slow.parameters(), model.parameters()):
                p.lerp_(q, 0.1)
        if count % 4 == 3:
            jumping.load_state_dict(model.state_dict())
    return [*slow.parameters(), *jumping.parameters()]


def freeze(model, minibatches, step):
    """Freezes a layer for some steps."""
    for count, (x, y) in enumerate(minibatches()):
        model.dense1.requires_grad_(not 3 <= count < 8)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        step(loss)


def in_parts(model, minibatches, step):
    """Leaves the loop early, several times."""
    for epoch in range(5):
        for count, (x, y) in enumerate(minibatches()):
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            step(loss)
            if count == epoch + 1:
                break


def retry(model, minibatches, step):
    """Computes a minibatch again, in two parts, where the first attempt has failed in the middle."""
    for count, (x, y) in enumerate(minibatches()):
        try:
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            if count % 4 == 2:
                raise MemoryError
        except MemoryError:
            model.zero_grad()
            for part in (slice(0, 10), slice(10, None)):
                loss = F.cross_entropy(model(x[part]), y[part], reduction="sum") / len(x)
                loss.backward()
        step(loss)


def clip_groups(model, minibatches, step):
    for x, y in minibatches():
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.dense1.parameters(), 0.1)
        nn.utils.clip_grad_norm_(model.dense2.parameters(), 0.02, norm_type=1.0)
        step(loss)


def meta(model, minibatches, step):
    """MAML: differentiates through an inner step of gradient descent."""
    for x, y in minibatches():
        weights = dict(model.named_parameters())
        inner = F.cross_entropy(torch.func.functional_call(model, weights, x[:8]), y[:8])
        slopes = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
        moved = {name: p - 0.3 * slope for (name, p), slope in zip(weights.items(), slopes)}
        loss = F.cross_entropy(torch.func.functional_call(model, moved, x[8:]), y[8:])
        loss.backward()
        step(loss)


def sharpness(model, minibatches, step):
    """SAM: the gradient at weights that are moved for a while."""
    for x, y in minibatches():
        F.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            moves = [0.05 * p.grad for p in model.parameters()]
            before = [p.clone() for p in model.parameters()]
            for p, move in zip(model.parameters(), moves):
                p.add_(move)
        model.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        with torch.no_grad():
            for p, own in zip(model.parameters(), before):
                p.copy_(own)
        step(loss)


def evaluate(model, minibatches, step):
    """Evaluates in between, keeps the best weights, and loads them into a new model."""
    best, file, scores = float("inf"), io.BytesIO(), []
    for x, y in minibatches():
        model.train()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        step(loss)
        model.eval()
        with torch.no_grad():
            scores.append(F.cross_entropy(model(x), y))
        if scores[-1] < best:
            best = scores[-1]
            file = io.BytesIO()
            torch.save(model.state_dict(), file)
    file.seek(0)
    return [*scores, *torch.load(file).values(), *model.buffers()]


def distill(model, minibatches, step):
    teacher = copy.deepcopy(model).requires_grad_(False)
    for x, y in minibatches():
        z = model(x)
        loss = F.cross_entropy(z, y) + F.kl_div(
            z.log_softmax(1), teacher(x).softmax(1), reduction="batchmean"
        )
        loss.backward()
        step(loss)


def autocast(model, minibatches, step):
    for x, y in minibatches():
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        step(loss)


def compile_later(model, minibatches, step):
    compiled = torch.compile(model, backend="eager")
    for x, y in minibatches():
        loss = F.cross_entropy(compiled(x), y)
        loss.backward()
        step(loss)


def compile_part(model, minibatches, step):
    model.dense1 = torch.compile(model.dense1, backend="eager")
    plain(model, minibatches, step)


def schedule(model, minibatches, step):
    """Something changes with the number of the step, and the state of the random numbers with it."""
    torch.manual_seed(3)
    for count, (x, y) in enumerate(minibatches()):
        model.dropout = 0.02 * count
        loss = F.cross_entropy(model(x), y, label_smoothing=0.01 * count)
        loss.backward()
        step(loss)


def modules_hooks(model, minibatches, step):
    """Hooks of modules and of parameters, and a module's output that is kept."""
    kept, norms = [], []
    model.dense1.register_forward_hook(lambda module, inputs, output: kept.append(output))
    model.dense1.register_full_backward_hook(lambda module, before, after: norms.append(after[0].norm()))

    def halve(p):
        p.grad.mul_(0.5)

    model.dense1.weight.register_post_accumulate_grad_hook(halve)
    for x, y in minibatches():
        loss = F.cross_entropy(model(x), y) + 0.01 * kept[-1].square().mean()
        loss.backward()
        step(loss)
    return norms


def vectors(model, minibatches, step):
    """Adds the gradient of a penalty that is computed with all weights as one vector."""
    for x, y in minibatches():
        loss = F.cross_entropy(model(x), y)
        weights = nn.utils.parameters_to_vector(model.parameters())
        (loss + 0.01 * weights.square().sum().sqrt()).backward()
        nn.utils.vector_to_parameters(weights.detach(), model.parameters())
        step(loss)


def share(model, minibatches, step):
    """Shares the model's memory with other processes in the middle of the training."""
    for count, (x, y) in enumerate(minibatches()):
        if count == 3:
            model.share_memory()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        step(loss)


# name -> model, loop, largest difference
LOOPS = {
    "average": (Perceptron, average, 1e-6),
    "target-network": (Perceptron, target_network, 1e-6),
    "freeze": (Perceptron, freeze, 1e-6),
    "in-parts": (Perceptron, in_parts, 1e-6),
    "in-parts-processes": (Perceptron, in_parts, 1e-6),
    "in-parts-persistent": (Perceptron, in_parts, 1e-6),
    "retry": (Perceptron, retry, 1e-6),
    "clip-groups": (Perceptron, clip_groups, 1e-6),
    "meta": (Smooth, meta, 1e-6),
    "sharpness": (Smooth, sharpness, 1e-6),
    "evaluate": (Normed, evaluate, 1e-6),
    "distill": (Perceptron, distill, 1e-6),
    "tied": (Tied, plain, 1e-6),
    "autocast": (Perceptron, autocast, 1e-6),
    "compile-later": (Perceptron, compile_later, 1e-6),
    "compile-part": (Perceptron, compile_part, 1e-6),
    "compile-part-overlap": (Perceptron, compile_part, 1e-6),
    "schedule": (Scheduled, schedule, 1e-6),
    "hooks": (Perceptron, modules_hooks, 1e-6),
    "vectors": (Perceptron, vectors, 1e-6),
    "skips": (Perceptron, skips, 1e-6),
    "skips-first": (Perceptron, skips_first, 1e-6),
    "skips-first-overlap": (Perceptron, skips_first, 1e-6),
    "hook": (Hooked, plain, 1e-6),
    "hook-overlap": (Hooked, plain, 1e-6),
    "flat": (Flat, plain, 1e-6),
    "share": (Perceptron, share, 1e-6),
    "skips-own": (Perceptron, skips, 1e-6),
    "half": (Half, plain, 2e-4),
}


def minibatches_of(worker, variant):
    if variant == "in-parts-processes":
        loader = DataLoader(worker.minibatches(), batch_size=None, num_workers=2)
    elif variant == "in-parts-persistent":
        loader = worker.loader(num_workers=2, persistent_workers=True)
    else:
        loader = worker.minibatches()
    return lambda: loader


def run_with_catchment(model, loop, variant, samples, used):
    own = (
        torch.optim.SGD(model.parameters(), lr=RATE, momentum=OWN_MOMENTUM)
        if variant.endswith("-own")
        else None
    )
    worker = catchment.join(model, samples, optimizer=own, overlap=variant.endswith("-overlap"))
    minibatches = minibatches_of(worker, variant)

    def step(loss):
        worker.skip() if loss is None else worker.step(loss)
        used.append(None)  # the place of the next minibatch

    used.append(None)
    results = loop(model, lambda: Recorded(minibatches(), used), step)
    assert worker.steps == STEPS, worker.steps
    del used[STEPS:]
    return results


class MixedSGD:
    """SGD with float32 weights, as the servers have them, for a model in another precision."""

    def __init__(self, parameters):
        self._parameters = list(parameters)
        self._weights = [p.detach().float() for p in self._parameters]

    @torch.no_grad()
    def step(self):
        for p, weights in zip(self._parameters, self._weights):
            p.copy_(weights.sub_(p.grad.float(), alpha=RATE))

    def zero_grad(self):
        for p in self._parameters:
            p.grad = None


def run_alone(model, loop, variant, used):
    mixed = any(p.dtype != torch.float32 for p in model.parameters())
    momentum = OWN_MOMENTUM if variant.endswith("-own") else 0
    optimizer = (
        MixedSGD(model.parameters())
        if mixed
        else torch.optim.SGD(model.parameters(), lr=RATE, momentum=momentum)
    )
    steps = []

    def step(loss):
        if loss is not None:
            optimizer.step()
        optimizer.zero_grad()
        steps.append(loss)

    results = loop(model, lambda: Again(used, lambda: len(steps)), step)
    assert len(steps) == STEPS, len(steps)
    return results


def main():
    path, variant = sys.argv[1:]
    make, loop, largest = LOOPS[variant]
    torch.manual_seed(5)
    model, used = make(), []
    alone = copy.deepcopy(model)
    mine = run_with_catchment(model, loop, variant, rows(path), used)
    own = run_alone(alone, loop, variant, used)
    pairs = [
        *zip(model.state_dict().items(), alone.state_dict().values()),
        *(
            (("result %d" % index, one), other)
            for index, (one, other) in enumerate(zip(mine or [], own or []))
        ),
    ]
    for (name, one), other in pairs:
        difference = (one.double() - other.double()).abs().max().item()
        assert difference <= largest, "%s differs by %g" % (name, difference)
    print("%s: all of %d tensors agree" % (variant, len(pairs)))


if __name__ == "__main__":
    main()
