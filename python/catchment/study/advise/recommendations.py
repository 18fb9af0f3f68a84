"""Recommends presets, with their momentum and learning rate, and the number of servers, by what simulations
show (trials.py). docs/advise.md explains the rules."""

import string
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from catchment.study import core
from catchment.study.errors import Refused
from catchment.study.simulator import Simulator
from catchment.study.words import parts_of

from .evidence import MIN_NOISE_UPDATES, Evidence
from .trials import Trials, Work, computing_share, run_trials

# The efficiency to keep: the share of their time in which workers compute.
EFFICIENCY = 0.9
_SERVERS = (1, 2, 4, 8, 16, 32, 64)
# Twice as many servers are listed if workers compute for so much more of their time.
_MORE_EFFICIENCY = 1.02
# The factor that counts as far from the noise scale. Nearer than that, its error, and the training that it
# changes with, matter as much.
_FAR = 2
_SENTENCES = parts_of("help/advice.txt")


class Scaling(NamedTuple):
    rows: List[
        Dict[str, Any]
    ] = []  # "servers" and the share "computing": 1, 2, 4, ... servers, until more do not bring more
    servers: Optional[int] = None  # the fewest of the rows that keep EFFICIENCY


class Change(NamedTuple):
    """The updates and samples to the same loss, divided by those of the job."""

    updates: float
    samples: float


class BatchAdvice(NamedTuple):
    """The effect of larger updates. With B samples in an update and the noise scale N, a loss takes 1 + N / B
    times the fewest possible updates, and 1 + B / N times the fewest possible samples."""

    samples_per_update: float = 0
    reason: str = ""  # why the scale is not known, and what to do: one sentence; empty if it is known
    # Position of the samples in an update relative to the scale N: "below" N / 2 larger updates pay, since
    # they need fewer updates and hardly more samples; "above" 2 N they hardly need fewer; "about at" it.
    place: str = "unknown"
    noise_scale: Optional[float] = None
    twice: Optional[Change] = None  # with twice as many samples in an update
    half: Optional[Change] = None


class Recommendations(NamedTuple):
    trials: Trials = Trials()
    scaling: Scaling = Scaling()
    batch: BatchAdvice = BatchAdvice()


def _scale(evidence: Evidence, simulator: Simulator) -> Scaling:
    rows: List[Dict[str, Any]] = []
    for servers in _SERVERS:
        try:
            computing = computing_share(evidence, servers, simulator)
        except core.DoorError as error:
            # A small model cannot be split between many.
            if error.code != "INVALID_ARGUMENT" or servers == 1:
                raise
            break
        if rows and computing < _MORE_EFFICIENCY * rows[-1]["computing"]:
            break
        rows.append({"servers": servers, "computing": computing})
        if computing >= EFFICIENCY:
            return Scaling(rows, servers)
    return Scaling(rows)


def sentence(name: str, /, **values: object) -> str:
    """Returns a sentence of the advice, or a part of one."""
    return " ".join(string.Template(_SENTENCES[name]).substitute(values).split())


def _reason_unknown(evidence: Evidence) -> str:
    """Returns why the noise scale is not known."""
    if evidence.noise is None:
        return sentence("not_measured" if evidence.has_run else "only_a_run")
    updates = evidence.noise.updates
    few = updates < MIN_NOISE_UPDATES
    return sentence("few_updates" if few else "too_large", updates=updates, least=MIN_NOISE_UPDATES)


def advise_batch(evidence: Evidence) -> BatchAdvice:
    """Source: McCandlish et al. 2018, arXiv:1812.06162, section 2."""
    samples = evidence.job.facts["samples_per_update"]
    scale = evidence.noise.scale() if evidence.noise else None
    if scale is None:
        return BatchAdvice(samples, _reason_unknown(evidence))

    def change_by(factor: float) -> Change:
        whole = factor * samples + scale
        return Change(whole / (factor * (samples + scale)), whole / (samples + scale))

    place = "below" if _FAR * samples < scale else "above" if samples > _FAR * scale else "about at"
    return BatchAdvice(samples, "", place, scale, change_by(2), change_by(0.5))


def recommend(evidence: Evidence, report: Callable[[str], None]) -> Recommendations:
    """`report` gets a line for each simulation. Refuses evidence without the time of a step."""
    if evidence.step is None:
        raise Refused(sentence("no_step"))
    with Simulator() as simulator:
        trials = run_trials(Work(evidence, simulator, report))
        return Recommendations(trials, _scale(evidence, simulator), advise_batch(evidence))
