"""A function or module under `torch.compile`: its run of small kernels is fused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

from kernel_compass.api.actions import standing_in
from kernel_compass.api.actions.context import Application, Context, Undo
from kernel_compass.api.actions.step_watch import modes_active
from kernel_compass.errors import shortened
from kernel_compass.kernels.library import torch_library
from kernel_compass.records.step_action import StepAction

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def objection(action: StepAction, context: Context) -> str | None:
    """Why it cannot be put on; `None` = it can."""
    mode = action.settings.get("mode", "default")
    if mode not in MODES:
        return f"{mode!r} is no mode of torch.compile: {', '.join(MODES)}"
    return standing_in.objection(action, context)


def put_on(action: StepAction, context: Context) -> Undo:
    """Compile at the first call; what cannot be compiled whole is left as it was."""
    application = context.of(action)

    def make(below: Callable[..., Any]) -> Callable[..., Any]:
        if not application.fits(context.here):
            return below
        return _Region(below, action, application)

    return standing_in.stand_in(action, context, make)


class _Region:
    """The compiled function, and the one below it where that cannot be.

    It is compiled as one graph or not at all: then nothing of it has run when an error is found,
    and the call is made again without it.
    """

    def __init__(
        self, below: Callable[..., Any], action: StepAction, application: Application
    ) -> None:
        settings = dict(action.settings)
        mode = settings.get("mode", "default")
        self._below = below
        self._application = application
        self._compiled = torch_library().compile(
            below,
            fullgraph=True,
            dynamic=settings.get("dynamic"),
            mode=None if mode == "default" else mode,
            backend=settings.get("backend", "inductor"),
        )
        # What CUDA graphs of inductor's return is overwritten by the next call.
        self._copies = mode in ("reduce-overhead", "max-autotune")
        self._within = threading.local()
        self._expected = _failures()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # Recursion is the program's own; under a dispatch mode torch does not compile, and says so
        # after the call has run.
        if getattr(self._within, "it", False) or modes_active()():
            return self._below(*args, **kwargs)
        self._within.it = True
        try:
            found = self._compiled(*args, **kwargs)
        except self._expected as error:
            self._application.refuse(_why(error))
        else:
            self._application.uses += 1
            return _copied(found) if self._copies else found
        finally:
            self._within.it = False
        return self._below(*args, **kwargs)


def _copied(found: Any) -> Any:
    torch = torch_library()
    tree = import_module("torch.utils._pytree")
    return tree.tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, found)


def _failures() -> tuple[type[BaseException], ...]:
    """What `torch.compile` raises of its own accord."""
    found = import_module("torch._dynamo.exc")
    names = ("TorchDynamoException", "FailOnRecompileLimitHit", "InternalTorchDynamoError")
    return tuple({getattr(found, name) for name in names if hasattr(found, name)})


def _why(error: BaseException) -> str:
    """In a sentence, with the line of the program where it is known."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    frames = list(getattr(error, "real_stack", None) or ())
    at = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    what = "graph break" if type(error).__name__ == "Unsupported" else type(error).__name__
    return f"{what}{at}: {shortened(lines[0] if lines else 'no reason given', 300)}"
