"""Payloads of blocks as docs/codecs.md describes them, for float32 vectors of NumPy."""

import math

import numpy

FLOAT32, BFLOAT16, FLOAT16, TOP_K = "FLOAT32", "BFLOAT16", "FLOAT16", "TOP_K"

# Codec: (values of a group, largest level).
GROUPS = {"INT8": (256, 127), "E2M1": (128, 6), "E3M0": (128, 1)}
# Codec of 4 bits: (levels, thresholds between them).
LEVELS = {
    "E2M1": ([0, 0.5, 1, 1.5, 2, 3, 4, 6], [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5]),
    "E3M0": ([0, *(2.0**k for k in range(-6, 1))], [2.0**-7, *(0.75 * 2.0**k for k in range(-5, 1))]),
}


def to_bfloat16(values):
    bits = values.view(numpy.uint32).astype(numpy.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return numpy.where(numpy.isnan(values), bits >> 16 | 0x40, rounded).astype("<u2")


def float16_scale(values):
    """Returns the power of two with which the block's largest magnitude comes to lie
    between 2^14 and 2^15."""
    largest = float(numpy.max(numpy.abs(values)))
    if largest == 0 or not math.isfinite(largest):
        return 1.0
    exponent = math.frexp(largest)[1] - 1
    return 2.0 ** min(113, max(-126, exponent - 14))


def encode(codec, values):
    """Returns the payload and the scale. Codecs with error feedback have encoders with a state:
    error_feedback()."""
    if codec == FLOAT32:
        return values.astype("<f4").tobytes(), None
    if codec == BFLOAT16:
        return to_bfloat16(values).tobytes(), None
    scale = float16_scale(values)
    return (values / numpy.float32(scale)).astype("<f2").tobytes(), scale


def decode(codec, payload, scale, size):
    """Returns the values of an answer's payload."""
    if codec == FLOAT32:
        values = numpy.frombuffer(payload, "<f4").astype(numpy.float32)
    elif codec == BFLOAT16:
        values = (numpy.frombuffer(payload, "<u2").astype(numpy.uint32) << 16).view(numpy.float32)
    else:
        values = numpy.frombuffer(payload, "<f2").astype(numpy.float32) * numpy.float32(scale)
    if values.size != size:
        raise ValueError("a block of %d values came with %d" % (size, values.size))
    return values


def error_feedback(codec, compression, size):
    """Returns the encoder of a shard of `size` values, or None if the codec has no residual."""
    if codec == TOP_K:
        return TopK(compression.top_k_fraction, compression.residual_decay, size)
    return ScaledGroups(codec, compression.residual_decay, size) if codec in GROUPS else None


class ScaledGroups:
    """Codes of 8 or 4 bits with a scale for each group, with error feedback:
    the residual of one shard's values."""

    def __init__(self, codec, decay, size):
        self.codec, self.decay, self.residual = codec, numpy.float32(decay), numpy.zeros(size, numpy.float32)

    def encode(self, begin, values, samples):
        """Returns the payload of the block whose first value is the shard's value `begin`."""
        residual = self.residual[begin : begin + values.size]
        total = self.decay * residual + values if samples else numpy.zeros(values.size, numpy.float32)
        size = GROUPS[self.codec][0]
        scales, codes, sent = zip(*(self._group(total[at : at + size]) for at in range(0, total.size, size)))
        sent = numpy.concatenate(sent)
        if samples and numpy.all(numpy.isfinite(sent)):
            residual[:] = total - sent
        codes = numpy.concatenate(codes).astype(numpy.uint8)
        if self.codec in LEVELS:
            codes = numpy.append(codes, numpy.zeros(codes.size % 2, numpy.uint8))
            codes = codes[::2] | codes[1::2] << 4
        return numpy.array(scales, "<f4").tobytes() + codes.tobytes()

    def _group(self, total):
        """Returns the scale, the codes and the values that they stand for."""
        largest = numpy.float32(GROUPS[self.codec][1])
        magnitudes = numpy.abs(total)
        scale = numpy.max(magnitudes) / largest
        if not numpy.isfinite(largest * scale):
            scale = numpy.float32(numpy.nan)
        elif numpy.max(magnitudes) < 2.0**-100:
            scale = numpy.float32(0)
        if not scale > 0:
            return scale, numpy.zeros(total.size, numpy.uint8), numpy.full(total.size, scale)
        if self.codec not in LEVELS:
            codes = numpy.rint(total / scale)
            return scale, codes.astype(numpy.int8).view(numpy.uint8), codes * scale
        levels, thresholds = (numpy.array(row, numpy.float32) for row in LEVELS[self.codec])
        level = numpy.searchsorted(thresholds * scale, magnitudes, side="right")
        negative = (total < 0) & (level > 0)
        return (
            scale,
            level + 8 * negative,
            numpy.where(negative, -1, 1).astype(numpy.float32) * levels[level] * scale,
        )


class TopK:
    """The largest values of each block, with error feedback: the residual of one shard's values."""

    def __init__(self, fraction, decay, size):
        self.fraction, self.decay, self.residual = (
            fraction,
            numpy.float32(decay),
            numpy.zeros(size, numpy.float32),
        )

    def encode(self, begin, values, samples):
        """Returns the payload of the block whose first value is the shard's value `begin`."""
        count = max(1, math.floor(self.fraction * values.size + 0.5))
        if samples == 0:
            return self._payload(numpy.arange(count), numpy.zeros(values.size, numpy.float32))
        residual = self.residual[begin : begin + values.size]
        total = self.decay * residual + values
        magnitudes = numpy.where(numpy.isnan(total), numpy.inf, numpy.abs(total))
        chosen = numpy.sort(numpy.argsort(-magnitudes, kind="stable")[:count])
        payload = self._payload(chosen, total)
        if numpy.all(numpy.isfinite(total[chosen])):
            total[chosen] = 0
            residual[:] = total
        return payload

    @staticmethod
    def _payload(indices, values):
        return indices.astype("<u4").tobytes() + values[indices].astype("<f4").tobytes()
