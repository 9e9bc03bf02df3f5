"""The torch function mode that products, attention and copies are changed through.

torch calls a mode in place of each of its functions, in the thread that entered it; `torch.compile`
traces through it and guards on its type. So the program's own compiled regions are compiled again
for as long as a mode is entered, and what they were before is in force again afterwards. There is
one type for each set of actions: what was compiled with one set is not used with another, and is
found again where a set is entered a second time.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from kernel_compass.kernels.library import torch_library

Watch = Callable[[Any, Any, Any], None]
_TYPES: dict[object, type] = {}
_RAISED: dict[str, int] = {}
"""By how much torch's limits are raised."""
_ACTIVE: dict[int, list[Any]] = {}
"""Number of a type -> the states of those that are entered, the last one on top."""


def state_of(number: int) -> Any | None:
    """What the innermost mode of a type that is entered works with; `None` = none is."""
    stack = _ACTIVE.get(number)
    return stack[-1] if stack else None


class Entered(AbstractContextManager[None]):
    """A mode, entered for a while.

    Args:
        signature: what decides how functions are replaced; equal ones share a type.
        handlers: torch function -> `handler(mode, function, args, kwargs)`; where that answers
            `None`, torch's own is called.
        facts: class attributes that handlers look at; constants when traced.
        state: what handlers find by `state_of(mode.number)` at run time.
        watch: sees the arguments of torch's own first; `None` = nobody needs to.
    """

    def __init__(
        self,
        signature: object,
        handlers: Mapping[Any, Any],
        facts: Mapping[str, Any],
        state: Any,
        watch: Watch | None = None,
    ) -> None:
        kind = _type_of(signature, handlers, facts, watch is not None)
        self._mode = kind()
        self._state = (state, watch)

    def __enter__(self) -> None:
        self._thread = threading.get_ident()
        _ACTIVE.setdefault(self._mode.number, []).append(self._state)
        _raise_limits()
        self._mode.__enter__()

    def __exit__(self, *_: object) -> None:
        stack = _ACTIVE[self._mode.number]
        stack.remove(self._state)
        if threading.get_ident() == self._thread:
            _take_off(self._mode)


def _raise_limits() -> None:
    """What is compiled for our types does not use up what the program may compile again.

    Each type has as many compilations of a function as the program has. The limits stay raised,
    as what was compiled stays in torch's cache, and counts there.
    """
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is None:
        return
    for name in ("recompile_limit", "accumulated_recompile_limit"):
        own = getattr(dynamo.config, name, None)
        if own is not None:
            own -= _RAISED.get(name, 0) if own > _RAISED.get(name, 0) else 0
            _RAISED[name] = own * len(_TYPES)
            setattr(dynamo.config, name, own + _RAISED[name])


def _take_off(mode: Any) -> None:
    """Take a mode from the stack of this thread, from under others if need be."""
    overrides = torch_library().overrides
    lifted = []
    while (top := overrides._pop_mode()) is not mode:
        lifted.append(top)
    for one in reversed(lifted):
        overrides._push_mode(one)


def _type_of(
    signature: object, handlers: Mapping[Any, Any], facts: Mapping[str, Any], watches: bool
) -> Any:
    known = (signature, watches)
    if known not in _TYPES:
        number = len(_TYPES) + 1
        body = {"handlers": dict(handlers), "number": number, "watches": watches, **facts}
        _TYPES[known] = type(f"StepMode{number}", (_base(),), body)
    return _TYPES[known]


def _watched(number: int, function: Any, args: Any, kwargs: Any) -> None:
    found = state_of(number)
    if found is not None and found[1] is not None:
        found[1](function, args, kwargs)


@cache
def _base() -> Any:
    torch = torch_library()

    class StepMode(torch.overrides.TorchFunctionMode):  # type: ignore[name-defined, misc]
        """Replaces functions by what a type's handlers say."""

        handlers: Mapping[Any, Any]
        number: int
        watches: bool

        def __torch_function__(
            self,
            func: Any,
            types: Any,
            args: Any = (),
            kwargs: Any = None,
        ) -> Any:
            kwargs = kwargs or {}
            handler = self.handlers.get(func)
            if handler is not None:
                found = handler(self, func, args, kwargs)
                if found is not None:
                    return found
            if self.watches and not torch.compiler.is_compiling():
                _watched(self.number, func, args, kwargs)
            return func(*args, **kwargs)

    return StepMode
