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
import collections
import contextlib
import warnings
import weakref
from typing import Any, Callable, Iterator, Optional, Tuple, Union

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader, IterableDataset, default_collate

from . import _attachment, _copies, _model, _scaler, _statistics
from ._handed import Handed
from ._minibatches import Loader, Minibatches, NoMinibatches, reader
from ._optimizer import Optimizer, Scheduler, forget_losses
from ._position import Position
from ._run import compare, train
from ._version import __version__
from ._writes import Writes

__all__ = ["Minibatches", "Worker", "__version__", "compare", "join", "train"]

_PART = (1 << 20) // 4  # values of the gradient that are announced at once, at least
_NO_SAMPLES = "join got only the number of samples: give minibatches(data) the samples"
_OWN_DATA = ("worker.%s() was called for samples that the job has not assigned, because the program has not "
             "asked for its minibatches: loop over worker.minibatches() or worker.loader(), instead of a "
             "DataLoader of the training set")
_CHANGED = ("the gradient of parameter %s was changed between loss.backward() and worker.step(), but with "
            "join(overlap=True) it has already been sent: join without overlap")
_SKIPS_SENT = ("worker.skip() was called after a backward pass, whose gradients have been sent: call it "
               "before backward, or join without overlap")
_TWICE = ("a gradient was computed twice in one step, but with join(overlap=True) it is sent after the first "
          "backward pass: join without overlap, or call worker.step(loss) after each loss.backward()")
_REMOVED = ("parameter %s of the job has been removed from the model: change the model before join()")
_RESHAPED = ("parameter %s had shape %s when join() was called, and has %s now: change the model before "
             "join()")
_REPLACED = ("parameter %s has been replaced since join(), but the optimizer given to join() updates the old "
             "one: load weights into the parameters that are there, without assign=True")
_NOT_TRAINED = ("parameter %s requires a gradient now, but did not, or was not in the model, when join() was "
                "called: the job does not train it, so only this program changes it")
_OTHER_OPTIMIZER = ("%s changes parameters of the job, but their weights are the servers', so this has no "
                    "effect: remove it, and set optimizer.learning_rate and the like in the job, or give it "
                    "to join() for a job with contribution.pseudo_gradient or .elastic")
_WRITTEN = ("the program has changed weights of the model after join() (parameter %s), but the servers' replace "
            "them in every step: load weights before join(), which makes them the initial weights of a new job, "
            "constrain weights in the forward pass, and set weight decay in the job")
_SCALED = ("GradScaler has scaled the loss, so the gradient of parameter %s would be sent with that scale: "
           "call scaler.unscale_(optimizer) before worker.step(loss), with an optimizer of all parameters, "
           "or compute in bfloat16, which needs no scaler")
_SCALED_OVERLAP = ("GradScaler has scaled the loss, but with join(overlap=True) gradients are sent before "
                   "they can be divided by the scale: join without overlap, or compute in bfloat16, which "
                   "needs no scaler")
_RESTARTED = "the worker has registered again, and continues with the servers' weights: the optimizer given to join() %s"
_CLOSURE = ("%s calls the model several times in a step, but a step has one gradient: give join() an "
            "optimizer whose step() needs no closure")
_SCRIPTED = ("the model is made by torch.jit.script, which has no hooks for join(overlap=True): join without "
             "overlap")
_NO_MODULE = "the model is a %s: give join() a torch.nn.Module"
_NO_LOSS = "worker.step() got no loss: give it the minibatch's mean loss, worker.step(loss)"
_STILL_MOVES = ("parameter %s has no gradient in this step. To the servers it is 0, so the job's momentum and "
                "weight decay still move the parameter, which an optimizer of PyTorch would leave as it is")


def join(model: torch.nn.Module, train: Any = None, test: Any = None, optimizer: Any = None,
         master: Optional[str] = None,
         group: Any = None, overlap: bool = False, samples_per_epoch: Optional[int] = None) -> "Worker":
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

    Raises RuntimeError if the program was not started by a Catchment worker and `master` is not given, or if
    its model or its data are not the job's.
    """
    if overlap and group is not None:
        raise ValueError("a process group sends its gradient only when all of it is complete: join without "
                         "overlap")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError(_CLOSURE % type(optimizer).__name__)
    if not isinstance(model, torch.nn.Module):
        raise TypeError(_NO_MODULE % type(model).__name__)
    model, compiled = _model.unwrap(model, group)
    if overlap and isinstance(model, torch.jit.ScriptModule):
        raise ValueError(_SCRIPTED)
    parameters = [(name, p) for name, p in _model.named_parameters(model) if p.requires_grad]
    _model.check_parameters(parameters, group)
    _model.check_device(parameters)
    tensors = [(name, p.shape) for name, p in parameters]
    counted = samples_per_epoch is not None
    train_samples = samples_per_epoch if counted else _model.count(train, "training")
    test_samples = 0 if test is None else _model.count(test, "test")
    directory = _attachment.describe_only()
    if directory is not None:
        values = [_model.bytes_of(_model.full(p.detach())) for _, p in parameters]
        if group is not None and torch.distributed.get_rank(group) != 0:
            _attachment.end_program()
        _attachment.describe(directory, tensors, values, train_samples, test_samples, optimizer is not None)
    device = "PyTorch %s, %s" % (torch.__version__, _model.device_of(parameters))

    def attach():
        return _attachment.Attachment(tensors, train_samples, test_samples, device, optimizer is not None,
                                      master)

    if group is None:
        return Worker(attach(), model, parameters, train, optimizer, overlap, compiled or not overlap,
                      counted)
    from ._group import GroupAttachment
    return Worker(GroupAttachment(group, attach), model, parameters, train, optimizer, overlap, True, counted)


def _number(value):
    return value.item() if isinstance(value, torch.Tensor) else value


class _Parameter:
    """A parameter of the model, and its places in the flat vectors."""

    def __init__(self, name, tensor, begin, weights, gradient, copied):
        self.name, self.tensor = name, tensor
        self.begin, self.end = begin, begin + tensor.numel()
        self.weights = weights[self.begin:self.end].view(tensor.shape)
        self.gradient = gradient[self.begin:self.end].view(tensor.shape)
        self.shape, self.pointer = tensor.shape, self.weights.data_ptr()
        # Otherwise, on a GPU, in another precision or order of dimensions, as a view of a larger tensor, or
        # for an optimizer here, weights are copied.
        self.shared = (not copied and tensor.device.type == "cpu" and tensor.dtype == torch.float32 and
                       tensor.is_contiguous() and
                       tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size())
        self.ready = False  # the gradient, in this step
        self.moves = False  # has had a gradient
        self.sent = None    # with overlap: the .grad that was sent, and its version


class _Hook:
    """A method of a worker, as a hook of a model; that of a copy of the model, or of a file of it, does
    nothing."""

    def __init__(self, call):
        self._call = call

    def __call__(self, *arguments):
        return self._call(*arguments)

    def __deepcopy__(self, memo):
        return _Hook(_nothing)

    def __reduce__(self):
        return _Hook, (_nothing,)


def _nothing(*arguments):
    pass


class Worker(Position):
    """This program's place in the job: job, index, batch_size, seed, evaluates, steps, progress, epoch, log()
    and leave() are as Position has them (_position.py)."""

    def __init__(self, attachment, model, parameters, train, optimizer, overlap, wait_for_all, counted):
        super().__init__(attachment)
        attachment.on_result = self._take_result
        self._train, self._counted = train, counted
        self._handed = Handed()
        self._asked = False  # for minibatches
        self._optimizer_of_servers = None
        self._accumulates = False  # in no_sync()
        self._model = model
        self._optimizer = optimizer
        weights = torch.frombuffer(attachment.weights, dtype=torch.float32)
        gradient = torch.frombuffer(attachment.gradient, dtype=torch.float32)
        self._size = weights.numel()
        self._parameters, begin = [], 0
        self._grouped = hasattr(attachment, "rank")
        self._sends = getattr(attachment, "rank", 0) == 0  # gradients; in a group rank 0 does
        copied = optimizer is not None or self._grouped
        for name, p in parameters:
            self._parameters.append(_Parameter(name, p, begin, weights, gradient, copied=copied))
            begin = self._parameters[-1].end
        self._vectors = (weights, gradient)
        self._copies = _copies.choose(self._parameters, self._vectors)
        self._overlaps = overlap
        self._gradients = 0       # that became ready in this step
        self._counts = False      # the step, as far as is known
        self._taken = 0           # of the weights, values that the parameters have
        self._called = {}         # modules that have had a forward pass; None: they are known
        self._needs = {}          # module -> weights from the first on that its forward pass waits for
        self._always = 0          # weights that every forward pass waits for
        self._wait_for_all = wait_for_all  # before a step begins; otherwise module by module
        self._warned = set()      # names
        self._loss = 0.0          # of the step before
        self._moves = False       # the weights, with its own optimizer
        self._share_weights()
        self._learn_parameters()
        # With an optimizer given to join, the program's own weights are sent.
        self._writes = None if self._grouped or optimizer is not None else Writes(self._parameters)
        if not self.evaluates:
            _scaler.watch()
            self._add_hooks()
            self._watch_optimizers()
            self._begin_step()
            self._take_weights(self._size)

    # ----------------------------------------------------------------------------------------------- the loop

    def minibatches(self, data: Any = None, collate: Optional[Callable] = None) -> IterableDataset:
        """Returns an IterableDataset of the minibatches that the job assigns to this worker, until the job is
        over.

        data: the training set, if join was given only its size; it may be a stream, as in join. collate:
        makes a minibatch from a list of samples; by default PyTorch's default_collate.
        """
        if data is None:
            data = self._train
        if data is None or isinstance(data, int):
            raise TypeError(_NO_SAMPLES)
        if self.evaluates:
            return NoMinibatches()
        self._asked = True
        self._restart_step()
        read = reader(data, self._counted, self._attachment)
        return Minibatches(read, collate or default_collate, self._attachment, self._handed)

    def loader(self, data: Any = None, collate: Optional[Callable] = None, **options: Any) -> DataLoader:
        """Returns a DataLoader of minibatches(data, collate), for frameworks: it has a length, above that of
        any job, and a loop over it may ask for a minibatch before the step of the previous one. options:
        num_workers and other options of DataLoader that do not make minibatches."""
        return Loader(self.minibatches(data, collate), **options)

    def optimizer(self) -> torch.optim.Optimizer:
        """Returns the servers' optimizer as a torch.optim.Optimizer, for frameworks: its step() is
        worker.step(). Every call returns the same one."""
        if self._optimizer_of_servers is None:
            self._optimizer_of_servers = Optimizer(self, [parameter.tensor for parameter in self._parameters])
        return self._optimizer_of_servers

    def scheduler(self):
        """Returns a scheduler of optimizer() that shows the job's rate. It changes nothing."""
        return Scheduler(self.optimizer())

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """In this context backward adds to .grad, and nothing is sent. Only join(overlap=True) needs it, for
        all calls of backward in a step except the last one."""
        self._accumulates, before = True, self._accumulates
        try:
            yield
        finally:
            self._accumulates = before

    def step(self, loss: Union[torch.Tensor, float], correct: Union[torch.Tensor, int] = 0) -> None:
        """Ends a step: call it once for each minibatch, after its backward pass. Returns when the next
        weights have arrived; with overlap, without waiting for them.

        loss: the mean over the minibatch. correct: the number of samples classified correctly, for metrics.
        """
        if loss is None:
            raise TypeError(_NO_LOSS)
        if not self._is_next_real("step"):
            return
        self._follow_model()
        self._check_scale()
        if self._counts and self._writes is not None:
            written = self._writes.find(self._vectors[0])
            if written is not None:
                self._warn_once("weights", _WRITTEN % written)
        if self._optimizer is not None:
            self._make_local_step()
        else:
            self._check_backward()
            if not self._overlaps:
                self._take_gradients()
        if self._called is not None:
            self._learn_modules()
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
        if self._overlaps and self._gradients > 0:
            raise RuntimeError(_SKIPS_SENT)
        self._follow_model()
        self._take_weights(self._size)
        if self._optimizer is not None and self._attachment.restarted:
            self._forget_moments()
        self._end_step(self._loss, 0)

    def _is_next_real(self, method):
        """Returns whether the step that ends is to be made. If not, drops its gradients."""
        if not self._asked:
            raise RuntimeError(_OWN_DATA % method)
        real = self._handed.is_next_real()
        if not real:
            self._drop_gradients()
        return real

    def _end_step(self, loss, correct):
        """Sends zeros for the gradients that are not there, and begins the next step."""
        if self._attachment.await_begin():
            for parameter in self._parameters:
                if not parameter.ready and self._sends:
                    self._send_gradient(parameter, None)
            self._copies.finish()
            self._loss = float(_number(loss))
            self._attachment.done(self._loss, int(_number(correct)))
            self.steps += 1
        for parameter in self._parameters:
            parameter.tensor.grad = parameter.sent = None
        self._begin_step()

    def evaluate(self, score: Callable[[], Tuple[float, int]], forward: Optional[Callable] = None,
                 data: Any = None,
                 collate: Optional[Callable] = None) -> None:
        """Calls `score` for each evaluation, with the weights to score in the model, until the job is over.
        `score` returns the mean loss over the test set and the number of samples classified correctly (0 if
        there are no classes). In a process group every process calls it, and the result of rank 0 counts.

        If the model has batch norm, its running statistics are first recomputed from about 1000 samples of
        the training set passed to join, in minibatches that `forward` passes through the model, in training
        mode; without `forward`, the model is called with a minibatch, or its first part if that is a list.
        The file of weights contains them.
        data, collate: as for minibatches().
        """
        if not self.evaluates:
            raise RuntimeError("worker.evaluate() is for the evaluator's program: call it if worker.evaluates")
        samples = self._attachment.test_samples
        while self._attachment.await_evaluation():
            self._follow_model()
            self._copy_weights(0, self._size)
            self._copies.wait_for(self._size)
            statistics = _statistics.estimate(self._model, self._train if data is None else data,
                                              collate or default_collate, forward, self.batch_size)
            loss, correct = score()
            for name, values in statistics:
                self._attachment.statistic(name, _model.bytes_of(values))
            self._attachment.scored(samples, float(_number(loss)) * samples, int(_number(correct)))

    # ------------------------------------------------------------------------------------------------ weights

    def _share_weights(self):
        for parameter in self._parameters:
            if parameter.shared:
                parameter.tensor.data = parameter.weights
        self._copied = [parameter for parameter in self._parameters if not parameter.shared]

    def _learn_parameters(self):
        self._found = _model.parameters_in(self._model)
        self._ids = list(map(id, self._found))
        trained = {id(parameter.tensor) for parameter in self._parameters}
        self._frozen = [p for p in self._found if p is not None and id(p) not in trained]
        # fully_shard exchanges them by itself.
        self._follows = not any(hasattr(parameter.tensor, "placements") for parameter in self._parameters)

    def _follow_model(self):
        """Detects parameters that the program has replaced, moved to other memory or unfrozen since join."""
        if not self._follows:
            return
        if list(map(id, _model.parameters_in(self._model))) != self._ids:
            self._find_parameters()
        if any(p.requires_grad for p in self._frozen):
            self._warn_of_untrained()
        moved = []
        for parameter in self._parameters:
            if parameter.tensor.shape != parameter.shape:
                raise RuntimeError(_RESHAPED % (parameter.name, tuple(parameter.shape),
                                                tuple(parameter.tensor.shape)))
            if parameter.shared and parameter.tensor.data_ptr() != parameter.pointer:
                moved.append(parameter)
        if moved:
            self._copy_from_now_on(moved)

    def _find_parameters(self):
        """Finds the job's parameters in a model whose parameters have changed."""
        names = dict(_model.named_parameters(self._model, remove_duplicate=False))
        present = set(map(id, names.values()))
        for parameter in self._parameters:
            tensor = names.get(parameter.name)
            if tensor is None and id(parameter.tensor) not in present:
                raise RuntimeError(_REMOVED % parameter.name)
            if tensor is not None and tensor is not parameter.tensor:
                self._replace(parameter, tensor)
        self._learn_parameters()
        self._wait_for_all = True  # modules that are new do not wait for their weights

    def _replace(self, parameter, tensor):
        if self._optimizer is not None:
            raise RuntimeError(_REPLACED % parameter.name)
        parameter.tensor = tensor
        if self._overlaps:
            take = _Hook(self._gradient_hook(self._parameters.index(parameter)))
            tensor.register_post_accumulate_grad_hook(take)
            if tensor.grad is not None and not parameter.ready:
                take(tensor)

    def _warn_of_untrained(self):
        unfrozen = {id(p) for p in self._frozen if p.requires_grad}
        for name, p in self._model.named_parameters():
            if id(p) in unfrozen:
                self._warn_once(name, _NOT_TRAINED % name)

    def _copy_from_now_on(self, parameters):
        for parameter in parameters:
            parameter.shared = False
        # share_memory() and processes that are given the model have moved all tensors with the same storage.
        self._vectors = torch.frombuffer(self._attachment.weights, dtype=torch.float32), self._vectors[1]
        for parameter in self._parameters:
            parameter.weights = self._vectors[0][parameter.begin:parameter.end].view(parameter.shape)
        self._copied = [parameter for parameter in self._parameters if not parameter.shared]
        if any(parameter.tensor.device.type == "cuda" for parameter in parameters):
            self._copies = _copies.choose(self._parameters, self._vectors)

    def _begin_step(self):
        """Advances to the next step, without waiting for it."""
        self._attachment.next_step()
        self._taken = self._gradients = 0
        self._counts = True
        forget_losses()
        self._final = self._announced = len(self._parameters)
        for parameter in self._parameters:
            parameter.ready = False
        if self._wait_for_all:
            self._take_weights(self._size)

    def _restart_step(self):
        """Drops the gradients of a minibatch in which the previous loop was interrupted."""
        if self._wait_for_all:
            self._take_weights(self._size)
        _scaler.next_step()
        if self._announced == len(self._parameters):
            self._drop_gradients()

    def _drop_gradients(self):
        forget_losses()
        self._gradients = 0
        for parameter in self._parameters:
            parameter.ready, parameter.sent, parameter.tensor.grad = False, None, None
        self._final = self._announced = len(self._parameters)

    @torch.no_grad()
    def _take_result(self):
        """Copies the job's final weights into the model."""
        self._copy_weights(0, self._size)
        self._copies.wait_for(self._size)

    def _take_weights(self, values):
        """Waits until the parameters have the first `values` of the step's weights."""
        if values > self._taken:
            self._counts = self._attachment.await_weights(values)
            here = self._attachment.here if self._counts else self._size
            if self._counts:
                self._copy_weights(self._taken, here)
            self._taken = here
            if self._counts and here == self._size and self._writes is not None:
                self._writes.note(self._vectors[0])
        self._copies.wait_for(values)

    @torch.no_grad()
    def _copy_weights(self, begin, end):
        """Copies parameters outside the shared memory. A parameter is copied when the last of its values has
        arrived."""
        for parameter in self._copied:
            if begin < parameter.end <= end:
                self._copies.bring(parameter)

    # ------------------------------------------------------------------------------------------------ modules

    def _add_hooks(self):
        places = {parameter.tensor: parameter for parameter in self._parameters}
        if self._optimizer is None and self._overlaps:
            for index, parameter in enumerate(self._parameters):
                parameter.tensor.register_post_accumulate_grad_hook(_Hook(self._gradient_hook(index)))
        if self._overlaps:
            for module in self._model.modules():
                module.register_state_dict_pre_hook(_Hook(self._before_state_dict))
        if self._wait_for_all:
            self._called = None
            return
        for module in self._model.modules():
            own = [places[p] for p in module._parameters.values() if p in places]
            self._needs[module] = max((parameter.end for parameter in own), default=0)
            # First, because hooks such as those of spectral_norm and pruning read the weights.
            module.register_forward_pre_hook(_Hook(self._before_forward), prepend=True)

    def _watch_optimizers(self):
        worker = weakref.ref(self)
        register_optimizer_step_post_hook(lambda optimizer,
                                          *_: worker() and worker()._after_other_step(optimizer))

    def _after_other_step(self, optimizer):
        if self._moves or isinstance(optimizer, Optimizer) or self._attachment.stopped:
            return
        ids = {id(parameter.tensor) for parameter in self._parameters}
        if any(id(p) in ids for group in optimizer.param_groups for p in group["params"]):
            self._warn_once("weights", _OTHER_OPTIMIZER % type(optimizer).__name__)

    def _warn_once(self, what, text):
        if what not in self._warned:
            self._warned.add(what)
            warnings.warn(text)

    def _before_state_dict(self, *_):
        self._take_weights(self._size)

    def _before_forward(self, module, _):
        if module not in self._needs:
            return  # a copy's, which has weights of its own
        if self._called is not None:
            self._called[module] = True
        self._take_weights(max(self._needs[module], self._always))

    def _learn_modules(self):
        """Finds which weights each module waits for. Called after the first step, which waits for all
        weights. A module may use the parameters of another one without calling it. So a module that was
        called also waits for the parameters of its submodules that were not, and the first module in a step
        waits for all others."""
        called, self._called = self._called, None
        own, covered = collections.defaultdict(int, self._needs), set()  # 0: of modules that are new

        def need(module):
            covered.add(module)
            inner = [child for child in module.children() if child not in called]
            return max([own[module]] + [need(child) for child in inner])

        for module in called:
            self._needs[module] = need(module)
        self._always = max((own[module] for module in own if module not in covered), default=0)

    # ---------------------------------------------------------------------------------------------- gradients

    @torch.no_grad()
    def _make_local_step(self):
        """Moves the weights with the optimizer, and uses the change of the weights in place of a gradient."""
        self._take_weights(self._size)
        if self._attachment.restarted:
            self._forget_moments()
        self._moves = True
        self._optimizer.step()
        self._moves = False
        self._optimizer.zero_grad()
        for parameter in self._parameters:
            moved = _model.full(parameter.tensor.detach())
            if self._sends:
                parameter.gradient.copy_(parameter.weights - moved.to("cpu", torch.float32))
            parameter.ready = True

    def _forget_moments(self):
        """Resets the optimizer given to join(), whose moments belong to weights that are gone, as the job's
        own local optimizer is reset."""
        state = getattr(self._optimizer, "state", None)
        resets = hasattr(state, "clear")
        if resets:
            state.clear()
        warnings.warn(_RESTARTED % ("has been reset" if resets
                                    else "keeps moments that belong to other weights, as it has "
                                    "no `state` to reset"))

    def _check_scale(self):
        if _scaler.scaled():
            if self._overlaps and self._optimizer is None:
                raise RuntimeError(_SCALED_OVERLAP)
            for parameter in self._parameters:
                if parameter.tensor.grad is not None and _scaler.is_scaled(parameter.tensor):
                    raise RuntimeError(_SCALED % parameter.name)
            _scaler.next_step()

    def _check_backward(self):
        if self._overlaps:
            for parameter in self._parameters:
                gradient = parameter.tensor.grad
                sent, version = parameter.sent or (None, None)
                if gradient is not None and (gradient is not sent or gradient._version != version):
                    raise RuntimeError(_CHANGED % parameter.name)
                self._note_gradient(parameter, parameter.ready)
        else:
            self._gradients = sum(parameter.tensor.grad is not None for parameter in self._parameters)
        if self._gradients == 0 and not self._attachment.stopped:
            raise RuntimeError("worker.step() was called without a backward pass since the last step: call "
                               "it once for each minibatch, after loss.backward()")

    @torch.no_grad()
    def _take_gradients(self):
        """Sends the gradients as they are now, the last ones first."""
        self._take_weights(self._size)
        for parameter in reversed(self._parameters):
            gradient = parameter.tensor.grad
            if gradient is not None:
                gradient = _model.full(gradient)
            self._note_gradient(parameter, gradient is not None)
            if self._sends:
                self._send_gradient(parameter, gradient)
            parameter.ready = True
            if not self._grouped:
                self._announce()

    def _note_gradient(self, parameter, has_gradient):
        if not has_gradient and parameter.moves:
            self._warn_once("no gradient", _STILL_MOVES % parameter.name)
        parameter.moves |= has_gradient

    def _send_gradient(self, parameter, gradient):
        """gradient: None if the loss does not depend on the parameter in this step."""
        if gradient is None:
            parameter.gradient.zero_()
        else:
            self._copies.take(parameter, gradient)

    def _gradient_hook(self, index):
        def take(tensor):
            parameter = self._parameters[index]
            if self._accumulates or (self._handed and not self._handed[0]):
                return
            if parameter.ready:
                raise RuntimeError(_TWICE)
            parameter.ready = True
            self._gradients += 1
            self._copies.take(parameter, tensor.grad)
            parameter.sent = (tensor.grad, tensor.grad._version)
            self._announce()
        return take

    def _announce(self):
        """Announces which end of the gradient is final, if that is worth a message."""
        while self._final > 0 and self._is_final(self._parameters[self._final - 1]):
            self._final -= 1
        if self._final == self._announced:
            return
        begin = self._parameters[self._final].begin
        announced = self._size if self._announced == len(self._parameters) else self._parameters[self._announced].begin
        if announced - begin < _PART or not self._counts:
            return
        self._attachment.final(begin)
        self._announced = self._final

    def _is_final(self, parameter):
        return parameter.ready and self._copies.is_final(parameter)
