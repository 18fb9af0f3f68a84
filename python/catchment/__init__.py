"""Trains a model of your own with Catchment's parameter servers: this module for NumPy and for gradients from
anywhere, catchment.torch for PyTorch, catchment.keras and catchment.jax. docs/python.md begins with examples.

    import catchment

    worker = catchment.join({"weight": weight, "bias": bias}, train_samples=len(inputs))
    for samples in worker.minibatches():         # indices into the training set, until the job is over
        loss, gradients = ...                    # at worker.parameters["weight"], worker.parameters["bias"]
        worker.gradients["weight"] = gradients[0]
        worker.gradients["bias"] = gradients[1]
        worker.step(loss)
"""

from typing import Any, Mapping, Optional

from . import _attachment, _counts, _description, _vectors
from ._array_worker import ArrayWorker
from ._run import Comparison, Run, compare, train
from ._version import __version__

__all__ = ["Comparison", "Run", "Worker", "__version__", "compare", "join", "train"]


def join(
    parameters: Mapping[str, Any],
    train_samples: int,
    test_samples: int = 0,
    device: str = "NumPy",
    master: Optional[str] = None,
) -> "Worker":
    """Joins the job that this program was started for; returns a Worker. Call it once.

    parameters: dict of name -> initial value, a NumPy array or anything else with the buffer protocol and
    float32 values. All workers must have the same names and shapes. The job's initial weights are those of
    the program's first run; the values of other workers are ignored.
    train_samples: the size of the training set, whose samples the job assigns by index. For a stream, or if
    each worker has its own samples: the number that all workers together train in an epoch. The job then only
    counts samples.
    test_samples: the size of the test set; 0: there is none, and the job has no evaluator.
    device: shown in the job's status.
    master: "HOST:PORT" of a running job, for a notebook or a program that another launcher has started: join
    starts a worker of that job.

    Raises RuntimeError if the program was not started by a Catchment worker and `master` is not given, or if
    its model or its data are not the job's.
    """
    train_samples = _counts.size(train_samples, "join's train_samples", 1)
    test_samples = _counts.size(test_samples, "join's test_samples", 0)
    arrays = {name: _vectors.as_floats(value, "parameter %s" % name) for name, value in parameters.items()}
    tensors = [(name, array.shape) for name, array in arrays.items()]
    directory = _attachment.describe_only()
    if directory is not None:
        values = [array.tobytes() for array in arrays.values()]
        _description.describe(directory, tensors, values, train_samples, test_samples)
        _attachment.end_program()
    return Worker(_attachment.Attachment(tensors, train_samples, test_samples, device, master=master))


class Worker(ArrayWorker):
    """This program's place in the job. Arrays are NumPy's, or memoryviews if NumPy is not installed.

    job, index, batch_size, seed, evaluates, steps, progress, epoch, log(), leave(): as Position has them
    (_position.py).
    weights, gradient: the flat vectors of all parameters, in the order of join's dict.
    parameters, gradients: their parts by name, in the parameters' shapes.

    Weights are read-only, and valid while a minibatch is in progress. When the job is done, they are its
    final weights. The gradient is 0 when a minibatch begins; an assignment to `gradient`, or to a part in
    `gradients`, copies the values, which must have the shape of what they replace.
    """

    def step(self, loss: float, correct: int = 0) -> None:
        """Submits the gradient in `gradient`, the mean over the minibatch's samples, and ends the step.

        loss: the mean over the samples. correct: the number of samples classified correctly,
        if there are classes.
        """
        self._end_step("step", float(loss), correct)
