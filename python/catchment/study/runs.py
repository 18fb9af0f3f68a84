"""Executes the runs of a comparison that are not done: first the searches for learning rates, then the runs
with the values found."""

import functools
import time
from typing import TYPE_CHECKING, Callable, List, NamedTuple, Sequence, Tuple

from . import search
from .collect import collect
from .command_line import Streams
from .comparison import Comparison, SearchTrialResult
from .core import Job
from .directory import CompareDirectory
from .errors import Refused
from .files import read_summary
from .halving import cost_of
from .hyperparameters import FoundHyperparameters, describe
from .options import CompareOptions
from .plan import PlannedRun, PlannedSearch, make_plan, plan_searches, plan_trial, untuned_rates
from .run_directory import prepare_run_directory
from .run_result import number
from .text import bar as bar_of, one_line, percent, plural, rounded, seconds, short

if TYPE_CHECKING:
    from .launchers import Launcher

_RED = 31


class Work(NamedTuple):
    """The means of a launcher besides the runs."""

    directory: CompareDirectory
    progress: "CompareProgress"
    following: Callable[[PlannedRun], List[PlannedRun]]  # returns the runs to carry out since one has ended


class CompareProgress:
    """Prints a line for each run that is done, and on a terminal the progress of the current one below them,
    after a bar of all runs, fitted to its width. `runs` is the number of runs to carry out, as far as it is
    known."""

    def __init__(self, streams: Streams, runs: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._out, self._runs, self._done, self._label = streams.out, runs, 0, ""
        self._clock, self._began = clock, clock()

    def expect(self, runs: int) -> None:
        """There are more runs to carry out."""
        self._runs += runs

    def begin(self, label: str) -> None:
        self._label = label

    def end(self, result: str) -> None:
        """Prints the outcome of the run."""
        self._done += 1
        self.note("%s%s: %s%s" % (self._head(), self._label, result, self._time_left()))

    def note(self, words: str) -> None:
        """Prints a line that stays."""
        self.clear()
        self._out.write(words + "\n", _RED if ": failed: " in words else 0)

    def update(self, progress: str) -> None:
        """Redraws the last line; does nothing if there is no terminal. The parts of `progress` are those that
        fit; the time left is that of all runs, once it is known."""
        columns, left = self._out.size()[0], self._time_left()
        if not columns:
            return
        bar = bar_of(self._done / max(1, self._runs), columns // 8)
        line = " %s%s%s" % (self._head(), self._label, left)
        for part in progress.split(" | "):
            more = " | " + part
            if not (left and part.endswith(" left")) and len(bar + line + more) <= columns:
                line += more
        self._out.draw(line, bar)

    def clear(self) -> None:
        """Removes the last line."""
        self._out.erase()

    def _head(self) -> str:
        """Returns "[ 5/36] "."""
        return "[%*d/%d] " % (len(str(self._runs)), self._done, self._runs)

    def _time_left(self) -> str:
        """Returns the time for all runs that are left, by those that are done; empty before the first."""
        if self._done in (0, self._runs):
            return ""
        each = (self._clock() - self._began) / self._done
        return " | %s left" % seconds(each * (self._runs - self._done))


def run_missing(
    runs: Sequence[PlannedRun], directory: CompareDirectory, launcher: "Launcher", streams: Streams
) -> None:
    """Carries out the runs that are not done, and prints how many are."""
    missing = [run for run in runs if not directory.has(run)]
    if len(missing) < len(runs):
        done = len(runs) - len(missing)
        streams.out.write("%d of %s are already done\n" % (done, plural(len(runs), "run")))

    def following(ended: PlannedRun) -> List[PlannedRun]:
        directory.note_end(ended)
        return []

    if missing:
        launcher.launch(missing, Work(directory, CompareProgress(streams, len(missing)), following))


def prepare_run(run: PlannedRun, directory: CompareDirectory) -> str:
    """Creates the directory of a run with its job, and returns its path."""
    path = directory.path_of(run)
    prepare_run_directory(path, run.job.text)
    return path


def label_of(run: PlannedRun) -> str:
    """Returns "downpour, 4 workers, seed 2"; in a search "downpour, 4 workers, learning rate 0.1"."""
    return "%s, %s, %s" % (run.algorithm, plural(run.workers, "worker"), run.trial or "seed %d" % run.seed)


def result_line(path: str) -> str:
    """Returns the result in the directory of a run in words: "97.81 % in 4.2 s"."""
    try:
        summary = read_summary(path + "/summary.json")
    except Refused as error:
        return error.message
    if summary.get("phase") == "FAILED":
        return "failed: " + one_line(str(summary.get("reason", "")))
    duration = seconds(number(summary, "wall_seconds") or 0)
    goodput, uptime, accuracy, loss = (
        number(summary, key) for key in ("goodput", "uptime", "test_accuracy", "test_loss")
    )
    if goodput is not None and uptime is not None:
        duration += ", goodput %.2f, uptime %.2f" % (goodput, uptime)
    if accuracy is not None:
        return "%s in %s" % (percent(accuracy), duration)
    return duration if loss is None else "loss %s in %s" % (short(loss, 4), duration)


def cost_in_words(searches: Sequence[PlannedSearch]) -> Tuple[str, str]:
    """Returns "3 learning rates" and "3 more runs"."""
    cost = sum(cost_of(search.rungs) for search in searches)
    return plural(len(searches), "learning rate"), plural(rounded(cost), "more run")


def carry_out(
    options: CompareOptions, given: Job, directory: CompareDirectory, launcher: "Launcher", streams: Streams
) -> Comparison:
    """Executes the runs that are not done, and returns the content of the report. All jobs are checked before
    the first run."""
    found: FoundHyperparameters = {}
    plan, changed = make_plan(options, given, found), True
    trials: List[SearchTrialResult] = []
    while changed:
        planned = plan_searches(options, given)
        searches = [_search_of(options, given, one) for one in planned]
        if searches:
            words = "searching for %s, which costs as much as %s; --search=none keeps those of the job\n"
            streams.out.write(words % cost_in_words(planned))
        results = search.run_searches(searches, directory, launcher, streams) if searches else []
        trials = [trial for one, result in zip(planned, results) for trial in _trials_of(one, result)]
        for one, result in zip(planned, results):
            if result.halving.best >= 0:
                best = found[one.algorithm, one.workers] = one.trials[result.halving.best]
                streams.out.write("%s: %s\n" % (_label_of(one), describe(best)))
        plan = make_plan(options, given, found)
        run_missing(plan.runs, directory, launcher, streams)
        # Runs and searches of the old data are done again.
        changed = directory.take_change(streams.out)
    comparison = collect(options, directory, plan)
    comparison.untuned, comparison.searched = untuned_rates(options, given), trials
    return comparison


def _label_of(planned: PlannedSearch) -> str:
    return "%s, %s" % (planned.algorithm, plural(planned.workers, "worker"))


def _search_of(options: CompareOptions, given: Job, planned: PlannedSearch) -> search.Search:
    plan = functools.partial(plan_trial, options, given, planned)
    return search.Search(_label_of(planned), planned.rungs, plan, kept=0)


def _trials_of(planned: PlannedSearch, result: search.SearchResult) -> List[SearchTrialResult]:
    """Returns what each run of a search tried, rung by rung."""
    trials, deciding = [], None
    for i, (rung, runs) in enumerate(zip(result.halving.rungs, result.runs), 1):
        for trial, score, run in zip(rung.trials, rung.scores, runs):
            run.algorithm, run.workers = planned.algorithm, planned.workers
            run.learning_rate, run.momentum = planned.trials[trial]
            trials.append(SearchTrialResult(i, rung.rung.share, run))
            if trial == result.halving.best and score is not None:
                deciding = trials[-1]
    if deciding is not None:
        deciding.chosen = True
    return trials
