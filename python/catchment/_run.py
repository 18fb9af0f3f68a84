"""Starts jobs on this machine from a script or a notebook: catchment.train and catchment.compare."""

from __future__ import annotations

import ctypes
import glob
import html
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from . import _command, _function, _run_files

if TYPE_CHECKING:
    from .study.results import Study

Path = Union[str, "os.PathLike[str]"]
Program = Union[Path, Callable[[], object]]
Table = List[Dict[str, Any]]

_SECONDS = 0.5  # between two looks at the measurements of a job
_REPORTED_LINES = 40  # of a command that failed
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)

_NO_PROGRAM = (
    "catchment.%s() needs the program catchment, which is neither in this package nor on the "
    "PATH; install the wheel, or set PATH"
)
_IN_WORKER = (
    "catchment.%s() was called in a program that a worker runs, so each worker would start a job; "
    "if the file is also the program, call it only when no job has started it"
)


def train(
    program: Optional[Program] = None,
    job: Optional[Path] = None,
    workers: Optional[int] = None,
    algorithm: Optional[str] = None,
    settings: Optional[Mapping[str, Any]] = None,
    out: Optional[str] = None,
    progress: bool = True,
    **flags: Any,
) -> Run:
    """Trains a job with servers and workers on this machine, as `catchment train` does; returns its result.

    program: the program of each worker: a function without arguments that calls catchment.join(), a Python
    file, or a shell command. A job file, *.textproto, may replace it.
    job: a job file.
    algorithm: a preset, such as "downpour".
    settings: values of fields of the job, as {"epochs": 3, "optimizer.learning_rate": 0.1}.
    out: the directory of all output; by default a new one in the directory for temporary files.
    progress: whether notes, scores and the state of the job are printed.
    flags: other flags of `catchment train`, such as servers=2, threads=1, evaluator=False,
    resume=True, overwrite=True.

    A function runs in its own processes. With the package cloudpickle, it may use anything defined around it;
    without it, only modules. Ctrl-C stops the job after a checkpoint; a second one kills it. Raises
    RuntimeError with the command's output if that fails.
    """
    if algorithm is not None:
        settings = {"algorithm.preset": algorithm, **(settings or {})}
    out = _directory(out)
    words = _words("train", program, job, out, settings, dict(flags, workers=workers, json=True))
    _execute(
        words,
        progress,
        lambda: _position(os.path.join(out, "metrics.jsonl")),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    return Run(out)


def compare(
    program: Optional[Program] = None,
    algorithms: Sequence[str] = (),
    job: Optional[Path] = None,
    workers: Union[int, Sequence[int], None] = None,
    settings: Optional[Mapping[str, Any]] = None,
    out: Optional[str] = None,
    progress: bool = True,
    **flags: Any,
) -> Study:
    """Trains a job with several algorithms, numbers of workers and seeds, as `catchment compare` does;
    returns the results, of which catchment.study.load(out) makes the same object later.

    algorithms: presets, such as ["sync", "downpour"].
    workers: numbers of workers.
    flags: other flags of `catchment compare`, such as seeds=1, budget="samples:120000", straggler="1:4x",
    target=0.97, search="none". A list repeats its flag.
    program, job, settings, out, progress: as for train(). With the same `out`,
    finished runs are not repeated.
    """
    out = _directory(out)
    flags.update(algorithms=",".join(algorithms) or None, workers=_listed(workers))
    words = _words("compare", program, job, out, settings, flags)
    _execute(
        words,
        progress,
        lambda: _position(*glob.glob(os.path.join(glob.escape(out), "*", "*", "metrics.jsonl"))),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    from .study.results import Study

    return Study(out)


class Run:
    """The result of train(). Notebooks show it as a table.

    out: the directory of all output (docs/outputs.md describes the files).
    summary: that of summary.json, a dict.
    metrics: those of metrics.jsonl over time, a list with a dict for each line, without those of single
    workers and servers. pandas.DataFrame(run.metrics) is a table of them. What the program has logged is
    under "program/NAME".
    scores: the test scores, a list of dicts with samples, seconds, test_accuracy and test_loss.
    weights: the path of the trained weights.
    """

    def __init__(self, out: str) -> None:
        """Reads the result of a run from its directory."""
        self.out = out
        self.weights = os.path.join(out, "model.safetensors")
        self.summary: Dict[str, Any] = _run_files.read_json(os.path.join(out, "summary.json"))
        with open(os.path.join(out, "metrics.jsonl"), "rb") as file:
            self.metrics: Table = [
                _run_files.flat(row) for row in map(_run_files.row_of, file) if row is not None
            ]
        self.scores = _scores(self.metrics)

    def _facts(self) -> List[Tuple[str, str]]:
        s = self.summary
        facts = [
            ("job", s["job"]),
            ("algorithm", s["algorithm"]),
            ("workers", s["workers"]),
            ("ended", s["phase"]),
            ("samples", s["samples"]),
            ("seconds", s["wall_seconds"]),
            ("samples/s", s["samples_per_second"]),
            ("test accuracy", s["test_accuracy"]),
            ("test loss", s["test_loss"]),
            ("staleness", s["staleness_mean"]),
            ("output", self.out),
        ]
        return [(name, _shown(name, value)) for name, value in facts if value is not None]

    def __repr__(self) -> str:
        return "Run(%s)" % ", ".join("%s: %s" % fact for fact in self._facts())

    def _repr_html_(self) -> str:
        return _html_table([], self._facts())


# ------------------------------------------------------------------------------------------------ the command


def _directory(out: Optional[str]) -> str:
    """Returns the path of a directory that exists."""
    if out is None:
        return tempfile.mkdtemp(prefix="catchment-")
    out = os.path.abspath(os.fspath(out))
    os.makedirs(out, exist_ok=True)
    return out


def _words(
    subcommand: str,
    program: Optional[Program],
    job: Optional[Path],
    out: str,
    settings: Optional[Mapping[str, Any]],
    flags: Dict[str, Any],
) -> List[str]:
    """Returns the words of a command line."""
    if "CATCHMENT_DESCRIBE" in os.environ or "CATCHMENT_ATTACH" in os.environ:
        raise RuntimeError(_IN_WORKER % subcommand)
    catchment = _command.find("catchment")
    if catchment is None:
        raise RuntimeError(_NO_PROGRAM % subcommand)
    if isinstance(program, (str, os.PathLike)) and os.fspath(program).endswith(".textproto"):
        program, job = None, program
    words = [catchment, subcommand, "--out=" + out]
    if job is not None:
        words.append(os.fspath(job))
    if program is not None:
        words.append("--program=" + _program(program, out))
    settings = dict(settings or {})
    own_name = getattr(program, "__name__", "")
    if job is None and own_name.isidentifier():
        settings.setdefault("name", own_name)
    words += ["--set=%s=%s" % setting for setting in _settings(settings)]
    for name, value in flags.items():
        values = value if isinstance(value, (list, tuple)) else [value]
        words += ["--%s=%s" % (name, _text(one)) for one in values if one is not None]
    return words


def _program(program: Program, out: str) -> str:
    """Returns the command of a program."""
    if callable(program):
        return _function.command(program, os.path.join(out, "function", "function.pickle"))
    program = os.fspath(program)
    if program.endswith(".py") and os.path.exists(program):
        return "%s %s" % (shlex.quote(sys.executable), shlex.quote(os.path.abspath(program)))
    return program


def _settings(fields: Mapping[str, Any], prefix: str = "") -> Iterator[Tuple[str, str]]:
    """Yields paths and values of settings, in which a dict stands for a message."""
    for name, value in fields.items():
        if isinstance(value, Mapping) and value:
            yield from _settings(value, prefix + name + ".")
        else:
            yield prefix + name, "{}" if isinstance(value, Mapping) else _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    # 1e6 is a number of samples, too.
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def _listed(numbers: Union[int, Sequence[int], None]) -> Union[int, str, None]:
    """Returns them as a flag with several values; None leaves out the flag."""
    if numbers is None or isinstance(numbers, int):
        return numbers
    return ",".join(map(str, numbers))


def _execute(words: List[str], progress: bool, state: Callable[[], str], **streams: Any) -> None:
    """Runs a command, whose stdout or stderr is a pipe, and shows its lines and the job's state. Raises
    RuntimeError with the last lines if it fails; KeyboardInterrupt if the user has interrupted it."""
    # In a session of its own, because Ctrl-C is for this process, which passes it on;
    # and it ends with this process.
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_end_with_parent, **streams
    )
    pipe, shown = process.stdout or process.stderr, _Lines(progress)
    assert pipe is not None
    lines: List[str] = []
    interrupted = False
    with pipe:
        while True:
            try:
                _follow(pipe.fileno(), lines, shown, state)
                code = process.wait()
                break
            except KeyboardInterrupt:
                interrupted = True
                process.send_signal(signal.SIGINT)
    shown.draw("")
    if interrupted:
        raise KeyboardInterrupt
    if code != 0:
        raise RuntimeError(
            "\n".join(lines[-_REPORTED_LINES:]) or "%s ended with exit code %d" % (words[0], code)
        )


def _end_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _follow(fd: int, lines: List[str], shown: _Lines, state: Callable[[], str]) -> None:
    """Shows a command's output, until it has ended; appends its lines to `lines`."""
    rest = b""
    while True:
        if select.select([fd], [], [], _SECONDS)[0]:
            data = os.read(fd, 1 << 16)
            *whole, rest = (rest + data).split(b"\n")
            if not data and rest:
                whole.append(rest)
            for line in whole:
                lines.append(line.decode("utf-8", "replace"))
                shown.write(lines[-1])
            if not data:
                return
        shown.draw(state())


class _Lines:
    """Prints lines, and below them, in a terminal or a notebook, one that is replaced in place."""

    def __init__(self, visible: bool) -> None:
        self._visible = visible
        self._redraws = visible and (
            sys.stdout.isatty() or type(sys.stdout).__module__.startswith("ipykernel")
        )
        self._drawn = ""

    def write(self, line: str) -> None:
        if self._visible:
            self.draw("")
            print(line, flush=True)

    def draw(self, line: str) -> None:
        if not self._redraws or line == self._drawn:
            return
        if sys.stdout.isatty():
            line = line[: shutil.get_terminal_size().columns - 1]
        blanks = " " * (len(self._drawn) - len(line))
        sys.stdout.write("\r" + line + blanks + ("" if line else "\r"))
        sys.stdout.flush()
        self._drawn = line


# -------------------------------------------------------------------------------------------------- the files


def _position(*paths: Any) -> str:
    """Returns a line about the last measurement in the newest of these files;
    an empty one if there is none."""
    newest = max(paths, key=_run_files.modified, default="")
    row = _run_files.last_row(newest)
    if row is None:
        return ""
    facts = ["epoch %.2f" % row["epochs"], "%s samples" % format(row["samples"], ",")]
    if row["samples_per_second"]:
        facts.append("%s/s" % format(int(row["samples_per_second"]), ","))
    if row["train_loss"] is not None:
        facts.append("loss %.4f" % row["train_loss"])
    if row["test_accuracy"] is not None:
        facts.append("test %.2f %%" % (100 * row["test_accuracy"]))
    if row["staleness_mean"] is not None:
        facts.append("staleness %.2f" % row["staleness_mean"])
    return " | ".join(facts)


def _scores(metrics: Table) -> Table:
    scores = {}
    for row in metrics:
        if row.get("tested_at_samples") is not None:
            scores[row["tested_at_samples"]] = dict(
                samples=row["tested_at_samples"],
                seconds=row["tested_at_seconds"],
                **{key: value for key, value in row.items() if _run_files.is_score(key)},
            )
    return [scores[samples] for samples in sorted(scores)]


def _shown(name: str, value: Any) -> str:
    if value is None:
        return ""
    if "accuracy" in name:
        return "%.2f %%" % (100 * value)
    if isinstance(value, float):
        if "loss" in name:
            return "%.4f" % value
        return "%.2f" % value if value < 1000 else format(round(value), ",")
    return format(value, ",") if isinstance(value, int) else str(value)


def _html_table(head: List[str], rows: Iterable[Iterable[Any]]) -> str:
    def line(cells: Iterable[Any], tag: str) -> str:
        return "<tr>%s</tr>" % "".join("<%s>%s</%s>" % (tag, html.escape(str(cell)), tag) for cell in cells)

    return "<table>%s%s</table>" % (
        line(head, "th") if head else "",
        "".join(line(row, "td") for row in rows),
    )
