"""The worker's place in its job, for users."""

import contextlib
import math
import time
import unicodedata
from typing import Any, Callable, Iterable, Iterator, Set, Tuple

from . import _counts
from ._attachment import AnyAttachment
from ._indices import part_size
from ._warnings import warn

_MOST_METRICS, _MOST_NAME_BYTES = 64, 100

_NO_METRICS = 'worker.log() got %s: give it a dict of metrics by their names, such as {"norm": 0.5}'
_METRIC_NAME = (
    "worker.log() got a metric with the name %.120r: names have 1 to %d bytes and no control characters"
)
_METRIC_VALUE = "worker.log() got %.120r for the metric %s, but a metric must be one finite number"
_METRIC_COUNT = (
    "worker.log() got one name too many, %s, after %d others: a job has at most %d, so do not "
    "put steps or samples into names"
)
_NO_EVALUATOR = "worker.evaluate() is for the evaluator's program: call it if worker.evaluates"
_EVALUATOR_LOGS = (
    "worker.log() was called in an evaluator's program, whose only metrics are those returned "
    "by the score function of evaluate()"
)

_RIGHT = "(z.argmax(1) == y).sum()"  # samples
_NO_PAIR = (
    "evaluate's function returned %.200r: it returns two numbers, the mean loss over the test set and the "
    "number of samples classified correctly, such as return loss, " + _RIGHT
)
_PERHAPS_A_SHARE = (
    "evaluate's second value is a number of samples, and got 1.0, which is one of %d: if it is a share, "
    "return " + _RIGHT
)


class Position:
    """job, index, batch_size, seed: the job's name, this worker's index from 0, the samples in a minibatch
    (an epoch's last one may have fewer, or with last_minibatch MERGE up to twice as many), and the job's
    seed, the same for all workers.
    evaluates: whether this program should score weights (evaluate) instead of training.
    steps: the number of steps that this program has made.
    """

    def __init__(self, attachment: AnyAttachment) -> None:
        self._attachment = attachment
        welcome = attachment.welcome or {}
        self.job = welcome.get("job", "")
        self.index = welcome.get("worker", 0)
        self.batch_size = welcome.get("batch_size", 0)
        self.seed = welcome.get("seed", 0)
        self.evaluates = welcome.get("evaluates", False)
        self.steps = 0
        self._names: Set[str] = set()  # of metrics
        self._traces = welcome.get("traces", False)

    @property
    def progress(self) -> float:
        """The share of the job's budget that had been assigned when the current step began, from 0 to 1."""
        return self._begun().progress

    @property
    def epoch(self) -> int:
        """The epoch of the first sample of the current step, from 0."""
        return self._begun().epoch

    def _begun(self) -> AnyAttachment:
        if not self.evaluates:
            self._attachment.await_begin()
        return self._attachment

    def log(self, metrics: Any) -> None:
        """Adds numbers to the job's metrics, by their names. Each line of the job's metrics has the mean over
        all values of all steps and workers since the previous line. Call it before step(), which sends them;
        in a process group those of rank 0 count."""
        if self.evaluates:
            raise RuntimeError(_EVALUATOR_LOGS)
        if not hasattr(metrics, "items"):
            raise TypeError(_NO_METRICS % type(metrics).__name__)
        for name, value in metrics.items():
            self._check_name(name)
            self._attachment.log(name, _finite(name, value))

    @contextlib.contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Names what the program does in a `with` block in the timeline of a job with --trace; in others it
        does nothing. Any thread may use it; in a process group, rank 0."""
        if not self._traces:
            yield
            return
        begin = time.monotonic()
        try:
            yield
        finally:
            self._attachment.span(str(name), begin, time.monotonic())

    def _check_name(self, name: str) -> None:
        if name in self._names:
            return
        # Cc: control characters; Cf: also those that change the direction of a text; Zl, Zp: ends of lines;
        # Cs: no UTF-8.
        if (
            not isinstance(name, str)
            or any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in name)
            or not 0 < len(name.encode("utf-8")) <= _MOST_NAME_BYTES
        ):
            raise ValueError(_METRIC_NAME % (name, _MOST_NAME_BYTES))
        if len(self._names) == _MOST_METRICS:
            raise ValueError(_METRIC_COUNT % (name, _MOST_METRICS, _MOST_METRICS))
        self._names.add(name)

    def _count_right(self, correct: Any) -> int:
        """Returns the number of samples classified correctly that step() was given, as an int."""
        if isinstance(correct, int) and correct == 0:
            return 0
        samples = self._attachment.plan.samples(self._attachment.step)  # None if the job stops meanwhile
        most = (
            2 * self.batch_size
            if samples is None
            else part_size(samples, getattr(self._attachment, "size", 1))
        )
        return _counts.right(correct, most, "step's second value", "worker.step(loss, %s)" % _RIGHT)

    def _evaluate(self, prepare: Callable[[], Iterable[Tuple[str, bytes]]], score: Callable[[], Any]) -> None:
        """Scores weights until the job is over. prepare: brings them to the model; returns names and values,
        as bytes, of its statistics. score: returns the loss and the number of right samples."""
        if not self.evaluates:
            raise RuntimeError(_NO_EVALUATOR)
        samples = self._attachment.test_samples
        while self._attachment.await_evaluation():
            statistics = prepare()
            loss, correct = self._check_score(score(), samples)
            for name, values in statistics:
                self._attachment.statistic(name, values)
            self._attachment.scored(samples, loss * samples, correct)

    @staticmethod
    def _check_score(score: Any, samples: int) -> Tuple[float, int]:
        try:
            loss, correct = score
            loss = float(loss)
        except (TypeError, ValueError, RuntimeError):
            # The last one is PyTorch's, of a tensor with several values.
            raise ValueError(_NO_PAIR % (score,)) from None
        right = _counts.right(correct, samples, "evaluate's second value", "return " + _RIGHT)
        if right == 1 < samples and isinstance(_counts.number(correct), float):
            warn(_PERHAPS_A_SHARE % samples)
        return loss, right

    def leave(self) -> None:
        """Makes this worker leave the job before its end: others get its samples, minibatches() ends, and the
        rest of the program runs without the job. The current step does not count."""
        if self.evaluates:
            raise RuntimeError("an evaluator's program cannot leave: the job would wait for its score")
        self._attachment.leave()


def _finite(name: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, (str, bytes)) else float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # of arrays and tensors with several values
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(_METRIC_VALUE % (value, name))
    return number
