"""Functions that are not defined yet when actions are put on: a script's own, before it runs.

`kernel-compass run` decorates them while the script is compiled in memory; the decorator asks here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernel_compass.api.actions.context import Application, Undo
from kernel_compass.api.actions.finding import Named

_WAITING: list[tuple[Named, Application, Callable[[Any], Any]]] = []


def wait_for(named: Named, application: Application, wrapped: Callable[[Any], Any]) -> Undo:
    """Wrap a function as soon as it is defined."""
    one = (named, application, wrapped)
    _WAITING.append(one)

    def undo() -> None:
        _WAITING.remove(one)
        application.on = False

    return undo


def awaited() -> list[Named]:
    """What is waited for."""
    return [named for named, _, _ in _WAITING]


def mark(text: str) -> Callable[[Any], Any]:
    """The decorator of a function that is waited for.

    Args:
        text: `model.py:DecoderBlock.forward`, as it is waited for.
    """

    def decorated(function: Any) -> Any:
        for named, application, wrapped in _WAITING:
            if named.text == text:
                application.on = application.objection is None
                function = wrapped(function)
        return function

    return decorated
