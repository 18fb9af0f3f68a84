"""The worker's place in its job, for users."""
import math
import unicodedata

_MOST_METRICS, _MOST_NAME_BYTES = 64, 100

_NO_METRICS = 'worker.log() was given %s: give it a dict of metrics by their names, such as {"norm": 0.5}'
_METRIC_NAME = "worker.log() was given a metric with the name %.120r: names have 1 to %d bytes and no control characters"
_METRIC_VALUE = "worker.log() was given %.120r for the metric %s, and a metric is one finite number"
_METRIC_COUNT = ("worker.log() was given more than %d names, of which %s is one too many: a job has at most %d, so do not put "
                 "steps or samples into names")
_EVALUATOR_LOGS = "worker.log() was called in an evaluator's program, whose only metrics are what evaluate()'s score returns"


class Position:
    """job, index, batch_size, seed: the job's name, this worker's index from 0, samples in a minibatch (an epoch's last one
        may have fewer, or with last_minibatch MERGE up to twice as many), and the job's seed, which is the same for all
        workers.
    evaluates: whether this program is to score weights (evaluate) in place of training.
    steps: that this program has made.
    """

    def __init__(self, attachment):
        self._attachment = attachment
        welcome = attachment.welcome or {}
        self.job = welcome.get("job", "")
        self.index = welcome.get("worker", 0)
        self.batch_size = welcome.get("batch_size", 0)
        self.seed = welcome.get("seed", 0)
        self.evaluates = welcome.get("evaluates", False)
        self.steps = 0
        self._names = set()  # of metrics

    @property
    def progress(self) -> float:
        """The share of the job's budget that had been assigned when the step under way began, from 0 to 1."""
        return self._begun().progress

    @property
    def epoch(self) -> int:
        """That of the first sample of the step under way, from 0."""
        return self._begun().epoch

    def _begun(self):
        if not self.evaluates:
            self._attachment.await_begin()
        return self._attachment

    def log(self, metrics) -> None:
        """Adds numbers to the job's metrics, by their names. The job writes the mean over all values, of all steps and
        workers, since its line of metrics before. Call it before step(), with which they are sent; in a process group
        those of rank 0 count."""
        if self.evaluates:
            raise RuntimeError(_EVALUATOR_LOGS)
        if not hasattr(metrics, "items"):
            raise TypeError(_NO_METRICS % type(metrics).__name__)
        for name, value in metrics.items():
            self._check_name(name)
            self._attachment.log(name, _finite(name, value))

    def _check_name(self, name):
        if name in self._names:
            return
        # Cc: control characters; Cf: also those that change the direction of a text; Zl, Zp: ends of lines; Cs: no UTF-8.
        if (not isinstance(name, str) or any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in name) or
                not 0 < len(name.encode("utf-8")) <= _MOST_NAME_BYTES):
            raise ValueError(_METRIC_NAME % (name, _MOST_NAME_BYTES))
        if len(self._names) == _MOST_METRICS:
            raise ValueError(_METRIC_COUNT % (_MOST_METRICS, name, _MOST_METRICS))
        self._names.add(name)

    def leave(self) -> None:
        """Ends this worker in order, before the job is over: others get its samples, minibatches() ends, and what
        follows in the program runs without the job. The step that is under way does not count."""
        if self.evaluates:
            raise RuntimeError("an evaluator's program cannot leave: the job would wait for its score")
        self._attachment.leave()


def _finite(name, value):
    try:
        number = math.nan if isinstance(value, (str, bytes)) else float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # of arrays and tensors with several values
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(_METRIC_VALUE % (value, name))
    return number
