"""Whole namespaces as they were: functions, methods and constants that have to stay the same."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

_MODULES = ("builtins", "math", "random", "secrets", "copy", "time", "gc", "operator", "functools")
_TORCH = ("", "linalg", "nn.functional", "testing", "random")
_FOLLOW_A_STATE = ("Storage",)
"""torch sets it with the default dtype, which is looked at by its own name."""
_DESCRIPTORS = (property, staticmethod, classmethod)
_OWN = "kernel_compass.validation"


class Namespace:
    """The contents of a module, a class or an object.

    Args:
        name: what reports call it.
        holder: what is looked at.
        constants: plain values have to stay, too.
    """

    def __init__(self, name: str, holder: Any, constants: bool = False) -> None:
        self._name = name
        self._holder = holder
        self._kept: dict[str, Any] = {}
        self._codes: list[tuple[str, Any, Any]] = []
        self._tables: list[tuple[str, Any, Any]] = []
        self._names = frozenset(vars(holder))
        self._beneath = _beneath(holder)
        for key, value in list(vars(holder).items()):
            if key in _FOLLOW_A_STATE:
                continue
            if key.startswith("__") and isinstance(value, dict | list | type(None) | str):
                continue
            plain = constants and isinstance(value, float | str | tuple | frozenset)
            if plain or callable(value) or isinstance(value, _DESCRIPTORS):
                self._kept[key] = value
            elif constants and key.isupper() and isinstance(value, dict | list):
                self._tables.append((key, value, value.copy()))
            if isinstance(value, FunctionType):
                self._codes.append((key, value, (value.__code__, value.__defaults__)))

    def changed(self) -> str | None:
        """The name of what is another one now."""
        now = vars(self._holder)
        for key, then in self._kept.items():
            if now.get(key) is not then:
                return f"{self._name}.{key}"
        for key, function, then in self._codes:
            if function.__code__ is not then[0] or function.__defaults__ != then[1]:
                return f"{self._name}.{key}"
        for key, table, then in self._tables:
            if now.get(key) is not table or table != then:
                return f"{self._name}.{key}"
        if len(now) > len(self._names):
            for key in now.keys() - self._names:
                if key in self._beneath:
                    return f"{self._name}.{key}"
        return None


def _beneath(holder: Any) -> frozenset[str]:
    """Names that a new attribute would hide: a class's, its bases', Python's own."""
    if isinstance(holder, ModuleType):
        return frozenset(n for n in vars(builtins) if not n.startswith("_"))
    bases = holder.__mro__[1:] if isinstance(holder, type) else type(holder).__mro__
    return frozenset(name for base in bases for name in vars(base) if base is not object)


def namespaces(torch: Any) -> Iterator[Namespace]:
    """Those that a comparison goes through: Python's, torch's, the judge's."""
    for name in _MODULES:
        if name in sys.modules:
            yield Namespace(name, sys.modules[name])
    for path in _TORCH:
        holder = torch
        for part in filter(None, path.split(".")):
            holder = getattr(holder, part, None)
        if holder is not None:
            yield Namespace("torch" + (path and f".{path}"), holder)
    yield Namespace("torch.Tensor", torch.Tensor)
    yield Namespace("torch.Tensor", torch._C.TensorBase)
    own = [m for n, m in list(sys.modules.items()) if n.startswith(_OWN) and m is not None]
    for module in own:
        yield Namespace(module.__name__, module, constants=True)
        for key, value in list(vars(module).items()):
            if isinstance(value, type) and value.__module__ == module.__name__:
                yield Namespace(f"{module.__name__}.{key}", value)


def of_object(name: str, one: Any) -> Iterator[Namespace]:
    """An object's own attributes, and those of its classes."""
    if hasattr(one, "__dict__"):
        yield Namespace(name, one, constants=True)
    for kind in type(one).__mro__[:-1]:
        yield Namespace(kind.__name__, kind)


def replaced_modules(then: dict[str, Any]) -> str | None:
    """A module that is another one under the same name."""
    for name, module in then.items():
        if sys.modules.get(name) is not module:
            return f"sys.modules[{name!r}]"
    return None


def module_table() -> dict[str, Any]:
    """The modules that must stay, by name."""
    names = [*_MODULES, "torch", "sys", "threading", "torch.nn.functional", "torch.linalg"]
    names += [n for n in sys.modules if n.startswith(_OWN)]
    return {name: sys.modules[name] for name in names if name in sys.modules}
