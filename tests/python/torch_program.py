#!/usr/bin/env python3
"""A worker's program for torch_test.py: the built-in perceptron in PyTorch, on the rows of a CSV file.

torch_program.py CSV VARIANT
"""

import copy
import io
import os
import sys

import torch
import torch.nn.functional as F
import torch.nn.utils.prune
import torch.utils.checkpoint
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, get_worker_info

import catchment.torch as catchment
import fake_cuda


class Perceptron(nn.Module):
    """The parameters of dense2 are used by a function, without a forward pass of that module."""

    def __init__(self):
        super().__init__()
        self.dense1, self.dense2 = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        return F.linear(F.relu(self.dense1(x)), self.dense2.weight, self.dense2.bias)


class Deep(nn.Module):
    """Two embeddings that share their weight, a frozen part, one that no loss depends on, buffers, and more
    than one message's worth of gradient."""

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


class Smooth(Perceptron):
    def forward(self, x):
        return F.linear(torch.tanh(self.dense1(x)), self.dense2.weight, self.dense2.bias)


class Early(Perceptron):
    """Reads a module's weight before it calls the module."""

    def forward(self, x):
        z = F.relu(self.dense1(x) + self.dense2.weight.sum(0))
        return self.dense2(z)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.dense, self.scale = (
            nn.LSTM(2, 5, batch_first=True),
            nn.Linear(5, 3),
            nn.Parameter(torch.ones(())),
        )

    def forward(self, x):
        return self.scale * self.dense(self.cell(x.view(-1, 3, 2))[0][:, -1])


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense1, self.norm = nn.utils.parametrizations.weight_norm(nn.Linear(6, 8)), nn.BatchNorm1d(8)
        self.dense2 = nn.Linear(8, 3)

    def forward(self, x):
        return self.dense2(torch.relu(self.norm(self.dense1(x))))


class Double(Perceptron):
    def __init__(self):
        super().__init__()
        self.double()

    def forward(self, x):
        return super().forward(x.double())


class PartlyCompiled(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense1, self.dense2 = torch.compile(nn.Linear(6, 8), backend="eager"), nn.Linear(8, 3)

    def forward(self, x):
        return self.dense2(torch.relu(self.dense1(x)))


class Regularized(Perceptron):
    """Its submodules are in a list, and one of them twice."""

    def __init__(self):
        super().__init__()
        self.more = nn.ModuleList([nn.Linear(6, 6), nn.LayerNorm(6)])
        self.again = self.more[0]

    def forward(self, x):
        return super().forward(self.again(self.more[1](self.more[0](x))))


class Stream(IterableDataset):
    def __iter__(self):
        return iter(())


class Lines(Stream):
    """As many as a file has lines, which can only be read one after another."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count


class Endless(IterableDataset):
    """Its samples again and again; each process of a DataLoader has some of them."""

    def __init__(self, samples):
        self.samples = samples

    def __iter__(self):
        info = get_worker_info()
        while True:
            for index in (
                range(len(self.samples))
                if info is None
                else range(info.id, len(self.samples), info.num_workers)
            ):
                yield self.samples[index]


class Epochs(IterableDataset):
    """Ends after an epoch, and shuffles anew, as streams of Hugging Face do."""

    def __init__(self, samples):
        self.samples, self.epoch = samples, None

    def set_epoch(self, epoch):
        assert epoch == (0 if self.epoch is None else self.epoch + 1), epoch
        self.epoch = epoch

    def __iter__(self):
        return (self.samples[(index + self.epoch) % len(self.samples)] for index in range(len(self.samples)))


# The samples that join is given; all are 240.
STREAMS = {
    "stream": Endless,
    "stream-loader": Endless,
    "stream-epochs": Epochs,
    "stream-function": lambda samples: lambda: (samples[index] for index in range(100)),
    "stream-ends": lambda samples: (samples[index] for index in range(40)),
    "stream-own": lambda samples: torch.utils.data.Subset(samples, range(100)),
}


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
        loader = DataLoader(
            worker.minibatches(), batch_size=None, num_workers=2, multiprocessing_context=context
        )
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


def train_with_scheduler(model, worker):
    """Halves the rate of worker.optimizer() after some steps, with a scheduler of its own."""
    optimizer = worker.optimizer()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.5)
    for x, y in worker.minibatches():
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        scheduler.step()


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


def simple(model, x, y):
    F.cross_entropy(model(x), y).backward()


def accumulate(model, x, y):
    for part in (slice(0, 5), slice(5, None)):
        (F.cross_entropy(model(x[part]), y[part], reduction="sum") / len(x)).backward()


def assign(model, x, y):
    parameters = list(model.parameters())
    for p, gradient in zip(parameters, torch.autograd.grad(F.cross_entropy(model(x), y), parameters)):
        p.grad = gradient


def unscale(model, x, y):
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(F.cross_entropy(model(x), y)).backward()
    scaler.unscale_(torch.optim.SGD(model.parameters(), lr=0.1))


def clip(model, x, y):
    simple(model, x, y)
    nn.utils.clip_grad_norm_(model.parameters(), 1e-3)


def clip_values(model, x, y):
    simple(model, x, y)
    nn.utils.clip_grad_value_(model.parameters(), 1e-2)


def noise(model, x, y):
    simple(model, x, y)
    torch.manual_seed(len(x))
    for p in model.parameters():
        p.grad += 0.01 * torch.randn(p.shape)


def penalty(model, x, y):
    """Reads all weights before their modules are called."""
    norm = sum(p.square().sum() for p in model.parameters())
    (F.cross_entropy(model(x), y) + 0.01 * norm).backward()


def gradient_penalty(model, x, y):
    x = x.clone().requires_grad_()
    loss = F.cross_entropy(model(x), y)
    (slope,) = torch.autograd.grad(loss, x, create_graph=True)
    (loss + slope.square().sum()).backward()


def two_losses(model, x, y):
    z = model(x)
    F.cross_entropy(z, y).backward(retain_graph=True)
    (0.1 * z.square().mean()).backward()


def adversarial(model, x, y):
    """The two models of a GAN, each with its own backward pass and its own gradients."""
    for name, loss in (
        ("dense1", lambda: model(x).square().mean()),
        ("dense2", lambda: F.cross_entropy(model(x), y)),
    ):
        part = list(getattr(model, name).parameters())
        for p, gradient in zip(part, torch.autograd.grad(loss(), part)):
            p.grad = gradient


def checkpointed(model, x, y):
    z = torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False)
    F.cross_entropy(z, y).backward()


def per_sample(model, x, y):
    """Gradients of single samples, which are clipped and averaged, as for differential privacy."""
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(parameters, x, y):
        return F.cross_entropy(torch.func.functional_call(model, parameters, (x[None],)), y[None])

    gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(parameters, x, y)
    for name, p in model.named_parameters():
        p.grad = gradients[name].clamp(-0.5, 0.5).mean(0)


def random(model, x, y):
    torch.manual_seed(int(y.sum()))
    F.cross_entropy(F.dropout(model(x), 0.2), y).backward()


def hooked(model, x, y):
    handle = model.dense1.weight.register_hook(lambda gradient: gradient / 2)
    simple(model, x, y)
    handle.remove()


def zeroed(model, x, y):
    model.zero_grad(set_to_none=False)
    simple(model, x, y)


def scored_before(model, x, y):
    model.eval()
    with torch.inference_mode():
        model(x)
    model.train()
    simple(model, x, y)


def copied_before(model, x, y):
    """Keeps an average, copies and saves the model in each step."""
    model.state_dict()  # with overlap it waits for the weights
    average = torch.optim.swa_utils.AveragedModel(model)
    average.update_parameters(model)
    average(x)
    file = io.BytesIO()
    torch.save(copy.deepcopy(model), file)
    file.seek(0)
    saved = torch.load(file, weights_only=False)
    assert all(torch.equal(p, q) for p, q in zip(saved.parameters(), model.parameters()))
    saved(x).sum().backward()
    simple(model, x, y)


# The programs that are compared with PyTorch's own SGD: name -> model, the function that leaves a minibatch's
# gradient in .grad, and whether it works with overlap.
PROGRAMS = {
    "follow": (Perceptron, simple, True),
    "gpu": (Perceptron, simple, True),
    "sparse": (Sparse, simple, True),
    "channels-last": (Convolution, simple, True),
    "load": (Convolution, simple, True),
    "average": (Convolution, simple, False),
    "prune": (Convolution, simple, True),
    "accumulate": (Perceptron, accumulate, False),
    "assign": (Perceptron, assign, False),
    "unscaled": (Perceptron, unscale, False),
    "clip": (Perceptron, clip, False),
    "clip-values": (Perceptron, clip_values, False),
    "noise": (Perceptron, noise, False),
    "penalty": (Perceptron, penalty, False),
    "gradient-penalty": (Smooth, gradient_penalty, False),
    "two-losses": (Perceptron, two_losses, False),
    "adversarial": (Perceptron, adversarial, False),
    "checkpointed": (Perceptron, checkpointed, True),
    "per-sample": (Perceptron, per_sample, False),
    "random": (Perceptron, random, True),
    "hooked": (Perceptron, hooked, True),
    "zeroed": (Perceptron, zeroed, True),
    "scored-before": (Perceptron, scored_before, True),
    "copied-before": (Perceptron, copied_before, True),
    "early": (Early, simple, True),
    "recurrent": (Recurrent, simple, True),
    "normed": (Normed, simple, True),
    "double": (Double, simple, True),
    "partly-compiled": (PartlyCompiled, simple, True),
    "regularized": (Regularized, simple, True),
    "groups": (Perceptron, simple, True),
}


def grouped(model):
    """Two groups have settings of their own, and the optimizer lacks a bias."""
    return torch.optim.SGD(
        [
            {"params": [model.dense1.weight]},
            {"params": [model.dense1.bias], "weight_decay": 0.5},
            {"params": [model.dense2.weight], "weight_decay": 0.1, "lr": 0.02},
        ],
        lr=0.1,
    )


def local_copy(model, samples, worker, steps, backward, groups=False):
    """The same training with PyTorch's SGD, on the minibatches of the plan,
    for as many steps as are planned."""
    optimizer = (
        grouped(model)
        if groups
        else torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    )
    for step in range(1, steps + 1):
        batch = [samples[index] for index in worker._attachment.plan.samples(step)]
        optimizer.zero_grad()
        backward(model, torch.stack([b[0] for b in batch]), torch.stack([b[1] for b in batch]))
        optimizer.step()
    return model


def compare(model, expected, atol):
    for (name, p), q in zip(model.named_parameters(), expected.parameters()):
        assert torch.allclose(p.double(), q.double(), rtol=atol, atol=atol), (name, (p - q).abs().max())


def follow(model, initial, samples, worker, variant, overlap):
    """Each step, and the model after the loop, are compared with PyTorch's own."""
    backward, groups = PROGRAMS[variant][1], variant == "groups"
    here = None  # the weights that were there when step() returned
    for step, (x, y) in enumerate(worker.minibatches(), 1):
        change(model, variant, step)
        backward(model, x, y)
        compare(model, local_copy(copy.deepcopy(initial), samples, worker, step - 1, backward, groups), 1e-6)
        for p, early in zip(model.parameters(), here or []):
            assert overlap or torch.equal(p, early), step
        worker.step(0.0)
        here = [p.detach().clone() for p in model.parameters()]
    assert worker.steps == 15, worker.steps
    compare(model, local_copy(copy.deepcopy(initial), samples, worker, 15, backward, groups), 1e-6)


def losses_of(worker):
    """Returns the list of losses that worker.step() is called with from now on."""
    losses, step = [], worker.step

    def note_and_step(loss, correct=0):
        losses.append(float(loss))
        step(loss, correct)

    worker.step = note_and_step
    return losses


def with_optimizer(model, worker):
    optimizer, scheduler, shares, losses = worker.optimizer(), worker.scheduler(), [], losses_of(worker)
    for x, y in worker.loader():
        shares.append(worker.progress)
        assert worker.epoch == 0 and worker.steps == len(shares) - 1
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        with worker.no_sync():
            (loss / 4).backward(retain_graph=True)
        (loss * 3 / 4).backward()
        optimizer.step()
        assert abs(losses[-1] - loss.item()) < 1e-6
        scheduler.step()
        assert abs(scheduler.get_last_lr()[0] - 0.1) < 1e-6
    assert shares == sorted(set(shares)) and shares[0] == 0 and 0.8 < shares[-1] < 1, shares


def with_closure(model, worker):
    optimizer = worker.optimizer()
    for x, y in worker.loader():

        def closure():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        assert optimizer.step(closure).item() > 0


def with_scaler(model, worker):
    optimizer, scaler, losses = (
        worker.optimizer(),
        torch.amp.GradScaler("cpu", init_scale=256.0),
        losses_of(worker),
    )
    for step, (x, y) in enumerate(worker.loader()):
        loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        if step % 2:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        assert abs(losses[-1] - loss.item()) < 1e-6
        scaler.update()


def looking_ahead(loader, model, worker):
    """Asks for each minibatch before the step of the one before, as the loops of frameworks do."""
    minibatches = iter(loader)
    following = next(minibatches, None)
    while following is not None:
        (x, y), following = following, next(minibatches, None)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        worker.step(loss)


def ahead(model, worker):
    looking_ahead(DataLoader(worker.minibatches(), batch_size=None), model, worker)


def ahead_processes(model, worker):
    looking_ahead(worker.loader(num_workers=2), model, worker)


def without_sync(model, worker):
    for x, y in worker.minibatches():
        with worker.no_sync():
            (F.cross_entropy(model(x[:5]), y[:5], reduction="sum") / len(x)).backward()
        loss = F.cross_entropy(model(x[5:]), y[5:], reduction="sum") / len(x)
        loss.backward()
        worker.step(loss)


# Loops that frameworks have; the model after them is compared with PyTorch's own.
LOOPS = {
    "optimizer": with_optimizer,
    "closure": with_closure,
    "scaler": with_scaler,
    "ahead": ahead,
    "ahead-processes": ahead_processes,
    "no-sync": without_sync,
}


def clamp(model):
    for p in model.parameters():
        p.data.clamp_(-0.01, 0.01)


@torch.no_grad()
def decay(model):
    for p in model.parameters():
        p.mul_(0.999)


def set_from_vector(model):
    vector = nn.utils.parameters_to_vector(model.parameters())
    nn.utils.vector_to_parameters(vector.detach() / 2, model.parameters())


def prune(model):
    nn.utils.prune.l1_unstructured(model.dense1, "weight", 0.5)
    nn.utils.prune.remove(model.dense1, "weight")


def load(model, **options):
    model.load_state_dict({name: values + 1 for name, values in model.state_dict().items()}, **options)


# Changes that a program makes to the weights after a step, which the servers' weights replace.
WRITES = {
    "clamp": clamp,
    "decay": decay,
    "vector": set_from_vector,
    "prune-remove": prune,
    "load-in-loop": load,
    "load-assign": lambda model: load(model, assign=True),
    "decay-channels-last": lambda model: decay(model.to(memory_format=torch.channels_last)),
}


def writing(model, worker, write):
    for x, y in worker.minibatches():
        simple(model, x, y)
        worker.step(0.0)
        write(model)


@torch.no_grad()
def move_and_return(model):
    for p in model.parameters():
        p.add_(p.grad, alpha=0.5)
        p.sub_(p.grad, alpha=0.5)


def main():
    path, variant = sys.argv[1:]
    overlap = variant.endswith("-overlap")
    variant = variant.replace("-overlap", "")
    torch.manual_seed(5)
    samples = rows(path)
    kinds = {"deep": Deep, "collate": Deep, "decay-channels-last": Convolution}
    kinds.update({name: program[0] for name, program in PROGRAMS.items()})
    model = kinds.get(variant, Perceptron)()
    if variant == "gpu":
        fake_cuda.install()
    if variant == "complex":
        model.phase = nn.Parameter(torch.zeros(2, dtype=torch.complex64))
    if variant == "bfloat16":
        model = model.bfloat16()
    if variant == "no-values":
        model.table = nn.Parameter(torch.zeros(0, 3))
    if variant == "same-memory":
        model.dense3 = nn.Linear(6, 8)
        model.dense3.weight.data = model.dense1.weight.data
    if variant == "scripted":
        model = torch.jit.script(model)
    if variant == "compiled":
        model = torch.compile(model, backend="eager")
    if variant == "unfrozen":
        model.frozen = nn.Linear(2, 2).requires_grad_(False)
    if variant == "lazy":
        model.lazy = nn.LazyLinear(3)
    initial = copy.deepcopy(model)
    if variant == "swallows":
        try:
            catchment.join(model, samples)
        except BaseException:
            sys.exit("join raised an exception")
        return None
    if variant == "lbfgs":
        catchment.join(model, samples, optimizer=torch.optim.LBFGS(model.parameters()))
    if variant == "no-module":
        catchment.join([model], samples)
    if variant == "meta-values":
        catchment.join(Perceptron().to("meta"), samples)
    if variant == "scripts":
        catchment.join(torch.jit.script(model), samples, overlap=True)
    if variant == "loader-set":
        catchment.join(model, DataLoader(samples, batch_size=4))
    if variant == "columns":
        catchment.join(model, (torch.zeros(240, 6), torch.zeros(240)))
    if variant == "no-index":
        catchment.join(model, Lines(len(samples)))
    if variant == "no-length":
        catchment.join(model, Stream())
    if variant == "no-samples":
        catchment.join(model, samples_per_epoch=240).minibatches()
    if variant == "empty":
        worker = catchment.join(model, Stream(), samples_per_epoch=240)
        next(iter(worker.minibatches()))
    if variant in STREAMS:
        return train(
            model,
            catchment.join(model, STREAMS[variant](samples), samples_per_epoch=480),
            2 if variant == "stream-loader" else 0,
        )
    if variant == "indices":
        return train_by_index(model, samples)
    test = samples if os.environ.get("TEST_SAMPLES") else None
    optimizer = (
        torch.optim.AdamW(model.parameters(), lr=0.02)
        if variant in ("adamw", "adamw-elastic", "replaced")
        else None
    )
    if variant.startswith("keeps"):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    if variant == "keeps-transposed":
        model.dense1.weight.data = model.dense1.weight.data.t().contiguous().t()
    collate = None
    if variant == "collate":  # PyTorch's own cannot make a minibatch of these
        data = [{"x": x, "y": y, "of": object()} for x, y in samples]

        def collate(samples):
            return {key: torch.stack([sample[key] for sample in samples]) for key in ("x", "y")}

    worker = catchment.join(
        model,
        data if collate else samples,
        test,
        optimizer,
        overlap=overlap,
        groups=grouped(model) if variant == "groups" else None,
    )
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
    if variant == "two-steps":
        return train(model, worker, 0, lambda loss: worker.step(loss) or simple(model, *samples[:9]))
    if variant == "no-backward":
        return train(model, worker, 0, lambda loss: model.zero_grad())
    if variant == "persistent":
        loader = DataLoader(worker.minibatches(), batch_size=None, num_workers=1, persistent_workers=True)
        for _ in range(2):
            next(iter(loader))
    if variant == "other-optimizer":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return train(model, worker, 0, lambda loss: optimizer.step())
    if variant == "loaded-after":
        load(model)
    if variant in WRITES:
        return writing(model, worker, WRITES[variant])
    if variant == "moves-and-returns":
        return train(model, worker, 0, lambda loss: move_and_return(model))
    if variant == "swaps":

        def swap(loss):
            before = copy.deepcopy(model.state_dict())
            model.load_state_dict(initial.state_dict())
            model.load_state_dict(before)

        return train(model, worker, 0, swap)
    if variant == "freezes":
        return train(model, worker, 0, lambda loss: model.dense1.requires_grad_(worker.steps < 3))
    if variant == "own-decay":
        worker.optimizer().param_groups[0]["weight_decay"] = 0.1
        for x, y in worker.minibatches():
            F.cross_entropy(model(x), y).backward()
            worker.optimizer().step()
        return None
    if variant == "own-group":
        worker.optimizer().add_param_group({"params": [torch.zeros(3, requires_grad=True)]})
    if variant == "no-loss":
        return train(model, worker, 0, lambda loss: worker.step(None))
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
        return train(
            model, worker, 0, lambda loss: F.cross_entropy(model(samples[:3][0]), samples[:3][1]).backward()
        )
    if variant.startswith("batched"):
        for _ in DataLoader(worker.minibatches(), batch_size=4, num_workers=int(variant[-1])):
            pass
    if variant == "skip":
        for _ in DataLoader(worker.minibatches(), batch_size=None):
            pass
    if variant == "skips-third":
        for step, (x, y) in enumerate(worker.minibatches(), 1):
            if step != 3:
                simple(model, x, y)
                worker.step(0.0)
    if variant == "skip-sent":
        for x, y in worker.minibatches():
            F.cross_entropy(model(x), y).backward()
            worker.skip()
    if variant in PROGRAMS:
        return follow(model, initial, samples, worker, variant, overlap)
    if variant in LOOPS:
        LOOPS[variant](model, worker)
        assert worker.steps == 15, worker.steps
        return compare(model, local_copy(initial, samples, worker, 15, simple), 1e-6)
    if variant == "leave":
        for step, (x, y) in enumerate(worker.minibatches(), 1):
            simple(model, x, y)
            if step == 3 and worker.index == 0:
                worker.leave()
            worker.step(0.0)
        return print("worker %d has made %d steps" % (worker.index, worker.steps), flush=True)
    if variant == "result":
        train(model, worker, 2)
        return torch.save(model.state_dict(), "%s.worker%d" % (path, worker.index))
    if variant == "loader-batch":
        worker.loader(batch_size=4)
    if variant == "own-samples":
        for x, y in DataLoader(samples, batch_size=16):
            simple(model, x, y)
            worker.step(0.0)
    if variant == "own-scheduler":
        return train_with_scheduler(model, worker)
    return train(model, worker, 2 if variant == "workers" else 0)


if __name__ == "__main__":
    main()
