"""The worker's place in its job, for users."""


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

    def leave(self) -> None:
        """Ends this worker in order, before the job is over: others get its samples, minibatches() ends, and what
        follows in the program runs without the job. The step that is under way does not count."""
        if self.evaluates:
            raise RuntimeError("an evaluator's program cannot leave: the job would wait for its score")
        self._attachment.leave()
