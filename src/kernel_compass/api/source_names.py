"""What a Python file will define, as far as its source shows; nothing of it is run."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kernel_compass.codec.json_reading import file_bytes

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Scope = _Function | ast.ClassDef | ast.Lambda
_WRITES_NAMES = frozenset(("globals", "locals", "vars", "exec", "eval", "setattr", "__getattr__"))
"""Who uses one of them may define what its source does not show."""
_NEVER_CALLED = (ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.JoinedStr)


@dataclass(frozen=True)
class SourceNames:
    """The names at the top of a file."""

    bound: dict[str, list[ast.AST]] = field(default_factory=dict)
    """By name, what binds it: definitions, or the values that are assigned."""
    is_open: bool = False
    """Whether there may be others."""

    @property
    def functions(self) -> tuple[str, ...]:
        """What is defined as one."""
        return tuple(n for n, by in self.bound.items() if isinstance(by[-1], _Function))

    @property
    def classes(self) -> tuple[str, ...]:
        """What is defined as one."""
        return tuple(n for n, by in self.bound.items() if isinstance(by[-1], ast.ClassDef))

    def may_be_called(self, name: str) -> bool:
        """Whether it may be there, and be something that can be called."""
        by = self.bound.get(name)
        if by is None:
            return self.is_open
        return not all(isinstance(one, _NEVER_CALLED) for one in by)

    def signature(self, name: str) -> inspect.Signature | None:
        """How a function is called; `None` = its source does not show it."""
        by = self.bound.get(name, [])
        if len(by) != 1 or not isinstance(by[0], _Function) or by[0].decorator_list:
            return None
        return _signature(by[0].args)


def names_of(path: Path) -> SourceNames:
    """What a file defines; of one that is no Python nothing is known."""
    try:
        tree = ast.parse(file_bytes(path))
    except (OSError, ValueError, SyntaxError, RecursionError):
        return SourceNames(is_open=True)
    bound: dict[str, list[ast.AST]] = {}
    is_open = False
    for one in _at_the_top(tree):
        for name, by in _bindings(one):
            bound.setdefault(name, []).append(by)
            is_open |= name == "*"
    used = {one.id for one in ast.walk(tree) if isinstance(one, ast.Name)} | set(bound)
    is_open |= bool(_WRITES_NAMES & used)
    is_open |= any(isinstance(one, ast.Global) for one in ast.walk(tree))
    return SourceNames(bound, is_open)


def _at_the_top(node: ast.AST) -> Iterator[ast.AST]:
    """All that is in no function or class, however deep in blocks."""
    for one in ast.iter_child_nodes(node):
        yield one
        if not isinstance(one, _Scope):
            yield from _at_the_top(one)


def _bindings(one: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(one, _Function | ast.ClassDef):
        yield one.name, one
    elif isinstance(one, ast.Import | ast.ImportFrom):
        for alias in one.names:
            yield (alias.asname or alias.name.partition(".")[0]), one
    elif isinstance(one, ast.Assign | ast.AnnAssign):
        targets = one.targets if isinstance(one, ast.Assign) else [one.target]
        if one.value is not None:
            names = [target for target in targets if isinstance(target, ast.Name)]
            yield from ((name.id, one.value) for name in names)
            rest = [target for target in targets if not isinstance(target, ast.Name)]
            yield from ((name, one) for target in rest for name in _stored(target))
    elif isinstance(one, ast.For | ast.AsyncFor | ast.NamedExpr | ast.comprehension):
        yield from ((name, one) for name in _stored(one.target))
    elif isinstance(one, ast.withitem) and one.optional_vars is not None:
        yield from ((name, one) for name in _stored(one.optional_vars))


def _stored(target: ast.AST) -> Iterator[str]:
    return (one.id for one in ast.walk(target) if isinstance(one, ast.Name))


def _signature(a: ast.arguments) -> inspect.Signature:
    kinds = inspect.Parameter
    placed = [*a.posonlyargs, *a.args]
    least = len(placed) - len(a.defaults)
    found = []
    for index, one in enumerate(placed):
        by_place = index < len(a.posonlyargs)
        kind = kinds.POSITIONAL_ONLY if by_place else kinds.POSITIONAL_OR_KEYWORD
        found.append(kinds(one.arg, kind, default=None if index >= least else kinds.empty))
    if a.vararg:
        found.append(kinds(a.vararg.arg, kinds.VAR_POSITIONAL))
    for one, default in zip(a.kwonlyargs, a.kw_defaults, strict=True):
        empty = None if default is not None else kinds.empty
        found.append(kinds(one.arg, kinds.KEYWORD_ONLY, default=empty))
    if a.kwarg:
        found.append(kinds(a.kwarg.arg, kinds.VAR_KEYWORD))
    return inspect.Signature(found)
