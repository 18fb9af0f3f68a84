"""Checks the numbers of samples that a program states, and the shares from which frameworks compute them."""

import math
import numbers
from typing import Any

_COUNT = "%s is a number of samples, from 0 to %d, got %s: %s"
_SHARE = "the metric %s is the test accuracy, a share from 0 to 1, got %s: %s"
_SIZE = "%s is the number of samples of a data set, a whole number from %d, got %s"
_ROUNDING = 1e-5  # of a mean in single precision


def right(value: Any, most: int, what: str, line: str) -> int:
    """Returns a number of samples classified correctly as an int: a number,
    or an array or tensor with one value.

    most: the number of samples that were classified. what, line: name the value in an error, and the line
    that computes it. Raises ValueError.
    """
    count = _float(value)
    if not (count.is_integer() and 0 <= count <= most):
        raise ValueError(_COUNT % (what, most, _shown(value), line))
    return int(count)


def right_of_share(share: Any, samples: int, name: str, line: str) -> int:
    """Returns the number of samples classified correctly of a framework's metric `name`, the share of
    `samples`.
    Raises ValueError."""
    accuracy = _float(share)
    if not 0 <= accuracy <= 1 + _ROUNDING:
        raise ValueError(_SHARE % (name, _shown(share), line))
    return round(min(accuracy, 1.0) * samples)


def size(value: Any, what: str, least: int) -> int:
    """Returns the stated size of a data set as an int. Raises ValueError."""
    count = _float(value)
    if not (count.is_integer() and count >= least) or isinstance(value, bool):
        raise ValueError(_SIZE % (what, least, _shown(value)))
    return int(value)


def is_number(data: Any) -> bool:
    """Returns whether a data set is given as its size."""
    return isinstance(data, numbers.Number) or (hasattr(data, "item") and getattr(data, "shape", None) == ())


def number(value: Any) -> Any:
    """Returns the number in an array or tensor of one value, and anything else as it is."""
    return value.item() if hasattr(value, "item") else value


def _shown(value: Any) -> str:
    """Returns a number as text, whichever array or tensor has it; of anything else, what Python shows."""
    count = _float(value)
    if isinstance(value, bool) or not math.isfinite(count):
        return "%.200r" % (value,)
    return "%d" % count if count.is_integer() else "%.6g" % count


def _float(value: Any) -> float:
    """Returns NaN for values that are not one number."""
    try:
        one = number(value)
        return float("nan") if isinstance(one, (str, bytes)) else float(one)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # of arrays and tensors with several values
        return float("nan")
