"""Payloads of blocks as docs/codecs.md describes them, for float32 vectors of NumPy."""
import math

import numpy

FLOAT32, BFLOAT16, FLOAT16, TOP_K = "FLOAT32", "BFLOAT16", "FLOAT16", "TOP_K"


def to_bfloat16(values):
    bits = values.view(numpy.uint32).astype(numpy.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return numpy.where(numpy.isnan(values), bits >> 16 | 0x40, rounded).astype("<u2")


def float16_scale(values):
    """Returns the power of two with which the block's largest magnitude comes to lie between 2^14 and 2^15."""
    largest = float(numpy.max(numpy.abs(values)))
    if largest == 0 or not math.isfinite(largest):
        return 1.0
    exponent = math.frexp(largest)[1] - 1
    return 2.0 ** min(113, max(-126, exponent - 14))


def encode(codec, values):
    """Returns the payload and the scale. TOP_K has an encoder with a state, TopK."""
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


class TopK:
    """The largest values of each block, with error feedback: the residual of one shard's values."""

    def __init__(self, fraction, size):
        self.fraction, self.residual = fraction, numpy.zeros(size, numpy.float32)

    def encode(self, begin, values, samples):
        """Returns the payload of the block whose first value is the shard's value `begin`."""
        count = max(1, math.floor(self.fraction * values.size + 0.5))
        if samples == 0:
            return self._payload(numpy.arange(count), numpy.zeros(values.size, numpy.float32))
        residual = self.residual[begin:begin + values.size]
        total = residual + values
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
