"""Searches by successive halving (halving.py) whose trials are runs: those of `catchment tune`, and those for
the learning rates of a comparison."""

from typing import TYPE_CHECKING, Callable, Dict, List, NamedTuple, Sequence, Set, Tuple

from . import runs
from .collect import collect_run, score_of
from .command_line import Streams
from .directory import CompareDirectory
from .errors import Refused
from .halving import Halving, HalvingResult, Rung, TrialRun
from .plan import PlannedRun
from .run_result import RunResult
from .text import percent, plural

if TYPE_CHECKING:
    from .launchers import Launcher


class Search(NamedTuple):
    label: str  # "downpour, 4 workers"; empty: it is the only one
    rungs: Sequence[Rung]
    # Returns the run of a trial, a rung and its share. A trial whose job is not valid, Refused, loses.
    plan: Callable[[int, int, float], PlannedRun]
    kept: int = -1  # as that of Halving


class SearchResult(NamedTuple):
    halving: HalvingResult
    runs: List[List[RunResult]]  # of each rung, in the order of its trials


class _OpenSearch:
    """A search whose runs have not all ended."""

    def __init__(self, search: Search, at_once: bool, directory: CompareDirectory) -> None:
        self._search, self._directory = search, directory
        self._halving = Halving(search.rungs, at_once, search.kept)
        self._open: Dict[str, TrialRun] = {}  # by the run's directory
        self._results: Dict[TrialRun, RunResult] = {}
        self._described: Set[int] = set()  # the rungs

    def begin(self, progress: "runs.CompareProgress") -> List[PlannedRun]:
        """Returns the runs that may begin and are not done. Those that are done end here, all before others
        begin: one by one, a trial might continue that is not among the best. Prints how many they are, and
        the rungs that begin: "downpour, 4 workers, rung 2: 16 % of the budget"."""
        missing: List[PlannedRun] = []
        ended, already_done = self._plan_next(missing), 0
        while ended:
            for following, result in ended:
                self._report(following, result)
            already_done += sum(bool(result.directory) for _, result in ended)
            ended = self._plan_next(missing)
        progress.expect(len(missing))
        label = self._search.label and self._search.label + ", "
        if already_done:
            everything = plural(already_done + len(missing), "run")
            progress.note("%s%d of %s are already done" % (label, already_done, everything))
        for rung in sorted({self._open[run.directory].rung for run in missing} - self._described):
            share = percent(self._halving.share_of(rung))
            progress.note("%srung %d: %s of the budget" % (label, rung + 1, share))
            self._described.add(rung)
        return missing

    def _plan_next(self, missing: List[PlannedRun]) -> List[Tuple[TrialRun, RunResult]]:
        """Appends the next runs that are to be carried out. Returns the results of the others."""
        ended = []
        for following in self._halving.next_runs():
            share = self._halving.share_of(following.rung)
            try:
                run = self._search.plan(following.trial, following.rung, share)
            except Refused as error:
                ended.append((following, RunResult(reason=error.message)))
                continue
            if self._directory.has(run):
                ended.append((following, collect_run(self._directory, run)))
            else:
                self._open[run.directory] = following
                missing.append(run)
        return ended

    def end(self, run: PlannedRun) -> bool:
        """Ends a run that begin() returned. Returns False if it is one of another search."""
        ended = self._open.pop(run.directory, None)
        if ended is not None:
            self._report(ended, collect_run(self._directory, run))
        return ended is not None

    def result(self) -> SearchResult:
        halving, of = self._halving.result(), self._results
        results = [
            [of[TrialRun(trial, rung)] for trial in one.trials] for rung, one in enumerate(halving.rungs)
        ]
        return SearchResult(halving, results)

    def _report(self, run: TrialRun, result: RunResult) -> None:
        self._results[run] = result
        self._halving.report(run, score_of(result))


def _run_once(
    searches: Sequence[Search], directory: CompareDirectory, launcher: "Launcher", streams: Streams
) -> List[SearchResult]:
    """Carries out searches once. The result does not count if the data have changed meanwhile."""
    progress = runs.CompareProgress(streams, 0)
    open_searches = [_OpenSearch(search, launcher.concurrent, directory) for search in searches]

    def following(ended: PlannedRun) -> List[PlannedRun]:
        directory.note_end(ended)
        search = next(one for one in open_searches if one.end(ended))
        return [] if directory.data_changed else search.begin(progress)

    first = [run for one in open_searches for run in one.begin(progress)]
    if first:
        launcher.launch(first, runs.Work(directory, progress, following))
    return [] if directory.data_changed else [one.result() for one in open_searches]


def run_searches(
    searches: Sequence[Search], directory: CompareDirectory, launcher: "Launcher", streams: Streams
) -> List[SearchResult]:
    """Carries out searches side by side, without the runs that are done. A run that diverges or fails loses.
    If the launcher executes several runs at once, trials are promoted at once (Halving)."""
    while True:
        results = _run_once(searches, directory, launcher, streams)
        if not directory.take_change(streams.out):
            return results
