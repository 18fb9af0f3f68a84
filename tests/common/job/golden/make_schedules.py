"""Makes schedules.json: what torch.optim.lr_scheduler does, for other implementations to be held to.

    python3 make_schedules.py > schedules.json        (needs torch; Debian's python3-torch, 1.13, was used)

The file:
  torch  version
  cases  name
         optimizer  the job's optimizer (proto/job.proto, Optimizer) in protobuf's JSON
         torch      the scheduler that it is held to; numbers as they are after a job file's float32 has
                    rounded them
         rates      [101], in float64: the learning rates of steps 0 .. 100, at progress step / 100
         momenta    [101], where the schedule cycles the momentum: the momentum of these steps
With a warm-up of W steps its rates come first, those of LambdaLR(t / W) times where the decay begins; then
the decay's over the other 100 - W steps.
"""

import json
import re
import struct

import torch
from torch.optim import lr_scheduler

STEPS = 100


def float32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


RATE = float32(0.1)
MOMENTUM = float32(0.95)


def rates(make, steps, what="lr"):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE, momentum=MOMENTUM)
    scheduler = make(optimizer)
    course = [optimizer.param_groups[0][what]]
    for _ in range(steps):
        optimizer.step()
        scheduler.step()
        course.append(optimizer.param_groups[0][what])
    return course


def scheduler_of(schedule, steps):
    """Returns PyTorch's scheduler over the steps, with its name and arguments."""
    field = {name: float32(value) if isinstance(value, float) else value for name, value in schedule.items()}
    rest = field.get("final_fraction", 0.0)
    decay = field["decay"]
    if decay == "CONSTANT":
        return "ConstantLR", dict(factor=1.0, total_iters=0)
    if decay == "COSINE":
        return "CosineAnnealingLR", dict(T_max=steps, eta_min=RATE * rest)
    if decay == "STEP":
        return "StepLR", dict(step_size=round(field["step_every"] * steps), gamma=field["factor"])
    if decay == "EXPONENTIAL":
        return "ExponentialLR", dict(gamma=rest ** (1 / steps))
    if decay == "POLYNOMIAL":
        return "PolynomialLR", dict(total_iters=steps, power=field["power"])
    # The rise ends in step pct_start * total_steps - 1, the fall in step total_steps - 1.
    total = steps + 1
    cycle = dict(cycle_momentum=False)
    if "min_momentum" in field:
        cycle = dict(base_momentum=field["min_momentum"], max_momentum=MOMENTUM)
    return "OneCycleLR", dict(
        max_lr=RATE,
        total_steps=total,
        pct_start=(field["pct_start"] * steps + 1) / total,
        div_factor=1 / field["initial_lr_fraction"],
        final_div_factor=field["initial_lr_fraction"] / rest,
        **cycle,
    )


def run(schedule):
    warmup = round(schedule.get("warmup", 0) * STEPS)
    name, arguments = scheduler_of(schedule, STEPS - warmup)
    decay = rates(lambda optimizer: getattr(lr_scheduler, name)(optimizer, **arguments), STEPS - warmup)
    rise = (
        rates(lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda t: t / warmup), warmup)
        if warmup
        else [0]
    )
    course = [rate * decay[0] / RATE for rate in rise[:-1]] + decay
    call = f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
    case = {"torch": f"LambdaLR(t / {warmup}), then {call}" if warmup else call, "rates": course}
    if "min_momentum" in schedule:
        cycle = rates(
            lambda optimizer: getattr(lr_scheduler, name)(optimizer, **arguments), STEPS - warmup, "momentum"
        )
        case["momenta"] = [MOMENTUM] * warmup + cycle
    return case


CASES = {
    "constant": dict(decay="CONSTANT"),
    "constant_after_warmup": dict(decay="CONSTANT", warmup=0.1),
    "cosine": dict(decay="COSINE"),
    "cosine_to_a_share": dict(decay="COSINE", final_fraction=0.05),
    "cosine_after_warmup": dict(decay="COSINE", warmup=0.2, final_fraction=0.05),
    "step_tenths": dict(decay="STEP", step_every=0.1, factor=0.5),
    "step": dict(decay="STEP", step_every=0.3, factor=0.1),
    "step_after_warmup": dict(decay="STEP", step_every=0.25, factor=0.1, warmup=0.2),
    "exponential": dict(decay="EXPONENTIAL", final_fraction=0.01),
    "exponential_after_warmup": dict(decay="EXPONENTIAL", final_fraction=0.1, warmup=0.05),
    "linear": dict(decay="POLYNOMIAL", power=1.0),
    "polynomial": dict(decay="POLYNOMIAL", power=0.9),
    "square_after_warmup": dict(decay="POLYNOMIAL", power=2.0, warmup=0.25),
    "one_cycle": dict(decay="ONE_CYCLE", pct_start=0.3, initial_lr_fraction=0.04, final_fraction=4e-6),
    "one_cycle_late": dict(decay="ONE_CYCLE", pct_start=0.75, initial_lr_fraction=0.1, final_fraction=0.01),
    "one_cycle_after_warmup": dict(
        decay="ONE_CYCLE", pct_start=0.5, initial_lr_fraction=0.25, final_fraction=0.01, warmup=0.1
    ),
    "one_cycle_of_momentum": dict(
        decay="ONE_CYCLE", pct_start=0.3, initial_lr_fraction=0.04, final_fraction=4e-6, min_momentum=0.85
    ),
    "one_cycle_of_momentum_after_warmup": dict(
        decay="ONE_CYCLE",
        pct_start=0.5,
        initial_lr_fraction=0.25,
        final_fraction=0.01,
        warmup=0.1,
        min_momentum=0.0,
    ),
}


def main():
    cases = []
    for name, schedule in CASES.items():
        optimizer = {"learning_rate": 0.1, "schedule": schedule}
        if "min_momentum" in schedule:
            optimizer["momentum"] = 0.95
        cases.append({"name": name, "optimizer": optimizer, **run(schedule)})
    text = json.dumps({"torch": torch.__version__, "cases": cases}, indent=1)
    # One course a line.
    print(re.sub(r"\[\s+([-\d][^\[\]]*?)\s+\]", lambda match: f"[{' '.join(match[1].split())}]", text))


if __name__ == "__main__":
    main()
