"""`catchment tune JOB --over=PATH=RANGE ... --out=DIR`: searches for the fields of a job with the best test
accuracy with Optuna, which chooses the values of each trial and ends trials that are worse than others.

A trial is a run, runs/trial-N in DIR. Any number of processes, on one machine or on several, work on the
study that journal.log in DIR holds. A trial is theirs while they hold its lock; one that is open but whose
process has ended, for example by a signal, is continued by the next process that asks for a trial.

Sources: Bergstra et al. 2011, "Algorithms for hyper-parameter optimization", for TPE; Li et al. 2020
(arXiv:1810.05934) and 2018 (arXiv:1603.06560) for asynchronous halving and Hyperband; Watanabe, Bansal and
Hutter 2023 (arXiv:2304.10255) for the importance.
"""

import contextlib
import dataclasses
import fcntl
import importlib
import itertools
import math
import os
import select
import signal
import warnings
from typing import Any, Callable, Dict, List, Optional, Sequence

from catchment import _run_files

from . import command_line, core, files, options as common, run_directory, simulate
from .collect import reported_command
from .command_line import Argument, CommandLine, Streams
from .compare import given_job
from .directory import (
    CompareDirectory,
    RunOutcome,
    compare_record,
    describe_difference,
    outcome_of,
    summary_of,
)
from .errors import Refused, Usage
from .halving import MAX_DIMENSIONS, SearchDimension, parse_dimension
from .launchers import Interrupted, SequentialLauncher, make_launcher
from .launchers.slurm import check_no_jobs
from .plan import PlannedRun, first_seed, job_with_share
from .processes import SignalWaiter
from .run_result import number, text_or_empty
from .runs import CompareProgress, Work, label_of, prepare_run, result_line
from .simulator import Request, Simulator
from .text import percent, plural, rounded, short, to_json
from .tune_report import answer_of, importance_of, result_of, write_pictures, write_report
from .words import parts_of

_HELP = parts_of("help/tune.txt")
_SENTENCES = dict(line.split(": ", 1) for line in _HELP["sentences"].splitlines())
_VERSION = 1  # of the study in a directory
_FILES = (
    "compare.json journal.log initial.safetensors report.json report.html best.textproto squeue.log "
    "kubectl.log"
)
_NAMES = (*_FILES.split(), "journal.lock", "plots", "runs")
_STEPS = 81  # of Optuna in a budget; trials are compared from the third on, and at 3 times as many
_POLL_SECONDS = 0.2
_COMBINATIONS = 100  # that are tried to find a valid job with a value


@dataclasses.dataclass
class TuneOptions(simulate.SimulateOptions):
    simulate: bool = False
    over: List[SearchDimension] = dataclasses.field(default_factory=list)
    over_texts: List[str] = dataclasses.field(default_factory=list)  # as given
    trials: int = 27
    sampler: str = "tpe"
    pruner: str = "halving"


def import_optuna() -> Any:
    """Returns the module. Refused if it is missing or too old."""
    try:
        optuna = importlib.import_module("optuna")
    except ImportError as error:
        raise Refused(_SENTENCES["missing"] % error) from error
    if int(optuna.__version__.split(".")[0]) < 4:
        raise Refused(_SENTENCES["old"] % optuna.__version__)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", module="optuna")
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    return optuna


class Lock:
    """A lock of all processes that know its file, which ends with its process."""

    def __init__(self, path: str) -> None:
        self._path = path

    def acquire(self) -> bool:
        """Waits for it."""
        self._file = os.fdopen(files.open_file(self._path, os.O_RDWR | os.O_CREAT, 0o600), "rb+")
        with files.refusing("cannot lock " + self._path):
            fcntl.lockf(self._file, fcntl.LOCK_EX)
        return True

    def release(self) -> None:
        self._file.close()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: Any) -> None:
        self.release()


def value_of(dimension: SearchDimension, value: Any) -> str:
    """Returns a value of Optuna's, as a job file has it."""
    return short(value, 4) if isinstance(value, float) else str(value)


def override(dimension: SearchDimension, value: Any) -> str:
    return "%s=%s" % (dimension.path, value_of(dimension, value))


def _middle(dimension: SearchDimension) -> Any:
    low, high = dimension.low, dimension.high
    middle = math.sqrt(low * high) if dimension.logarithmic else (low + high) / 2
    return min(max(rounded(middle), math.ceil(low)), math.floor(high)) if dimension.whole else middle


def _check_fields(given: core.Job, over: Sequence[SearchDimension]) -> None:
    """Finds out which ranges are of whole numbers, and that the job has all fields."""
    for one in over:
        may_be_whole = not one.choices and math.ceil(one.low) <= math.floor(one.high)
        errors = []
        for one.whole in (False, True)[: 1 + may_be_whole]:
            try:
                middle: Any = _middle(one) if one.whole else one.low + 0.3
                values: Sequence[Any] = one.choices if one.choices else [middle]
                for value in values:
                    core.parse_job(given.text, [override(one, value)], complete=False)
                break
            except Refused as error:
                errors.append(error.message)
        else:
            raise Refused("--over: " + errors[0])


class _Directory(CompareDirectory):
    """The directory of a study, which several processes use."""

    def __init__(self, options: TuneOptions, record: Dict[str, Any]) -> None:
        self.path, self._change, file = options.out, "", options.out + "/compare.json"
        self._runs = self.path + "/runs"
        files.create_directory(self._runs)
        run_directory.claim_names(self.path, _NAMES)
        if options.overwrite:
            check_no_jobs(self.path)
            self._delete()
        ways = "choose another --out, or start again with --overwrite (deletes it)"
        before = files.read_summary(file) if os.path.exists(file) else record
        if before.get("tune") != _VERSION and {"tune", "over"} & set(before):
            raise Refused("%s holds a study of another version of `catchment tune`; %s" % (self.path, ways))
        difference = describe_difference(before, record)
        if difference:
            raise Refused("%s holds another study or comparison: %s; %s" % (self.path, difference, ways))
        files.write_atomically(file, to_json(record, 2) + "\n")

    def lock(self, file: str) -> run_directory.DirectoryLock:
        """Returns the lock of a trial. Refused if another process holds it."""
        return run_directory.DirectoryLock(self._runs, file, "another running `catchment tune`")

    def _delete(self) -> None:
        names = files.names_in(self._runs)
        for name in names:
            if name.endswith(".lock"):
                self.lock(name).close()
        for path in ("%s/%s" % (self._runs, name) for name in names):
            if os.path.isdir(path) and not os.path.islink(path):
                run_directory.delete_run(path)
        files.delete_inside(self._runs, r"trial-\d+\.lock")
        files.delete_inside(self.path + "/plots", r".*\.svg")
        for name in _FILES.split():
            files.delete("%s/%s" % (self.path, name))
        files.create_directory(self._runs)


class _Signals(SignalWaiter):
    """The signals of the command, and SIGINT once for a run that is to end early."""

    received = 0  # from others

    def __init__(self) -> None:
        super().__init__()
        self.prunes: Callable[[], bool] = lambda: False

    def wait(self, seconds: float) -> int:
        received = super().wait(seconds)
        if received in (0, signal.SIGCHLD):
            return signal.SIGINT if self.prunes() else received
        self.received = received
        return received


class _Pruning:
    """Reports the scores of a run to Optuna, in their order, until it prunes the trial."""

    def __init__(self, trial: Any, path: str, share_of: Callable[[Any], float]) -> None:
        self._trial, self._path, self._share_of = trial, path + "/metrics.jsonl", share_of
        self._offset, self.pruned = 0, False
        self.last: Dict[str, Any] = {"tested_at_samples": 0}

    def __call__(self) -> bool:
        """Returns True once, after the score with which the trial is pruned."""
        with contextlib.suppress(OSError), open(self._path, "rb") as file:
            file.seek(self._offset)
            while not self.pruned:
                line = file.readline()
                if not line.endswith(b"\n"):
                    return False
                self._offset += len(line)
                row = _run_files.row_of(line) or {}
                if (number(row, "tested_at_samples") or 0) > self.last["tested_at_samples"]:
                    self._report(row)
            return True
        return False

    def _report(self, row: Dict[str, Any]) -> None:
        value, share = score_of(row), self._share_of(row)
        if value is not None and math.isfinite(value):
            self.last = row
            self._trial.report(value, max(1, int(_STEPS * share + 1e-9)))
            self.pruned = share < 1 and self._trial.should_prune()


def score_of(values: Dict[str, Any]) -> Optional[float]:
    """Returns what a study maximizes: the accuracy; if targets are real numbers the loss, negated."""
    accuracy, loss = number(values, "test_accuracy"), number(values, "test_loss")
    return accuracy if accuracy is not None else None if loss is None else -loss


class _Simulation(SequentialLauncher):
    """Simulates runs, which may end early."""

    def __init__(self, cluster: Request) -> None:
        self._cluster = cluster
        self.prunes: Callable[[], bool] = lambda: False

    def train(self, run: PlannedRun, work: Work) -> None:
        out = prepare_run(run, work.directory)
        with Simulator() as simulator:
            process = simulator._begin(dict(self._cluster, job=run.job.text, out=out, seconds=run.seconds))
            while not select.select([process], [], [], _POLL_SECONDS)[0]:
                if self.prunes():
                    raise Interrupted(signal.SIGINT)
            answer = simulator._end(process)
        if answer.get("code", "INTERNAL") != "INTERNAL":
            core.checked(answer)  # An error of the job or its data is that of all runs.
        work.progress.begin(label_of(run))
        work.progress.end("failed: " + answer["error"] if "error" in answer else result_line(out))


class Study:
    """The trials of one process, on the study of all."""

    def __init__(self, options: TuneOptions, given: core.Job, optuna: Any, streams: Streams) -> None:
        self.options, self.given, self._optuna, self._streams = options, given, optuna, streams
        self.lock = Lock(options.out + "/command.lock")
        self.workers_given = False
        self.failed: List[int] = []  # the trials of this process
        self._progress = CompareProgress(streams, options.trials)

    def open(self, record: Dict[str, Any]) -> None:
        """Opens the directory and Optuna's study in it."""
        self.directory, path = _Directory(self.options, record), self.options.out + "/journal"
        pruners, storages = self._optuna.pruners, self._optuna.storages
        halving = dict(min_resource=3, reduction_factor=3)
        kinds = {"halving": pruners.SuccessiveHalvingPruner, "hyperband": pruners.HyperbandPruner}
        more = {"hyperband": dict(halving, max_resource=_STEPS), "halving": halving}.get(
            self.options.pruner, {}
        )
        try:
            backend = storages.journal.JournalFileBackend(path + ".log", lock_obj=Lock(path + ".lock"))
            self.study = self._optuna.create_study(
                study_name="catchment",
                storage=storages.JournalStorage(backend),
                pruner=kinds.get(self.options.pruner, pruners.NopPruner)(**more),
                direction="maximize",
                load_if_exists=True,
            )
            self.study.get_trials()
        except (Refused, OSError):
            raise
        except Exception as error:  # Optuna's own checks raise anything.
            words = (path, self._optuna.__version__, type(error).__name__, error)
            raise Refused(_SENTENCES["unreadable"] % words) from error

    def announce(self) -> None:
        done = sum(one.state.is_finished() for one in self.study.get_trials(deepcopy=False))
        if done:
            everything = plural(self.options.trials, "trial")
            self._streams.out.write("%d of %s are already done\n" % (done, everything))
        self._progress.expect(-done)

    def conclude(self, simulated: Optional[str]) -> None:
        """Writes the report and the best job, and prints their paths."""
        options, directory = self.options, self.options.out
        trials, results = self.study.get_trials(deepcopy=False), []
        for one in trials:
            settings = {d.path: value_of(d, one.params[d.path]) for d in options.over if d.path in one.params}
            series = [(step / _STEPS, value) for step, value in sorted(one.intermediate_values.items())]
            results.append(result_of(one.number, one.state.name, settings, one.user_attrs, series))
        complete = [(one.value, -one.number) for one in trials if one.state.name == "COMPLETE"]
        best = -max(complete)[1] if complete else None
        report = {
            "command": reported_command("catchment tune", options.args),
            "job_name": self.given.json.get("name", ""),
            "budget": common.budget_text(options.budget),
            "simulated": simulated,
            "sampler": options.sampler,
            "pruner": options.pruner,
            "trials": results,
            "importance": importance_of(self._optuna, self.study, [one.path for one in options.over]),
            "best": None if best is None else results[best],
        }
        write_report(report, directory)
        page, job = directory + "/report.html", directory + "/best.textproto"
        if best is None:
            raise Refused("no trial has a result; %s has the reasons" % page)
        sets = ["samples=%d" % options.budget.samples] if options.budget.samples else []
        sets += ["workers=%d" % options.workers[0]] if self.workers_given else []
        files.write_file(
            job, core.parse_job(self.job_of(trials[best].params).text, sets, complete=False).text
        )
        write_pictures(self._optuna, self.study, directory)
        paths = (job, page, directory + "/report.json")
        self._streams.out.write("\n%s\n\njob     %s\nreport  %s\nfigures %s\n" % (answer_of(report), *paths))
        if self.failed:
            raise Refused(_SENTENCES["failed"] % plural(len(self.failed), "run"))

    def next_trial(self, stack: contextlib.ExitStack) -> Any:
        """Returns a trial whose lock `stack` holds; None if there is nothing left for this process."""
        states, samplers = self._optuna.trial.TrialState, self._optuna.samplers
        with self.lock:
            trials = self.study.get_trials(deepcopy=False)
            for one in trials[: self.options.trials]:
                if one.state == states.RUNNING and one.number not in self.failed:
                    with contextlib.suppress(Refused):
                        stack.callback(self._lock_of(one.number))
                        return self._suggest(self._optuna.trial.Trial(self.study, one._trial_id))
            if len(trials) >= self.options.trials:
                return None
            # The values depend only on the trial's number and the results so far, whichever process asks.
            seed = 1000 * first_seed(self.given) + len(trials)
            sampler = samplers.TPESampler if self.options.sampler == "tpe" else samplers.RandomSampler
            self.study.sampler = sampler(seed=seed % 2**32)
            trial = self.study.ask()
            stack.callback(self._lock_of(trial.number))
            return self._suggest(trial)

    def _lock_of(self, trial: int) -> Callable[[], None]:
        return self.directory.lock("trial-%d.lock" % (trial + 1)).close

    def _suggest(self, trial: Any) -> Any:
        for one in self.options.over:
            if one.choices:
                trial.suggest_categorical(one.path, one.choices)
            elif one.whole:
                low, high = math.ceil(one.low), math.floor(one.high)
                trial.suggest_int(one.path, low, high, log=one.logarithmic)
            else:
                trial.suggest_float(one.path, one.low, one.high, log=one.logarithmic)
        return trial

    def job_of(self, params: Dict[str, Any]) -> core.Job:
        """Returns the job of a trial as a user would write it."""
        sets = [override(one, params[one.path]) for one in self.options.over]
        return core.parse_job(self.given.text, sets, complete=False)

    def plan(self, trial: int, params: Dict[str, Any]) -> PlannedRun:
        workers, seed, name = self.options.workers[0], first_seed(self.given), "trial-%d" % (trial + 1)
        job = job_with_share(self.options, self.job_of(params), workers, seed, 1)
        settings = ", ".join(override(one, params[one.path]) for one in self.options.over)
        label, seconds = name.replace("-", " "), self.options.budget.seconds
        return PlannedRun("runs/" + name, label, workers, seed, seconds, job, settings)

    def check_choices(self) -> None:
        """Refuses a value of a list with which no job is valid, before the first run."""
        over = self.options.over
        for one in over:
            for choice in one.choices:
                others = [[choice] if other is one else other.choices or [_middle(other)] for other in over]
                message = ""
                for values in itertools.islice(itertools.product(*others), _COMBINATIONS):
                    try:
                        self.plan(0, dict(zip([other.path for other in over], values)))
                        break
                    except Refused as error:
                        message = error.message
                else:
                    raise Refused("%s:\n%s" % (_SENTENCES["invalid"] % override(one, choice), message))

    def carry_out(self, trial: Any, launcher: Any, ends_early: Any) -> None:
        """Trains with the values of a trial, and tells Optuna the result."""
        states = self._optuna.trial.TrialState
        try:
            run = self.plan(trial.number, trial.params)
        except Refused as error:
            trial.set_user_attr("invalid", error.message)
            self.study.tell(trial, state=states.PRUNED)
            return
        path, total, end = self.directory.path_of(run), run.job.facts["total_samples"], run.seconds

        def share_of(row: Dict[str, Any]) -> float:
            return row["tested_at_seconds"] / end if end else row["tested_at_samples"] / (total or math.inf)

        pruning = _Pruning(trial, path, share_of)
        if outcome_of(run, path) is RunOutcome.NONE:
            if ends_early:
                ends_early.prunes = pruning
            try:
                launcher.launch([run], Work(self.directory, self._progress, lambda ended: []))
            except Interrupted:
                if not pruning.pruned:
                    raise
                self._progress.begin(label_of(run))
                self._progress.end("pruned after %s of the budget" % percent(share_of(pruning.last)))
            finally:
                if ends_early:
                    ends_early.prunes = lambda: False
        run_directory.delete_run_checkpoints(path)
        summary, outcome = summary_of(path) or {}, outcome_of(run, path)
        # A simulated run is pruned where it would have been on the cluster, however fast the simulation was.
        pruning()
        pruned = pruning.pruned and (self.options.simulate or outcome is RunOutcome.NONE)
        scores = pruning.last if pruned else summary
        value = score_of(scores)
        figures = dict(samples=number(scores, "tested_at_samples" if pruned else "samples"))
        figures.update({key: number(scores, key) for key in ("test_accuracy", "test_loss")})
        for key, figure in figures.items():
            trial.set_user_attr(key, figure)
        reason = text_or_empty(summary, "reason") if not pruned else ""
        trial.set_user_attr("reason", reason or ("it wrote no test score" if value is None else ""))
        trial.set_user_attr("diverged", outcome is RunOutcome.DIVERGED)
        if pruned or outcome is RunOutcome.DIVERGED:
            self.study.tell(trial, state=states.PRUNED)
        elif outcome is RunOutcome.DONE and value is not None and math.isfinite(value):
            self.study.tell(trial, value)
        else:
            self.failed.append(trial.number)  # It stays open, and the next command repeats it.


def _check(o: TuneOptions) -> None:
    if not o.over:
        raise Usage(_SENTENCES["required"])
    if len(o.over) > MAX_DIMENSIONS:
        raise Usage(_SENTENCES["many"] % (len(o.over), MAX_DIMENSIONS))
    paths = [one.path for one in o.over]
    for i, (path, given) in enumerate(zip(paths, o.over_texts)):
        if path in paths[:i]:
            raise Usage(_SENTENCES["twice"] % (given, path))
        if path in ("workers", "seed"):
            raise Usage(_SENTENCES["same"] % (given, path))
    model = zip(
        ["step", "start", "network", "straggler", "failures", "gradient", "from"],
        (o.step, o.start, o.network, o.slow, o.failures, o.quadratic, o.from_run),
    )
    for flag in (flag for flag, value in model if value and not o.simulate):
        raise Usage(_SENTENCES["model"] % flag)
    common.check_plan_flags(o)
    if not o.simulate:
        common.check_launch_flags(o)
    elif o.launcher != "local":
        raise Usage(_SENTENCES["launcher"])
    elif o.program:
        raise Usage(_SENTENCES["program"])


def _launcher(options: TuneOptions, given: core.Job, record: Dict[str, Any], signals: Any) -> Any:
    """Returns the launcher, and what can end its runs early; completes the record."""
    if signals is not None:
        return make_launcher(options, signals), signals if options.launcher == "local" else None
    options.finish_job = lambda job: simulate.slow_down(job, options.slow)
    cluster = simulate.cluster_of(options, given)
    record["simulated"] = simulate.describe(options, cluster)
    record["straggler"] = [one.text for one in options.slow]
    simulation = _Simulation(cluster)
    return simulation, simulation


def _search(options: TuneOptions, streams: Streams, stack: contextlib.ExitStack) -> int:
    optuna = import_optuna()
    signals: Any = None if options.simulate else stack.enter_context(_Signals())
    run_directory.check_claim(options.out, _NAMES)
    door = core.Door(options.job, options.program)
    stack.callback(door.close)
    given = given_job(options, door, signals)
    workers_given = bool(options.workers)
    options.workers = options.workers or [max(1, int(given.json.get("workers", 1)))]
    _check_fields(given, options.over)
    common.check_stragglers([(one.worker, one.text) for one in options.slow], options)
    record = {"tune": _VERSION, **compare_record(options, given), "over": options.over_texts}
    record.update(sampler=options.sampler, pruner=options.pruner)
    launcher, ends_early = _launcher(options, given, record, signals)
    study = Study(options, given, optuna, streams)
    study.workers_given = workers_given
    study.check_choices()
    files.create_directory(options.out)
    with study.lock:
        study.open(record)
        if given.described and not os.path.exists(study.directory.initial_weights):
            door.ask({"copy_weights": study.directory.initial_weights})
    study.announce()
    trial: Any = ...
    while trial is not None:
        if signals and (signals.wait(0) or signals.received) and signals.received:
            raise Interrupted(signals.received)
        with contextlib.ExitStack() as lock:
            trial = study.next_trial(lock)
            if trial is not None:
                study.carry_out(trial, launcher, ends_early)
    with study.lock:
        study.conclude(record.get("simulated"))
    return 0


def main(args: Sequence[str], streams: Streams) -> int:
    """Runs a command line. Returns the exit code, which --help explains."""
    options = TuneOptions(workers=[], seeds=1, out="out-tune", args=list(args))
    line = CommandLine("catchment tune", _HELP["usage"], _HELP["notes"], check=lambda: _check(options))
    example = "examples/mnist_mlp.textproto --over=optimizer.learning_rate=log:0.001..1 --out=tuned"
    set_job = lambda word: setattr(options, "job", word)  # noqa: E731
    line.argument = Argument("JOB", example, set_job, lambda: bool(options.program))

    def over(given: str) -> None:
        options.over.append(parse_dimension(given))
        options.over_texts.append(given)

    line.flags.declare(
        options,
        _HELP["flags"],
        over=over,
        trials=command_line.whole(2),
        workers=lambda given: [command_line.whole(1)(given)],
        sampler=common.one_of("tpe", "random"),
        pruner=common.one_of("halving", "hyperband", "none"),
    )
    common.add_run_flags(options, line.flags)
    common.add_launch_flags(options, line.flags)
    line.flags.declare(options, _HELP["simulate"])
    simulate.add_model_flags(options, line.flags)

    def command() -> int:
        with contextlib.ExitStack() as stack:
            return _search(options, streams, stack)

    return command_line.run(line, args, streams, command)
