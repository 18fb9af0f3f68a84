"""Trains a LightningModule as a worker of a Catchment job: Trainer(strategy=catchment.lightning.Strategy()).

Lightning 2.x, the package `lightning` or `pytorch_lightning`. The model, its data and the Trainer stay as
they are; the job decides on the optimizer, the size of a minibatch and when training ends.
"""
import functools
import importlib
import importlib.util
import os
import sys
import warnings
from typing import Any, Optional

import torch
from torch.utils.data import DataLoader

from . import torch as catchment

_ONE_LOADER = ("Strategy trains on one DataLoader, but train_dataloader() returns %s: put the data sets into "
               "one, with torch.utils.data.ConcatDataset for example")
_ACCUMULATES = ("accumulate_grad_batches is %s, but each minibatch of the job is a step: set it to 1, and "
                "algorithm.contribution.gradient.push_period=%s in the job")
_OWN_BATCH = ("the DataLoader's batch_size is %d, but the job's, %d, is used: set batch_size=%d in the job "
              "(--set batch_size=%d) if the DataLoader's is right")
_STOPS_EARLY = ("EarlyStopping(%r) cannot end the job, whose evaluator validates: set evaluation.patience=%d "
                "in the job")
_RESUMES = ("fit(ckpt_path=...) restores the state of a loop without a job: continue a job with catchment "
            "train --resume, or load the weights into the module before fit(), and the job starts from them")
_ONE_OPTIMIZER = ("Strategy(local_optimizer=True) makes the local steps with the optimizer of "
                  "configure_optimizers(), which returns %d of them: return one")
_NO_LOSS = ("validation_step logs no loss for the job to use as its test loss, only %s: "
            "self.log(\"val_loss\", ...), or give Strategy the name, loss=\"...\"")
_NO_PACKAGE = ("catchment.lightning needs the package lightning or pytorch_lightning, but neither is "
               "installed: pip install lightning")
_PACKAGES = ("lightning.pytorch",
             "pytorch_lightning")  # two distributions of one library, with classes of their own


class Strategy:
    """Makes a Trainer a worker, or the evaluator, of the job that its program was started for.

    fit() joins the job with the module and the data sets of its training and validation loaders; it ends when
    the job is over, with the job's final weights in the module. Each step of the Trainer is a step of the
    worker, with the current values of .grad (gradient_clip_val counts). validate(), test() and predict() are as
    with any other strategy.

    loss, accuracy: names of the metrics that validation_step logs, for the job's test loss and accuracy.
    Without them, the value named val_loss or else one with "loss" in its name, and val_acc or else a name with
    "acc".
    local_optimizer: the optimizer of configure_optimizers() makes the steps between two exchanges, for jobs
    with contribution.pseudo_gradient or .elastic; otherwise it is not used.
    master: "HOST:PORT" of a running job, as for catchment.torch.join.
    device: a torch.device. Without it the GPU with the worker's number on its machine, or the CPU.

    The object is a strategy of the package that the program has imported: lightning, if it has imported both.
    """

    def __new__(cls, loss: Optional[str] = None, accuracy: Optional[str] = None,
                local_optimizer: bool = False, master: Optional[str] = None, device: Any = None) -> Any:
        return _strategy_of(_find_package())(loss, accuracy, local_optimizer, master, device)


def _find_package():
    for package in _PACKAGES:
        if package in sys.modules:
            return package
    for package in _PACKAGES:
        if importlib.util.find_spec(package.split(".")[0]) is not None:
            return package
    raise ImportError(_NO_PACKAGE)


@functools.lru_cache(maxsize=None)
def _strategy_of(package):
    base = importlib.import_module(package + ".strategies").SingleDeviceStrategy
    rank_zero_only = importlib.import_module(package + ".utilities.rank_zero").rank_zero_only
    early_stopping = importlib.import_module(package + ".callbacks").EarlyStopping
    return type("Strategy", (_JobStrategy, base), {"_rank_zero_only": staticmethod(rank_zero_only),
                                                   "_early_stopping": early_stopping})


class _JobStrategy:
    """What a strategy of either package does for a job."""

    strategy_name = "catchment"

    def __init__(self, loss, accuracy, local_optimizer, master, device):
        if device is None:
            gpus = torch.cuda.device_count()
            device = "cuda:%d" % (int(os.environ.get("CATCHMENT_LOCAL_INDEX", 0)) % gpus) if gpus else "cpu"
        super().__init__(device)
        self.worker = None
        self._names = {"loss": loss, "acc": accuracy}
        self._local_optimizer = local_optimizer
        self._master = master
        self._train_loader = None
        self._failed = False

    # -------------------------------------------------------------------------------------------------------
    # joining

    def setup_optimizers(self, trainer):
        if trainer.state.fn != "fit":
            return super().setup_optimizers(trainer)
        if trainer.accumulate_grad_batches != 1:
            raise ValueError(_ACCUMULATES % (trainer.accumulate_grad_batches,
                                             trainer.accumulate_grad_batches))
        if trainer.ckpt_path is not None:
            raise ValueError(_RESUMES)
        self._relax_early_stopping(trainer)
        local = self._make_local_optimizer(trainer)
        self._train_loader = trainer.fit_loop._data_source.dataloader()
        if not isinstance(self._train_loader, DataLoader):
            raise TypeError(_ONE_LOADER % type(self._train_loader).__name__)
        self.worker = catchment.join(self.lightning_module, self._train_loader.dataset,
                                     self._count_validation(trainer), optimizer=local, master=self._master)
        self._check_batch_size()
        self.optimizers = [self.worker.optimizer()]
        # Only worker 0 writes checkpoints and logs.
        self.global_rank = 1 if self.worker.evaluates else self.worker.index
        self._rank_zero_only.rank = self.global_rank
        # The job ends the loop, which is one epoch of Lightning's.
        trainer.fit_loop.min_epochs, trainer.fit_loop.max_epochs = None, 1
        trainer.fit_loop.epoch_loop.max_steps = -1
        trainer.num_sanity_val_steps = 0

    def _relax_early_stopping(self, trainer):
        """Keeps callbacks from failing because a worker has no validation metrics."""
        for callback in trainer.callbacks:
            if isinstance(callback, self._early_stopping):
                callback.strict = False
                warnings.warn(_STOPS_EARLY % (callback.monitor, callback.patience))

    def _make_local_optimizer(self, trainer):
        if not self._local_optimizer:
            self.lr_scheduler_configs = []
            return None
        super().setup_optimizers(trainer)
        if len(self.optimizers) != 1:
            raise ValueError(_ONE_OPTIMIZER % len(self.optimizers))
        return self.optimizers[0]

    def _count_validation(self, trainer):
        source = trainer.fit_loop.epoch_loop.val_loop._data_source
        if not source.is_defined() or trainer.limit_val_batches == 0:
            return None
        loaders = source.dataloader()
        return sum(len(loader.dataset) for loader in (loaders if isinstance(loaders, (list, tuple))
                                                      else [loaders]))

    def _check_batch_size(self):
        own, job = self._train_loader.batch_size, self.worker.batch_size
        if own is not None and own != job:
            warnings.warn(_OWN_BATCH % (own, job, own, own))

    @property
    def is_global_zero(self):
        return self.global_rank == 0

    # ------------------------------------------------------------------------------------------------------
    # training

    def process_dataloader(self, dataloader):
        # Lightning asks for the training loader with `training` set, for the others with validating or
        # testing.
        if self.worker is None or not self.lightning_module.trainer.training:
            return dataloader
        options = {name: getattr(dataloader, name)
                   for name in ("num_workers", "pin_memory", "timeout", "worker_init_fn",
                                "multiprocessing_context", "prefetch_factor", "persistent_workers")}
        return self.worker.loader(dataloader.dataset, dataloader.collate_fn, **options)

    def on_train_start(self):
        if self.worker.evaluates:
            self.worker.evaluate(self._score, forward=self._pass, data=self._train_loader.dataset,
                                 collate=self._train_loader.collate_fn)

    def _score(self):
        """Validates the weights; returns the mean loss and the number of samples classified correctly."""
        trainer = self.lightning_module.trainer
        trainer.validating = True
        trainer.fit_loop.epoch_loop.val_loop.setup_data()
        metrics = {name: float(value) for logged in trainer.fit_loop.epoch_loop.val_loop.run()
                   for name, value in logged.items()}
        trainer.training = True
        loss = self._find("loss", metrics)
        if loss is None:
            raise RuntimeError(_NO_LOSS % (", ".join(sorted(metrics)) or "nothing"))
        accuracy = self._find("acc", metrics)
        return loss, 0 if accuracy is None else round(accuracy * self.worker._attachment.test_samples)

    def _find(self, kind, metrics):
        if self._names[kind] is not None:
            return metrics.get(self._names[kind])
        if "val_" + kind in metrics:
            return metrics["val_" + kind]
        found = sorted(name for name in metrics if kind in name.lower())
        return metrics[found[0]] if found else None

    def _pass(self, minibatch):
        """Passes training samples through the model, whose training_step logs nothing then."""
        module = self.lightning_module
        module.log = module.log_dict = lambda *arguments, **named: None
        try:
            module.training_step(self.batch_to_device(minibatch), 0)
        finally:
            del module.log, module.log_dict

    # --------------------------------------------------------------------------------------------------------
    # ending

    def on_exception(self, exception):
        self._failed = True
        super().on_exception(exception)

    def teardown(self):
        # A callback or a limit of the Trainer has ended the loop before the job.
        worker = self.worker
        if worker is not None and not (worker.evaluates or self._failed or worker._attachment.stopped):
            worker.leave()
        super().teardown()
