"""The step in a CUDA graph: captured at its second call, replayed from then on.

Random numbers come from torch's generator, which counts on in replays: they are as random as
before, and not the same ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernel_compass.api.actions import standing_in
from kernel_compass.api.actions.context import Context, Undo
from kernel_compass.api.actions.graphed import CudaGraphs, Graphed, Graphs
from kernel_compass.kernels.library import torch_library
from kernel_compass.records.step_action import StepAction

OUTPUTS = ("copied", "static")


def objection(action: StepAction, context: Context) -> str | None:
    """Why it cannot be put on; `None` = it can."""
    if context.graphs is None and not torch_library().cuda.is_available():
        return "CUDA graphs need a GPU, and there is none"
    outputs = action.settings.get("outputs", "copied")
    if outputs not in OUTPUTS:
        return f"{outputs!r} says nothing about outputs: {', '.join(OUTPUTS)}"
    return standing_in.objection(action, context)


def put_on(action: StepAction, context: Context) -> Undo:
    """Capture at the second call of each sort of arguments."""
    application = context.of(action)
    made: list[Graphed] = []
    graphs: Graphs = context.graphs if context.graphs is not None else CudaGraphs()
    tops = _tops(list((context.roots or {}).values()))
    copies = action.settings.get("outputs", "copied") == "copied"

    def make(below: Callable[..., Any]) -> Callable[..., Any]:
        if not application.fits(context.here):
            return below
        by_module: dict[int, Graphed] = {}
        owner = getattr(below, "__self__", None)

        def graphed(*args: Any, **kwargs: Any) -> Any:
            module = owner
            bound, rest = below, args
            if module is None and args and isinstance(args[0], torch_library().nn.Module):
                module, rest = args[0], args[1:]
                bound = below.__get__(module)
            one = by_module.get(id(module))
            if one is None:
                own = [module] if isinstance(module, torch_library().nn.Module) else tops
                one = Graphed(bound, graphs, own, copies, application.note)
                by_module[id(module)] = one
                made.append(one)
            before = one.replays
            result = one(*rest, **kwargs)
            application.uses += one.replays - before
            return result

        return graphed

    undo = standing_in.stand_in(action, context, make)

    def taken_off() -> None:
        undo()
        for one in made:
            one.forget()

    return taken_off


def _tops(modules: list[Any]) -> list[Any]:
    """Those that are in no other."""
    known = [one for one in modules if hasattr(one, "modules")]
    inner = {id(part) for one in known for part in one.modules() if part is not one}
    return [one for one in known if id(one) not in inner]
