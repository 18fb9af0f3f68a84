"""Refuses what a Trainer of Hugging Face cannot have in a job, and warns of what has no effect in it."""

import dataclasses
from typing import Any, List, Sequence

import transformers

from ._warnings import warn

_ACCUMULATES = (
    "gradient_accumulation_steps is %d, but each minibatch of the job is a step: set it to 1, "
    "and algorithm.contribution.gradient.push_period=%d in the job"
)
_STOPS_EARLY = (
    "EarlyStoppingCallback counts evaluations of this program, but the job's evaluator makes "
    "them: remove it, and set evaluation.patience=%d in the job"
)
_SHARDED = (
    "Trainer makes one process a worker, without DeepSpeed, FSDP and parallelism_config: docs/python.md has "
    "groups of processes"
)
_BEST = (
    "%s needs evaluations in this program, but the job's evaluator makes them: remove it, and set "
    "evaluation.keep_best=true in the job, which writes the best weights to model-best.safetensors"
)
_FINDS = (
    "auto_find_batch_size has no effect, because the job sets the size of a minibatch, by "
    "batch_size: remove it"
)
_SHARE = (
    "%s is %s, a share of the number of steps, which the job's budget and its workers decide: give a number "
    "of steps"
)
_SAMPLING = (
    "train_sampling_strategy is %r, but the master assigns each sample once in an epoch, in a random order, "
    "so a sampler has no effect: remove it; a collator that pads to the longest sample works"
)
_OVERRIDES = "%s overrides %s(), but %s: remove it"
_LOADS = "minibatches are the job's, from worker.loader()"
_OPTIMIZES = (
    "the servers' optimizer moves the weights; set optimizer in the job, or local_optimizer=True for a job "
    "with local steps, where create_optimizer() counts"
)
_OPTIMIZERS = (
    "Trainer(%s=...) has no effect, because the servers' optimizer moves the weights: remove it and set "
    "optimizer in the job, or set local_optimizer=True for a job with local steps"
)
_NO_EFFECT = (
    "TrainingArguments sets what has no effect, because the job decides on it: %s; set optimizer, epochs and "
    "evaluation in the job"
)
_KEEPS_RATE = (
    "the local optimizer keeps its learning rate, because the number of steps is not known: %s has no effect"
)
_DROPS = (
    "dataloader_drop_last has no effect: set last_minibatch=DROP in the job (--set last_minibatch=DROP), "
    "unless it is set already"
)

_OF_SCHEDULE = ("lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "warmup_ratio")
_OF_OPTIMIZER = (
    "learning_rate",
    "optim",
    "optim_args",
    "optim_target_modules",
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
)
_OF_JOB = (
    "num_train_epochs",
    "max_steps",
    "eval_strategy",
    "eval_steps",
    "eval_delay",
    "eval_on_start",
    "data_seed",
)


def check(trainer: Any, local_optimizer: bool) -> None:
    """Raises ValueError for what would be lost, and warns of what has no effect."""
    args = trainer.args
    if args.gradient_accumulation_steps != 1:
        raise ValueError(_ACCUMULATES % (args.gradient_accumulation_steps, args.gradient_accumulation_steps))
    if (
        trainer.is_deepspeed_enabled
        or trainer.is_fsdp_enabled
        or getattr(args, "parallelism_config", None) is not None
    ):
        raise ValueError(_SHARDED)
    if args.auto_find_batch_size:
        raise ValueError(_FINDS)
    if args.load_best_model_at_end:
        raise ValueError(_BEST % "load_best_model_at_end")
    if args.save_strategy == "best":
        raise ValueError(_BEST % 'save_strategy="best"')
    for name in ("logging_steps", "save_steps"):
        if 0 < getattr(args, name) < 1:
            raise ValueError(_SHARE % (name, getattr(args, name)))
    # Older versions have group_by_length.
    strategy = getattr(args, "train_sampling_strategy", "random")
    strategy = "group_by_length" if getattr(args, "group_by_length", False) else strategy
    if strategy not in ("random", "sequential"):
        raise ValueError(_SAMPLING % strategy)
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, transformers.EarlyStoppingCallback):
            raise ValueError(_STOPS_EARLY % callback.early_stopping_patience)
    _check_optimizer(trainer, local_optimizer)
    if args.dataloader_drop_last:
        warn(_DROPS)


def _check_optimizer(trainer: Any, local_optimizer: bool) -> None:
    args = trainer.args
    if local_optimizer:
        set_by_user = _changed(args, _OF_JOB)
        if args.lr_scheduler_type not in ("constant",) or _changed(args, ("warmup_steps", "warmup_ratio")):
            warn(
                _KEEPS_RATE
                % "lr_scheduler_type=%s"
                % getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type)
            )
    else:
        if trainer.optimizer is not None or trainer.lr_scheduler is not None:
            raise ValueError(_OPTIMIZERS % "optimizers")
        if getattr(trainer, "optimizer_cls_and_kwargs", None) is not None:
            raise ValueError(_OPTIMIZERS % "optimizer_cls_and_kwargs")
        set_by_user = _changed(args, _OF_OPTIMIZER + _OF_SCHEDULE + _OF_JOB)
    if set_by_user:
        warn(_NO_EFFECT % ", ".join(set_by_user))


def check_overrides(trainer: Any, base: type, local_optimizer: bool) -> None:
    """base: the class whose methods a subclass must not override."""
    names = {"get_train_dataloader": _LOADS}
    if not local_optimizer:
        names.update(
            dict.fromkeys(
                (
                    "create_optimizer",
                    "create_scheduler",
                    "create_optimizer_and_scheduler",
                    "get_optimizer_cls_and_kwargs",
                    "get_decay_parameter_names",
                ),
                _OPTIMIZES,
            )
        )
    for name, why in names.items():
        if getattr(type(trainer), name, None) is not getattr(base, name, None):
            raise ValueError(_OVERRIDES % (type(trainer).__name__, name, why))


def _changed(args: Any, names: Sequence[str]) -> List[str]:
    """Returns those of the arguments that differ from their defaults."""
    defaults = {field.name: field.default for field in dataclasses.fields(transformers.TrainingArguments)}
    changed = [name for name in names if name in defaults and getattr(args, name) != defaults[name]]
    return ["%s=%s" % (name, getattr(getattr(args, name), "value", getattr(args, name))) for name in changed]
