"""Which of torch's attention backends computes `scaled_dot_product_attention`.

The backend is asked for around each call, in the thread that the actions hold for; where it cannot
compute a call, torch chooses as it did.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from kernel_compass.api.actions.context import Context, Undo
from kernel_compass.api.actions.mode import state_of
from kernel_compass.kernels.library import torch_library
from kernel_compass.records.step_action import StepAction

BACKENDS = {
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
    "math": "MATH",
}
"""As settings name them -> as torch does."""


def objection(action: StepAction, _: Context) -> str | None:
    """Why it cannot be put on; `None` = it can."""
    name = str(action.settings.get("backend", "")).lower()
    if backend_named(name) is None:
        return f"{name!r} is no attention backend: {', '.join(BACKENDS)}"
    return None


def put_on(action: StepAction, context: Context) -> Undo:
    """Ask for the backend, for the shapes of query, key and value that the target names."""
    backend = backend_named(str(action.settings["backend"]).lower())
    assert backend is not None
    context.sdpa[action.target.shapes] = backend
    context.of(action).on = True

    def undo() -> None:
        context.sdpa.pop(action.target.shapes, None)

    return undo


def backend_named(name: str) -> str | None:
    """torch's name of a backend; `flash`, `FLASH_ATTENTION` and `flash_attention` are one."""
    return BACKENDS.get(name.lower().removesuffix("_attention"))


@cache
def handlers() -> dict[Any, Any]:
    """torch function -> what stands in for it."""
    torch_library().compiler.assume_constant_result(_fits)  # asked once, when code is traced
    return {torch_library().nn.functional.scaled_dot_product_attention: _attention}


def _attention(mode: Any, function: Any, args: Any, kwargs: Any) -> Any:
    chosen = _chosen(mode, args, kwargs)
    if chosen is None:
        return None
    if mode.torch.compiler.is_compiling():
        if not _fits(mode.number):
            return None
        with mode.torch.nn.attention.sdpa_kernel(mode.backends[chosen], set_priority=True):
            return function(*args, **kwargs)
    return _eager(mode, chosen, function, args, kwargs) if _fits(mode.number) else None


def _eager(mode: Any, chosen: str, function: Any, args: Any, kwargs: Any) -> Any:
    kernel = import_module("torch.nn.attention").sdpa_kernel
    try:
        with kernel(mode.backends[chosen][:1]):
            return function(*args, **kwargs)
    except RuntimeError as error:
        if "No available kernel" not in str(error) and "No viable backend" not in str(error):
            raise
    return None


def _chosen(mode: Any, args: Any, kwargs: Any) -> str | None:
    """The backend for these arguments."""
    everywhere: str | None = mode.sdpa.get(())
    if len(mode.sdpa) == (everywhere is not None):
        return everywhere
    found = [*args[:3], *(kwargs[n] for n in ("query", "key", "value")[len(args) :] if n in kwargs)]
    shapes = tuple(tuple(one.shape) for one in found)
    found_for: str | None = mode.sdpa.get(shapes, everywhere)
    return found_for


def backends_of(names: set[str]) -> dict[str, list[Any]]:
    """torch's backends in the order in which they are tried: the chosen one, those that are on."""
    kind = import_module("torch.nn.attention").SDPBackend
    cuda = torch_library().backends.cuda
    on = {
        "FLASH_ATTENTION": cuda.flash_sdp_enabled(),
        "EFFICIENT_ATTENTION": cuda.mem_efficient_sdp_enabled(),
        "CUDNN_ATTENTION": cuda.cudnn_sdp_enabled(),
        "MATH": cuda.math_sdp_enabled(),
    }
    others = [name for name, enabled in on.items() if enabled]
    order = {name: [name, *(one for one in others if one != name)] for name in names}
    order |= {"MATH": ["MATH"]}
    return {name: [getattr(kind, one) for one in order[name]] for name in names}


def _fits(number: int) -> bool:
    state = state_of(number)
    return state is not None and bool(state[0].fits_sdpa())
