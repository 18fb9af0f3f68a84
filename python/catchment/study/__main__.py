"""`python3 -m catchment.study COMMAND ARGS`: what `catchment COMMAND ARGS` starts."""

import importlib
import io
import json
import signal
import sys
from typing import Any, List, Sequence

from . import errors
from .command_line import Stream, Streams, standard_streams

# The modules of the commands. Each has main(args, streams), which returns the exit code.
COMMANDS = {
    "advise": "advise",
    "compare": "options",
    "diff": "diff",
    "report": "report",
    "runs": "list_runs",
    "simulate": "simulate",
    "slurm": "slurm",
    "tune": "tune",
    "watch": "watch",
}


signal.signal(signal.SIGINT, signal.SIG_DFL)  # Not a KeyboardInterrupt while modules are imported.


def _run(command: str, args: Sequence[str], streams: Streams) -> int:
    return int(importlib.import_module("." + COMMANDS[command], __package__).main(args, streams))


def _describe() -> List[Any]:
    """Returns the command lines of all commands."""
    texts = [io.StringIO() for _ in COMMANDS]
    for command, text in zip(COMMANDS, texts):
        _run(command, ["--help=json"], Streams(Stream(text), Stream(text)))
    return [json.loads(text.getvalue()) for text in texts]


def main(args: Sequence[str]) -> int:
    streams = standard_streams()
    if args and args[0] == "--help=json":
        streams.out.write_whole(json.dumps(_describe()) + "\n")
        return 0
    if not args or args[0] not in COMMANDS:
        streams.err.write("catchment.study: takes a command: %s\n" % ", ".join(COMMANDS))
        return errors.USAGE
    return _run(args[0], args[1:], streams)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
