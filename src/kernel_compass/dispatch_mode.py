"""A dispatch mode of torch's that costs no import of its compiler."""

from __future__ import annotations

import sys
from typing import Any, TypeVar

_Mode = TypeVar("_Mode", bound=type[Any])


def operator_name(function: Any) -> str:
    """`add` of the `aten.add.Tensor` that a dispatch mode is given."""
    parts = str(function).split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def without_compiler(mode: _Mode) -> _Mode:
    """A class of dispatch modes (`TorchDispatchMode`) whose first operator does not import
    `torch._dynamo`: seconds in each process.

    torch keeps its compiler out of `__torch_dispatch__`, and imports it for that. Where it is not
    loaded when the mode is entered, there is nothing to keep out. Where torch does it another way,
    nothing is changed.
    """
    raw: Any = getattr(vars(mode).get("__torch_dispatch__"), "__wrapped__", None)
    if raw is None:
        return mode
    enter = mode.__enter__

    def entered(self: Any) -> Any:
        raw.__dict__.pop("__dynamo_disable", None)  # torch keeps here what it calls
        if "torch._dynamo" not in sys.modules:
            raw.__dynamo_disable = raw
        return enter(self)

    mode.__enter__ = entered
    return mode


def beside_compiled(mode: _Mode) -> _Mode:
    """A class of dispatch modes under which compiled functions run as they were compiled.

    Under any other, torch runs the code that they came from, and goes on doing so when the mode is
    left: what looks at a function would change it. Before torch 2.9 it cannot be asked for.
    """
    ignores: Any = classmethod(lambda _: True)
    mode.ignore_compile_internals = ignores
    return mode
