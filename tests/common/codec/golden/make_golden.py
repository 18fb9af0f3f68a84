"""Makes push_codecs.json: the payloads of codecs with error feedback, by NumPy in float32, from
docs/codecs.md alone.

    python3 make_golden.py > push_codecs.json          (needs numpy; Debian's python3-numpy, 1.24, was used)

The file:
  numpy  version
  cases  [{name, codec, decay, fraction, pushes}], `fraction` with TOP_K only. The pushes of a case are of one
         worker and one block, so that each has the residual of the previous ones:
         {samples, gradient, payload, values, residual}, all but `samples` as the hexadecimal digits of their
         bytes: the contribution, float32; its payload; what the server reads, float32; the residual after the
         push, float32
"""

import json
import sys

import numpy as np

F = np.float32
MAX = np.finfo(F).max
TINY = np.finfo(F).smallest_subnormal

# codec: (group, the level of the scale, levels in ascending order, thresholds in scales)
FOUR_BITS = {
    "E2M1": (128, F(6), [0, 0.5, 1, 1.5, 2, 3, 4, 6], [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5]),
    "E3M0": (
        128,
        F(1),
        [0] + [2.0 ** (k - 7) for k in range(1, 8)],
        [2.0**-7] + [0.75 * 2.0 ** (k - 7) for k in range(2, 8)],
    ),
}


def encode_group(codec, a):
    """Returns the scale, the codes and the values of one group."""
    s = np.max(np.abs(a))  # NaN if one is
    largest = F(127) if codec == "INT8" else FOUR_BITS[codec][1]
    u = F(s / largest)
    if s < F(2.0**-100):
        u = F(0)
    elif not np.isfinite(F(largest * u)):
        u = F(np.nan)
    codes = np.zeros(a.size, np.uint8)
    if codec == "INT8":
        if u > 0:
            codes = np.clip(np.rint(a / u), -127, 127).astype(np.int8).view(np.uint8)
        return u, codes, codes.view(np.int8).astype(F) * u
    _, _, levels, thresholds = FOUR_BITS[codec]
    if u > 0:
        level = np.array([sum(bool(abs(x) >= F(F(t) * u)) for t in thresholds) for x in a], np.uint8)
        codes = level + np.where((a < 0) & (level > 0), 8, 0).astype(np.uint8)
    magnitudes = np.array([F(F(levels[code % 8]) * u) for code in codes], F)
    return u, codes, np.where(codes >= 8, -magnitudes, magnitudes)


def encode_groups(codec, a):
    """Returns the payload and the values of a block."""
    size = 256 if codec == "INT8" else FOUR_BITS[codec][0]
    groups = [encode_group(codec, a[begin : begin + size]) for begin in range(0, a.size, size)]
    scales = b"".join(np.array(u, "<f4").tobytes() for u, _, _ in groups)
    codes = np.concatenate([codes for _, codes, _ in groups])
    if codec != "INT8":
        padded = np.append(codes, np.zeros(codes.size % 2, np.uint8))
        codes = padded[0::2] + 16 * padded[1::2]
    return scales + codes.astype(np.uint8).tobytes(), np.concatenate([values for _, _, values in groups])


def encode_top_k(fraction, a):
    count = max(1, int(np.floor(np.float64(F(fraction)) * a.size + 0.5)))
    order = np.argsort(-np.where(np.isnan(a), np.inf, np.abs(a)), kind="stable")
    chosen = np.sort(order[:count])
    values = np.zeros(a.size, F)
    values[chosen] = a[chosen]
    return chosen.astype("<u4").tobytes() + a[chosen].astype("<f4").tobytes(), values


def digits(values):
    return np.asarray(values, "<f4").tobytes().hex()


def make_case(name, codec, gradients, decay=1.0, fraction=None):
    """`gradients`: float32 vectors; None is a contribution without samples."""
    size = next(g.size for g in gradients if g is not None)
    residual = np.zeros(size, F)
    pushes = []
    for gradient in gradients:
        if gradient is None:
            zeros = np.zeros(size, F)
            payload, values = (
                encode_groups(codec, zeros) if fraction is None else encode_top_k(fraction, zeros)
            )
            pushes.append(
                dict(
                    samples=0,
                    gradient=digits(zeros),
                    payload=payload.hex(),
                    values=digits(values),
                    residual=digits(residual),
                )
            )
            continue
        a = F(decay) * residual + gradient
        payload, values = encode_groups(codec, a) if fraction is None else encode_top_k(fraction, a)
        if np.all(np.isfinite(values)):
            residual = a - values
        pushes.append(
            dict(
                samples=1,
                gradient=digits(gradient),
                payload=payload.hex(),
                values=digits(values),
                residual=digits(residual),
            )
        )
    return dict(
        name=name,
        codec=codec,
        decay=decay,
        **({} if fraction is None else dict(fraction=fraction)),
        pushes=pushes,
    )


def neighbours(x):
    x = F(x)
    return [np.nextafter(x, F(-np.inf)), x, np.nextafter(x, F(np.inf))]


def around_thresholds(codec, s):
    """Returns a group with the largest magnitude s and, in both signs,
    each threshold and its two neighbours."""
    if codec == "INT8":
        u = F(F(s) / F(127))
        middles = [F(F(k + 0.5) * u) for k in (0, 1, 2, 3, 62, 63, 64, 125, 126)]
    else:
        _, largest, _, thresholds = FOUR_BITS[codec]
        u = F(F(s) / largest)
        middles = [F(F(t) * u) for t in thresholds]
    values = [x for middle in middles for x in neighbours(middle)]
    return np.array([s] + [x for x in values + [-x for x in values] if abs(x) < s], F)


def make_cases():
    draw = np.random.default_rng(1)

    def normal(n, scale=1.0):
        return (scale * draw.standard_normal(n)).astype(F)

    for codec in ("INT8", "E2M1", "E3M0"):
        yield make_case("zeros", codec, [np.array([0, -0.0, 0, 0, 0], F)])
        yield make_case("one value", codec, [np.array([-0.3], F)] * 2)
        for n in (1, 127, 128, 129, 255, 257):
            yield make_case(f"{n} values", codec, [normal(n)])
        for s in (6, 127, 0.1, 3e-5, 1e30):
            yield make_case(f"thresholds of {s}", codec, [around_thresholds(codec, F(s))])
        yield make_case("subnormals", codec, [np.array([TINY, -TINY, 100 * TINY, 1e-39], F)] * 2)
        yield make_case("subnormals beside numbers", codec, [np.array([TINY, -1e-39, 1, -0.0], F)] * 2)
        for s in neighbours(2.0**-100):
            yield make_case(
                f"scale {float(s).hex()}", codec, [np.array([s, -s / 2, s / 3, s / 50, 0], F)] * 2
            )
        for s in (MAX, np.nextafter(MAX, F(0)), F(MAX * F(0.999)), F(2.0**127)):
            yield make_case(
                f"scale {float(s).hex()}", codec, [np.array([1], F), np.array([s], F), np.array([1], F)]
            )
        for bad in (np.nan, np.inf, -np.inf):
            broken = normal(140)
            broken[130] = bad
            yield make_case(f"{bad}", codec, [normal(140), broken, normal(140)], 0.95)
        yield make_case("no samples", codec, [normal(131), None, normal(131)], 0.95)
        for decay in (1.0, 0.95):
            yield make_case(
                f"five pushes, decay {decay}", codec, [normal(131, 0.01) for _ in range(5)], decay
            )
    for decay in (1.0, 0.95):
        yield make_case(
            f"five pushes, decay {decay}", "TOP_K", [normal(131, 0.01) for _ in range(5)], decay, 0.05
        )


if __name__ == "__main__":
    with np.errstate(all="ignore"):
        json.dump(dict(numpy=np.__version__, cases=list(make_cases())), sys.stdout, indent=0)
    print()
