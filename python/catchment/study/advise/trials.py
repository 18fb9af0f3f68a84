"""Simulates a job's candidates: every preset with its own settings, and the job's own algorithm. The best few
are simulated again with other seeds.

Each trial trains the job's model on its data for at most MAX_OPERATIONS. If that allows fewer than MIN_STEPS
of each worker, or if this machine lacks the data or the memory, a quadratic function is trained instead.

Units: seconds; accuracies are shares.
"""

import collections
import dataclasses
import math
import shutil
import tempfile
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from catchment.study import core, models, text
from catchment.study.errors import Refused
from catchment.study.models import QuadraticModel
from catchment.study.run_result import RunResult, first_reached, read_run
from catchment.study.simulator import Request, Simulator
from catchment.study.statistics import total

from .evidence import Evidence

# Candidates that end further than this below the best trial are not recommended.
MARGIN = 0.01
# Floating-point operations of one trial.
MAX_OPERATIONS = 3e11
MIN_STEPS = 20
# Limits on the steps of a trial of the quadratic: of each worker, and of all workers together.
MAX_STEPS = 200
MAX_QUADRATIC_STEPS = 20000
# Each of the best is tried with so many seeds.
SEEDS = 3
REPEATED = 3

_EVALUATIONS = 20
_MIN_EVALUATION_EPOCHS = text.float32(1e-6)
_CONDITION = 100
_USUAL_NOISE = 0.1
# A bounded learning rate is tried if it is this much lower than the job's.
_LOWER = 0.95
# Steps of each worker in computing_share().
_STEPS = 30


LeftOut = Dict[str, str]  # the "preset" and the "reason"


@dataclasses.dataclass
class Trial:
    """A preset with some settings, and its runs."""

    preset: str
    settings: str = "preset"  # its own, the "job"'s, or those with a "bounded" learning rate
    job: core.Job = core.Job("")  # complete and valid
    runs: List[RunResult] = dataclasses.field(default_factory=list)  # by seed, from the job's on

    @property
    def diverged(self) -> bool:
        """Returns True if any of them has."""
        return any(run.diverged for run in self.runs)

    def accuracy(self) -> float:
        """Returns the mean at the end; 0 if a run diverged."""
        return 0.0 if self.diverged else total(run.accuracy or 0 for run in self.runs) / len(self.runs)

    def waiting(self) -> float:
        """Returns the share of the workers' time that exchanges and other workers take."""
        compute = total(run.compute_seconds for run in self.runs)
        whole = total(run.compute_seconds + run.push_seconds + run.pull_seconds for run in self.runs)
        return 1 - compute / whole if whole > 0 else 0.0

    def seconds_to(self, target: float) -> Optional[float]:
        """Returns the mean time to this accuracy; a run that did not reach it counts with its whole time.
        None if the mean accuracy at the end is below the target."""
        if self.diverged or self.accuracy() < target:
            return None
        reached = [(first_reached(run.scores, target), run.seconds) for run in self.runs]
        return total(at.seconds if at else whole for at, whole in reached) / len(self.runs)


@dataclasses.dataclass
class Trials:
    # Sorted: first the candidates that may be recommended, by their time to `target`; then the others by
    # their accuracy.
    trials: List[Trial] = dataclasses.field(default_factory=list)
    quadratic: bool = False
    model: str = ""  # what was trained, in words
    samples: int = 0  # of each run, by all workers
    target: float = 0  # the accuracy to which they are timed: MARGIN below the best mean
    recommended: int = 0  # how many of them
    left_out: List[LeftOut] = dataclasses.field(default_factory=list)
    sure: bool = False  # the first was the soonest with every seed

    def find(self, preset: str) -> Optional[Trial]:
        return next((trial for trial in self.trials if trial.preset == preset), None)

    def best(self) -> List[Trial]:
        """Returns those to repeat."""
        return self.trials[: min(REPEATED, self.recommended)]

    def judge(self) -> None:
        """Sorts the trials, and decides which are recommended."""
        target = self.target = max(0.0, *(trial.accuracy() for trial in self.trials)) - MARGIN

        def rank(trial: Trial) -> Tuple[bool, float]:
            time = trial.seconds_to(target)
            return (True, -trial.accuracy()) if time is None else (False, time)

        self.trials.sort(key=rank)
        self.recommended = sum(not rank(trial)[0] for trial in self.trials)
        first, *others = self.trials
        high = all((run.accuracy or 0) >= target for run in first.runs)
        self.sure = self.recommended > 0 and not self.quadratic and high
        for other in others[: max(0, self.recommended - 1)]:
            for runs in zip(first.runs, other.runs):
                a, b = (first_reached(run.scores, target) for run in runs)
                self.sure &= a is not None and (b is None or a.seconds < b.seconds)


@dataclasses.dataclass
class _Course:
    """The model and the budget of every trial."""

    model: str
    samples: int
    quadratic: Optional[QuadraticModel] = None
    at_once: int = 0  # 0: as many as there are processors

    def changes(self, evidence: Evidence) -> List[str]:
        """Returns the overrides of a candidate's job, besides its seed."""
        changes = ["samples=%d" % self.samples, "checkpoint.every_updates=0", "checkpoint.every_seconds=0"]
        stated = self.quadratic.epoch_samples if self.quadratic else 0
        epoch = evidence.job.facts["samples_per_epoch"] if evidence.job.facts["knows_samples"] else stated
        if epoch > 0:
            every = text.float32(self.samples / epoch / _EVALUATIONS)
            changes.append("evaluation.every_epochs=%r" % max(_MIN_EVALUATION_EPOCHS, every))
        slow = [one for one in sorted(evidence.slow.items()) if one[0] < evidence.job.json["workers"]]
        return [*changes, models.straggler_change(evidence.job.json.get("faults", {}), slow)]


def _cluster_of(evidence: Evidence, **more: Any) -> Request:
    assert evidence.step
    cluster = dict(servers=evidence.servers, step=evidence.step, network=evidence.network)
    return {**cluster, "start": models.usual_start(evidence.step), **more}


def _noise_of(evidence: Evidence) -> float:
    """With the noise scale N the noise of a minibatch of B samples has N / B times the square of the
    gradient, which is the mean of the squared curvatures at the start of training."""
    scale = evidence.noise.scale() if evidence.noise else None
    if scale is None:
        return _USUAL_NOISE
    squares = (1 - 1 / (_CONDITION * _CONDITION)) / (2 * math.log(_CONDITION))
    return math.sqrt(squares * max(0.0, scale) / evidence.batch_size)


def _quadratic_course(evidence: Evidence, budget: int, reason: str) -> _Course:
    steps = min(MAX_STEPS, max(1, MAX_QUADRATIC_STEPS // evidence.workers))
    noise, source = _noise_of(evidence), " as measured" if evidence.noise else ", which is assumed"
    words = "a quadratic function with noise of %s%s in place of the model: %s"
    samples = min(budget, steps * evidence.workers * evidence.batch_size)
    model = QuadraticModel(_CONDITION, noise)
    return _Course(words % (text.short(noise, 3), source, reason), samples, model)


def _course_of(evidence: Evidence, simulator: Simulator) -> _Course:
    facts, model = evidence.job.facts, evidence.job.json["model"]
    step = evidence.workers * evidence.batch_size
    budget = int(facts["total_samples"] or MAX_STEPS * step)
    if "external" in model:
        return _quadratic_course(evidence, budget, "a program computes its gradients")
    if "synthetic" in model:
        return _quadratic_course(evidence, budget, "it is not known here")
    affordable = int(MAX_OPERATIONS / facts["operations_per_sample"])
    if affordable < min(budget, MIN_STEPS * step):
        return _quadratic_course(evidence, budget, "computing it for so many workers takes too long")
    at_once = 1
    try:
        at_once = simulator.ask(job=evidence.job.text, at_once=True, **_cluster_of(evidence))["at_once"]
    except core.DoorError as error:
        if error.code == "RESOURCE_EXHAUSTED":
            reason = "so many copies of it do not fit into the free memory"
            return _quadratic_course(evidence, budget, reason)
    return _Course("the job's model on its data", min(budget, affordable), None, at_once)


def candidates_of(evidence: Evidence, left_out: List[LeftOut]) -> List[Trial]:
    """Returns the presets that the job's workers support, and the job's settings if they are others: as they
    are, and with the learning rate that is known to train at the expected staleness if that is lower."""
    candidates: List[Trial] = []
    parts, presets = ["algorithm", "optimizer"], core.presets()
    sets = [["algorithm.preset=" + preset, evidence.preset_optimizer] for preset in presets]
    complete = core.edit_all(evidence.job, sets, clear=parts, servers=evidence.servers)
    for preset, job in zip(presets, complete):
        if isinstance(job, Refused):
            left_out.append({"preset": preset, "reason": job.message})
        else:
            candidates.append(Trial(preset, job=job))
    (own,) = core.edit_all(evidence.job, [[]])
    if isinstance(own, Refused):
        return candidates
    training = [own.json.get(part) for part in parts]
    if any(training == [other.job.json.get(part) for part in parts] for other in candidates):
        return candidates
    candidates.append(Trial(own.preset, "job", own))
    rate = own.facts["rate_at_expected_staleness"]
    if rate is not None and rate <= _LOWER * text.float32(own.json["optimizer"]["learning_rate"]):
        bounded = core.edit(own, ["optimizer.learning_rate=%r" % text.float32(rate)], complete=False)
        candidates.append(Trial(own.preset, "bounded", bounded))
    return candidates


class Work(NamedTuple):
    """The means of all simulations."""

    evidence: Evidence
    simulator: Simulator
    report: Callable[[str], None]  # gets a line for each simulation

    def run_missing(self, trials: Sequence[Trial], seeds: int, course: _Course, **more: Any) -> None:
        """Simulates each trial with the seeds, of so many, that it has no result of."""
        first, changes = int(self.evidence.job.json["seed"]), course.changes(self.evidence)
        missing = [(trial, first + i) for trial in trials for i in range(len(trial.runs), seeds)]
        at_once = course.at_once or self.simulator.ask(about=True)["processors"]
        cluster = _cluster_of(self.evidence, quadratic=course.quadratic, **more)
        with tempfile.TemporaryDirectory(prefix="catchment-advise-") as root:

            def request(task: Tuple[Trial, int]) -> Request:
                trial, seed = task
                out = tempfile.mkdtemp(dir=root)
                return dict(cluster, job=trial.job.text, set=[*changes, "seed=%d" % seed], out=out)

            left = collections.deque(missing)
            for (trial, seed), asked, error in self.simulator.work(left, at_once, request):
                run = _result(trial.preset, seed, asked["out"], error)
                shutil.rmtree(asked["out"])
                trial.runs = sorted([*trial.runs, run], key=lambda one: one.seed)
                settings = "" if trial.settings == "preset" else " with settings: " + trial.settings
                accuracy = "diverged" if run.diverged else text.percent(run.accuracy or 0)
                self.report("%s%s, seed %d: %s" % (trial.preset, settings, seed, accuracy))


def _result(preset: str, seed: int, out: str, error: Optional[core.DoorError]) -> RunResult:
    """Reads the result of a run. INTERNAL is the failure of its job, which may have diverged."""
    if error and error.code != "INTERNAL":
        raise error
    result = RunResult(preset, seed=seed)
    try:
        read_run(out, result)
    except Refused as missing:
        raise error or missing from None
    result.diverged |= not math.isfinite(result.loss or 0)
    if error and not result.diverged:
        raise error
    return result


def run_trials(work: Work) -> Trials:
    """The evidence has a step. Refuses a job that no preset supports."""
    evidence = work.evidence
    left_out: List[LeftOut] = []
    every = candidates_of(evidence, left_out)
    if not every:
        raise Refused(left_out[0]["reason"])
    first, course, reason = every[0], _course_of(evidence, work.simulator), ""
    # The first run shows whether the job's data and its test set are there.
    try:
        work.run_missing([first], 1, course)
        if course.quadratic is None and not first.diverged and first.runs[0].accuracy is None:
            reason = "its test set has no accuracy"
    except core.DoorError as error:
        if error.code != "NOT_FOUND":
            raise
        reason = "its data is not on this machine"
    if reason:
        course = _quadratic_course(evidence, course.samples, reason)
        # Then nobody knows how many samples an epoch has.
        if not first.runs and not evidence.job.facts["knows_samples"] and course.quadratic:
            course.quadratic = course.quadratic._replace(epoch_samples=course.samples)
        first.runs.clear()
    work.run_missing(every, 1, course)
    trials = Trials(every, course.quadratic is not None, course.model, course.samples, left_out=left_out)
    trials.judge()
    # A repeated run may bring another among the best, which is then repeated too.
    while any(len(trial.runs) < SEEDS for trial in trials.best()):
        work.run_missing(trials.best(), SEEDS, course)
        trials.judge()
    # Only repeated candidates are known to train with other seeds.
    trials.recommended = min(trials.recommended, REPEATED)
    return trials


def computing_share(evidence: Evidence, servers: int, simulator: Simulator) -> float:
    """Returns the share of their time in which the workers of the job compute, by the simulation of a few
    steps of a small model with messages as long as those of the job's."""
    job = core.edit(evidence.job, servers=servers, complete=False)
    samples = _STEPS * job.facts["period"] * evidence.workers * evidence.batch_size
    course = _Course("", samples, QuadraticModel(epoch_samples=samples), at_once=1)
    trial, work = Trial(job.preset, "job", job), Work(evidence, simulator, lambda _: None)
    work.run_missing([trial], 1, course, servers=servers, start=None)
    return 1 - trial.waiting()
