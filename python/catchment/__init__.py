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

import importlib
from typing import TYPE_CHECKING, Any, List

if TYPE_CHECKING:
    from . import study
    from ._run import Run, compare, train
    from ._version import __version__
    from ._worker import Worker, join
    from .study.results import Comparison

__all__ = ["Comparison", "Run", "Worker", "__version__", "compare", "join", "study", "train"]

# Imported when they are used, since the commands of catchment.study start without them.
_MODULES = {
    "Comparison": "study.results",
    "Run": "_run",
    "Worker": "_worker",
    "__version__": "_version",
    "compare": "_run",
    "join": "_worker",
    "study": "study",
    "train": "_run",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    module = importlib.import_module("." + _MODULES[name], __name__)
    value = globals()[name] = module if name == "study" else getattr(module, name)
    return value


def __dir__() -> List[str]:
    return sorted({*globals(), *__all__})
