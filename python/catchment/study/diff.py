"""`catchment diff DIR DIR`: in what two runs differ."""

from typing import Callable, Dict, List, Sequence, Tuple

from . import command_line, core, text
from .command_line import Argument, CommandLine, Streams
from .errors import Refused, Usage
from .found_runs import FoundRun, is_run, read_found
from .words import parts_of

# Results, with their words.
_SCORES: Sequence[Tuple[str, str, Callable[[float], str]]] = (
    ("test accuracy", "test_accuracy", text.percent),
    ("test loss", "test_loss", lambda loss: text.short(loss, 4)),
    ("time", "wall_seconds", text.seconds),
    ("samples", "samples", lambda n: text.count(int(n))),
    ("updates", "updates", lambda n: text.count(int(n))),
    ("samples a second", "samples_per_second", lambda rate: text.count(text.rounded(rate))),
    ("staleness, mean", "staleness_mean", lambda mean: "%.2f" % mean),
)


def _fields(directory: str) -> Dict[str, str]:
    try:
        return dict(core.job_of_run(directory, fields=True).fields)
    except core.DoorError as error:
        raise Refused("the job of %s cannot be read: %s" % (directory, error.message)) from error


def differing(a: Dict[str, str], b: Dict[str, str]) -> List[List[str]]:
    """Returns the paths of fields with different values, and the values; of a field that is not set, ""."""
    paths = sorted(path for path in a.keys() | b.keys() if a.get(path) != b.get(path))
    return [[path, a.get(path, ""), b.get(path, "")] for path in paths]


def _achieved(a: FoundRun, b: FoundRun) -> str:
    if a.test_accuracy is not None and b.test_accuracy is not None:
        points = 100 * (b.test_accuracy - a.test_accuracy)
        if abs(points) < 0.005:
            return "is as accurate as %s" % a.directory
        more = "more" if points > 0 else "less"
        return "is %.2f points %s accurate than %s" % (abs(points), more, a.directory)
    if a.test_loss is not None and b.test_loss is not None:
        losses = text.short(b.test_loss, 4), a.directory, text.short(a.test_loss, 4)
        return "has a test loss of %s, and %s one of %s" % losses
    return "and %s have no score in common" % a.directory


def sentence(a: FoundRun, b: FoundRun, fields: int) -> str:
    """Returns in what the second run differs from the first."""
    words = "%s %s" % (b.directory, _achieved(a, b))
    if a.wall_seconds and b.wall_seconds:
        words += ", after %s times the time" % text.short(b.wall_seconds / a.wall_seconds, 3)
    words += "; their jobs %s" % ("differ in " + text.plural(fields, "field") if fields else "are the same")
    ends = ["; %s is %s" % (run.directory, run.phase) for run in (a, b) if run.phase != "DONE"]
    return words + "".join(ends) + "."


def _run(directories: Sequence[str], streams: Streams) -> int:
    for directory in directories:
        if not is_run(directory):
            raise Refused(
                "%s is not the directory of a run; `catchment runs` lists those below one" % directory
            )
    a, b = (read_found(one)._replace(directory=text.one_line(one)) for one in directories)
    fields = differing(*map(_fields, directories))
    scores = [
        [name, *("" if value is None else words(value) for value in (getattr(a, key), getattr(b, key)))]
        for name, key, words in _SCORES
    ]
    about = [[name, getattr(a, name), getattr(b, name)] for name in ("phase", "reason", "build")]
    streams.out.write(sentence(a, b, len(fields)) + "\n")
    for head, rows in (("field of the job", fields), ("result", scores + about)):
        table = text.Table()
        table.add([head, a.directory, b.directory])
        for row in rows:
            if any(row[1:]):
                table.add(map(text.one_line, row))
        streams.out.write("\n" + table.print(0) if rows else "")
    return 0


def main(args: Sequence[str], streams: Streams) -> int:
    """Runs a command line. Returns the exit code, which --help explains."""
    directories: List[str] = []

    def check() -> None:
        if len(directories) != 2:
            raise Usage("takes two runs, for example: catchment diff out-sync out-downpour")

    words = parts_of("help/diff.txt")
    line = CommandLine("catchment diff", words["usage"], words["notes"], check=check)
    line.argument = Argument("DIR", "out-sync out-downpour", directories.extend, several=True)
    return command_line.run(line, args, streams, lambda: _run(directories, streams))
