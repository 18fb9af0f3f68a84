"""The binary that tests start, and command lines with the output that the reference, an earlier version in
C++, had for them."""

import io
import json
import os
import re
import tempfile
from typing import Any, List, NamedTuple

from catchment.study import core
from catchment.study.command_line import Stream, Streams

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")


def use_binary() -> None:
    """Makes the commands use $CATCHMENT_BINARY, or the one that Bazel has built, from any directory, and
    temporary files be where Bazel wants them."""
    built = "cli/catchment" if os.path.exists("cli/catchment") else "bazel-bin/cli/catchment"
    os.environ["CATCHMENT_BINARY"] = os.path.abspath(os.environ.get("CATCHMENT_BINARY", built))
    tempfile.tempdir = os.environ.get("TEST_TMPDIR")


def cases_of(name: str) -> List[Any]:
    with open("%s/%s/cases.json" % (DATA, name), encoding="utf-8") as file:
        return list(json.load(file))


def presets_of(cases: List[Any]) -> List[str]:
    """Returns the presets that the cases name, in their order: the reference did not have later ones."""
    return [name for name in core.presets() if re.search(r"\b%s\b" % name, json.dumps(cases))]


def as_then(text: str) -> str:
    """Returns the text without the defaults of the jobs' fields that the reference did not have."""
    return re.sub(r"(\\n|\n)  hold_up_seconds: 20(?=\1)", "", text)


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


def run(command: Any, args: List[str]) -> Outcome:
    """Runs a command's main() in the directory of the cases' files."""
    out, err = io.StringIO(), io.StringIO()
    before = os.getcwd()
    core.DOOR.close()  # it reads files from the directory in which it was started
    os.chdir(DATA + "/advise")
    try:
        code = command.main(args, Streams(Stream(out), Stream(err)))
    finally:
        core.DOOR.close()
        os.chdir(before)
    return Outcome(code, out.getvalue(), err.getvalue())
