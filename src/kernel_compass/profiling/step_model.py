"""A file with `Model`, `get_inputs` and `get_init_inputs`, as KernelBench has them, as a step.

The step is one forward pass: the model built once, on the GPU where there is one, called without
gradients with one draw of inputs. Both come from the seed that such files are drawn with; more
draws, where outputs are compared on more, from the seeds that follow it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import count
from typing import Any

SEED = 42
"""KernelBench's own."""
PARTS = ("get_inputs", "get_init_inputs")


def is_model(torch: Any, function: Any) -> bool:
    """Whether an entry is the model of such a file."""
    if not (inspect.isclass(function) and issubclass(function, torch.nn.Module)):
        return False
    return all(callable(_scope(function).get(part)) for part in PARTS)


def model_and_draw(torch: Any, kind: Any) -> tuple[Any, Callable[[], tuple[Any, ...]]]:
    """The model, and what draws what it is called with; the first draw is of the seed."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    scope = _scope(kind)
    torch.manual_seed(SEED)
    given = scope["get_init_inputs"]()
    torch.manual_seed(SEED)
    model = kind(**given) if isinstance(given, dict) else kind(*given)
    seeds = count(SEED)

    def draw() -> tuple[Any, ...]:
        torch.manual_seed(next(seeds))
        inputs = scope["get_inputs"]()
        return tuple(one.to(device) if isinstance(one, torch.Tensor) else one for one in inputs)

    return model.to(device).eval(), draw


def _scope(kind: Any) -> dict[str, Any]:
    """What stands beside it in its file."""
    found: dict[str, Any] = getattr(kind.forward, "__globals__", {})
    return found
