"""Trains a LightningModule as a worker of a Catchment job: Trainer(strategy=catchment.lightning.Strategy()).

Lightning 2.x, the package `lightning` or `pytorch_lightning`. The model, its data and the Trainer stay as
they are; the job decides on the optimizer, the size of a minibatch and when training ends.
"""

import dataclasses
import functools
import importlib
import importlib.util
import os
import sys
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

import torch

from . import _attachment, _counts, _lightning_checks, _loaders, torch as catchment
from ._lightning_loop import EpochsOfJob
from ._parts import Parts, ShownSchedule
from ._warnings import warn

_OWN_BATCH = (
    "the DataLoader's batch_size is %d, but the job's, %d, is used: set batch_size=%d in the job "
    "(--set batch_size=%d) if the DataLoader's is right"
)
_OWN_OPTIMIZER = (
    "the job's optimizer moves the weights, so what configure_optimizers() returns, %s, has no effect: "
    "set optimizer in the job, or Strategy(local_optimizer=True) for a job with local steps"
)
_ONE_OPTIMIZER = (
    "Strategy(local_optimizer=True) makes the local steps with the optimizer of "
    "configure_optimizers(), which returns %d of them: return one"
)
_NO_LOSS = (
    "validation_step logs no loss for the job to use as its test loss, only %s: "
    'self.log("val_loss", ...), or give Strategy the name, loss="..."'
)
_NO_SHARE = 'log a share, or give Strategy the name of one that is, accuracy="..."'
_NO_PACKAGE = (
    "catchment.lightning needs the package lightning or pytorch_lightning, but neither is "
    "installed: pip install lightning"
)
_CHANGED = (
    "the weights of the module were changed at the end of fit() (parameter %s), by a callback for example, "
    "but they are the job's result, so fit() has put them back"
)
_NOT_WRITTEN = (
    "%s was not written by this program, because only worker 0 writes checkpoints, and it does not have "
    "the job's final weights: load it only where trainer.is_global_zero is true"
)
_NO_VALIDATION = "validation_step is empty, so the job has no test loss: nothing is scored"
# Two distributions of one library, with classes of their own.
_PACKAGES = ("lightning.pytorch", "pytorch_lightning")


# Either package's SingleDeviceStrategy.
_Strategy: Any = object


def _empty_step(module: Any, minibatch: Any, index: int) -> None:
    pass


class Strategy:
    """Makes a Trainer a worker, or the evaluator, of the job that its program was started for.

    fit() joins the job with the module and the data sets of its training and validation loaders; it ends when
    the job is over, with the job's final weights in the module. The evaluator's program ends there. Each step
    of the Trainer is a step of the worker, with the current values of .grad (gradient_clip_val counts), and
    an epoch of the job is one of the Trainer. validate(), test() and predict() are as with any other
    strategy.

    loss, accuracy: names of the metrics that validation_step logs, for the job's test loss and accuracy.
    Without them, the value named val_loss or else one with "loss" in its name, and val_acc or else a name
    with "acc".
    local_optimizer: the optimizer of configure_optimizers() makes the steps between two exchanges, for jobs
    with contribution.pseudo_gradient or .elastic; otherwise it is not used.
    master: "HOST:PORT" of a running job, as for catchment.torch.join.
    device: a torch.device. Without it the GPU with the worker's number on its machine, or the CPU.
    samples_per_epoch: for a training set that is a stream (IterableDataset), as for catchment.torch.join.

    Raises ValueError, before the job, for what cannot be had in it: samplers, callbacks and arguments of the
    Trainer (docs/lightning.md has a table).

    The object is a strategy of the package that the program has imported: lightning, if it has imported both.
    """

    def __new__(
        cls,
        loss: Optional[str] = None,
        accuracy: Optional[str] = None,
        local_optimizer: bool = False,
        master: Optional[str] = None,
        device: Any = None,
        samples_per_epoch: Optional[int] = None,
    ) -> Any:
        return _strategy_of(_find_package())(
            loss, accuracy, local_optimizer, master, device, samples_per_epoch
        )


def _find_package() -> str:
    for package in _PACKAGES:
        if package in sys.modules:
            return package
    for package in _PACKAGES:
        if importlib.util.find_spec(package.split(".")[0]) is not None:
            return package
    raise ImportError(_NO_PACKAGE)


@functools.lru_cache(maxsize=None)
def _strategy_of(package: str) -> type:
    def part(name: str) -> Any:
        return importlib.import_module(package + name)

    callbacks = part(".callbacks")
    return type(
        "Strategy",
        (_JobStrategy, part(".strategies").SingleDeviceStrategy),
        {
            "_rank_zero_only": staticmethod(part(".utilities.rank_zero").rank_zero_only),
            "_combined_loader": part(".utilities.combined_loader").CombinedLoader,
            "_callbacks": callbacks,
            "_epochs_of_job": type("EpochsOfJob", (EpochsOfJob, callbacks.Callback), {}),
        },
    )


class _JobStrategy(_Strategy):
    """Base of the strategies of both packages: the part that is for the job."""

    strategy_name = "catchment"
    optimizers: List[Any]
    lr_scheduler_configs: List[Any]

    def __init__(
        self,
        loss: Optional[str],
        accuracy: Optional[str],
        local_optimizer: bool,
        master: Optional[str],
        device: Any,
        samples_per_epoch: Optional[int],
    ) -> None:
        if device is None:
            device = catchment.device()
        super().__init__(device)
        self.worker: Any = None  # a catchment.torch.Worker, once it has joined
        self._names = {"loss": loss, "acc": accuracy}
        self._local_optimizer = local_optimizer
        self._master = master
        self._samples_per_epoch = samples_per_epoch
        self._train_loader: Any = None
        self._train_data: Any = None
        self._epochs: Any = None
        self._scored: List[int] = []  # samples of each validation loader
        self._parts: Optional[Parts] = None  # of the servers' optimizer, for a module with several
        self._left_out: List[torch.nn.Parameter] = []  # parameters that no optimizer of the module has
        self._groups: Any = None  # the optimizers whose groups are the job's
        self._result: Optional[torch.Tensor] = None  # the job's final weights, a flat vector
        # Paths of checkpoints with these weights, which this worker has not written.
        self._final_paths: Set[str] = set()
        self._undo: List[Callable[[], None]] = []  # functions that restore the Trainer
        self._failed = False

    # -------------------------------------------------------------------------------------------------------
    # joining

    def setup_optimizers(self, trainer: Any) -> None:
        super().setup_optimizers(trainer)
        if trainer.state.fn != "fit":
            return
        _lightning_checks.check(trainer, self._callbacks)
        self._leave_out_parameters()
        self._train_loader = trainer.fit_loop._data_source.dataloader()
        self._train_data = _loaders.training_data(
            self._train_loader, self._samples_per_epoch is not None, "Strategy"
        )
        self._scored = self._count_validation(trainer)
        if not self._local_optimizer:
            self._warn_of_settings()
        self._join()
        self._check_minibatches()
        self._set_optimizers()
        # Only worker 0 writes checkpoints and logs.
        self.global_rank = 1 if self.worker.evaluates else self.worker.index
        self._rank_zero_only.rank = self.global_rank
        self._begin_loop(trainer)

    def _leave_out_parameters(self) -> None:
        """Freezes the parameters that the module's optimizers leave alone, so that the job does, too."""
        ids = {
            id(p)
            for optimizer in self.optimizers
            for group in optimizer.param_groups
            for p in group["params"]
        }
        own = list(self.lightning_module.parameters())
        if any(id(p) in ids for p in own):  # configure_optimizers() may return None
            self._left_out = [p for p in own if p.requires_grad and id(p) not in ids]
            self._groups = None if self._local_optimizer else list(self.optimizers)
        for p in self._left_out:
            p.requires_grad_(False)

    def _join(self) -> None:
        local = None
        if self._local_optimizer:
            if len(self.optimizers) != 1:
                raise ValueError(_ONE_OPTIMIZER % len(self.optimizers))
            local = self.optimizers[0]
        self.worker = catchment.join(
            self.lightning_module,
            self._train_data,
            sum(self._scored) or None,
            optimizer=local,
            master=self._master,
            samples_per_epoch=self._samples_per_epoch,
            groups=self._groups,
        )
        self.worker._attachment.on_result = self._keep_result

    def _keep_result(self) -> None:
        self.worker._weights.copy_all()
        self._result = self.worker._weights._vectors[0].clone()

    def _count_validation(self, trainer: Any) -> List[int]:
        if not trainer.enable_validation:
            return []
        step = self.lightning_module.validation_step
        if (
            getattr(step, "__code__", None) is not None
            and step.__code__.co_code == _empty_step.__code__.co_code
        ):
            warn(_NO_VALIDATION)
            return []
        loaders = trainer.fit_loop.epoch_loop.val_loop._data_source.dataloader()
        if not isinstance(loaders, self._combined_loader):
            loaders = self._combined_loader(loaders, "sequential")
        return [_loaders.scored_samples(loader, trainer.limit_val_batches) for loader in loaders.flattened]

    def _check_minibatches(self) -> None:
        own, job = self._train_loader.batch_sampler.batch_size, self.worker.batch_size
        if own != job:
            warn(_OWN_BATCH % (own, job, own, own))
        _loaders.warn_of_last(self._train_loader, job)

    def _set_optimizers(self) -> None:
        """Puts the servers' optimizer in the place of the module's, with as many parts as it has
        optimizers."""
        own = self.optimizers
        if self.worker.evaluates:
            return  # batch norm's statistics may need training_step, which finds its own then
        if self._local_optimizer:
            self.optimizers = [self.worker.optimizer()]
            return
        if len(own) == 1:
            self.optimizers = [self.worker.optimizer()]
        else:
            ids = {id(p.tensor) for p in self.worker._weights.parameters}
            self._parts = Parts(
                self.worker,
                [
                    [p for group in optimizer.param_groups for p in group["params"] if id(p) in ids]
                    for optimizer in own
                ],
            )
            self.optimizers = self._parts.optimizers
        if self.lightning_module.automatic_optimization:
            self.lr_scheduler_configs = []
            return
        shown = dict(zip(map(id, own), self.optimizers))
        self.lr_scheduler_configs = [
            dataclasses.replace(config, scheduler=ShownSchedule(shown[id(config.scheduler.optimizer)]))
            for config in self.lr_scheduler_configs
        ]

    def _warn_of_settings(self) -> None:
        own = self.optimizers
        settings = [type(config.scheduler).__name__ for config in self.lr_scheduler_configs]
        if len({type(optimizer) for optimizer in own}) > 1:
            settings.append("optimizers of different kinds")
        if settings:
            warn(_OWN_OPTIMIZER % ", ".join(settings))

    def _begin_loop(self, trainer: Any) -> None:
        """Makes the loop the job's."""
        loop = trainer.fit_loop
        if loop._data_fetcher is not None:  # configure_optimizers() has asked for the number of steps
            loop._data_fetcher.teardown()
        loop._combined_loader = loop._data_fetcher = None
        loop.min_epochs = loop.epoch_loop.min_steps = None
        loop.epoch_loop.max_steps = -1
        trainer.num_sanity_val_steps = 0
        if self.worker.evaluates:
            return
        self._epochs = self._epochs_of_job(trainer, self.worker, self._callbacks)
        self._epochs.raise_limit()
        trainer.callbacks.insert(0, self._epochs)
        self._undo.append(lambda: trainer.callbacks.remove(self._epochs))
        # Without validation ModelCheckpoint saves when an epoch ends.
        for name, value in (
            ("limit_val_batches", 0),
            ("check_val_every_n_epoch", 1),
            ("val_check_interval", 1.0),
            ("_val_check_time_interval", None),
        ):
            self._undo.append(functools.partial(setattr, trainer, name, getattr(trainer, name, value)))
            setattr(trainer, name, value)

    @property
    def is_global_zero(self) -> bool:
        return self.global_rank == 0

    # ------------------------------------------------------------------------------------------------------
    # training

    def process_dataloader(self, dataloader: Any) -> Any:
        # Lightning asks for the training loader with `training` set, for the others with validating or
        # testing. Its own may be another object than the one of _train_data,
        # with another selection of samples.
        if self.worker is None or not self.lightning_module.trainer.training:
            return dataloader
        minibatches = self.worker.minibatches(self._train_data, self._train_loader.collate_fn)
        return _loaders.EpochLoader(
            minibatches, self.worker, lambda: self._epochs.end_epoch(), **_loaders.options(self._train_loader)
        )

    def backward(self, closure_loss: Any, *arguments: Any, **named: Any) -> Any:
        if self.worker.evaluates:  # manual optimization, in _pass
            return closure_loss
        return super().backward(closure_loss, *arguments, **named)

    def optimizer_step(self, *arguments: Any, **named: Any) -> Any:
        if self.worker.evaluates:
            return None
        result = super().optimizer_step(*arguments, **named)
        if self._parts is None:
            self._epochs.note_step()
        return result

    def post_training_step(self) -> None:
        super().post_training_step()
        if self._parts is not None:  # several optimizers make one step of the job
            self._parts.end_step()
            self._epochs.note_step()

    def on_train_start(self) -> None:
        if self.worker.evaluates:
            self.worker.evaluate(
                self._score, forward=self._pass, data=self._train_data, collate=self._train_loader.collate_fn
            )
            _attachment.end_program()  # what follows fit() is for the workers, which have the job's result

    def _score(self) -> Tuple[float, int]:
        """Validates the weights; returns the mean loss and the number of samples classified correctly."""
        trainer = self.lightning_module.trainer
        trainer.validating = True
        trainer.fit_loop.epoch_loop.val_loop.setup_data()
        metrics = self._merge(trainer.fit_loop.epoch_loop.val_loop.run())
        trainer.training = True
        loss = self._find("loss", metrics)
        if loss is None:
            raise RuntimeError(_NO_LOSS % (", ".join(sorted(metrics)) or "nothing"))
        accuracy = self._find("acc", metrics)
        samples = self.worker._attachment.test_samples
        return metrics[loss], 0 if accuracy is None else _counts.right_of_share(
            metrics[accuracy], samples, accuracy, _NO_SHARE
        )

    def _merge(self, logged: Any) -> Dict[str, float]:
        """Returns the metrics over the samples of all loaders. logged: those of each loader."""
        sums: Dict[str, Tuple[float, int]] = {}  # name -> sum over samples, and their number
        for samples, metrics in zip(self._scored, logged):
            for name, value in metrics.items():
                name = name.rsplit("/dataloader_idx_", 1)[0]
                total, count = sums.get(name, (0.0, 0))
                sums[name] = total + samples * float(value), count + samples
        return {name: total / count for name, (total, count) in sums.items()}

    def _find(self, kind: str, metrics: Any) -> Optional[str]:
        """Returns the name of the metric; None if there is none."""
        if self._names[kind] is not None:
            return self._names[kind] if self._names[kind] in metrics else None
        found = sorted(name for name in metrics if kind in name.lower())
        if "val_" + kind in metrics:
            return "val_" + kind
        return found[0] if found else None

    def _pass(self, minibatch: Any) -> None:
        """Passes training samples through the model, whose training_step logs nothing then."""
        module = self.lightning_module
        module.log = module.log_dict = lambda *arguments, **named: None
        try:
            module.training_step(self.batch_to_device(minibatch), 0)
        finally:
            del module.log, module.log_dict

    # --------------------------------------------------------------------------------------------------------
    # ending

    def save_checkpoint(self, checkpoint: Any, filepath: Any, *arguments: Any, **named: Any) -> None:
        super().save_checkpoint(checkpoint, filepath, *arguments, **named)
        if self._result is not None and not self.is_global_zero:
            self._final_paths.add(os.fspath(filepath))

    def load_checkpoint(self, checkpoint_path: Any, *arguments: Any, **named: Any) -> Any:
        """Loads what ModelCheckpoint has saved, also in workers that do not write, such as for
        test(ckpt_path="best")."""
        if os.fspath(checkpoint_path) in self._final_paths:
            return self.lightning_module.trainer._checkpoint_connector.dump_checkpoint(weights_only=True)
        try:
            return super().load_checkpoint(checkpoint_path, *arguments, **named)
        except FileNotFoundError as error:
            if self.is_global_zero:
                raise
            raise FileNotFoundError(_NOT_WRITTEN % checkpoint_path) from error

    def on_exception(self, exception: BaseException) -> None:
        self._failed = True
        super().on_exception(exception)

    def teardown(self) -> None:
        worker = self.worker
        if worker is not None and not worker.evaluates and self.lightning_module.trainer.state.fn == "fit":
            # A callback or a limit of the Trainer may have ended the loop before the job.
            if not (self._failed or worker._attachment.stopped):
                worker.leave()
            if self._result is not None and not self._failed:
                self._put_back(self._result)
        for p in self._left_out:
            p.requires_grad_(True)
        for undo in self._undo:
            undo()
        self._left_out, self._undo = [], []
        super().teardown()

    @torch.no_grad()
    def _put_back(self, weights: torch.Tensor) -> None:
        for parameter in self.worker._weights.parameters:
            tensor = parameter.tensor
            result = (
                weights[parameter.begin : parameter.end].view(parameter.shape).to(tensor.device, tensor.dtype)
            )
            if not torch.equal(tensor, result):
                warn(_CHANGED % parameter.name)
                tensor.copy_(result)
