"""Warnings that point at the line of the user's program."""

import sys
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
    """Warns, at the innermost line of the stack that belongs neither to this package nor to a framework."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and _package(frame.f_globals) in _BETWEEN:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)


def _package(names: Dict[str, Any]) -> str:
    return str(names.get("__name__")).partition(".")[0]
