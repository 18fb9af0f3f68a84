"""Reads TensorBoard's event files with nothing of ours or TensorBoard's: framing, CRC-32C and protobuf's wire
format from their specifications. Importable; as a program it prints what a directory holds."""

import collections
import os
import struct
import sys

Point = collections.namedtuple("Point", "wall_time step value")
Histogram = collections.namedtuple("Histogram", "min max num sum sum_squares limits counts")


def _crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)  # Castagnoli's polynomial, reflected
        table.append(byte)
    return table


_TABLE = _crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def masked(crc):
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    """The messages of a file. ValueError for a record whose framing or checksums are wrong."""
    with open(path, "rb") as file:
        data = file.read()
    at = 0
    while at < len(data):
        if len(data) - at < 12:
            raise ValueError("%s: byte %d: a record's head is cut short" % (path, at))
        head = data[at : at + 8]
        length, head_check = struct.unpack("<QI", data[at : at + 12])
        if masked(crc32c(head)) != head_check:
            raise ValueError("%s: byte %d: the length's checksum is wrong" % (path, at))
        if len(data) - at - 16 < length:
            raise ValueError("%s: byte %d: a record of %d bytes is cut short" % (path, at, length))
        message = data[at + 12 : at + 12 + length]
        (check,) = struct.unpack("<I", data[at + 12 + length : at + 16 + length])
        if masked(crc32c(message)) != check:
            raise ValueError("%s: byte %d: the message's checksum is wrong" % (path, at))
        yield message
        at += 16 + length


def _varint(data, at):
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return number, at


def fields(data):
    """(number, value) of each field: integers, or bytes to be unpacked by who knows the type."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(data, at)
        elif wire == 1:
            value, at = data[at : at + 8], at + 8
        elif wire == 2:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        elif wire == 5:
            value, at = data[at : at + 4], at + 4
        else:
            raise ValueError("wire type %d" % wire)
        if at > len(data):
            raise ValueError("field %d is cut short" % number)
        yield number, value


def _double(data):
    return struct.unpack("<d", data)[0]


def _histogram(data):
    scalars = dict.fromkeys(range(1, 6), 0.0)
    lists = {6: (), 7: ()}
    for number, value in fields(data):
        if number in scalars:
            scalars[number] = _double(value)
        else:
            lists[number] = struct.unpack("<%dd" % (len(value) // 8), value)
    return Histogram(*[scalars[i] for i in range(1, 6)], lists[6], lists[7])


class EventFile:
    """The content of one file: version, start (step of its START, or None), scalars and histograms by tag."""

    def __init__(self, path):
        self.path = path
        self.version = None
        self.start = None
        self.scalars = collections.defaultdict(list)
        self.histograms = collections.defaultdict(list)
        for index, message in enumerate(records(path)):
            self._event(index, message)

    def _event(self, index, message):
        event = dict(fields(message))
        wall_time, step = _double(event[1]), event.get(2, 0)
        if index == 0:
            self.version = event[3].decode()
        if 7 in event and dict(fields(event[7])).get(1) == 1:
            self.start = step
        for number, value in fields(event.get(5, b"")):
            if number != 1:
                raise ValueError("%s: a summary has field %d" % (self.path, number))
            parts = dict(fields(value))
            tag = parts[1].decode()
            if 2 in parts:
                self.scalars[tag].append(Point(wall_time, step, struct.unpack("<f", parts[2])[0]))
            if 5 in parts:
                self.histograms[tag].append(Point(wall_time, step, _histogram(parts[5])))


def read_directory(path):
    """All files, oldest first."""
    names = sorted(name for name in os.listdir(path) if name.startswith("events.out.tfevents."))
    return [EventFile(os.path.join(path, name)) for name in names]


if __name__ == "__main__":
    for file in read_directory(sys.argv[1]):
        print(file.path, file.version, "from step", file.start)
        for tag, points in sorted(file.scalars.items()):
            print(
                "  %-32s %5d points, the last %g at %d"
                % (tag, len(points), points[-1].value, points[-1].step)
            )
        for tag, points in sorted(file.histograms.items()):
            print("  %-32s %5d histograms, the last of %d" % (tag, len(points), points[-1].value.num))
