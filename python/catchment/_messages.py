"""The messages of proto/attach.proto in protobuf's wire format, without the protobuf package.

A message is a pair (kind, fields), fields a dict by name; zero and empty values may be left out.
decode() leaves out only those that the sender left out. Only the parts of the format that these messages need
are here.
"""

import struct
from typing import Any, Dict, Iterator, List, Tuple

Schema = Dict[int, Tuple[str, Any]]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

# A schema: field number -> (name, type). A list around a type: repeated; bytes: repeated numbers as they lie
# in memory.
TENSOR = {1: ("name", str), 2: ("shape", [int])}
METRIC = {1: ("name", str), 2: ("sum", float), 3: ("count", int)}
FROM_PROGRAM = {
    1: (
        "hello",
        {
            1: ("version", int),
            2: ("tensors", [TENSOR]),
            3: ("more", bool),
            4: ("train_samples", int),
            5: ("test_samples", int),
            6: ("device", str),
            7: ("local_steps", bool),
            8: ("keeps_weights", bool),
        },
    ),
    2: ("final", {1: ("begin", int)}),
    3: ("done", {1: ("step", int), 2: ("loss", float), 3: ("correct", int), 4: ("metrics", [METRIC])}),
    4: ("failed", {1: ("why", str)}),
    5: ("scored", {1: ("samples", int), 2: ("loss_sum", float), 3: ("correct", int)}),
    6: ("statistic", {1: ("name", str), 2: ("values", bytes)}),
    7: ("left", {1: ("why", str)}),
    8: ("span", {1: ("name", str), 2: ("begin", float), 3: ("end", float), 4: ("thread", int)}),
    9: ("sent", {}),
}
EXCHANGE = {1: ("all", bool), 2: ("arrived", [int])}
TO_PROGRAM = {
    1: (
        "welcome",
        {
            1: ("job", str),
            2: ("worker", int),
            3: ("batch_size", int),
            4: ("seed", int),
            5: ("evaluates", bool),
            6: ("traces", bool),
            7: ("keeps_weights", bool),
            8: ("blend", float),
            9: ("elastic", bool),
        },
    ),
    2: (
        "begin",
        {
            1: ("step", int),
            2: ("progress", float),
            3: ("epoch", int),
            4: ("learning_rate", float),
            5: ("restarted", bool),
            6: ("exchange", EXCHANGE),
        },
    ),
    3: ("here", {1: ("values", int)}),
    4: ("evaluate", {}),
    5: ("stop", {1: ("why", str), 2: ("failed", bool), 3: ("result", bool)}),
    6: ("part", {1: ("fragment", int), 2: ("bounds", [int])}),
    7: ("send", {1: ("fragment", int), 2: ("exchange", EXCHANGE)}),
}


def encode(schema: Schema, kind: str, fields: Dict[str, Any]) -> bytes:
    """Returns the bytes of a message of `schema` with `kind` set to `fields`."""
    return _encode_fields(schema, {kind: fields})


def decode(schema: Schema, data: bytes) -> Tuple[str, Dict[str, Any]]:
    """Returns (kind, fields). Raises ValueError if `data` is not a valid message."""
    message = _decode_fields(schema, memoryview(data))
    if len(message) != 1:
        raise ValueError("a message of one kind was expected, got %d" % len(message))
    return next(iter(message.items()))


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # negative numbers: two's complement
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _encode_value(number: int, kind: Any, value: Any) -> bytes:
    if isinstance(kind, dict):
        value = _encode_fields(kind, value)
    elif kind is str:
        value = value.encode("utf-8", "replace")
    elif kind is bytes:
        pass
    elif kind is float:
        return _varint(number << 3 | _FIXED64) + struct.pack("<d", value)
    else:
        return _varint(number << 3 | _VARINT) + _varint(int(value))
    return _varint(number << 3 | _BYTES) + _varint(len(value)) + value


def _encode_fields(schema: Schema, fields: Dict[str, Any]) -> bytes:
    out: List[bytes] = []
    for number, (name, kind) in schema.items():
        if name not in fields:
            continue
        if isinstance(kind, list):
            out.extend(_encode_value(number, kind[0], value) for value in fields[name])
        else:
            out.append(_encode_value(number, kind, fields[name]))
    return b"".join(out)


def _read_varint(data: memoryview, at: int) -> Tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("a number is cut short")
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value & ((1 << 64) - 1), at


def _read_raw(data: memoryview, at: int, wire: int) -> Tuple[Any, int]:
    """Returns an integer or bytes, and where the next field begins."""
    if wire == _VARINT:
        return _read_varint(data, at)
    if wire == _BYTES:
        size, at = _read_varint(data, at)
    elif wire in (_FIXED64, _FIXED32):
        size = 8 if wire == _FIXED64 else 4
    else:
        raise ValueError("unknown wire type %d" % wire)
    if size > len(data) - at:
        raise ValueError("a field is cut short")
    return data[at : at + size], at + size


def _convert(kind: Any, raw: Any) -> Any:
    if isinstance(raw, int) != (kind in (int, bool)):
        raise ValueError("a field has another type")
    if isinstance(kind, dict):
        return _decode_fields(kind, raw)
    if kind is str:
        return bytes(raw).decode("utf-8", "replace")
    if kind is bytes:
        return bytes(raw)
    if kind is float:
        return struct.unpack("<d", raw)[0]
    return kind(raw)


def _packed(data: memoryview) -> Iterator[int]:
    """Yields the integers of a packed field."""
    at = 0
    while at < len(data):
        value, at = _read_varint(data, at)
        yield value


def _decode_fields(schema: Schema, data: memoryview) -> Dict[str, Any]:
    fields: Dict[str, Any] = {}
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        raw, at = _read_raw(data, at, tag & 7)
        if tag >> 3 not in schema:
            continue  # of a later version
        name, kind = schema[tag >> 3]
        if kind == [int] and tag & 7 == _BYTES:
            fields.setdefault(name, []).extend(_packed(raw))
        elif isinstance(kind, list):
            fields.setdefault(name, []).append(_convert(kind[0], raw))
        else:
            fields[name] = _convert(kind, raw)
    return fields
