#!/usr/bin/env python3
r"""A small GPT on the characters of this repository's pages, trained by DiLoCo with AdamW inside (Douillard
et al. 2023, arXiv:2311.08105): workers exchange once in 16 steps.

    catchment train --program="python examples/python/tiny_gpt_diloco.py" --workers=2 --out=out \
        --set epochs=1 --set batch_size=16 --set algorithm.preset=diloco

--width, --layers, --heads and --context, behind the program's name, make it smaller or larger.
"""

import argparse
import collections
import glob
import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

import catchment.torch as catchment

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
Shape = collections.namedtuple("Shape", "context width heads layers")


def pages():
    """Returns the text of this repository's pages."""
    paths = sorted(glob.glob(ROOT + "/docs/**/*.md", recursive=True) + glob.glob(ROOT + "/proto/*.proto"))
    if not paths:
        raise FileNotFoundError(
            f"{os.path.normpath(ROOT)} has no docs/*.md: this example reads the repository's pages"
        )
    return "".join(open(path, encoding="utf-8").read() for path in paths)


class Text(Dataset):
    """Windows of context + 1 characters, which overlap by half. Of every ten windows one is for tests, and
    the two that overlap with it are for nothing."""

    def __init__(self, characters, context, test):
        self.alphabet = sorted(set(characters))
        self.context = context
        numbers = {c: i for i, c in enumerate(self.alphabet)}
        self.text = torch.tensor([numbers[c] for c in characters])
        places = (9,) if test else range(1, 8)
        windows = range(0, len(self.text) - context - 1, context // 2)
        self.begins = [begin for i, begin in enumerate(windows) if i % 10 in places]

    def __len__(self):
        return len(self.begins)

    def __getitem__(self, index):
        window = self.text[self.begins[index] : self.begins[index] + self.context + 1]
        return window[:-1], window[1:]


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(y.transpose(1, 2).reshape(n, length, width))
        return x + self.narrow(F.gelu(self.widen(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, characters, shape):
        super().__init__()
        self.tokens, self.places = (
            nn.Embedding(characters, shape.width),
            nn.Embedding(shape.context, shape.width),
        )
        self.blocks = nn.Sequential(*[Block(shape.width, shape.heads) for _ in range(shape.layers)])
        self.norm = nn.LayerNorm(shape.width)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.places.weight, std=0.02)

    def forward(self, x):
        y = self.norm(self.blocks(self.tokens(x) + self.places.weight[: x.shape[1]]))
        return F.linear(y, self.tokens.weight)  # the embedding is the output's weight, too


def mean_loss(model, x, y):
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


@torch.no_grad()
def score(model, test):
    """Returns the mean loss over the test set's characters, and 0: samples have no class."""
    model.eval()
    losses = [mean_loss(model, x, y).item() * len(x) for x, y in DataLoader(test, batch_size=32)]
    return sum(losses) / len(test), 0


def add_shape(parser, **defaults):
    """Adds a flag for each size of the model."""
    for name, value in defaults.items():
        parser.add_argument("--" + name, type=int, default=value, metavar="N", help="default %(default)s")


def shape_of(flags):
    if flags.width % flags.heads != 0:
        raise ValueError(f"--width={flags.width} must be a multiple of --heads={flags.heads}")
    return Shape(flags.context, flags.width, flags.heads, flags.layers)


def train(make_optimizer):
    """Joins a job with the optimizer of a model, and trains or scores."""
    parser = argparse.ArgumentParser()
    add_shape(parser, context=128, width=256, heads=4, layers=4)
    shape = shape_of(parser.parse_args())
    torch.manual_seed(1)
    characters = pages()
    texts, test = Text(characters, shape.context, test=False), Text(characters, shape.context, test=True)
    model = Gpt(len(texts.alphabet), shape)
    worker = catchment.join(model, texts, test, optimizer=make_optimizer(model))
    if worker.evaluates:
        worker.evaluate(lambda: score(model, test))
    for x, y in worker.minibatches():
        loss = mean_loss(model, x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        worker.step(loss)


if __name__ == "__main__":
    train(lambda model: torch.optim.AdamW(model.parameters(), lr=1e-3))
