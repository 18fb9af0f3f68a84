"""Makes optimizers.json: what torch.optim does on fixed gradients, for other implementations to be held to.

    python3 make_golden.py > optimizers.json          (needs torch)

The file, in float64 unless it says otherwise:
  torch      version
  weights    [n], before the first step; float32 numbers
  gradients  [steps][n]; float32 numbers. They do not depend on the weights. One component is tiny, and the
             last is 0 throughout, as its weight is: it must stay 0 exactly
  cases      name
             optimizer   the job's optimizer (proto/job.proto, Optimizer) in protobuf's JSON; what is absent
                         is left to the defaults, here and in PyTorch
             torch       the same as a call; numbers as they are after a job file's float32 has rounded them
             weights     {"step": [n]}, after some of the steps
  tensors    sizes of the tensors w0, w1, ... that the n values are in cases with groups, whose parameters are
             groups of PyTorch's optimizer; what is frozen is not among them
With a schedule, which is ONE_CYCLE, rate and momentum of step t are those of OneCycleLR, at progress (t - 1)
/ (steps - 1).
"""

import json
import random
import re
import struct

import torch

STEPS = 100
SHOWN = (1, 2, 3, 10, 50, 100)
TENSORS = [2, 3, 1, 2]


def float32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def make_data():
    draw = random.Random(1)
    weights = [float32(draw.uniform(1.5, 1.9) * sign) for sign in (1, -1, 1, -1, 1, -1, 1, 0)]
    scales = (0.3, 0.3, 0.3, 0.3, 0.03, 0.003, 1e-6, 0)
    drift = (-0.1, 0.1, 0, 0, 0, 0, 0, 0)  # away from 0, where all digits would be lost
    gradients = [[float32(d + s * draw.gauss(0, 1)) for s, d in zip(scales, drift)] for _ in range(STEPS)]
    return weights, gradients


# PyTorch's names of what job.proto calls otherwise, by kind.
NAMES = {
    "SGD": ("SGD", {}),
    "ADAGRAD": ("Adagrad", {}),
    "RMSPROP": ("RMSprop", {"rho": "alpha"}),
    "ADADELTA": ("Adadelta", {}),
    "ADAM": ("Adam", {}),
    "ADAMW": ("AdamW", {}),
}


def torch_arguments(optimizer):
    rename = {"learning_rate": "lr", "epsilon": "eps", **NAMES[optimizer["kind"]][1]}
    arguments = {
        rename.get(name, name): float32(value) if isinstance(value, float) else value
        for name, value in optimizer.items()
        if name not in ("kind", "beta1", "beta2", "clip_value", "schedule", "groups")
    }
    if "beta1" in optimizer:
        arguments["betas"] = (float32(optimizer["beta1"]), float32(optimizer["beta2"]))
    return arguments


def one_cycle(optimizer, torch_optimizer):
    """Returns PyTorch's scheduler. Its rise ends in step pct_start * STEPS - 1,
    its fall in step STEPS - 1."""
    schedule = {name: float32(value) for name, value in optimizer["schedule"].items() if name != "decay"}
    start, end = schedule["initial_lr_fraction"], schedule["final_fraction"]
    return torch.optim.lr_scheduler.OneCycleLR(
        torch_optimizer,
        max_lr=[group["lr"] for group in torch_optimizer.param_groups],
        total_steps=STEPS,
        pct_start=(schedule["pct_start"] * (STEPS - 1) + 1) / STEPS,
        div_factor=1 / start,
        final_div_factor=start / end,
        base_momentum=schedule["min_momentum"],
        max_momentum=float32(optimizer.get("momentum", optimizer.get("beta1"))),
    )


def torch_groups(optimizer, tensors, rate):
    """Returns the tensors in groups of torch.optim, without those that are frozen."""
    groups = []
    for index, tensor in enumerate(tensors):
        own = next((g for g in optimizer.get("groups", ()) if "w%d" % index in g["names"]), {})
        group = {"params": [tensor]}
        if "weight_decay" in own:
            group["weight_decay"] = float32(own["weight_decay"])
        if "learning_rate_factor" in own:
            group["lr"] = rate * float32(own["learning_rate_factor"])
        if not own.get("frozen"):
            groups.append(group)
    return groups


def run(optimizer, weights, gradients):
    sizes = TENSORS if "groups" in optimizer else [len(weights)]
    tensors = [
        torch.nn.Parameter(values) for values in torch.tensor(weights, dtype=torch.float64).split(sizes)
    ]
    name, arguments = NAMES[optimizer["kind"]][0], torch_arguments(optimizer)
    groups = torch_groups(optimizer, tensors, arguments.get("lr"))
    torch_optimizer = getattr(torch.optim, name)(groups, **arguments)
    scheduler = one_cycle(optimizer, torch_optimizer) if "schedule" in optimizer else None
    shown = {}
    for step, gradient in enumerate(gradients, 1):
        for tensor, values in zip(tensors, torch.tensor(gradient, dtype=torch.float64).split(sizes)):
            tensor.grad = values.clone()
        if "clip_value" in optimizer:
            torch.nn.utils.clip_grad_value_(tensors, float32(optimizer["clip_value"]))
        torch_optimizer.step()
        if scheduler is not None and step < STEPS:
            scheduler.step()
        if step in SHOWN:
            shown[str(step)] = torch.cat([tensor.detach() for tensor in tensors]).tolist()
    call = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    clip = f"clip_grad_value_({float32(optimizer['clip_value'])!r}); " if "clip_value" in optimizer else ""
    cycle = "; OneCycleLR" if scheduler is not None else ""
    own = f"{len(groups)} groups, " if len(groups) > 1 else ""
    return f"{clip}torch.optim.{name}({own}{call}){cycle}", shown


CYCLE = dict(
    decay="ONE_CYCLE", pct_start=0.3, initial_lr_fraction=0.04, final_fraction=0.001, min_momentum=0.6
)

GROUPS = [
    {"names": ["w0"], "weight_decay": 0.0},
    {"names": ["w1"], "weight_decay": 0.2, "learning_rate_factor": 0.25},
    {"names": ["w2"], "frozen": True},
]

CASES = {
    "sgd": dict(kind="SGD", learning_rate=0.01),
    "sgd_weight_decay": dict(kind="SGD", learning_rate=0.01, weight_decay=0.1),
    "sgd_clipped": dict(kind="SGD", learning_rate=0.02, clip_value=0.25),
    "sgd_weight_decay_clipped": dict(kind="SGD", learning_rate=0.01, weight_decay=0.1, clip_value=0.25),
    "momentum": dict(kind="SGD", learning_rate=0.005, momentum=0.9),
    "momentum_weight_decay": dict(kind="SGD", learning_rate=0.005, momentum=0.9, weight_decay=0.05),
    "momentum_clipped": dict(kind="SGD", learning_rate=0.005, momentum=0.9, clip_value=0.25),
    "nesterov": dict(kind="SGD", learning_rate=0.005, momentum=0.9, nesterov=True),
    "nesterov_weight_decay": dict(
        kind="SGD", learning_rate=0.005, momentum=0.9, nesterov=True, weight_decay=0.05
    ),
    "nesterov_clipped": dict(kind="SGD", learning_rate=0.005, momentum=0.9, nesterov=True, clip_value=0.25),
    "nesterov_weight_decay_clipped": dict(
        kind="SGD", learning_rate=0.005, momentum=0.9, nesterov=True, weight_decay=0.05, clip_value=0.5
    ),
    "adagrad": dict(kind="ADAGRAD"),
    "adagrad_weight_decay": dict(kind="ADAGRAD", learning_rate=0.02, epsilon=1e-4, weight_decay=0.1),
    "adagrad_clipped": dict(kind="ADAGRAD", clip_value=0.1),
    "rmsprop": dict(kind="RMSPROP"),
    "rmsprop_momentum": dict(kind="RMSPROP", learning_rate=0.001, rho=0.9, epsilon=1e-3, momentum=0.8),
    "rmsprop_weight_decay": dict(kind="RMSPROP", learning_rate=0.001, weight_decay=0.1),
    "rmsprop_clipped": dict(kind="RMSPROP", learning_rate=0.001, clip_value=0.1),
    "rmsprop_momentum_weight_decay": dict(
        kind="RMSPROP", learning_rate=0.001, momentum=0.8, weight_decay=0.1
    ),
    "rmsprop_momentum_clipped": dict(kind="RMSPROP", learning_rate=0.001, momentum=0.8, clip_value=0.1),
    "rmsprop_centered": dict(kind="RMSPROP", centered=True),
    "rmsprop_centered_momentum": dict(
        kind="RMSPROP", learning_rate=0.001, rho=0.9, epsilon=1e-3, momentum=0.8, centered=True
    ),
    "rmsprop_centered_weight_decay_clipped": dict(
        kind="RMSPROP", learning_rate=0.001, weight_decay=0.1, clip_value=0.1, centered=True
    ),
    "adadelta": dict(kind="ADADELTA"),
    "adadelta_weight_decay": dict(
        kind="ADADELTA", learning_rate=0.5, rho=0.8, epsilon=1e-5, weight_decay=0.1
    ),
    "adadelta_clipped": dict(kind="ADADELTA", clip_value=0.1),
    "adam": dict(kind="ADAM"),
    "adam_weight_decay": dict(
        kind="ADAM", learning_rate=0.002, beta1=0.8, beta2=0.99, epsilon=1e-3, weight_decay=0.1
    ),
    "adam_clipped": dict(kind="ADAM", clip_value=0.1),
    "adam_weight_decay_clipped": dict(kind="ADAM", learning_rate=0.002, weight_decay=0.1, clip_value=0.1),
    "adamw": dict(kind="ADAMW"),
    "adamw_large_decay": dict(kind="ADAMW", learning_rate=0.002, beta1=0.8, beta2=0.99, weight_decay=0.5),
    "adamw_clipped": dict(kind="ADAMW", weight_decay=0.1, clip_value=0.1),
    "momentum_cycled": dict(kind="SGD", learning_rate=0.005, momentum=0.9, schedule=CYCLE),
    "nesterov_cycled": dict(kind="SGD", learning_rate=0.005, momentum=0.9, nesterov=True, schedule=CYCLE),
    "rmsprop_cycled": dict(kind="RMSPROP", learning_rate=0.001, momentum=0.8, schedule=CYCLE),
    "adam_cycled": dict(kind="ADAM", learning_rate=0.001, beta1=0.9, beta2=0.99, schedule=CYCLE),
    "adamw_cycled": dict(
        kind="ADAMW", learning_rate=0.001, beta1=0.9, beta2=0.99, weight_decay=0.1, schedule=CYCLE
    ),
    "momentum_groups": dict(kind="SGD", learning_rate=0.005, momentum=0.9, weight_decay=0.05, groups=GROUPS),
    "nesterov_clipped_groups": dict(
        kind="SGD", learning_rate=0.005, momentum=0.9, nesterov=True, clip_value=0.25, groups=GROUPS
    ),
    "rmsprop_groups": dict(kind="RMSPROP", learning_rate=0.001, weight_decay=0.1, groups=GROUPS),
    "adamw_groups": dict(kind="ADAMW", learning_rate=0.001, weight_decay=0.1, groups=GROUPS),
    "adamw_cycled_groups": dict(
        kind="ADAMW",
        learning_rate=0.001,
        beta1=0.9,
        beta2=0.99,
        weight_decay=0.1,
        schedule=CYCLE,
        groups=GROUPS,
    ),
}


def main():
    weights, gradients = make_data()
    cases = []
    for name, optimizer in CASES.items():
        call, shown = run(optimizer, weights, gradients)
        cases.append({"name": name, "optimizer": optimizer, "torch": call, "weights": shown})
    golden = {
        "torch": torch.__version__,
        "weights": weights,
        "gradients": gradients,
        "tensors": TENSORS,
        "cases": cases,
    }
    text = json.dumps(golden, indent=1)
    # One vector a line.
    print(re.sub(r"\[\s+([-\d][^\[\]]*?)\s+\]", lambda match: f"[{' '.join(match[1].split())}]", text))


if __name__ == "__main__":
    main()
