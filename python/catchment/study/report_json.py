"""report.json, for programs. docs/compare.md describes its schema."""

from typing import Any, Dict

from .answer import answer, where_synchronous_wins
from .comparison import Comparison, search_cost
from .findings import Findings, Standing, momentum_of
from .run_result import RunResult, first_reached
from .statistics import Ratio, spread_of

_SCHEMA = 2
Json = Dict[str, Any]

# The keys of objects, as KEY or KEY=ATTRIBUTE; with "?" an empty value is null.
_TOP = "command version job_name budget? stragglers servers? threads? seeds workers machine simulated?"
_SCORES = "test_accuracy=accuracy test_loss=loss"
_END = "directory done diverged reason"
_DUEL = "measure workers synchronous asynchronous synchronous_over_asynchronous=ratio winner"
_STANDING = (
    "algorithm workers runs reached=reaching seconds_to_target=seconds samples_to_target=samples "
    "test_accuracy=accuracies test_loss=losses samples_per_second=throughputs learning_rate momentum"
)
_RUN = "algorithm workers seed %s device wall_seconds=seconds samples updates samples_per_second " % _END
_STALENESS = "mean=staleness_mean p50=staleness_p50 p99=staleness_p99 max=staleness_max"
_INTERVAL = ("low", "high", "beyond_noise")
_SECONDS = "compute=compute_seconds push=push_seconds pull=pull_seconds data=data_seconds"


def report_json(comparison: Comparison, findings: Findings) -> Json:
    c, f = comparison, findings
    standings = f.with_workers(f.workers)
    return {
        "schema": _SCHEMA,
        **_pick(c, _TOP),
        "algorithms": [_pick(facts, "algorithm=name synchronous optimizer") for facts in c.algorithms],
        "target": {"test_accuracy": f.target or None, "given": f.target_given},
        "answer": {
            "sentence": answer(c, f),
            "where_synchronous_wins": where_synchronous_wins(f),
            "workers": f.workers,
            "first": standings[0].algorithm if standings and standings[0].reached else None,
            "second": standings[1].algorithm if f.lead else None,
            "second_over_first": _plain(f.lead),
            "synchronous_over_first": _plain(f.lead_over_synchronous),
        },
        "duels": [_pick(duel, _DUEL) for duel in f.duels],
        "standings": [_standing(c, standing) for standing in f.standings],
        "runs": [_run(c, f, run) for run in c.runs],
        "left_out": [pair._asdict() for pair in c.left_out],
        "search": [
            {
                **_pick(trial.run, "algorithm workers seed"),
                **_pick(trial, "rung share"),
                **_pick(trial.run, "learning_rate momentum %s %s" % (_END, _SCORES)),
                "chosen": trial.chosen,
            }
            for trial in c.searched
        ],
        "job": c.job,
    }


def _pick(values: object, keys: str) -> Json:
    picked = {}
    for word in keys.split():
        key, _, attribute = word.rstrip("?").partition("=")
        value = getattr(values, attribute or key)
        picked[key] = None if word.endswith("?") and not value else _plain(value)
    return picked


def _plain(value: Any) -> Any:
    if isinstance(value, Ratio):
        known = value if value.has_interval else None
        return {"value": value.value, **{key: getattr(known, key, None) for key in _INTERVAL}}
    if isinstance(value, dict):  # values by seed
        return _pick(spread_of(value), "runs=n mean low high") if value else None
    return value._asdict() if hasattr(value, "_asdict") else value


def _standing(comparison: Comparison, standing: Standing) -> Json:
    cost = search_cost(comparison, standing.algorithm, standing.workers)
    return {**_pick(standing, _STANDING), "search_cost": cost or None}


def _run(comparison: Comparison, findings: Findings, run: RunResult) -> Json:
    crossing = first_reached(run.scores, findings.target) if findings.target > 0 else None
    facts = next((facts for facts in comparison.algorithms if facts.name == run.algorithm), None)
    momentum = facts and momentum_of(facts, run.momentum, run.staleness_mean)
    return {
        **_pick(run, _RUN + _SCORES),
        "seconds_to_target": crossing and crossing.seconds,
        "samples_to_target": crossing and crossing.samples,
        "staleness": {**_pick(run, _STALENESS), "counts": list(run.staleness.items())},
        "worker_seconds": _pick(run, _SECONDS),
        **_pick(run, "goodput uptime bytes_pushed bytes_pulled"),
        "momentum": momentum and dict(zip(("given", "implicit"), momentum)),
        "series": [_pick(score, "seconds samples " + _SCORES) for score in run.scores],
    }
