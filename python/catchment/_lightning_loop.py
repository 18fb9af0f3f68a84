"""The loop of a Lightning Trainer in a job, whose epochs are the Trainer's."""

import math
from typing import TYPE_CHECKING, Any, Optional

from . import _lightning_checks

if TYPE_CHECKING:
    from .torch import Worker


class EpochsOfJob:
    """The first of the Trainer's callbacks. A class of each package makes it a Callback.

    The job ends the loop, so the Trainer does not know the number of minibatches and of epochs."""

    def __init__(self, trainer: Any, worker: "Worker", callbacks: Any) -> None:
        self._loop, self._worker, self._callbacks = trainer.fit_loop, worker, callbacks
        self._epoch: Optional[int] = None  # of the job, that the Trainer is in

    def note_step(self) -> None:
        """Called after each step, when the epoch of the next one is known."""
        begins = self._epoch is not None and self._worker.epoch > self._epoch
        if self._worker._attachment.stopped or begins:
            self._loop.epoch_loop.batch_progress.is_last_batch = True
            self.end_epoch()

    def end_epoch(self) -> None:
        """Lets the next epoch begin, or ends the loop with the job."""
        if self._worker._attachment.stopped:
            self._loop.trainer.should_stop = True
        else:
            self.raise_limit()

    def raise_limit(self) -> None:
        """Keeps max_epochs, which callbacks show, from ending the loop before the job."""
        if self._loop.max_epochs != -1:
            self._loop.max_epochs = max(self._loop.max_epochs, self._worker.epoch + 1)

    def on_train_start(self, trainer: Any, module: Any) -> None:
        # The loader has a length, because the Trainer would otherwise look ahead.
        self._loop.max_batches = math.inf

    def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
        if self._epoch is not None:
            _lightning_checks.check_monitors(trainer, self._callbacks, fails=True)
        self._epoch = self._worker.epoch
        # This may be the first epoch of this worker, if it has joined late, or resumes.
        progress = self._loop.epoch_progress.current
        progress.ready, progress.started = self._epoch + 1, self._epoch
        progress.processed = progress.completed = self._epoch

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        if self._worker._attachment.stopped:
            trainer.should_stop = True  # another callback may have set it to False since the last step

    def on_train_end(self, trainer: Any, module: Any) -> None:
        _lightning_checks.check_monitors(trainer, self._callbacks, fails=False)
