#!/usr/bin/env python3
r"""The GPT of tiny_gpt_diloco.py, trained by MuLoCo (Therien et al. 2025, arXiv:2505.23725): Muon for the
matrices of its blocks, AdamW for everything else, and an exchange once in 30 steps.
Needs PyTorch 2.9 or newer.

    catchment train --program="python examples/python/tiny_gpt_muloco.py" --workers=2 --out=out \
        --set epochs=1 --set batch_size=16 --set algorithm.preset=muloco
"""

import torch

import tiny_gpt_diloco


class MuonAndAdamW:
    """One optimizer of two."""

    def __init__(self, model):
        matrices = [p for p in model.blocks.parameters() if p.ndim == 2]
        chosen = {id(p) for p in matrices}
        others = [p for p in model.parameters() if id(p) not in chosen]
        self._parts = (
            torch.optim.Muon(matrices, lr=1e-3, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(others, lr=1e-3),
        )

    def step(self):
        for part in self._parts:
            part.step()

    def zero_grad(self):
        for part in self._parts:
            part.zero_grad()


if __name__ == "__main__":
    tiny_gpt_diloco.train(MuonAndAdamW)
