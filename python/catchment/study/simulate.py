"""`catchment simulate JOB --workers=... --step=... --out=DIR`: the runs of a comparison by simulation, with
the report of `catchment compare`."""

import collections
import contextlib
import dataclasses
from typing import Any, Dict, List, Optional, Sequence

from . import command_line, core, models, text
from .advise.evidence import synthetic_step
from .collect import conclude, reported_command
from .command_line import Argument, CommandLine, Flags, Streams
from .directory import CompareDirectory, compare_record
from .errors import Refused
from .launchers import Launcher
from .options import CompareOptions, add_plan_flags, check_plan_flags, check_stragglers
from .plan import PlannedRun, make_plan
from .recorded_run import RecordedRun
from .runs import Work, carry_out, label_of, prepare_run, result_line
from .simulator import Request, Simulator
from .words import parts_of

_HELP = parts_of("help/simulate.txt")
# The mean number of failures of a worker in a run for which nothing else determines a length.
_FAILURES_PER_WORKER = 4


@dataclasses.dataclass
class SimulateOptions(CompareOptions):
    step: Optional[models.Distribution] = None
    start: Optional[models.Distribution] = None
    network: Optional[models.NetworkModel] = None
    slow: List[models.StragglerModel] = dataclasses.field(default_factory=list)
    failures: Optional[models.FailureModel] = None
    quadratic: Optional[models.QuadraticModel] = None
    from_run: str = ""  # a finished run, for `step`, `start` and `network`
    seed: int = 0  # 0: the job's
    texts: Dict[str, str] = dataclasses.field(default_factory=dict)  # of failures and the gradient, as given


def add_model_flags(options: SimulateOptions, flags: Flags) -> None:
    """Adds the flags of the modelled cluster."""

    def failures(words: str) -> models.FailureModel:
        options.texts["failures"] = words
        return models.parse_failures(words)

    def gradient(words: str) -> None:
        options.texts["gradient"] = words
        options.quadratic = models.parse_quadratic(words) if words != "job" else None

    parsers: Dict[str, Any] = {one: getattr(models, "parse_" + one) for one in ("start", "network")}
    parsers.update(step=models.parse_distribution, failures=failures, gradient=gradient)
    parsers["straggler"] = lambda words: options.slow.append(models.parse_straggler(words))
    parsers["from"] = lambda words: setattr(options, "from_run", words)
    flags.declare(options, _HELP["flags"], **parsers)


def cluster_of(options: SimulateOptions, given: core.Job) -> Request:
    """Returns the modelled cluster as keys of a request to the simulator."""
    run = RecordedRun(options.from_run) if options.from_run else None
    step = options.step or (run.step() if run else None)
    mean = step or synthetic_step(given)
    if mean is None:
        raise Refused(_HELP["no_step"].strip())
    slow = [(one.share, one.times) for one in options.slow if one.of_steps] or [(0, 1)]
    return {
        "servers": options.servers,
        "step": step,
        "start": options.start or (run and run.start()) or models.usual_start(mean),
        "network": options.network or (run.network() if run else models.NetworkModel()),
        "slow_steps": slow[-1][0],
        "slow_step_factor": slow[-1][1],
        "failures": options.failures,
        "quadratic": options.quadratic,
    }


def describe(options: SimulateOptions, cluster: Request) -> str:
    """Describes the modelled cluster, for the report and the record of the directory."""
    step, start = cluster["step"] or "of model.synthetic", cluster["start"]
    words = ["step %s" % (step,), "start %s" % (start if start.mean > 0 else "none",)]
    words += ["network %s" % (cluster["network"],)]
    words += ["failures " + options.texts["failures"]] if options.failures else []
    words += ["gradient " + options.texts["gradient"]] if options.quadratic else []
    return ", ".join(words)


class SimulationLauncher(Launcher):
    """Carries out runs on simulated clusters, several at once. The order in which runs end decides nothing: a
    rung of a search ends as a whole."""

    def __init__(self, simulator: Simulator, cluster: Request, runs: Sequence[PlannedRun]) -> None:
        """Checks that the runs fit into this machine's memory."""
        self._simulator, self._cluster = simulator, cluster
        fits = (simulator.ask(job=run.job.text, at_once=True, **cluster) for run in runs)
        self._at_once = min(answer["at_once"] for answer in fits)

    def launch(self, runs: Sequence[PlannedRun], work: Work) -> None:
        def request(run: PlannedRun) -> Request:
            out = prepare_run(run, work.directory)
            return dict(self._cluster, job=run.job.text, out=out, seconds=run.seconds)

        left = collections.deque(runs)
        for run, asked, error in self._simulator.work(left, self._at_once, request):
            work.progress.begin(label_of(run))
            work.progress.end("failed: " + error.message if error else result_line(asked["out"]))
            # An error of the job or its data is that of all runs.
            if error and error.code != "INTERNAL":
                raise error
            left.extend(work.following(run))


def _given_job(options: SimulateOptions) -> core.Job:
    """Reads the job, and gives the options the algorithm of the job if none is given."""
    seed = ["seed=%d" % options.seed] if options.seed else []
    job = core.load_job(options.job, options.set + seed, complete=False)
    options.algorithms = options.algorithms or [job.preset]
    return job


def _allow_for_failures(given: core.Job, options: SimulateOptions, streams: Streams) -> None:
    """Gives runs that learn nothing the time in which workers fail: the budget of the job file is that of a
    short load test. --budget and --set have precedence."""
    changed = core.parse_job("", options.set, complete=False).json
    budget, failures = options.budget, options.failures
    chosen = budget.samples or budget.seconds or {"epochs", "samples", "updates"}.intersection(changed)
    if failures and not chosen and "synthetic" in given.json.get("model", {}):
        budget.seconds = _FAILURES_PER_WORKER * (failures.mean_seconds + failures.away_seconds)
        streams.out.write(_HELP["long"] % (text.short(budget.seconds), _FAILURES_PER_WORKER))


def slow_down(job: core.Job, stragglers: Sequence[models.StragglerModel]) -> core.Job:
    slow = [one for straggler in stragglers for one in straggler.slow_workers(job.json["workers"])]
    faults = job.json.get("faults", {})
    change = models.straggler_change(faults, models.slow_workers(faults) + slow)
    slowed = core.edit(job, [change], complete=False) if slow else job
    return dataclasses.replace(slowed, space=job.space)


def _command_of(args: Sequence[str]) -> str:
    """Returns the command line without the directory, so that the same simulation gives the same report in
    any directory."""
    words = [arg for arg, before in zip(args, ["", *args]) if "--out" not in (arg, before)]
    return reported_command("catchment simulate", [arg for arg in words if not arg.startswith("--out=")])


def _run(options: SimulateOptions, streams: Streams) -> int:
    given = _given_job(options)
    _allow_for_failures(given, options, streams)
    options.finish_job = lambda job: slow_down(job, options.slow)
    plan, cluster = make_plan(options, given, {}), cluster_of(options, given)
    words, slow = describe(options, cluster), [straggler.text for straggler in options.slow]
    record = dict(compare_record(options, given), simulated=words, straggler=slow)
    with Simulator() as simulator:
        launcher = SimulationLauncher(simulator, cluster, plan.runs)
        with contextlib.closing(CompareDirectory(options.out, options.overwrite, record)) as directory:
            comparison = carry_out(options, given, directory, launcher, streams)
            comparison.command, comparison.machine = _command_of(options.args), None
            comparison.simulated, comparison.stragglers = words, slow
            conclude(comparison, directory.path, streams.out)
    return 0


def main(args: Sequence[str], streams: Streams) -> int:
    """Runs a command line. Returns the exit code, which --help explains."""
    # A prediction is about the presets as they are, unless a search is asked for.
    options = SimulateOptions(workers=[1, 4, 16, 64], seeds=1, search="none", out="out-simulate")
    options.args = list(args)
    line = CommandLine("catchment simulate", _HELP["usage"], _HELP["notes"])
    example = "examples/mnist_mlp.textproto --step=lognormal:50ms:0.3 --out=sim"
    line.argument = Argument("JOB", example, lambda word: setattr(options, "job", word))
    add_model_flags(options, line.flags)
    add_plan_flags("Default: the job's.", options, line.flags)
    line.flags.declare(options, "--seed=N  First seed. Default: the job's.")

    def check() -> None:
        check_plan_flags(options)
        check_stragglers([(one.worker, one.text) for one in options.slow], options)

    line.check = check
    return command_line.run(line, args, streams, lambda: _run(options, streams))
