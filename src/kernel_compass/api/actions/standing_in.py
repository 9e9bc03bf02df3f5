"""One callable that stands in for a function or a module's `forward`, wherever it is bound."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from kernel_compass.api.actions.context import Application, Context, Undo
from kernel_compass.api.actions.deferred import wait_for
from kernel_compass.api.actions.finding import Place, named_by, places_of
from kernel_compass.api.actions.patching import Layer
from kernel_compass.api.actions.root_waiting import RootWaiting
from kernel_compass.kernels.library import torch_library
from kernel_compass.records.step_action import StepAction, StepTarget

Make = Callable[[Callable[..., Any]], Callable[..., Any]]
"""From what was there to what stands in for it."""


def objection(action: StepAction, context: Context) -> str | None:
    """Why the target is not found; `None` = it is, or is waited for."""
    target = action.target
    known = target.module is not None and context.module(target.module) is not None
    if not known and (target.function is not None or target.module_class is not None):
        return _not_named(target, context)
    if target.module is None and _step_place(context) is not None:
        return None
    if context.defer and not context.roots:
        return None
    if not context.roots:
        return "the program's modules are not known here, and its target names no class or function"
    if target.module is None:
        return "it is not said which module the step is"
    return None if known else f"there is no module {target.module!r}"


def _not_named(target: StepTarget, context: Context) -> str | None:
    named = named_by(target)
    if named is None:
        return f"{target.function or target.module_class!r} names no function of a file"
    if context.defer or places_of(named):
        return None
    return f"there is no {named.text} in the program"


def stand_in(action: StepAction, context: Context, make: Make) -> Undo:
    """Put a stand-in where the target is bound, or as soon as it is defined."""
    application = context.of(action)
    target = action.target
    layers: list[Layer] = []
    nameless = target.function is None and target.module_class is None
    if context.defer and not context.roots and nameless:
        return _when_called(action, context, make)
    module = None if target.module is None else context.module(target.module)
    named = named_by(target) if module is None else None
    if named is not None:
        places = places_of(named)
        if not places:
            return wait_for(named, application, lambda found: _wrapped(found, make, application))
    else:
        place = _step_place(context) if module is None else Place(module, "forward")
        assert place is not None  # there was no objection
        places = [place]
    made: dict[int, Any] = {}

    def replaced(below: Any, layer: Layer) -> Any:
        if id(below) not in made:  # bound in several places: one stand-in
            made[id(below)] = (_wrapped(below, make, application, layer), below)
        return made[id(below)][0]

    def undo() -> None:
        for layer in reversed(layers):
            layer.remove()

    try:
        for place in places:
            layers.append(Layer(place.owner, place.name, replaced))
    except BaseException:
        undo()
        raise
    application.on = True
    return undo


def _when_called(action: StepAction, context: Context, make: Make) -> Undo:
    """Put it on when the program calls the module that has the target's name."""
    if context.waiting is None:
        context.waiting = RootWaiting(context)
    waiting = context.waiting
    name = action.target.module or ""
    waiting.add(context.of(action), name, lambda: stand_in(action, context, make))
    return waiting.close


def _step_place(context: Context) -> Place | None:
    """Where the step is called: the root module's `forward`, or a held step's function."""
    root = context.module("")
    roots = context.roots or {}
    if root is None and len(roots) == 1 and context.step is None:
        root = next(iter(roots.values()))
    if root is not None and hasattr(root, "forward"):
        return Place(root, "forward")
    if callable(getattr(context.step, "function", None)):
        return Place(context.step, "function")
    return None


def _wrapped(below: Any, make: Make, application: Application, layer: Layer | None = None) -> Any:
    """What stands in; lets calls through where it is off, or inside of what is compiled."""
    if isinstance(below, staticmethod | classmethod):
        return type(below)(_wrapped(below.__func__, make, application, layer))
    new: list[Callable[..., Any]] = []
    is_compiling = torch_library().compiler.is_compiling

    def standing_in(*args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not application.on or (layer is not None and not layer.alive):
            return below(*args, **kwargs)
        if not new:
            new.append(make(below))
        return new[0](*args, **kwargs)

    if inspect.isroutine(below) or hasattr(below, "__name__"):
        functools.update_wrapper(standing_in, below)
    return standing_in
