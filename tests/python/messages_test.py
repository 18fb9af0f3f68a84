#!/usr/bin/env python3
"""python/catchment/_messages.py against protobuf's own compiler,
which encodes and decodes the same messages."""

import array
import re
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, "python")
from catchment import _attachment, _messages

PROTO = "proto/attach.proto"


def protoc(flag, message, data):
    command = ["protoc", "--%s=catchment.v1.%s" % (flag, message), PROTO]
    return subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True).stdout


def as_protobuf_reads(kind, fields):
    """Returns what protobuf makes of an encoded FromProgram, as text on one line."""
    data = _messages.encode(_messages.FROM_PROGRAM, kind, fields)
    return " ".join(protoc("decode", "FromProgram", data).decode().split())


def as_protobuf_writes(text):
    return _messages.decode(_messages.TO_PROGRAM, protoc("encode", "ToProgram", text.encode()))


class MessagesTest(unittest.TestCase):
    def test_protobuf_reads_what_the_package_writes(self):
        tensors = [{"name": "a.weight", "shape": (300, 2)}, {"name": "scale\u00e9", "shape": ()}]
        hello = {
            "version": 1,
            "tensors": tensors,
            "more": True,
            "train_samples": 2**40,
            "test_samples": 0,
            "device": 'a "device"',
        }
        self.assertEqual(
            as_protobuf_reads("hello", hello),
            'hello { version: 1 tensors { name: "a.weight" shape: 300 shape: 2 } '
            'tensors { name: "scale\\303\\251" } more: true '
            'train_samples: 1099511627776 device: "a \\"device\\"" }',
        )
        self.assertEqual(as_protobuf_reads("final", {"begin": 128}), "final { begin: 128 }")
        self.assertEqual(as_protobuf_reads("final", {"begin": 0}), "final { }")
        self.assertEqual(
            as_protobuf_reads("done", {"step": 3, "loss": -0.1, "correct": 16384}),
            "done { step: 3 loss: -0.1 correct: 16384 }",
        )
        metrics = [{"name": "norm", "sum": 1.5, "count": 3}, {"name": "rate", "sum": 0.0, "count": 1}]
        self.assertEqual(
            as_protobuf_reads("done", {"step": 3, "metrics": metrics}),
            'done { step: 3 metrics { name: "norm" sum: 1.5 count: 3 } metrics { name: "rate" count: 1 } }',
        )
        self.assertEqual(
            as_protobuf_reads("failed", {"why": "x" * 200}), 'failed { why: "%s" }' % ("x" * 200)
        )
        self.assertEqual(
            as_protobuf_reads("statistic", {"name": "n", "values": array.array("f", [0.5, -2]).tobytes()}),
            'statistic { name: "n" values: 0.5 values: -2 }',
        )
        self.assertEqual(
            as_protobuf_reads("hello", {"version": 1, "local_steps": True}),
            "hello { version: 1 local_steps: true }",
        )
        self.assertEqual(as_protobuf_reads("left", {}), "left { }")
        self.assertEqual(as_protobuf_reads("left", {"why": "it ended"}), 'left { why: "it ended" }')
        self.assertEqual(
            as_protobuf_reads("scored", {"samples": 1, "loss_sum": 2.5, "correct": 0}),
            "scored { samples: 1 loss_sum: 2.5 }",
        )

    def test_the_package_reads_what_protobuf_writes(self):
        self.assertEqual(
            as_protobuf_writes(
                'welcome { job: "j" worker: 200 batch_size: 64 seed: 18446744073709551615 evaluates: true }'
            ),
            ("welcome", {"job": "j", "worker": 200, "batch_size": 64, "seed": 2**64 - 1, "evaluates": True}),
        )
        self.assertEqual(
            as_protobuf_writes("begin { step: 300 progress: 0.75 epoch: 3 learning_rate: 0.5 }"),
            ("begin", {"step": 300, "progress": 0.75, "epoch": 3, "learning_rate": 0.5}),
        )
        self.assertEqual(as_protobuf_writes("here { values: 4294967296 }"), ("here", {"values": 2**32}))
        self.assertEqual(as_protobuf_writes("evaluate {}"), ("evaluate", {}))
        self.assertEqual(
            as_protobuf_writes('stop { why: "\\303\\251" failed: true }'),
            ("stop", {"why": "\u00e9", "failed": True}),
        )

    def test_both_have_the_same_fields(self):
        for message, schema in (("FromProgram", _messages.FROM_PROGRAM), ("ToProgram", _messages.TO_PROGRAM)):
            self.assertEqual(fields_in_proto(message), fields_in_schema(schema), message)

    def test_refuses_what_is_no_message(self):
        for data in (b"", b"\xff", b"\x12\x05\x01", b"\x0d\x00", b"\x0b", b"\x10\x01"):
            with self.assertRaises(ValueError, msg=data):
                _messages.decode(_messages.TO_PROGRAM, data)

    def test_leaves_fields_of_a_later_version_aside(self):
        begin = b"\x12\x05\x08\x07\x98\x06\x01"  # step 7, and field 99
        self.assertEqual(_messages.decode(_messages.TO_PROGRAM, begin), ("begin", {"step": 7}))


class ReasonsTest(unittest.TestCase):
    def test_an_exception_is_one_line_that_ends_with_its_cause(self):
        frames = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\n'
        for message, line in (
            ("one\n  two", "one two"),
            ("", None),
            (
                "Caught it in process 0.\nOriginal " + frames + "OSError: full\nof files",
                "Caught it in process 0. ... OSError: full of files",
            ),
            (
                "first:\n" + frames + "KeyError: 1\n\nDuring that:\n" + frames + "OSError: full",
                "first: ... OSError: full",
            ),
            (frames, " ".join(frames.split())),
        ):
            self.assertEqual(
                _attachment.describe_exception(ValueError, ValueError(message)),
                "ValueError" if line is None else "ValueError: " + line,
            )

    def test_a_long_reason_keeps_its_end(self):
        short = _attachment._shorten("a" + "x" * 100000 + "b")
        self.assertLess(len(short), 20000)
        self.assertEqual((short[0], short[-1]), ("a", "b"))
        self.assertEqual(_attachment._shorten("x" * 10000), "x" * 10000)


def fields_in_schema(schema):
    found = {}
    for number, (name, kind) in schema.items():
        found[name] = number
        inner = kind[0] if isinstance(kind, list) else kind
        if isinstance(inner, dict):
            found.update({"%s.%s" % (name, field): n for field, n in fields_in_schema(inner).items()})
    return found


def fields_in_proto(message):
    """Every field with its number, in the shape of fields_in_schema, from the file's text."""
    with open(PROTO) as file:
        text = re.sub(r"//.*", "", file.read())
    types, path = {}, []
    for opened, name, kind, field, number in re.findall(
        r"((?:message|oneof) (\w+) \{)|(?:repeated )?(\w+) (\w+) = (\d+);|\}", text
    ):
        if opened:
            path.append("" if opened.startswith("oneof") else name)
            types.setdefault(path[-1], [])
        elif field:
            types[[name for name in path if name][-1]].append((kind, field, int(number)))
        else:
            path.pop()

    def expand(kind):
        found = {}
        for inner, field, number in types.get(kind, []):
            found[field] = number
            found.update({"%s.%s" % (field, name): n for name, n in expand(inner).items()})
        return found

    return expand(message)


if __name__ == "__main__":
    unittest.main()
