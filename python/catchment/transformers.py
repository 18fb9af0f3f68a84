"""Trains a model of Hugging Face's Trainer as a worker of a Catchment job: use catchment.transformers.Trainer
instead of transformers.Trainer.

The model, the data sets, the collator and TrainingArguments stay as they are; the job decides on the
optimizer, its schedule, the size of a minibatch and when training ends.
"""
import warnings

import transformers
from transformers.trainer_utils import IntervalStrategy, SaveStrategy, TrainOutput

from . import torch as catchment

_ACCUMULATES = ("gradient_accumulation_steps is %d, but each minibatch of the job is a step: set it to 1, "
                "and algorithm.contribution.gradient.push_period=%d in the job")
_OWN_BATCH = ("per_device_train_batch_size is %d, but the job's batch_size, %d, is used: set batch_size=%d "
              "in the job (--set batch_size=%d) if the former is right")
_STOPS_EARLY = ("EarlyStoppingCallback counts evaluations of this program, but the job's evaluator makes "
                "them: remove it, and set evaluation.patience=%d in the job")
_RESUMES = ("train(resume_from_checkpoint=...) restores the state of a loop without a job: continue a job "
            "with catchment train --resume, or load the weights into the model before train(), and the job "
            "starts from them")
_SHARDED = "Trainer makes one process a worker, without DeepSpeed and FSDP: docs/python.md has groups of processes"
_NO_DATA = "Trainer needs train_dataset, with a length: the job assigns samples by index"


class Trainer(transformers.Trainer):
    """A transformers.Trainer whose train() joins the job that its program was started for. train() returns
    when the job is over, with the job's final weights in the model. In the evaluator's program it scores
    weights by evaluate() instead.

    Each step of the loop is a step of the worker, with the current values of .grad (max_grad_norm counts).
    max_steps and num_train_epochs have no effect, because the job has a budget. Only worker 0 saves and
    reports.

    local_optimizer: the Trainer's own optimizer makes the steps between two exchanges, for jobs with
    contribution.pseudo_gradient or .elastic; otherwise it is not used.
    accuracy: the name of the accuracy among the metrics of compute_metrics.
    master: "HOST:PORT" of a running job, as for catchment.torch.join.
    Other arguments are those of transformers.Trainer.
    """

    def __init__(self, *arguments, local_optimizer=False, accuracy="accuracy", master=None, **named):
        self.worker = None
        self._local_optimizer = local_optimizer
        self._accuracy = accuracy
        self._master = master
        super().__init__(*arguments, **named)

    def train(self, resume_from_checkpoint=None, *arguments, **named):
        if resume_from_checkpoint:
            raise ValueError(_RESUMES)
        self._join()
        if self.worker.evaluates:
            self.worker.evaluate(self._score, forward=self._pass, collate=self._collate())
            return TrainOutput(0, 0.0, {})
        result = super().train(None, *arguments, **named)
        if not self.worker._attachment.stopped:  # a callback has ended the loop before the job
            self.worker.leave()
        return result

    # -------------------------------------------------------------------------------------------------------
    # joining

    def _join(self):
        args = self.args
        if args.gradient_accumulation_steps != 1:
            raise ValueError(_ACCUMULATES % (args.gradient_accumulation_steps,
                                             args.gradient_accumulation_steps))
        if self.is_deepspeed_enabled or self.is_fsdp_enabled:
            raise ValueError(_SHARDED)
        if self.train_dataset is None or not hasattr(self.train_dataset, "__len__"):
            raise TypeError(_NO_DATA)
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, transformers.EarlyStoppingCallback):
                raise ValueError(_STOPS_EARLY % callback.early_stopping_patience)
        local = super().create_optimizer() if self._local_optimizer else None
        self.worker = catchment.join(self.model, self._readable(self.train_dataset), self.eval_dataset,
                                     optimizer=local, master=self._master)
        own, job = args.per_device_train_batch_size, self.worker.batch_size
        if own != job:
            warnings.warn(_OWN_BATCH % (own, job, own, own))
        # The evaluator scores, and the best weights are in model-best.safetensors.
        args.max_steps, args.num_train_epochs = -1, 1
        args.eval_strategy, args.load_best_model_at_end = IntervalStrategy.NO, False
        if not self.is_world_process_zero():
            args.save_strategy = SaveStrategy.NO

    def _readable(self, data):
        """Returns the data set without columns that the model does not accept."""
        return self._remove_unused_columns(data,
                                           description="training") if hasattr(data, "column_names") else data

    def _collate(self):
        if hasattr(self.train_dataset, "column_names"):
            return self.data_collator
        return self._get_collator_with_removed_columns(self.data_collator, description="training")

    def is_world_process_zero(self):
        return super().is_world_process_zero() and (
            self.worker is None or (self.worker.index == 0 and not self.worker.evaluates))

    is_local_process_zero = is_world_process_zero

    # ------------------------------------------------------------------------------------------------------
    # training

    def get_train_dataloader(self):
        args = self.args
        return self.worker.loader(collate=self._collate(), num_workers=args.dataloader_num_workers,
                                  pin_memory=args.dataloader_pin_memory and args.device.type == "cuda")

    def create_optimizer(self, model=None):
        self.optimizer = self.worker.optimizer()
        return self.optimizer

    def create_scheduler(self, num_training_steps, optimizer=None):
        self.lr_scheduler = self.worker.scheduler()
        return self.lr_scheduler

    def get_batch_samples(self, epoch_iterator, num_batches, device):
        minibatches, items = super().get_batch_samples(epoch_iterator, num_batches, device)
        if not minibatches:  # the job is over
            self.control.should_training_stop = True
        return minibatches, items

    # -----------------------------------------------------------------------------------------------------
    # evaluation

    def _score(self):
        """Returns the mean loss over the evaluation set and the number of right samples."""
        metrics = self.evaluate()
        share = metrics.get("eval_" + self._accuracy, 0)
        return metrics["eval_loss"], round(share * self.worker._attachment.test_samples)

    def _pass(self, minibatch):
        self.compute_loss(self.model, self._prepare_inputs(minibatch))
