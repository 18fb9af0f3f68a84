"""Groups of parameters for a new job (optimizer.groups), from those of a program."""

import re
from typing import Any, Callable, Dict, Iterable, List

from ._warnings import warn

_NO_PARAMETERS = "group %d of join's groups has no %s: name its parameters"
_NOT_A_GROUP = "join's groups have a %s, not an optimizer or a list of groups such as %s"
_EXAMPLE = '{"params": ["*.bias"], "weight_decay": 0.0}'
_OTHER_OPTIMIZER = (
    "join() got an optimizer, which makes the steps of this program with its own groups: leave groups out"
)
_NO_RATE = (
    'join\'s groups have an "lr", but nothing to compare it with: the job sets the rate, so give each one, '
    'or a factor of the job\'s rate, "lr_scale"'
)
_NO_EFFECT = (
    "group %d of join's groups sets %s, which has no effect: a group of the job has a weight decay, a factor "
    "of the learning rate, or is frozen"
)
# Keys of groups that are not settings of a step.
_NOTES = {"params", "param_names", "name", "group_name", "param_group", "initial_lr"}
_READ = {"lr", "lr_scale", "weight_decay", "frozen"}

Group = Dict[str, Any]  # the fields of the job's ParameterGroup


def check_steps(groups: Any, optimizer: Any) -> None:
    if groups is not None and optimizer is not None:
        raise ValueError(_OTHER_OPTIMIZER)


def exactly(name: str) -> str:
    """Returns the pattern that matches this name alone."""
    return re.sub(r"([*?\[\\])", r"\\\1", name)


def of_optimizers(optimizers: List[Any], pattern_of: Callable[[Any], Any], own: Iterable[str]) -> List[Group]:
    """Returns in what the groups of torch's optimizers differ from the first one's settings, which the job
    replaces. What no optimizer has of `own`, the patterns of the model's parameters, is frozen."""
    found, defaults = [], dict(optimizers[0].defaults)
    left = dict.fromkeys(own)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            names = [name for name in map(pattern_of, group["params"]) if name is not None]
            for name in names:
                left.pop(name, None)
            changed = {
                key: value
                for key, value in dict(group, lr=group.get("initial_lr", group.get("lr"))).items()
                if key in _NOTES or key not in defaults or not _same(value, defaults[key])
            }
            found.append(dict(changed, params=names))
    return of_list(
        found + [{"params": list(left), "frozen": True}], lambda name: name, float(defaults.get("lr") or 0.0)
    )


def _same(a: Any, b: Any) -> bool:
    return bool(a is b or a == b)


def of_list(groups: Any, pattern_of: Callable[[Any], Any], rate: float = 0.0) -> List[Group]:
    """Returns the groups of a list of dicts. pattern_of(item): of an item of "params"; None for what the job
    does not train. rate: of the optimizer; 0: the largest of the groups."""
    if not isinstance(groups, (list, tuple)) or not all(isinstance(group, dict) for group in groups):
        raise TypeError(_NOT_A_GROUP % (type(groups).__name__, "[%s]" % _EXAMPLE))
    if not rate and any("lr" in group for group in groups):
        if len(groups) == 1 or not all("lr" in group for group in groups):
            raise ValueError(_NO_RATE)
        rate = max(float(group["lr"]) for group in groups)
    found = []
    for index, group in enumerate(groups):
        if "params" not in group:
            raise ValueError(_NO_PARAMETERS % (index, '"params"'))
        for name in sorted(set(group) - _NOTES - _READ):
            warn(_NO_EFFECT % (index, name))
        items = group["params"]
        items = [items] if isinstance(items, str) or hasattr(items, "shape") else list(items)
        names = [name for name in map(pattern_of, items) if name is not None]
        settings = _settings(group, rate)
        if names and settings:
            found.append(dict(settings, names=names))
    return found


def _settings(group: Dict[str, Any], rate: float) -> Group:
    factor = float(group.get("lr_scale", 1.0))
    if rate and group.get("lr") is not None:
        factor *= float(group["lr"]) / rate
    if group.get("frozen") or factor == 0.0:
        return {"frozen": True}
    settings: Group = {}
    if group.get("weight_decay") is not None:
        settings["weight_decay"] = float(group["weight_decay"])
    if factor != 1.0:
        settings["learning_rate_factor"] = factor
    return settings
