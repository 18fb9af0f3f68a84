"""The evidence that advice rests on: a job and its measurements."""

import contextlib
import dataclasses
import json
from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple

from catchment.study import core, models
from catchment.study.errors import Refused
from catchment.study.models import Distribution, NetworkModel
from catchment.study.recorded_run import RecordedRun
from catchment.study.run_result import number
from catchment.study.statistics import total

# A worker is slow from so many times the lower median on, so that chance and machines of nearly the same kind
# count as the spread of steps.
SLOW_TIMES = 1.5
# With fewer measurements the gradient noise scale may be wrong by a large factor.
MIN_NOISE_UPDATES = 10
_ROUND_TRIP = "the median round trip, measured"


class Noise(NamedTuple):
    """The gradient noise scale as servers measured it (common/measures/noise_scale.h)."""

    updates: int
    trace: float
    squared_gradient: float

    def scale(self) -> Optional[float]:
        known = self.updates >= MIN_NOISE_UPDATES and self.squared_gradient > 0
        return max(0.0, self.trace) / self.squared_gradient if known else None


@dataclasses.dataclass
class Evidence:
    subject: str  # "job examples/mnist_mlp.textproto"
    job: core.Job  # with all defaults; with a synthetic model if it is of a running job
    servers: int = 1
    job_file: str = ""  # for the next command; empty if there is none
    own_optimizer: bool = False  # the job file has settings of the optimizer beside groups of parameters
    step: Optional[Distribution] = None  # of a worker that is not slow
    step_source: str = ""  # "measured", "--step"
    slow: Dict[int, float] = dataclasses.field(default_factory=dict)  # workers' steps, relative to it
    network: NetworkModel = NetworkModel()
    network_source: str = "assumed"
    compute_share: Optional[float] = None  # of the time of its workers, measured
    # Only of a run whose servers have measured it. It is that of the model and its data, with any number of
    # workers.
    noise: Optional[Noise] = None
    has_run: bool = False  # otherwise nothing can have been measured

    @property
    def workers(self) -> int:
        return max(1, self.job.json.get("workers", 0))

    @property
    def preset_optimizer(self) -> str:
        """The change of the job that leaves its optimizer only the groups of parameters."""
        groups = ""
        for group in self.job.json.get("optimizer", {}).get("groups", []):
            fields = [("names", name) for name in group["names"]]
            fields += [(name, value) for name, value in group.items() if name != "names"]
            words = ("%s: %s" % (name, json.dumps(value, ensure_ascii=False)) for name, value in fields)
            groups += " groups {%s}" % " ".join(words)
        return "optimizer={%s}" % groups.lstrip()

    @property
    def batch_size(self) -> int:
        return int(self.job.json["batch_size"])

    def take_speeds(self, steps: Dict[int, float]) -> None:
        if steps:
            fast, self.slow = speeds_of(steps)
            # The mean of all steps contains those of slow workers.
            if self.step is None or self.slow:
                self.step = (self.step or Distribution())._replace(mean=fast)


def evidence_of_job(job: core.Job, servers: int) -> Evidence:
    """`job` is complete and valid. The step is that of model.synthetic, if the job has it."""
    evidence = Evidence("job " + job.json["name"], core.edit(job, servers=servers), servers)
    evidence.step = synthetic_step(job)
    evidence.step_source = "model.synthetic" if evidence.step else ""
    evidence.slow = dict(models.slow_workers(job.json.get("faults", {})))
    return evidence


def evidence_of_job_file(path: str, sets: Sequence[str], workers: int, servers: int) -> Evidence:
    """`workers`, if not 0, is the job's number of workers unless an override sets it."""
    overridden = any(one.startswith("workers=") for one in sets)
    more = ["workers=%d" % workers] if workers > 0 and not overridden else []
    evidence = evidence_of_job(core.load_job(path, [*sets, *more]), servers)
    evidence.job_file = path
    with contextlib.suppress(Refused):  # a pipe can be read only once
        given = core.load_job(path, sets, complete=False).json
        evidence.own_optimizer = bool(set(given.get("optimizer", {})) - {"groups"})
    return evidence


def evidence_of_run(directory: str) -> Evidence:
    """Takes the step, slow workers, the network and the noise from the --out of a finished run."""
    try:
        run = RecordedRun(directory)
        step, steps = run.step(), run.steps_by_worker()
    except Refused as error:
        raise Refused(error.message.replace("--from=", "", 1)) from None
    figures = {key: number(run.summary, key) or 0.0 for key in run.summary}
    evidence = evidence_of_job(run.job, max(1, int(figures.get("servers", 0))))
    evidence.subject, evidence.job_file = "the run in " + directory, directory + "/job.textproto"
    evidence.own_optimizer = evidence.has_run = True
    evidence.step, evidence.step_source = step, "measured"
    evidence.slow = {} if steps else evidence.slow
    evidence.take_speeds(steps)
    with contextlib.suppress(Refused):
        evidence.network, evidence.network_source = run.network(), _ROUND_TRIP
    parts = [figures.get(part + "_seconds", 0.0) for part in ("compute", "push", "pull", "data")]
    evidence.compute_share = parts[0] / total(parts)
    evidence.noise = _noise_of(run.summary) if figures.get("noise_updates") else None
    return evidence


def evidence_of_status(report: Dict[str, Any]) -> Evidence:
    """Takes them from a report of `catchment status` (docs/doors.md). The spread of steps is not in it: they
    are taken as constant; nor are the layers of the model: it becomes a synthetic one of the same size."""
    status = report["status"]
    parameters, servers = sum(shard["parameters"] or 0 for shard in status["shards"]), len(status["shards"])
    if parameters == 0:
        raise Refused("not all servers of the job have registered yet; try again")
    changes = ["model={synthetic {parameters: %d}}" % parameters, "data.synthetic={}"]
    changes += ["samples=%d" % status["total_samples"]] if status["total_samples"] else []
    job = core.parse_job(report["settings"], changes, complete=False, facts=True, servers=servers)
    evidence = Evidence("the running job " + report["job"], job, servers, has_run=True)
    evidence.noise, evidence.compute_share = _noise_of(status), status["compute_share"]
    steps = {worker["worker"]: worker["compute_seconds_per_step"] for worker in status["workers"]}
    evidence.take_speeds({worker: seconds for worker, seconds in steps.items() if seconds})
    evidence.step_source = "measured, without its spread" if evidence.step else ""
    if not job.facts["synchronous"] and status["round_trip_p50_us"]:
        evidence.network = NetworkModel(0, 0.5e-6 * status["round_trip_p50_us"])
        evidence.network_source = _ROUND_TRIP
    return evidence


def _noise_of(figures: Dict[str, Any]) -> Optional[Noise]:
    """Returns what a summary or a status has of it."""
    keys = ("noise_updates", "noise_trace", "noise_squared_gradient")
    updates, trace, squares = (number(figures, key) for key in keys)
    return None if updates is None else Noise(int(updates), trace or 0, squares or 0)


def synthetic_step(job: core.Job) -> Optional[Distribution]:
    """Returns the time of a step of model.synthetic; None for a job with another model."""
    synthetic = job.json.get("model", {}).get("synthetic")
    if synthetic is None:
        return None
    mean, spread = synthetic.get("step_ms", 0.0) / 1000, synthetic.get("spread", 0.0)
    return Distribution("lognormal" if spread > 0 else "constant", mean, spread)


def speeds_of(steps: Dict[int, float]) -> Tuple[float, Dict[int, float]]:
    """Returns the mean step of workers that are not slow, and by how much those of others take longer.
    `steps`: each worker's time of a step, at least one."""
    ordered = sorted(steps.values())
    limit = SLOW_TIMES * ordered[(len(ordered) - 1) // 2]
    fast = [seconds for seconds in ordered if seconds < limit]
    step = total(fast) / len(fast)
    return step, {worker: steps[worker] / step for worker in sorted(steps) if steps[worker] >= limit}
