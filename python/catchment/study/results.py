"""Comparisons for scripts and notebooks: what catchment.compare() returns, and catchment.study.load()."""

import contextlib
import html
import importlib
import json
import os
import types
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple, Union

from catchment import _command, _run, _run_files

from . import collect, core, figures, files, page
from .answer import answer
from .comparison import AlgorithmFacts, Comparison as Content, LeftOutPair, Machine, SearchTrialResult
from .errors import Failed, Refused
from .findings import Findings, find
from .report_json import report_json
from .report_runs import collect_runs
from .run_result import RunResult, TestScore, read_result
from .text import plural, to_json

Path = Union[str, "os.PathLike[str]"]
Table = List[Dict[str, Any]]
_SAME = "command version job_name job stragglers seeds workers"
_NEEDS = "%s needs the package %s, which is not installed: pip install %s"
_WHITE = '<rect width="100%" height="100%" fill="#ffffff"/>'
_LINES = ("-", "--", "-.", ":")


def load(directory: Path, *others: Path, target: float = 0) -> "Study":
    """Returns the results in a directory: the --out of `catchment compare`, `simulate` or `report`; or of one
    run, however it was started. With several directories, of comparisons or of single runs, all their runs
    are joined, and named by the differences between their jobs, as by `catchment report`.

    target: the test accuracy to which runs are timed; by default that of the comparison, or chosen from the
    results. Raises RuntimeError if a directory holds no results.
    """
    return Study(directory, *others, target=target)


class Study:
    """The results of a comparison. Notebooks show the answer, the standings and a picture.

    out: the first directory.
    page: the path of its report.html, which a browser shows.
    answer: a sentence.
    standings: the means over seeds for each algorithm and number of workers, a list of dicts.
    runs: a list with a dict for each run; frame() is a table of them.
    pictures: those of the report by their titles. Notebooks show one that is the last line of a cell.
    report: the content of report.json, a dict (docs/compare.md describes the keys). report(path) writes
    report.html and report.json to the directory `path`, and returns the path of report.html.
    """

    def __init__(self, directory: Path, *others: Path, target: float = 0) -> None:
        self.out = os.fspath(directory)
        self.page = os.path.join(self.out, "report.html")
        self._base = [self.out, ""]
        if not os.environ.get("CATCHMENT_BINARY"):
            os.environ["CATCHMENT_BINARY"] = _command.find("catchment") or "catchment"
        try:
            kept = self.out + "/report.json"
            if others or not os.path.exists(kept):
                self._content = collect_runs([self.out, *(os.fspath(other) for other in others)])
            else:
                self._content = _content(files.read_summary(kept), self._base)
        except (Failed, KeyError, TypeError) as error:
            raise RuntimeError(str(error) or repr(error)) from error
        self._content.wanted_target = target or self._content.wanted_target
        self._findings = find(self._content)
        self.report = _Report(json.loads(to_json(report_json(self._content, self._findings))), self._write)
        self.answer: str = self.report["answer"]["sentence"]
        self.standings: Table = [
            {key: value["mean"] if isinstance(value, dict) else value for key, value in row.items()}
            for row in self.report["standings"]
        ]
        self.runs: Table = [_run_files.flat(row) for row in self.report["runs"]]

    @property
    def pictures(self) -> Dict[str, "Picture"]:
        pictures = {}
        for title, svg in _pictures(self._content, self._findings):
            head, end, rest = svg.partition(">")  # On white, whatever the colour of a notebook.
            if svg:
                pictures[title] = Picture(head + end + _WHITE + rest)
        return pictures

    def frame(self) -> Any:
        """Returns the runs as a pandas.DataFrame."""
        return _module("pandas", "frame()").DataFrame(self.runs)

    def curves(self, metric: str = "test_accuracy") -> Table:
        """Returns a measurement over time: a list with a dict for each of a run's measurements, with
        `algorithm`, `workers`, `seed`, `seconds`, `samples` and the metric, a key of metrics.jsonl
        ("train_loss", "staleness_mean") or "program/NAME" of what a program has logged."""
        rows: Table = []
        samples, seconds = "samples", "wall_seconds"
        if _run_files.is_score(metric):
            samples, seconds = "tested_at_samples", "tested_at_seconds"
        for run in self.report["runs"]:
            head, seen = {key: run[key] for key in ("algorithm", "workers", "seed")}, None
            for row in _metrics(_path(run["directory"], self._base)):
                if row.get(metric) is not None and row[samples] != seen:
                    seen = row[samples]
                    rows.append({**head, "seconds": row[seconds], "samples": seen, metric: row[metric]})
        return rows

    def plot(self, path: Optional[Path] = None, metric: str = "test_accuracy", x: str = "seconds") -> Any:
        """Draws a measurement over `x`, seconds or samples, with matplotlib: for each number of workers, and
        in it for each algorithm the mean over seeds in a band from the lowest to the highest. Returns the
        figure; writes it to `path`, whose ending is its format: .pdf, .svg or .png."""
        pyplot, rows = _module("matplotlib.pyplot", "plot()"), self.curves(metric)
        numbers = [n for n in self._content.workers if any(row["workers"] == n for row in rows)]
        if not numbers:
            raise ValueError("no run has measured %s" % metric)
        figure, all_axes = pyplot.subplots(
            1,
            len(numbers),
            sharey=True,
            squeeze=False,
            figsize=(1 + 4 * len(numbers), 3.6),
            layout="constrained",
        )
        for axes, workers in zip(all_axes[0], numbers):
            for i, facts in enumerate(self._content.algorithms):
                seeds: Dict[int, Any] = {}
                for row in rows:
                    if (row["algorithm"], row["workers"]) == (facts.name, workers):
                        run = seeds.setdefault(row["seed"], types.SimpleNamespace(scores=[]))
                        run.scores.append(TestScore(row["seconds"], row["samples"], row[metric], 0))
                points = figures.accuracy_over(x, list(seeds.values()))
                if points:
                    xs, mean, low, high = zip(*points)
                    line = axes.plot(xs, mean, _LINES[i % len(_LINES)], label=facts.name)[0]
                    axes.fill_between(xs, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
            axes.set(title=plural(workers, "worker"), xlabel="seconds of training" if x == "seconds" else x)
            axes.grid(alpha=0.3)
        all_axes[0][0].set_ylabel(metric.replace("_", " "))
        all_axes[0][-1].legend()
        if path is not None:
            figure.savefig(os.fspath(path))
        pyplot.close(figure)  # A notebook shows the figure that is returned, and not a second one.
        return figure

    def _write(self, path: Path) -> str:
        files.create_directory(os.fspath(path))
        page.write_report(self._content, os.fspath(path), types.SimpleNamespace(write=len))  # type: ignore
        return os.path.join(os.fspath(path), "report.html")

    def __repr__(self) -> str:
        return "Study(%s, report: %s)" % (self.answer, self.page)

    def _repr_html_(self) -> str:
        columns = list(self.standings[0]) if self.standings else []
        rows = [[_run._shown(key.replace("_", " "), row[key]) for key in columns] for row in self.standings]
        table = _run._html_table([key.replace("_", " ") for key in columns], rows)
        shown = [one for title, one in self.pictures.items() if title.startswith("Test accuracy over time")]
        return "<p>%s</p>%s%s" % (html.escape(self.answer), table, "".join(shown[-1:]))


class _Report(Dict[str, Any]):
    """The content of report.json, which a call writes with report.html to a directory."""

    def __init__(self, report: Dict[str, Any], write: Callable[[Path], str]) -> None:
        super().__init__(report)
        self._write = write

    def __call__(self, path: Path) -> str:
        """Writes the files, and returns the path of report.html."""
        return self._write(path)


Comparison = Study  # its name in the package


class Picture(str):
    """A picture, as the text of an SVG file."""

    def _repr_svg_(self) -> str:
        return str(self)

    def __repr__(self) -> str:
        return "Picture(SVG, %d characters)" % len(self)


def _module(name: str, user: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ImportError(_NEEDS % (user, package, package)) from error


def _path(directory: str, base: Iterable[str]) -> str:
    """Returns the path of a run: in the directory of its comparison, or as it was given to `catchment
    report`."""
    paths = [os.path.join(one, directory) for one in base]
    return next((path for path in paths if os.path.isdir(path)), paths[0])


def _metrics(directory: str) -> Iterator[Dict[str, Any]]:
    with contextlib.suppress(OSError), open(directory + "/metrics.jsonl", "rb") as file:
        yield from (_run_files.flat(row) for row in map(_run_files.row_of, file) if row is not None)


def _content(report: Dict[str, Any], base: Iterable[str]) -> Content:
    """Returns what a report.json was written from, with the results in the directories of its runs."""
    if report.get("schema") != 2:
        raise Refused("report.json is of another version of Catchment; make it again with `catchment report`")
    facts = {one["algorithm"]: AlgorithmFacts(*list(one.values())[:3]) for one in report["algorithms"]}

    def result(kept: Dict[str, Any]) -> RunResult:
        own = {key: kept[key] for key in ("algorithm", "workers", "seed", "directory", "done", "diverged")}
        run, path = RunResult(**own), _path(kept["directory"], base)
        if run.done or kept.get("wall_seconds"):
            with contextlib.suppress(Refused):
                metrics = files.text_or_empty_of(path + "/metrics.jsonl")
                read_result(files.read_summary(path + "/summary.json"), metrics, run)
        run.reason = kept["reason"]
        with contextlib.suppress(Failed):
            job = core.job_of_run(path)
            collect.set_rates(job, run)
            facts[run.algorithm] = collect.facts_of(run.algorithm, job)
        return run

    same: Dict[str, Any] = {key: report[key] for key in _SAME.split()}
    same.update({key: report[key] or "" for key in ("budget", "simulated")})
    same.update({key: report[key] or 0 for key in ("servers", "threads")})
    content = Content(
        algorithms=[],
        runs=[result(one) for one in report["runs"]],
        searched=[
            SearchTrialResult(one["rung"], one["share"], result(one), one["chosen"])
            for one in report["search"]
        ],
        machine=Machine(**report["machine"]) if report["machine"] else None,
        left_out=[LeftOutPair(**pair) for pair in report["left_out"]],
        wanted_target=report["target"]["test_accuracy"] if report["target"]["given"] else 0,
        **same,
    )
    content.algorithms = [facts[one["algorithm"]] for one in report["algorithms"]]
    found, sentence = answer(content, find(content)), report["answer"]["sentence"]
    content.untuned = sentence[: -len(found)].strip() if sentence.endswith(found) else ""
    return content


def _pictures(c: Content, f: Findings) -> Iterator[Tuple[str, str]]:
    """Yields titles and pictures, in the order of the report; some are empty."""

    def over_workers(title: str, field: str, label: str, by_ratio: bool = False) -> Tuple[str, str]:
        return title, figures.over_workers(c, f, field, title, label, by_ratio)

    yield over_workers("Test accuracy at the end", "accuracies", "test accuracy", True)
    for workers in reversed(c.workers):
        for over, x in (("time", "seconds"), ("samples", "samples")):
            title = "Test accuracy over %s, %s" % (over, plural(workers, "worker"))
            yield title, figures.accuracy_chart(c, f, workers, x)
    target = "Time to %.1f %% test accuracy" % (100 * f.target)
    yield target, figures.time_to_target(c, f)
    yield over_workers(target + " over workers", "seconds", "seconds of training", True)
    yield over_workers("Throughput", "throughputs", "samples a second")
    yield over_workers("Speed-up against one worker", "speed-up", "times the throughput of one worker")
    staleness = "Staleness of contributions, " + plural(c.workers[-1], "worker")
    yield staleness, figures.staleness_distributions(c)
    yield "Where the workers' time went", figures.workers_time(c)
    yield "Bytes on the wire", figures.bytes_on_the_wire(c)
    yield "Momentum: given to the optimizer, and added by staleness", figures.momentum_bars(c)
