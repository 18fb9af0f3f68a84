"""Trains a model of Hugging Face's Trainer as a worker of a Catchment job: use catchment.transformers.Trainer
instead of transformers.Trainer.

The model, the data sets, the collator and TrainingArguments stay as they are; the job decides on the
optimizer, its schedule, the size of a minibatch and when training ends.
"""

import functools
import inspect
import math
from typing import Any, Callable, Dict, List, Optional, Tuple

import transformers
from torch.utils.data import IterableDataset
from transformers.trainer_utils import (
    IntervalStrategy,
    SaveStrategy,
    enable_full_determinism,
    seed_worker,
    set_seed,
)

from . import _attachment, _counts, _loaders, _transformers_checks, torch as catchment
from ._model import count
from ._warnings import warn

_OWN_BATCH = (
    "per_device_train_batch_size is %d, but the job's batch_size, %d, is used: set batch_size=%d "
    "in the job (--set batch_size=%d) if the former is right"
)
_RESUMES = (
    "train(resume_from_checkpoint=...) restores the state of a loop without a job: continue a job "
    "with catchment train --resume, or load the weights into the model before train(), and the job "
    "starts from them"
)
_SEARCHES = (
    "a search for hyperparameters trains several models, but a job trains one: catchment tune makes a job "
    "for each"
)
_NO_DATA = (
    "Trainer needs train_dataset, with a length and an index, because the job assigns samples by index; for "
    "a stream have the job count them, with Trainer(samples_per_epoch=...), the number that all workers "
    "together train in an epoch"
)
_NO_TEST_LENGTH = (
    "eval_dataset%s (%s) has no length, but the evaluation of a job is of a known number of samples"
)
_NO_LOSS = (
    "evaluate() returned no %s, but the job needs a test loss: the model must return a loss for "
    "eval_dataset, and label_names must name its labels; there are %s"
)
_MANY = 10**9  # epochs and steps, above those of any job
_NO_SHARE = 'have compute_metrics return a share, or give Trainer the name of one that is, accuracy="..."'


class Trainer(transformers.Trainer):
    """A transformers.Trainer whose train() joins the job that its program was started for. train() returns
    when the job is over, with the job's final weights in the model. In the evaluator's program it scores
    weights by evaluate() instead, and ends the program then.

    Each step of the loop is a step of the worker, with the current values of .grad (max_grad_norm counts),
    and an epoch of the job is one of the Trainer. max_steps and num_train_epochs have no effect, because the
    job has a budget. Only worker 0 saves and reports.

    local_optimizer: the Trainer's own optimizer makes the steps between two exchanges, for jobs with
    contribution.pseudo_gradient or .elastic; otherwise it is not used.
    accuracy: the name of the accuracy among the metrics of compute_metrics.
    master: "HOST:PORT" of a running job, as for catchment.torch.join.
    samples_per_epoch: for a train_dataset that is a stream, as for catchment.torch.join.
    Other arguments are those of transformers.Trainer.

    train() raises ValueError, before the job, for what cannot be had in it (docs/lightning.md has a table).
    """

    create_optimizer: Callable[[], Any]  # also of an object: the servers'

    def __init__(
        self,
        *arguments: Any,
        local_optimizer: bool = False,
        accuracy: str = "accuracy",
        master: Optional[str] = None,
        samples_per_epoch: Optional[int] = None,
        **named: Any,
    ) -> None:
        self.worker: Any = None  # a catchment.torch.Worker, once it has joined
        self._local_optimizer = local_optimizer
        self._accuracy = accuracy
        self._master = master
        self._samples_per_epoch = samples_per_epoch
        super().__init__(*arguments, **named)

    def train(
        self, resume_from_checkpoint: Any = None, trial: Any = None, *arguments: Any, **named: Any
    ) -> Any:
        if resume_from_checkpoint:
            raise ValueError(_RESUMES)
        if trial is not None:
            raise ValueError(_SEARCHES)
        _transformers_checks.check(self, self._local_optimizer)
        _transformers_checks.check_overrides(self, Trainer, self._local_optimizer)
        if self.model_init is not None:
            self._make_model()
        self._join()
        if self.worker.evaluates:
            self.worker.evaluate(
                self._score, forward=self._pass, data=self._train_data, collate=self._collate()
            )
            _attachment.end_program()  # what follows train() is for the workers, which have the job's result
        result = super().train(None, None, *arguments, **named)
        if not self.worker._attachment.stopped:  # a callback has ended the loop before the job
            self.worker.leave()
        return result

    def hyperparameter_search(self, *arguments: Any, **named: Any) -> None:
        raise ValueError(_SEARCHES)

    def _make_model(self) -> None:
        """Makes the model anew, as train() would after join."""
        (enable_full_determinism if self.args.full_determinism else set_seed)(self.args.seed)
        self.model = self.model_wrapped = self.callback_handler.model = self.call_model_init()
        if self.place_model_on_device:
            self._move_model_to_device(self.model, self.args.device)
        self.model_init = None

    # -------------------------------------------------------------------------------------------------------
    # joining

    def _join(self) -> None:
        args = self.args
        self._train_data = self._read_train_data()
        local = self.create_optimizer() if self._local_optimizer else None
        self.worker = catchment.join(
            self.model,
            self._train_data,
            sum(self._test_samples().values()) or None,
            optimizer=local,
            master=self._master,
            samples_per_epoch=self._samples_per_epoch,
            groups=None if local else self._groups(),
        )
        own, job = args.per_device_train_batch_size, self.worker.batch_size
        if own != job:
            warn(_OWN_BATCH % (own, job, own, own))
        # Also in the place of a subclass's, which has made `local`.
        self.create_optimizer = self.create_optimizer_and_scheduler = self._use_servers_optimizer
        self.create_scheduler = lambda *_, **__: self.lr_scheduler
        # The evaluator scores.
        args.eval_strategy, args.eval_on_start = IntervalStrategy.NO, False
        if not self.is_world_process_zero():
            args.save_strategy = SaveStrategy.NO
        if not self.worker.evaluates:
            self.callback_handler.callbacks.insert(0, _EpochsOfJob(self.worker))

    def _read_train_data(self) -> Any:
        """Returns the data set of the samples that the Trainer's loader trains, without columns that the
        model does not accept."""
        data = self.train_dataset
        counted = self._samples_per_epoch is not None
        if data is None or not (
            counted or hasattr(data, "__len__") and not isinstance(data, IterableDataset)
        ):
            raise TypeError(_NO_DATA)
        if self._is_table():
            data = self._remove_unused_columns(data, description="training")
        if isinstance(data, IterableDataset) or not hasattr(data, "__len__"):
            return data
        return _loaders.selected(data, self._get_train_sampler(), "set of Trainer, by _get_train_sampler(),")

    def _is_table(self) -> bool:
        return hasattr(self.train_dataset, "column_names") and not isinstance(
            self.train_dataset, IterableDataset
        )

    def _test_samples(self) -> Dict[Any, int]:
        """Returns the number of samples of each evaluation set by its name; None: the only one."""
        data = self.eval_dataset
        if data is None:
            return {}
        sets = data if isinstance(data, dict) else {None: data}
        for name, one in sets.items():
            if not isinstance(one, int) and not hasattr(one, "__len__"):
                raise TypeError(_NO_TEST_LENGTH % ("" if name is None else "[%r]" % name, type(one).__name__))
        return {name: count(one, "test") for name, one in sets.items()}

    def _collate(self) -> Any:
        if self._is_table():
            return self.data_collator
        return self._get_collator_with_removed_columns(self.data_collator, description="training")

    def is_world_process_zero(self) -> bool:
        return super().is_world_process_zero() and (
            self.worker is None or (self.worker.index == 0 and not self.worker.evaluates)
        )

    is_local_process_zero = is_world_process_zero

    def save_model(self, *arguments: Any, **named: Any) -> None:
        if self.is_world_process_zero():
            super().save_model(*arguments, **named)

    # ------------------------------------------------------------------------------------------------------
    # training

    def get_train_dataloader(self) -> Any:
        args = self.args
        options = {
            name: getattr(args, "dataloader_" + name)
            for name in ("num_workers", "persistent_workers", "prefetch_factor", "multiprocessing_context")
            if hasattr(args, "dataloader_" + name)
        }
        if "num_workers" in inspect.signature(seed_worker).parameters:
            options["worker_init_fn"] = functools.partial(
                seed_worker, num_workers=args.dataloader_num_workers, rank=self.worker.index
            )
        minibatches = self.worker.minibatches(self._train_data, self._collate())
        return _loaders.EpochLoader(
            minibatches,
            self.worker,
            self._end_epoch,
            pin_memory=args.dataloader_pin_memory and args.device.type == "cuda",
            **options,
        )

    def _end_epoch(self) -> None:
        self.control.should_epoch_stop = True
        self.control.should_training_stop |= self.worker._attachment.stopped

    def set_initial_training_values(self, *arguments: Any, **named: Any) -> Tuple[Any, ...]:
        """Lets the job end the loop."""
        epochs, *others = super().set_initial_training_values(*arguments, **named)
        return (_MANY, *others[:-1], _MANY)

    def _groups(self) -> List[Dict[str, Any]]:
        """Returns the groups of create_optimizer(): biases and norms have no weight decay."""
        decaying = set(self.get_decay_parameter_names(self.model))
        named = [(name, p) for name, p in self.model.named_parameters() if p.requires_grad]
        groups: List[Dict[str, Any]] = [
            {"params": [p for name, p in named if name not in decaying], "weight_decay": 0.0}
        ]
        if self.args.weight_decay:
            decayed = [p for name, p in named if name in decaying]
            groups.append({"params": decayed, "weight_decay": self.args.weight_decay})
        return groups

    def _use_servers_optimizer(self, *_: Any, **__: Any) -> Any:
        self.optimizer, self.lr_scheduler = self.worker.optimizer(), self.worker.scheduler()
        return self.optimizer

    # -----------------------------------------------------------------------------------------------------
    # evaluation

    def _score(self) -> Tuple[float, int]:
        """Returns the mean loss over the evaluation sets and the number of right samples."""
        metrics = self.evaluate()
        loss, right = 0.0, 0
        for name, samples in self._test_samples().items():
            prefix = "eval_" if name is None else "eval_%s_" % name
            if prefix + "loss" not in metrics:
                raise RuntimeError(_NO_LOSS % (prefix + "loss", ", ".join(sorted(metrics)) or "none"))
            loss += samples * metrics[prefix + "loss"]
            name = prefix + self._accuracy
            right += _counts.right_of_share(metrics.get(name, 0), samples, name, _NO_SHARE)
        return loss / self.worker._attachment.test_samples, right

    def _pass(self, minibatch: Any) -> None:
        self.compute_loss(self.model, self._prepare_inputs(minibatch))


class _EpochsOfJob(transformers.TrainerCallback):
    """The first of the Trainer's callbacks: shows the others the epochs of the job."""

    def __init__(self, worker: catchment.Worker) -> None:
        self._worker, self._epoch = worker, 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        state.num_train_epochs = math.ceil(args.num_train_epochs)  # the loop has _MANY

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        state.epoch = self._epoch = self._worker.epoch

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        state.epoch = self._epoch

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        state.epoch = self._epoch + 1
