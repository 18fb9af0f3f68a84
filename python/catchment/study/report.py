"""`catchment report DIR... --out=DIR`: its command line; report_runs.py makes the report."""

import types
from typing import Sequence

from .command_line import Argument, CommandLine, Streams, run
from .errors import Usage
from .words import parts_of


def main(args: Sequence[str], streams: Streams) -> int:
    """Runs a command line. Returns the exit code, which --help explains."""
    options = types.SimpleNamespace(directories=[], out="", target=0.0)

    def check() -> None:
        if options.target >= 1:
            raise Usage("--target: must be a fraction below 1, such as 0.97")

    def command() -> int:
        from .report_runs import report  # Charts would slow down --help.

        report(options, args, streams.out)
        return 0

    words = parts_of("help/report.txt")
    line = CommandLine("catchment report", words["usage"], words["notes"], check=check)
    example = "out-sync out-downpour --out=report"
    line.argument = Argument("DIR", example, options.directories.extend, several=True)
    line.flags.declare(options, words["flags"])
    line.flags.require("out")
    return run(line, args, streams, command)
