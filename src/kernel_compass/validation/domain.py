"""Whether inputs that a problem does not draw are ones that its computation is defined for.

A logarithm of what is below 0, a root of it: from there on each result is what the order of
comparisons makes of NaN, which whole numbers do not show. And a softmax that comes to 0 for all but
one choice ranks the others by their place: who ranks what goes into it is as right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from kernel_compass.dispatch_mode import operator_name, without_compiler
from kernel_compass.validation.allocations import UNWRITTEN

_SATURATING = (
    *("exp", "exp2", "expm1", "_softmax", "_log_softmax", "softmax", "log_softmax"),
    *("sigmoid", "log_sigmoid_forward", "tanh", "erf", "erfc", "special_ndtr", "gelu", "silu"),
)
"""Increasing functions that give one value for many where they run out of digits."""
INFINITE = "an infinite output"


@dataclass(frozen=True)
class Steps:
    """What a computation went through with some inputs."""

    broken: Counter[str]
    """Operations that gave NaN, and how often; and outputs that are infinite."""
    distinct: int
    """Different values that functions which run out of digits gave, over all of them."""

    def breaks_more(self, own: Steps) -> bool:
        """Whether a step is none with these inputs that is one with those."""
        return not self.broken <= own.broken

    def merges_more(self, own: Steps) -> bool:
        """Whether values became equal here that stay apart there."""
        return self.distinct < own.distinct


def steps(torch: Any, call: Callable[[], list[Any]]) -> Steps:
    """Watch a call.

    Args:
        torch: the module.
        call: gives a list of tensors.
    """
    mode: Any = import_module("torch.utils._python_dispatch").TorchDispatchMode
    broken: Counter[str] = Counter()
    distinct = 0

    @without_compiler
    class Look(mode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            nonlocal distinct
            made = function(*args, **(kwargs or {}))
            name = operator_name(function)
            for one in made if isinstance(made, tuple | list) else (made,):
                if name in UNWRITTEN or not _is_float(torch, one):
                    continue
                broken[name] += int(one.isnan().any())
                if name.rstrip("_") in _SATURATING:
                    distinct += int(one.unique().numel())
            return made

    with Look():
        outputs = call()
    broken[INFINITE] = sum(int(one.isinf().any()) for one in outputs if _is_float(torch, one))
    return Steps(broken, distinct)


def _is_float(torch: Any, one: Any) -> bool:
    is_dense = isinstance(one, torch.Tensor) and one.layout is torch.strided
    return is_dense and one.dtype.is_floating_point
