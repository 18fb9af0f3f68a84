"""The worker of a program whose gradients are arrays: what catchment.join returns."""

from typing import Any, Mapping, Optional

from . import _attachment, _counts, _description, _groups, _vectors
from ._array_worker import ArrayWorker


def join(
    parameters: Mapping[str, Any],
    train_samples: int,
    test_samples: int = 0,
    device: str = "NumPy",
    master: Optional[str] = None,
    groups: Any = (),
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
    groups: optimizer.groups of a new job, a list of dicts with "params", patterns of names, and
    "weight_decay", "frozen", or "lr_scale", a factor of the job's learning rate.

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
        _description.describe(
            directory,
            tensors,
            values,
            train_samples,
            test_samples,
            groups=_groups.of_list(groups, str),
        )
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
