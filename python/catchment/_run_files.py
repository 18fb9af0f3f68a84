"""Reads the files that a run writes into its directory."""

import fcntl
import json
import os
import struct
from typing import Any, Dict, Optional

_TAIL = 1 << 16
# struct flock of Linux on x86-64: type, whence, start, length, process. F_GETLK sets the type to F_UNLCK if
# nothing is locked.
_FLOCK = "hhqqi0q"


def read_json(path: str) -> Any:
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def modified(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0


def master_runs(directory: str) -> bool:
    """Returns whether a process holds master.lock; False also if that cannot be seen from here."""
    try:
        with open(os.path.join(directory, "master.lock"), "rb") as file:
            asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            return bool(struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))[0] != fcntl.F_UNLCK)
    except OSError:
        return False


def row_of(line: bytes) -> Optional[Dict[str, Any]]:
    """Returns the object of a line of metrics.jsonl. None if the line is not finished, or damaged: a machine
    that loses power may leave zeros in a file."""
    try:
        row = json.loads(line.strip(b"\0").decode("utf-8")) if line.endswith(b"\n") else None
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def last_row(path: str) -> Optional[Dict[str, Any]]:
    """Returns the last whole line of a metrics.jsonl that is being written."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            rows = [row_of(line) for line in file.read().splitlines(keepends=True)[-2:]]
            return next((row for row in reversed(rows) if row is not None), None)
    except OSError:
        return None


def is_score(name: str) -> bool:
    """Returns whether a metric is one of evaluations, which every line repeats until the next one."""
    return name.startswith("test_")


def flat(row: Dict[str, Any]) -> Dict[str, Any]:
    own = {"program/" + name: value for name, value in row.get("program", {}).items()}
    return {**{key: value for key, value in row.items() if not isinstance(value, (dict, list))}, **own}
