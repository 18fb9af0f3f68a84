"""Compares, simulates, tunes and reports: the commands of `catchment` that look at many runs; and load(),
which returns the results in a directory to scripts and notebooks."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .results import Study, load

__all__ = ["Study", "load"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    # Not before it is used, since the commands start without it.
    value = globals()[name] = getattr(importlib.import_module(".results", __name__), name)
    return value
