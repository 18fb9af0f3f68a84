"""Trains a PyTorch model with Catchment's parameter servers. docs/python.md begins with an example.

    import catchment.torch as catchment

    worker = catchment.join(model, train)
    loader = DataLoader(worker.minibatches(), batch_size=None, num_workers=4)
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        worker.step(loss)

All of a step's weights are there when its minibatch is, and step() sends the gradients as it finds them in
.grad. With join(overlap=True) both are sent while the model computes. PyTorch 2.1 or newer.
"""

import contextlib
import weakref
from typing import Any, Callable, Iterator, List, Optional, Tuple, Union

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader, IterableDataset, default_collate

from . import _attachment, _counts, _description, _groups, _model, _result, _scaler, _statistics
from ._added_losses import AddedLosses
from ._gradients import AfterBackward, DuringBackward, Gradients, KeptSteps, LocalSteps
from ._handed import Handed
from ._layers import model
from ._minibatches import Loader, Minibatches, NoMinibatches, reader
from ._model import device
from ._modules import Modules
from ._optimizer import Optimizer, Scheduler
from ._position import Position
from ._result import load
from ._run import compare, train
from ._version import __version__
from ._warnings import warn
from ._weights import KeptWeights, Weights

__all__ = ["Minibatches", "Worker", "__version__", "compare", "device", "join", "load", "model", "train"]

_NO_SAMPLES = "join got only the number of samples: give minibatches(data) the samples"
_OWN_DATA = (
    "worker.%s() was called for samples that the job has not assigned, because the program has not "
    "asked for its minibatches: loop over worker.minibatches() or worker.loader(), instead of a "
    "DataLoader of the training set"
)
_OTHER_OPTIMIZER = (
    "%s changes parameters of the job, but their weights are the servers', so this has no "
    "effect: remove it, and set optimizer.learning_rate and the like in the job, or give it "
    "to join() for a job with contribution.pseudo_gradient or .elastic"
)
_MOVED_TWICE = (
    "%s moves parameters of the job, as does the optimizer given to join(), whose step worker.step() makes: "
    "both moves count; remove one of them"
)
_WRITTEN = (
    "the program has changed weights of the model after join() (parameter %s), but the servers' replace "
    "them in every step: load weights before join(), which makes them the initial weights of a new job, "
    "constrain weights in the forward pass, and set weight decay in the job"
)
_CLOSURE = (
    "%s calls the model several times in a step, but a step has one gradient: give join() an "
    "optimizer whose step() needs no closure"
)
_SCRIPTED = (
    "the model is made by torch.jit.script, which has no hooks for join(overlap=True): join without overlap"
)
_NO_MODULE = "the model is a %s: give join() a torch.nn.Module"
_NO_LOSS = "worker.step() got no loss: give it the minibatch's mean loss, worker.step(loss)"


def join(
    model: torch.nn.Module,
    train: Any = None,
    test: Any = None,
    optimizer: Any = None,
    master: Optional[str] = None,
    group: Any = None,
    overlap: bool = False,
    samples_per_epoch: Optional[int] = None,
    groups: Any = None,
) -> "Worker":
    """Joins the job that this program was started for; returns a Worker. Call it once, before training.

    model: a torch.nn.Module. Its parameters that require a gradient are the job's from here on; those that
    are frozen when join is called, and buffers, stay this program's own.
    train, test: the data sets, with a length, or their sizes. Workers must have the same.
    optimizer: makes this worker's steps between two exchanges, for jobs with contribution.pseudo_gradient or
    .elastic; anything with step() and zero_grad(). Without it, and for all other jobs, the job's optimizer
    does.
    master: "HOST:PORT" of a running job, for a notebook or a program that another launcher has started: join
    starts a worker of that job.
    group: a torch.distributed process group whose processes are one worker (DistributedDataParallel,
    fully_shard). Each of them calls join, and the same methods after that. After loss.backward(), every
    process must have the mean of all processes' gradients, as these two leave it.
    overlap: hides the exchange behind the computation. A module waits, before its forward pass, for its own
    parameters, and a parameter's gradient is sent as soon as the backward pass has it. The program must then
    read weights only in the forward passes of their modules, call backward once in each step, and leave .grad
    as it is.
    samples_per_epoch: has the job count samples in place of naming them, for streams and for samples that
    each worker has for itself: the number that all workers together train in an epoch. `train` is then an
    iterable of samples, a function that returns one, or a data set of which only this worker trains; it may
    be left for minibatches().
    groups: become optimizer.groups of a new job, whose optimizer honours them. Either an optimizer of
    torch.optim, which makes no step: the weight decay and the rate of its groups count where they differ from
    its own (the rate by the ratio), and a parameter that it does not have is frozen. Or a list of dicts with
    "params", parameters or patterns of their names, and "weight_decay", "frozen", or "lr_scale", a factor of
    the job's learning rate (or "lr" in each group, relative to the largest).

    Raises RuntimeError if the program was not started by a Catchment worker and `master` is not given, or if
    its model or its data are not the job's.
    """
    if overlap and group is not None:
        raise ValueError(
            "a process group sends its gradient only when all of it is complete: join without overlap"
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError(_CLOSURE % type(optimizer).__name__)
    if not isinstance(model, torch.nn.Module):
        raise TypeError(_NO_MODULE % type(model).__name__)
    model, compiled = _model.unwrap(model, group)
    if overlap and isinstance(model, torch.jit.ScriptModule):
        raise ValueError(_SCRIPTED)
    _groups.check_steps(groups, optimizer)
    parameters = [(name, p) for name, p in _model.named_parameters(model) if p.requires_grad]
    _model.check_parameters(parameters, group)
    _model.check_device(parameters)
    tensors = [(name, p.shape) for name, p in parameters]
    counted = samples_per_epoch is not None
    groups = _model.groups(groups, parameters)
    train_samples = (
        _counts.size(samples_per_epoch, "join's samples_per_epoch", 1)
        if counted
        else _model.count(train, "training")
    )
    test_samples = 0 if test is None else _model.count(test, "test")
    directory = _attachment.describe_only()
    if directory is not None:
        values = [_model.bytes_of(_model.full(p.detach())) for _, p in parameters]
        if group is not None and torch.distributed.get_rank(group) != 0:
            _attachment.end_program()
        _description.describe(
            directory,
            tensors,
            values,
            train_samples,
            test_samples,
            optimizer is not None,
            _result.lacks(model, test_samples > 0),
            groups,
        )
        _attachment.end_program()
    device = "PyTorch %s, %s" % (torch.__version__, _model.device_of(parameters))

    def attach() -> _attachment.Attachment:
        return _attachment.Attachment(
            tensors, train_samples, test_samples, device, optimizer is not None, master
        )

    if group is None:
        attachment: _attachment.AnyAttachment = attach()
    else:
        from ._group import GroupAttachment

        attachment = GroupAttachment(group, attach)
    return Worker(attachment, model, parameters, train, optimizer, overlap, compiled, counted)


class Worker(Position):
    """This program's place in the job: job, index, batch_size, seed, evaluates, steps, progress, epoch, log()
    and leave() are as Position has them (_position.py)."""

    def __init__(
        self,
        attachment: _attachment.AnyAttachment,
        model: torch.nn.Module,
        parameters: List[Tuple[str, torch.Tensor]],
        train: Any,
        optimizer: Any,
        overlap: bool,
        compiled: bool,
        counted: bool,
    ) -> None:
        super().__init__(attachment)
        self._train, self._counted, self._model = train, counted, model
        self._handed = Handed()
        self._handed.note_stepping()
        self._asked = False  # for minibatches
        self._warned = False  # of weights that are changed
        self._loss = 0.0  # of the step before
        self._optimizer_of_servers: Optional[Optimizer] = None
        wait_for_all = compiled or not overlap
        welcome = attachment.welcome or {}
        self._weights: Weights
        if welcome.get("keeps_weights"):
            self._weights = KeptWeights(attachment, model, parameters, welcome)
        else:
            self._weights = Weights(attachment, model, parameters, optimizer is not None, wait_for_all)
        attachment.on_result = self._weights.copy_all
        self._gradients: Gradients
        if optimizer is not None:
            steps = KeptSteps if isinstance(self._weights, KeptWeights) else LocalSteps
            self._gradients = steps(attachment, self._weights, optimizer)
        elif overlap:
            self._gradients = DuringBackward(attachment, self._weights, self._handed)
        else:
            self._gradients = AfterBackward(attachment, self._weights)
        self._modules: Optional[Modules] = None
        self._added_losses: Optional[AddedLosses] = None
        if not self.evaluates:
            if getattr(attachment, "rank", 0) == 0:
                for sentence in _result.lacks(model, attachment.test_samples > 0):
                    warn(sentence)
            if not (overlap or compiled or hasattr(attachment, "rank")):
                self._added_losses = AddedLosses(parameters)
            _scaler.watch()
            self._gradients.drop()
            self._gradients.follow(self._weights.parameters)
            if not wait_for_all:
                self._modules = Modules(model, self._weights)
            self._watch_optimizers()
            self._weights.begin_step()
            self._weights.take_all()

    def minibatches(self, data: Any = None, collate: Optional[Callable[..., Any]] = None) -> IterableDataset:
        """Returns an IterableDataset of the minibatches that the job assigns to this worker,
        until the job is over.

        data: the training set, if join was given only its size; it may be a stream, as in join. collate:
        makes a minibatch from a list of samples; by default PyTorch's default_collate.
        """
        if data is None:
            data = self._train
        if data is None or _counts.is_number(data):
            raise TypeError(_NO_SAMPLES)
        if self.evaluates:
            return NoMinibatches()
        self._asked = True
        self._weights.take_if_whole()
        self._gradients.restart()
        read = reader(data, self._counted, self._attachment)
        return Minibatches(read, collate or default_collate, self._attachment, self._handed)

    def loader(
        self, data: Any = None, collate: Optional[Callable[..., Any]] = None, **options: Any
    ) -> DataLoader:
        """Returns a DataLoader of minibatches(data, collate), for frameworks: it has a length, above that of
        any job, and a loop over it may ask for a minibatch before the step of the previous one. options:
        num_workers and other options of DataLoader that do not make minibatches."""
        return Loader(self.minibatches(data, collate), **options)

    def optimizer(self) -> torch.optim.Optimizer:
        """Returns the servers' optimizer as a torch.optim.Optimizer, for frameworks: its step() is
        worker.step(). Every call returns the same one."""
        if self._optimizer_of_servers is None:
            self._optimizer_of_servers = Optimizer(self, [p.tensor for p in self._weights.parameters])
        return self._optimizer_of_servers

    def scheduler(self) -> Scheduler:
        """Returns a scheduler of optimizer() that shows the job's rate. It changes nothing."""
        return Scheduler(self.optimizer())

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """In this context backward adds to .grad, and nothing is sent. Only join(overlap=True) needs it, for
        all calls of backward in a step except the last one."""
        gradients = self._gradients
        gradients.accumulates, before = True, gradients.accumulates
        try:
            yield
        finally:
            gradients.accumulates = before

    def step(self, loss: Union[torch.Tensor, float], correct: Union[torch.Tensor, int] = 0) -> None:
        """Ends a step: call it once for each minibatch, after its backward pass. Returns when the next
        weights have arrived; with overlap, without waiting for them.

        loss: the mean over the minibatch. correct: the number of samples classified correctly, for metrics.
        """
        if loss is None:
            raise TypeError(_NO_LOSS)
        if not self._is_next_real("step"):
            return
        self._gradients.follow(self._weights.follow())
        written = self._weights.find_written()
        if written is not None:
            self._warn(_WRITTEN % written)
        self._gradients.take()
        if self._modules is not None:
            self._modules.learn()
        if self._added_losses is not None:
            self._added_losses.end_step()
        self._end_step(loss, correct)

    def skip(self) -> None:
        """Ends a step without a gradient: call it instead of step() for a minibatch that you leave out, such
        as one whose loss is not finite. Gradients that backward has computed are dropped; with overlap there
        must not be any. To the servers the gradient is 0, so their optimizer's momentum and weight decay
        still move the weights; an optimizer given to join makes no step. Metrics repeat the loss of the step
        before. In a process group every process calls it.
        """
        if not self._is_next_real("skip"):
            return
        self._gradients.follow(self._weights.follow())
        self._gradients.skip()
        self._end_step(self._loss, 0)

    def _is_next_real(self, method: str) -> bool:
        """Returns whether the step that ends is to be made. If not, drops its gradients."""
        if not self._asked:
            raise RuntimeError(_OWN_DATA % method)
        real = self._handed.is_next_real()
        if not real:
            self._gradients.drop()
        return real

    def _end_step(self, loss: Any, correct: Any) -> None:
        """Sends zeros for the gradients that are not there, and begins the next step."""
        if self._attachment.await_begin():
            self._gradients.finish()
            self._loss = float(_counts.number(loss))
            self._attachment.done(self._loss, self._count_right(correct))
            self.steps += 1
        self._gradients.drop()
        self._weights.begin_step()

    def evaluate(
        self,
        score: Callable[[], Tuple[float, int]],
        forward: Optional[Callable[..., Any]] = None,
        data: Any = None,
        collate: Optional[Callable[..., Any]] = None,
    ) -> None:
        """Calls `score` for each evaluation, with the weights to score in the model, until the job is over.
        `score` returns the mean loss over the test set and the number of samples classified correctly (0 if
        there are no classes). In a process group every process calls it, and the result of rank 0 counts.

        If the model has batch norm, its running statistics are first recomputed from about 1000 samples of
        the training set passed to join, in minibatches that `forward` passes through the model, in training
        mode; without `forward`, the model is called with a minibatch, or its first part if that is a list.
        Layers that are frozen keep theirs. The file of weights contains all of them.
        data, collate: as for minibatches().
        """

        def prepare() -> List[Tuple[str, bytes]]:
            self._weights.follow()
            self._weights.copy_all()
            statistics = _statistics.estimate(
                self._model, self._train if data is None else data, collate, forward, self.batch_size
            )
            return [(name, _model.bytes_of(values)) for name, values in statistics]

        self._evaluate(prepare, score)

    def _watch_optimizers(self) -> None:
        worker = weakref.ref(self)

        def hook(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            watching = worker()
            if watching is not None:
                watching._after_other_step(optimizer)

        register_optimizer_step_post_hook(hook)

    def _after_other_step(self, optimizer: Any) -> None:
        if isinstance(optimizer, Optimizer) or self._attachment.stopped or self._gradients.makes(optimizer):
            return
        ids = {id(parameter.tensor) for parameter in self._weights.parameters}
        if any(id(p) in ids for group in optimizer.param_groups for p in group["params"]):
            text = _MOVED_TWICE if isinstance(self._gradients, LocalSteps) else _OTHER_OPTIMIZER
            self._warn(text % type(optimizer).__name__)

    def _warn(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            warn(text)
