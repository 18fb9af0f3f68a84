"""The result of one run of a comparison, from its summary.json and metrics.jsonl.

Units: seconds, bytes, versions; accuracies are shares.
"""

import contextlib
import dataclasses
import json
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional

from . import files
from .text import one_line


class TestScore(NamedTuple):
    """An evaluation of the test set during training."""

    seconds: float
    samples: float
    accuracy: float
    loss: float


@dataclasses.dataclass
class RunResult:
    algorithm: str = ""
    workers: int = 1
    seed: int = 1
    directory: str = ""  # within --out
    done: bool = False  # its budget is spent
    diverged: bool = False  # it is not done, since its training diverged
    reason: str = ""  # the reason why it is not done
    learning_rate: float = 0.0
    momentum: Optional[float] = None  # None: the optimizer has none

    seconds: float = 0.0  # of training
    samples: float = 0.0
    updates: float = 0.0
    samples_per_second: float = 0.0
    accuracy: Optional[float] = None  # of the last score
    loss: Optional[float] = None
    scores: List[TestScore] = dataclasses.field(default_factory=list)  # in order of time

    staleness_mean: float = 0.0
    staleness_p50: float = 0.0
    staleness_p99: float = 0.0
    staleness_max: float = 0.0
    staleness: Dict[int, int] = dataclasses.field(default_factory=dict)  # pushes by staleness, ascending

    # The time of all workers.
    compute_seconds: float = 0.0
    push_seconds: float = 0.0
    pull_seconds: float = 0.0
    data_seconds: float = 0.0

    # The share of the workers' time that is in updates, and of the time in which any computes. Only simulated
    # runs have them.
    goodput: Optional[float] = None
    uptime: Optional[float] = None

    bytes_pushed: float = 0.0
    bytes_pulled: float = 0.0
    device: str = ""


_TOO_LARGE = 1e100  # for a measure: damage, which charts could not show


def number(values: Any, key: str) -> Optional[float]:
    """Returns the number of a field; None if it is absent, is not a number or is one that no run has."""
    value = values.get(key)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < _TOO_LARGE else None


def dicts(values: Any) -> Iterable[Dict[str, Any]]:
    """Returns the objects in a list; nothing if it is not a list."""
    return (one for one in values if isinstance(one, dict)) if isinstance(values, list) else ()


def text_or_empty(values: Any, key: str) -> str:
    """Returns the text of a field on one line; empty if it is absent or not a text."""
    value = values.get(key)
    return one_line(value) if isinstance(value, str) else ""


def has_diverged(summary: Any) -> bool:
    """Returns True if the job of a summary failed because its training diverged."""
    failed = text_or_empty(summary, "phase") == "FAILED"
    return failed and "training has diverged" in text_or_empty(summary, "reason")


def read_result(summary: Any, metrics: str, result: RunResult) -> None:
    """Fills the results. Skips incomplete lines of `metrics`, and takes 0 for what the summary lacks."""
    for field in dataclasses.fields(result):
        if field.type is float and field.name != "learning_rate":
            key = "wall_seconds" if field.name == "seconds" else field.name
            setattr(result, field.name, number(summary, key) or 0.0)
    result.accuracy, result.loss = number(summary, "test_accuracy"), number(summary, "test_loss")
    result.goodput, result.uptime = number(summary, "goodput"), number(summary, "uptime")
    result.device, result.reason = text_or_empty(summary, "device"), text_or_empty(summary, "reason")
    counts = summary.get("staleness_counts")
    known = dict(pair for pair in counts if _is_count(pair)) if isinstance(counts, list) else {}
    result.staleness = dict(sorted(known.items()))
    result.scores = _scores(metrics)


def read_run(directory: str, result: RunResult) -> Any:
    """Fills the results with what the run in a directory has left, whether it has diverged included. Returns
    the summary, without which the run is refused."""
    summary = files.read_summary(directory + "/summary.json")
    read_result(summary, files.text_or_empty_of(directory + "/metrics.jsonl"), result)
    result.diverged = has_diverged(summary)
    return summary


def json_lines(lines: str) -> Iterator[Dict[str, Any]]:
    """Returns the objects of the lines of a metrics.jsonl; incomplete ones are left out."""
    for line in lines.split("\n"):
        with contextlib.suppress(ValueError, RecursionError):
            row = json.loads(line)
            if isinstance(row, dict):
                yield row


def _is_count(pair: Any) -> bool:
    return (
        isinstance(pair, list)
        and len(pair) == 2
        and all(type(n) is int and 0 <= n < _TOO_LARGE for n in pair)
    )


def _scores(metrics: str) -> List[TestScore]:
    """Returns the scores. There are more lines of metrics than scores; they repeat the last one."""
    scores: List[TestScore] = []
    for values in json_lines(metrics):
        accuracy = number(values, "test_accuracy")
        if accuracy is None:
            continue
        seconds, samples = number(values, "tested_at_seconds"), number(values, "tested_at_samples")
        score = TestScore(seconds or 0.0, samples or 0.0, accuracy, number(values, "test_loss") or 0.0)
        if not scores or scores[-1].samples < score.samples:
            scores.append(score)
    return scores


class Crossing(NamedTuple):
    seconds: float
    samples: float


def first_reached(scores: List[TestScore], accuracy: float) -> Optional[Crossing]:
    """Returns the seconds and the samples at which a run first reached an accuracy, on the straight line
    between two scores."""
    i = next((i for i, score in enumerate(scores) if score.accuracy >= accuracy), None)
    if i is None:
        return None
    now, before = scores[i], scores[max(0, i - 1)]
    share = (accuracy - before.accuracy) / (now.accuracy - before.accuracy) if i > 0 else 0
    seconds = before.seconds + share * (now.seconds - before.seconds)
    return Crossing(seconds, before.samples + share * (now.samples - before.samples))


def best_accuracy(run: RunResult) -> float:
    """Returns the highest accuracy of all scores; 0 if there are none."""
    return max([run.accuracy or 0.0, *(score.accuracy for score in run.scores)])
