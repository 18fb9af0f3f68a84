"""Hooks of a model, and what each of its modules waits for with join(overlap=True)."""

import collections
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Tuple

if TYPE_CHECKING:
    from ._weights import Weights


class Hook:
    """A method, as a hook of a model; that of a copy of the model, or of a file of it, does nothing."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)

    def __reduce__(self) -> Tuple[Any, ...]:
        return Hook, (_nothing,)


def _nothing(*arguments: Any) -> None:
    pass


class Modules:
    """Makes each module wait, before its forward pass, for the weights that it needs.

    A module may use the parameters of another one without calling it. So a module that was called in the
    first step, which waits for all weights, also waits for the parameters of its submodules that were not,
    and the first module in a step waits for all others.
    """

    def __init__(self, model: Any, weights: "Weights") -> None:
        self._weights = weights
        # Modules that have had a forward pass, in their order; None: they are known.
        self._called: Optional[Dict[Any, bool]] = {}
        self._always = 0  # weights that every forward pass waits for
        # Module -> weights from the first on that its forward pass waits for.
        self._needs: Dict[Any, int] = {}
        places = {parameter.tensor: parameter for parameter in weights.parameters}
        for module in model.modules():
            own = [places[p] for p in module._parameters.values() if p in places]
            self._needs[module] = max((parameter.end for parameter in own), default=0)
            # First, because hooks such as those of spectral_norm and pruning read the weights.
            module.register_forward_pre_hook(Hook(self._before_forward), prepend=True)
            module.register_state_dict_pre_hook(Hook(weights.take_all))

    def _before_forward(self, module: Any, _: Any) -> None:
        if module not in self._needs:
            return  # a copy's, which has weights of its own
        if self._called is not None:
            self._called[module] = True
        self._weights.take(max(self._needs[module], self._always))

    def learn(self) -> None:
        """Finds out which weights each module waits for, after the first step."""
        if self._called is None:
            return
        called, self._called = self._called, None
        own, covered = collections.defaultdict(int, self._needs), set()  # 0: of modules that are new

        def need(module: Any) -> int:
            covered.add(module)
            inner = [child for child in module.children() if child not in called]
            return max([own[module]] + [need(child) for child in inner])

        for module in called:
            self._needs[module] = need(module)
        self._always = max((own[module] for module in own if module not in covered), default=0)
