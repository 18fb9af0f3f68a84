"""`catchment runs [DIR...]`: the runs under directories."""

import json
import os
import types
from typing import Callable, List, Sequence, Tuple

from . import command_line, text
from .command_line import Argument, CommandLine, Streams
from .errors import FAILED
from .found_runs import FoundRun, find_runs, read_found
from .words import parts_of

# Columns with their cells.
_COLUMNS: Sequence[Tuple[str, Callable[[FoundRun], str]]] = (
    ("run", lambda run: run.directory),
    ("job", lambda run: run.job),
    ("preset", lambda run: run.preset),
    ("workers", lambda run: "" if run.workers is None else str(run.workers)),
    ("phase", lambda run: run.phase),
    ("accuracy", lambda run: "" if run.test_accuracy is None else text.percent(run.test_accuracy)),
    ("loss", lambda run: "" if run.test_loss is None else text.short(run.test_loss, 4)),
    ("time", lambda run: "" if run.wall_seconds is None else text.seconds(run.wall_seconds)),
    ("build", lambda run: run.build.replace("commit ", "")),
    ("reason", lambda run: run.reason),
)


def table_of(runs: Sequence[FoundRun]) -> str:
    table = text.Table()
    table.add([name for name, _ in _COLUMNS])
    for run in runs:
        table.add([text.one_line(cell(run)) for _, cell in _COLUMNS])
    return table.print(0)


def _run(directories: Sequence[str], as_json: bool, streams: Streams) -> int:
    missing = [one for one in directories if not os.path.isdir(one)]
    found: List[FoundRun] = []
    for directory in directories or ["."]:
        found += map(read_found, find_runs(directory))
    if as_json:
        # Only ASCII, so that nothing in it needs an escape that JSON does not have.
        streams.out.write(json.dumps({"version": 1, "runs": [run._asdict() for run in found]}) + "\n")
    elif found:
        streams.out.write(table_of(found))
    elif not missing:
        streams.out.write("there is no run in %s\n" % (", ".join(directories) or "this directory"))
    for one in missing:
        streams.err.write(
            "catchment runs: %s is not a directory; give the --out of a run, or one above it\n" % one
        )
    return FAILED if missing else 0


def main(args: Sequence[str], streams: Streams) -> int:
    """Runs a command line. Returns the exit code, which --help explains."""
    options, words = types.SimpleNamespace(directories=[], json=False), parts_of("help/runs.txt")
    line = CommandLine("catchment runs", words["usage"], words["notes"])
    line.argument = Argument("DIR", "out", options.directories.extend, lambda: True, several=True)
    line.flags.declare(options, words["flags"])
    return command_line.run(line, args, streams, lambda: _run(options.directories, options.json, streams))
