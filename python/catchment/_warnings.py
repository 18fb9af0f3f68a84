"""Warnings that point at the line of the user's program."""

import sys
import threading
import warnings
from typing import Any, Dict

# Top-level packages whose functions lie between the user's program and the line that detects something.
_BETWEEN = {
    "accelerate",
    "catchment",
    "contextlib",
    "jax",
    "keras",
    "lightning",
    "multiprocessing",
    "pytorch_lightning",
    "tensorflow",
    "threading",
    "torch",
    "transformers",
}


def warn(text: str) -> None:
    """Warns, at the innermost line of the stack that belongs neither to this package nor to a framework.

    A framework's own thread has no such line; the one that the main thread executes has then caused the call.
    """
    for frame in (sys._getframe(1), sys._current_frames().get(threading.main_thread().ident or 0)):
        while frame is not None and _package(frame.f_globals) in _BETWEEN:
            frame = frame.f_back
        if frame is not None:
            break
    else:
        warnings.warn(text, stacklevel=2)
        return
    names = frame.f_globals
    registry = names.setdefault("__warningregistry__", {})
    warnings.warn_explicit(
        text, UserWarning, frame.f_code.co_filename, frame.f_lineno, names.get("__name__"), registry
    )


def _package(names: Dict[str, Any]) -> str:
    return str(names.get("__name__")).partition(".")[0]
