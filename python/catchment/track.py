"""Shows a job in Weights & Biases or MLflow: catchment.track.wandb and catchment.track.mlflow.

    catchment.track.wandb("out", project="digits")

Both follow metrics.jsonl in the directory of a run (--out), which may be running or finished, and return when
the job has ended. A run is there with the job's fields, its metrics over samples, and the values of
summary.json. If the job has failed, or its master has disappeared, the run is marked as failed.
"""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import time
import urllib.parse
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple, Union

from ._run_files import flat, is_score, master_runs, modified, read_json, row_of
from ._warnings import warn

Path = Union[str, "os.PathLike[str]"]
Row = Dict[str, Any]

_SECONDS = 0.5  # between two looks at the files
_BATCH = 100  # rows
_PARAMETERS, _METRICS = 100, 1000  # that MLflow accepts at once
_MLFLOW_NAME = 250  # characters
_RUN_FILES = ("job.textproto", "metrics.jsonl", "master.lock")
# The samples that the weights were trained with which the last evaluation has scored.
_SCORED_AT = "tested_at_samples"

_NO_PACKAGE = "catchment.track.%s() needs the package %s, which is not installed: pip install %s"
_NO_RUN = (
    "%s is not the directory of a run: it has neither job.textproto nor metrics.jsonl nor "
    "master.lock; start the job first, and name the directory of its --out"
)
_RENAMED = "%s cannot have the metric %r beside others, and has it as %r"
_LOST = (
    "the master has disappeared: there is no summary.json, and no file has changed for %.0f seconds; "
    "its log says why"
)


def wandb(run_dir: Path, lost_after: float = 120, **options: Any) -> str:
    """Logs a job to Weights & Biases until it ends. Returns the id of the run.

    run_dir: the directory of the job's run.
    lost_after: seconds without a sign of the master after which it has disappeared.
    options: those of wandb.init, such as project="digits".

    The metrics have `samples` as their x axis, those of evaluations `tested_at_samples`, because W&B's own
    steps cannot decrease when a job goes back to a checkpoint. Raises ValueError if the directory is not that
    of a run.
    """
    try:
        import wandb as client
    except ImportError as error:
        raise ImportError(_NO_PACKAGE % ("wandb", "wandb", "wandb")) from error
    followed = Followed(run_dir, lost_after)
    config = followed.job()
    options = {"name": config.get("name"), **options, "config": {**config, **(options.get("config") or {})}}
    run, failed = client.init(**options), True
    try:
        defined: Set[str] = set()
        names = Names("W&B", r"\*")  # which stands for many names
        for row in followed.rows():
            row = {names(name): value for name, value in row.items()}
            for name in sorted(row.keys() - defined):
                run.define_metric(name, step_metric=None if name in ("samples", _SCORED_AT) else _axis(name))
            defined |= row.keys()
            run.log(row)
        run.summary.update(followed.summary)
        failed = followed.failed()
    finally:
        run.finish(exit_code=int(failed))
    return run.id


def mlflow(run_dir: Path, lost_after: float = 120, **options: Any) -> str:
    """Logs a job to MLflow until it ends. Returns the id of the run.

    options: those of mlflow.start_run, such as run_name="digits". mlflow.set_experiment names the experiment.
    run_dir, lost_after: as for wandb().

    The step of a metric is the number of samples. What summary.json has are metrics named summary/NAME, or
    tags if they are text. Raises ValueError if the directory is not that of a run.
    """
    try:
        import mlflow as client
    except ImportError as error:
        raise ImportError(_NO_PACKAGE % ("mlflow", "mlflow", "mlflow")) from error
    followed = Followed(run_dir, lost_after)
    job = followed.job()
    run, status = client.start_run(**{"run_name": job.get("name"), **options}), "FAILED"
    try:
        fields = list(_fields(job))
        for begin in range(0, len(fields), _PARAMETERS):
            client.log_params(dict(fields[begin : begin + _PARAMETERS]))
        in_files = urllib.parse.urlparse(client.get_tracking_uri()).scheme in ("", "file")
        names = Names("MLflow", r"[^/\w.\- ]", _MLFLOW_NAME, paths=True, folders=in_files)
        for rows in followed.batches():
            now = int(1000 * time.time())
            metrics = [
                client.entities.Metric(names(name), value, now, row[_axis(name)])
                for row in rows
                for name, value in row.items()
            ]
            for begin in range(0, len(metrics), _METRICS):
                client.MlflowClient().log_batch(run.info.run_id, metrics=metrics[begin : begin + _METRICS])
        texts = {name: value for name, value in followed.summary.items() if isinstance(value, str)}
        client.set_tags(texts)
        client.log_metrics(
            {
                names("summary/" + name): value
                for name, value in followed.summary.items()
                if name not in texts
            },
            step=followed.summary.get("samples"),
        )
        status = "FAILED" if followed.failed() else "FINISHED"
    finally:
        client.end_run(status)
    return run.info.run_id


class Names:
    """The names that metrics have in another program, which does not accept all names: it has "_" in place of
    what it refuses. Different names stay different; a warning says where one is numbered for that."""

    def __init__(
        self, program: str, refused: str, length: int = 0, paths: bool = False, folders: bool = False
    ) -> None:
        """refused: a regular expression of what the program refuses.
        length: the number of characters that it accepts; 0: any.
        paths: whether it refuses names that are not normal relative paths.
        folders: whether a name cannot be that of a metric and the beginning of the path of another one."""
        self._program, self._refused, self._length = program, refused, length
        self._paths, self._folders = paths, folders
        self._names: Dict[str, str] = {}
        self._taken: Dict[str, bool] = {}  # names, and the folders in which they are; true: a name

    def __call__(self, name: str) -> str:
        if name not in self._names:
            self._names[name] = self._find(name)
        return self._names[name]

    def _find(self, name: str) -> str:
        plain = re.sub(self._refused, "_", name)
        if self._paths:
            plain = "/".join(
                "_" * max(1, len(part)) if part in ("", ".", "..") else part for part in plain.split("/")
            )
            plain = re.sub(r"^\.\.", "__", plain)
        if self._length:
            plain = plain[: self._length]
        for number in itertools.count(1):
            found = plain
            if number > 1:
                end = "_%d" % number
                flat_name = plain.replace("/", "_") if self._folders else plain
                found = (flat_name[: self._length - len(end)] if self._length else flat_name) + end
            folders = {found[:at] for at, c in enumerate(found) if c == "/"} if self._folders else set()
            if found not in self._taken and not any(self._taken.get(folder) for folder in folders):
                break
        self._taken.update(dict.fromkeys(folders, False))
        self._taken[found] = True
        if number > 1:
            warn(_RENAMED % (self._program, name, found))
        return found


class Followed:
    """The directory of a run whose job may still be running.

    summary: after batches() has ended, the numbers and texts of summary.json. If there is none, because the
    master has disappeared, only `phase` and `reason`.
    """

    def __init__(self, run_dir: Path, lost_after: float) -> None:
        """Raises ValueError if it is not the directory of a run."""
        self.directory = os.fspath(run_dir)
        if not any(os.path.exists(self._path(name)) for name in _RUN_FILES):
            raise ValueError(_NO_RUN % self.directory)
        self.summary: Row = {}
        self._lost_after = lost_after
        self._lines = Lines(self._path("metrics.jsonl"))
        self._scored_at: Any = None
        self._stamp: Optional[float] = None
        self._stamped_at = 0.0

    def job(self) -> Row:
        """Returns the fields of the job, or none if its file is not in the directory."""
        try:
            with open(self._path("job.textproto"), encoding="utf-8") as file:
                return parse_job(file.read())
        except FileNotFoundError:
            return {}

    def rows(self) -> Iterator[Row]:
        """Yields the rows of batches()."""
        return itertools.chain.from_iterable(self.batches())

    def batches(self) -> Iterator[List[Row]]:
        """Yields rows, the metrics of lines of metrics.jsonl, as soon as they are there, until the job has
        ended; sets `summary`. A metric without a value is left out, and the scores of an evaluation are only
        in the first row that has them."""
        ended = False
        while True:
            rows = map(self._row, self._lines.read())
            yield from iter(lambda: list(itertools.islice(rows, _BATCH)), [])
            if ended:
                return
            # The master may have written lines since they were read, so they are read once more.
            ended = self._ended()
            if not ended:
                time.sleep(_SECONDS)

    def failed(self) -> bool:
        return self.summary.get("phase") == "FAILED"

    def _row(self, line: Row) -> Row:
        row = {name: value for name, value in flat(line).items() if isinstance(value, (int, float))}
        scored_at = row.get(_SCORED_AT)
        if scored_at == self._scored_at:
            row = {name: value for name, value in row.items() if _axis(name) != _SCORED_AT}
        self._scored_at = scored_at
        return row

    def _ended(self) -> bool:
        """Returns whether the job has ended, and reads its summary if it has."""
        if master_runs(self.directory):
            return False
        try:
            summary = read_json(self._path("summary.json"))
        except (FileNotFoundError, ValueError):
            if self._silence() < self._lost_after:
                return False
            summary = {"phase": "FAILED", "reason": _LOST % self._lost_after}
        self.summary = {name: value for name, value in flat(summary).items() if value not in (None, "")}
        return True

    def _silence(self) -> float:
        """Returns the seconds since a file of the run was last written. The stamps of files are times of day,
        and this machine's may be set: only the age of the first stamp is measured by it."""
        stamp = max(modified(self._path(name)) for name in _RUN_FILES)
        if stamp != self._stamp:
            age = max(0, time.time() - stamp) if self._stamp is None else 0
            self._stamp, self._stamped_at = stamp, time.monotonic() - age
        return time.monotonic() - self._stamped_at

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)


class Lines:
    """The objects of a file of JSON lines that another process writes. The file may not exist yet. When it is
    shorter than before, or another one, as after --overwrite, it is read from its beginning."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._inode: Optional[int] = None
        self._offset = 0  # of the first line that was not read

    def read(self) -> Iterator[Row]:
        """Yields the objects of the lines that have been finished since the last call,
        without damaged ones."""
        try:
            file = open(self._path, "rb")
        except FileNotFoundError:
            return
        with file:
            state = os.fstat(file.fileno())
            if state.st_ino != self._inode or state.st_size < self._offset:
                self._inode, self._offset = state.st_ino, 0
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                row = row_of(line)
                if row is not None:
                    yield row


def parse_job(text: str) -> Row:
    """Returns the fields of a job.textproto that a program has written.
    A field that is repeated is a list."""
    open_messages: Any = [{}]
    for line in text.splitlines():
        line = line.strip()
        if line == "}":
            open_messages.pop()
        elif line.endswith(" {"):
            message: Row = {}
            _add(open_messages[-1], line[:-2], message)
            open_messages.append(message)
        elif line:
            name, _, value = line.partition(": ")
            _add(open_messages[-1], name, _value(value))
    return open_messages[0]


def _add(message: Row, name: str, value: Any) -> None:
    if name not in message:
        message[name] = value
    elif isinstance(message[name], list):
        message[name].append(value)
    else:
        message[name] = [message[name], value]


def _value(text: str) -> Any:
    if text.startswith('"'):
        return ast.literal_eval("b" + text).decode("utf-8", "replace")
    try:
        return json.loads(text)
    except ValueError:
        return text  # the name of an enum's value


def _fields(value: Any, path: str = "") -> Iterator[Tuple[str, Any]]:
    """Yields the paths and values of all fields: "model.layers.0.dense.units", 128.
    An empty message is "{}"."""
    if isinstance(value, (dict, list)) and value:
        for name, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _fields(one, "%s.%s" % (path, name) if path else str(name))
    elif path:
        yield path, "{}" if value == {} else value


def _axis(name: str) -> str:
    """Returns the name of the metric that is the x axis of a metric."""
    return _SCORED_AT if is_score(name) or name == _SCORED_AT else "samples"
