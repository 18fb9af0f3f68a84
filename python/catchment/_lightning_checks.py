"""Refuses what a Lightning Trainer cannot have in a job. Each error names it and its remedy."""

import re
from typing import Any

from ._warnings import warn

_RESUMES = (
    "fit(ckpt_path=...) restores the state of a loop without a job: continue a job with catchment "
    "train --resume, or load the weights into the module before fit(), and the job starts from them"
)
_ACCUMULATES = (
    "accumulate_grad_batches is %s, but each minibatch of the job is a step: set it to 1, and "
    "algorithm.contribution.gradient.push_period=%s in the job"
)
_FAST = "fast_dev_run has no job: remove it, and try a job with a small budget (--set samples=...)"
_BUDGET = (
    "%s is %r, but the job's budget decides how much is trained: remove it, and set epochs, samples or "
    "updates in the job; to train on a part of the data, give the DataLoader a torch.utils.data.Subset"
)
_RELOADS = (
    "reload_dataloaders_every_n_epochs is %d, but the job has the samples of one data set, which is read "
    "when fit() begins: set it to 0, and choose by self.current_epoch in training_step"
)
_SYNC_NORM = (
    "sync_batchnorm has no effect, because each worker normalizes by the statistics of its own minibatches: "
    "remove it"
)
_STOPS_EARLY = (
    "EarlyStopping(%r) cannot end the job, whose evaluator validates: set evaluation.patience=%d in the job"
)
_VALIDATES = (
    "%s has no effect, because the job's evaluator validates, at the times that the job sets (evaluation)"
)
_NODES = "num_nodes=%d has no effect: one process is one worker, and the job has their number (--workers)"
_MONITORS = (
    "ModelCheckpoint(monitor=%r) waits for a metric that a worker does not have%s, because the job's "
    "evaluator validates: remove monitor, and set evaluation.keep_best=true in the job, which writes the "
    "best weights to model-best.safetensors"
)
_CALLBACK = "the callback %s cannot work in a job: %s"

# Names in lightning.pytorch.callbacks, and why.
_REFUSED = {
    "BatchSizeFinder": "the job sets the size of a minibatch, by batch_size",
    "LearningRateFinder": (
        "the job sets the learning rate, by optimizer.learning_rate; catchment tune searches it"
    ),
    "GradientAccumulationScheduler": (
        "each minibatch of the job is a step; for updates of several, set "
        "algorithm.contribution.gradient.push_period in the job"
    ),
    "BaseFinetuning": (
        "a job trains the parameters that require a gradient when fit() begins. Call requires_grad_(False) "
        "on the others before fit(), and train each phase in a job of its own, which starts from the weights "
        "of the one before"
    ),
    "ModelPruning": "it replaces parameters, which the servers have: prune the module before or after fit()",
    "StochasticWeightAveraging": (
        "the job's result is the servers' weights and not its average, and the job sets the learning rate: "
        "remove it"
    ),
    "WeightAveraging": "the job's result is the servers' weights and not its average: remove it",
}
_OF_VALIDATION = re.compile(r"(?<![a-z])(e?val(id(ation)?)?|test|dev)(?![a-z])")


def check(trainer: Any, callbacks: Any) -> None:
    """callbacks: the module with the callbacks of the Trainer's package."""
    if trainer.fast_dev_run:
        raise ValueError(_FAST)
    if trainer.accumulate_grad_batches != 1:
        raise ValueError(_ACCUMULATES % (trainer.accumulate_grad_batches, trainer.accumulate_grad_batches))
    if trainer.ckpt_path is not None:
        raise ValueError(_RESUMES)
    for name, default in (("overfit_batches", 0.0), ("limit_train_batches", 1.0)):
        if getattr(trainer, name) != default:
            raise ValueError(_BUDGET % (name, getattr(trainer, name)))
    if trainer.reload_dataloaders_every_n_epochs:
        raise ValueError(_RELOADS % trainer.reload_dataloaders_every_n_epochs)
    if _flag(trainer, "_layer_sync") is not None:
        raise ValueError(_SYNC_NORM)
    _warn_of_ignored(trainer)
    for callback in trainer.callbacks:
        _check_callback(callback, callbacks)


def _warn_of_ignored(trainer: Any) -> None:
    if getattr(trainer, "_val_check_time_interval", None) is not None or trainer.val_check_interval != 1.0:
        warn(_VALIDATES % "val_check_interval")
    if trainer.check_val_every_n_epoch != 1:
        warn(_VALIDATES % "check_val_every_n_epoch")
    if _flag(trainer, "_num_nodes_flag") not in (None, 1):
        warn(_NODES % _flag(trainer, "_num_nodes_flag"))


def _flag(trainer: Any, name: str) -> Any:
    """Returns an argument of the Trainer that only its connector has;
    None if this version has it elsewhere."""
    return getattr(trainer._accelerator_connector, name, None)


def _check_callback(callback: Any, callbacks: Any) -> None:
    for name, why in _REFUSED.items():
        kind = getattr(callbacks, name, None)  # some are newer than others
        if kind is not None and isinstance(callback, kind):
            raise ValueError(_CALLBACK % (type(callback).__name__, why))
    if isinstance(callback, callbacks.EarlyStopping):
        callback.strict = False  # a worker has no validation metrics
        warn(_STOPS_EARLY % (callback.monitor, callback.patience))
    if isinstance(callback, callbacks.ModelCheckpoint) and _OF_VALIDATION.search(
        (callback.monitor or "").lower()
    ):
        raise ValueError(_MONITORS % (callback.monitor, ""))


def check_monitors(trainer: Any, callbacks: Any, fails: bool) -> None:
    """Called when an epoch has ended: its metrics include all that ModelCheckpoint can monitor."""
    for callback in trainer.callbacks:
        monitor = getattr(callback, "monitor", None)
        if isinstance(callback, callbacks.ModelCheckpoint) and monitor not in (
            None,
            *trainer.callback_metrics,
        ):
            text = _MONITORS % (
                monitor,
                " (it has %s)" % (", ".join(sorted(trainer.callback_metrics)) or "none"),
            )
            if fails:
                raise ValueError(text)
            warn(text)
