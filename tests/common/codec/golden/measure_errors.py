"""Prints the table of docs/codecs.md: the energy of each codec's error over the energy of the values.

    python3 measure_errors.py          (needs numpy; takes seconds)

131,072 random values of each distribution. "int4" has 15 equal steps from -s to s in
groups of 128, for comparison.
"""

import numpy as np

from make_golden import encode_groups

N = 131072
draw = np.random.default_rng(7)


def sum_of_adam_steps(steps=16):
    """Returns the move of parameters in some steps of Adam whose gradients have a mean of 0.3 standard
    deviations or so."""
    mean, m, v, moved = 0.3 * draw.standard_normal(N), 0, 0, 0
    for step in range(1, steps + 1):
        gradient = mean + draw.standard_normal(N)
        m = 0.9 * m + 0.1 * gradient
        v = 0.999 * v + 0.001 * gradient**2
        moved = moved + m / (1 - 0.9**step) / np.sqrt(v / (1 - 0.999**step))
    return moved


def int4(values):
    groups = values.reshape(-1, 128)
    scales = np.max(np.abs(groups), axis=1, keepdims=True) / 7
    return (np.rint(groups / scales) * scales).reshape(-1)


DISTRIBUTIONS = {
    "normal": draw.standard_normal(N),
    "Laplace": draw.laplace(size=N),
    "Student t, 3": draw.standard_t(3, N),
    "normal * lognormal(1)": draw.standard_normal(N) * np.exp(draw.standard_normal(N)),
    "sum of 16 steps of Adam": sum_of_adam_steps(),
}
CODECS = {
    codec: lambda values, codec=codec: encode_groups(codec, values)[1] for codec in ("E3M0", "E2M1", "INT8")
}
CODECS = {"int4": int4, **CODECS}

print("| values |", " | ".join(CODECS), "|")
for name, values in DISTRIBUTIONS.items():
    values = values.astype(np.float32)
    errors = [np.sum(np.square(values - decode(values), dtype=np.float64)) for decode in CODECS.values()]
    print(
        "|",
        name,
        "|",
        " | ".join(f"{error / np.sum(np.square(values, dtype=np.float64)):.2g}" for error in errors),
        "|",
    )
