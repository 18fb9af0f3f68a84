"""Running statistics of batch norm, which an evaluator's program estimates for the weights that it scores."""
import torch

from . import _model
from ._indices import STATISTICS_SAMPLES, evenly
from ._minibatches import is_indexed
from ._stream import Stream


@torch.no_grad()
def estimate(model, data, collate, forward, batch_size):
    """Returns (name, values): means over minibatches of `data`, as for the job's own models
    (worker/evaluator.cc). forward: passes a minibatch through the model; None: the model gets it, or its first
    part."""
    norms = [(name, module) for name, module in model.named_modules()
             if isinstance(module, torch.nn.modules.batchnorm._BatchNorm) and module.running_mean is not None]
    if not norms or data is None or isinstance(data, int):
        return []
    for _, module in norms:
        module.reset_running_stats()
        module.momentum = None  # the mean over all that follow
    training = model.training
    model.train()
    for samples in _minibatches(data, batch_size):
        minibatch = collate(samples)
        if forward is not None:
            forward(minibatch)
        else:
            model(minibatch[0] if isinstance(minibatch, (list, tuple)) else minibatch)
    model.train(training)
    return [(name.replace(_model.COMPILED, "") + "." + kind, getattr(module, kind).to("cpu", torch.float32))
            for name, module in norms for kind in ("running_mean", "running_var")]


def _minibatches(data, batch_size):
    """Yields lists of training samples: evenly from the whole set, or the first ones of a stream."""
    if is_indexed(data):
        for indices in evenly(len(data), batch_size):
            yield [data[index] for index in indices]
        return
    stream = Stream(data)
    for _ in range(0, STATISTICS_SAMPLES, batch_size):
        samples = stream.take(batch_size)
        if samples is None:
            return
        yield samples
