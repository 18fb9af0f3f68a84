"""Makes plateau.json: what torch.optim.lr_scheduler.ReduceLROnPlateau does, for other implementations to be
held to.

    python3 make_plateau.py > plateau.json            (needs torch; Debian's python3-torch, 1.13, was used)

The file:
  torch  version
  cases  name
         schedule  the job's schedule (proto/job.proto, Schedule) in protobuf's JSON; what is absent is left
                   to the defaults, here and in PyTorch (but for min_lr, which PyTorch has as a rate, not as
                   a share)
         torch     the scheduler that it is held to; numbers as they are after a job file's float32 has
                   rounded them
         losses    of the evaluations, in order; float64; "NaN" where it is none
         rates     after each of them, of a learning rate that begins at 1; float64
"""

import json
import math
import random
import re
import struct

import torch
from torch.optim import lr_scheduler


def float32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def rates(arguments, losses):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, **arguments)
    course = []
    for loss in losses:
        scheduler.step(loss)
        course.append(optimizer.param_groups[0]["lr"])
    return course


def falling(steps, noise, seed):
    """A loss that falls towards 0.3, less and less, and is read with noise."""
    draw = random.Random(seed)
    return [0.3 + 2 * math.exp(-t / 8) + noise * draw.gauss(0, 1) for t in range(steps)]


FLAT = [1.0] * 40
CASES = {
    "defaults": ({}, falling(120, 0.01, 1)),
    "flat": (dict(patience=3, factor=0.5), FLAT),
    "patience_0": (dict(patience=0, factor=0.5), [3, 2, 2, 1, 1.5, 1, 0.5, 0.6]),
    "least": (dict(patience=1, factor=0.3, final_fraction=0.05), FLAT),
    "threshold": (dict(patience=2, factor=0.5, threshold=0.1), [2 * 0.97**t for t in range(60)]),
    "no_threshold": (dict(patience=2, factor=0.5, threshold=0.0), [2 * 0.999**t for t in range(20)] + FLAT),
    "noisy": (dict(patience=2, factor=0.7, threshold=0.01), falling(100, 0.05, 2)),
    "nan_at_first": (dict(patience=1, factor=0.5), [math.nan, math.nan, 2, 2, 1, 1, 1, 1]),
    "diverged": (
        dict(patience=1, factor=0.5),
        [2, 1, math.nan, math.nan, math.nan, 3, 4, 0.5, math.nan, math.nan],
    ),
}


def run(name, schedule, losses):
    given = {key: float32(value) if isinstance(value, float) else value for key, value in schedule.items()}
    # PyTorch's own default is the double 0.1; a job file's is a float.
    arguments = {
        "factor": float32(0.1),
        "threshold": float32(1e-4),
        **{"min_lr" if key == "final_fraction" else key: value for key, value in given.items()},
    }
    call = f"ReduceLROnPlateau({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
    return {
        "name": name,
        "schedule": {"decay": "PLATEAU", **schedule},
        "torch": call,
        "losses": ["NaN" if math.isnan(loss) else loss for loss in losses],
        "rates": rates(arguments, losses),
    }


def main():
    cases = [run(name, schedule, losses) for name, (schedule, losses) in CASES.items()]
    text = json.dumps({"torch": torch.__version__, "cases": cases}, indent=1)
    # One course a line.
    print(re.sub(r"\[\s+([-\d\"][^\[\]{}]*?)\s+\]", lambda match: f"[{' '.join(match[1].split())}]", text))


if __name__ == "__main__":
    main()
