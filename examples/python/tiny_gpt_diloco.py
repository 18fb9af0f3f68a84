#!/usr/bin/env python3
r"""A small GPT on the characters of this repository's pages, trained by DiLoCo with AdamW inside (Douillard et al.
2023, arXiv:2311.08105): workers exchange once in 16 steps.

    catchment train --program="python examples/python/tiny_gpt_diloco.py" --workers=2 --out=out --set epochs=1 \
        --set batch_size=16 --set algorithm.preset=diloco
"""
import glob
import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

import catchment.torch as catchment

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
CONTEXT, WIDTH, HEADS, LAYERS = 128, 256, 4, 4


class Text(Dataset):
    """Windows of CONTEXT + 1 characters, which overlap by half. Of every ten windows one is for tests."""

    def __init__(self, test):
        paths = sorted(glob.glob(ROOT + "/docs/**/*.md", recursive=True) + glob.glob(ROOT + "/proto/*.proto"))
        if not paths:
            raise FileNotFoundError(f"{os.path.normpath(ROOT)} has no docs/*.md: this example reads the repository's pages")
        characters = "".join(open(path, encoding="utf-8").read() for path in paths)
        self.alphabet = sorted(set(characters))
        numbers = {c: i for i, c in enumerate(self.alphabet)}
        self.text = torch.tensor([numbers[c] for c in characters])
        windows = range(0, len(self.text) - CONTEXT - 1, CONTEXT // 2)
        self.begins = [begin for i, begin in enumerate(windows) if (i % 10 == 9) == test]

    def __len__(self):
        return len(self.begins)

    def __getitem__(self, index):
        window = self.text[self.begins[index]:self.begins[index] + CONTEXT + 1]
        return window[:-1], window[1:]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        n, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(y.transpose(1, 2).reshape(n, length, WIDTH))
        return x + self.narrow(F.gelu(self.widen(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, characters):
        super().__init__()
        self.tokens, self.places = nn.Embedding(characters, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.places.weight, std=0.02)

    def forward(self, x):
        y = self.norm(self.blocks(self.tokens(x) + self.places.weight[:x.shape[1]]))
        return F.linear(y, self.tokens.weight)  # the embedding is the output's weight, too


def mean_loss(model, x, y):
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


@torch.no_grad()
def score(model, test):
    """Returns the mean loss over the test set's characters, and 0: samples have no class."""
    model.eval()
    losses = [mean_loss(model, x, y).item() * len(x) for x, y in DataLoader(test, batch_size=32)]
    return sum(losses) / len(test), 0


def train(make_optimizer):
    """Joins a job with the optimizer of a model, and trains or scores."""
    torch.manual_seed(1)
    texts, test = Text(test=False), Text(test=True)
    model = Gpt(len(texts.alphabet))
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
