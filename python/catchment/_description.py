"""Writes what `catchment train --program` asks a program for before it starts the job: the model and its
initial weights."""

import json
import os
import struct
from typing import List, Sequence, Tuple

from ._groups import Group

MODEL_FILE = "model.textproto"
WEIGHTS_FILE = "weights.safetensors"
NOTES_FILE = "notes"

Tensors = List[Tuple[str, Tuple[int, ...]]]  # names and shapes


def _quoted(text: str) -> str:
    """As protobuf's text format has it."""
    escaped = "".join(
        c if 32 <= ord(c) < 127 and c not in '\\"' else "".join("\\%03o" % b for b in c.encode("utf-8"))
        for c in text
    )
    return '"%s"' % escaped


def write_weights(path: str, tensors: Tensors, values: List[bytes]) -> None:
    """Writes float32 tensors as a safetensors file. tensors: (name, shape); values: of each its bytes."""
    header, at = {}, 0
    for (name, shape), value in zip(tensors, values):
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + len(value)]}
        at += len(value)
    text = json.dumps(header).encode("utf-8")
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        for value in values:
            file.write(value)


def describe(
    directory: str,
    tensors: Tensors,
    values: List[bytes],
    train_samples: int,
    test_samples: int,
    local_steps: bool = False,
    notes: Sequence[str] = (),
    groups: Sequence[Group] = (),
) -> None:
    """Writes the files. The model, which comes last, is a part of a job. notes:
    sentences for who starts it."""
    write_weights(os.path.join(directory, WEIGHTS_FILE), tensors, values)
    with open(os.path.join(directory, NOTES_FILE), "w", encoding="utf-8") as file:
        file.writelines(" ".join(note.split()) + "\n" for note in notes)
    lines = ["model {", "  external {"]
    for name, shape in tensors:
        lines.append("    tensors { name: %s%s }" % (_quoted(name), "".join(" shape: %d" % n for n in shape)))
    if local_steps:
        lines.append("    local_steps: true")
    lines += [
        "  }",
        "}",
        "data {",
        "  external {",
        "    train_samples: %d" % train_samples,
        "    test_samples: %d" % test_samples,
        "  }",
        "}",
    ]
    lines += ["optimizer {"] * bool(groups)
    for group in groups:
        names = "".join(" names: %s" % _quoted(name) for name in group["names"])
        settings = "".join(
            " %s: %s" % (name, str(value).lower()) for name, value in group.items() if name != "names"
        )
        lines.append("  groups {%s%s }" % (names, settings))
    lines += ["}"] * bool(groups) + [""]
    with open(os.path.join(directory, MODEL_FILE), "w") as file:
        file.write("\n".join(lines))
