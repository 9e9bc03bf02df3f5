"""Work that a Triton kernel cuts into as many parts as its grid has programs.

    each = tl.cdiv(tl.cdiv(context, SPLITS), BLOCK) * BLOCK
    begin = tl.program_id(2) * each

A part is the N-th of the work, rounded up to whole blocks. SPLITS programs hold all of it whatever
BLOCK is, since the rounded part is never less than the N-th: BLOCK is free under a grid that has
SPLITS programs on that axis, though it stands in a product with the program's number.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PROGRAM = "program_id"


@dataclass(frozen=True)
class Part:
    """A size to which parts are rounded, and what there have to be programs for."""

    size: str
    """`BLOCK`."""
    count: str | int
    """`SPLITS`: a parameter, or a number."""
    axis: int
    """Of the grid."""

    def covered(self, grid: tuple[int, ...], arguments: Mapping[str, Any]) -> bool:
        """Whether the grid has a program for each part."""
        programs = grid[self.axis] if self.axis < len(grid) else 1
        found = self.count if isinstance(self.count, int) else arguments.get(self.count)
        found = getattr(found, "value", found)
        return isinstance(found, int) and programs >= found


@dataclass(frozen=True)
class Parts:
    """What a kernel's source says of such parts."""

    found: frozenset[Part] = frozenset()
    rounding: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Variables that hold a part's length, with what it is rounded to."""

    @classmethod
    def of(cls, definition: ast.FunctionDef, parameters: list[str]) -> Parts:
        """Lengths that stand with one program's number in a product, and nowhere with another."""
        names = _Names(definition, parameters)
        found: set[Part] = set()
        rounding: dict[str, frozenset[str]] = {}
        for name, value in names.values.items():
            rounded = _rounded(value, names)
            axes = names.axes_with(name)
            if rounded is None or not axes:
                continue
            size, count = rounded
            found |= {Part(size, count, axis) for axis in axes}
            rounding[name] = frozenset([size])
        return cls(frozenset(found), rounding)


class _Names:
    """Variables that are bound once, and parameters."""

    def __init__(self, definition: ast.FunctionDef, parameters: list[str]) -> None:
        self.parameters = frozenset(parameters)
        self._definition = definition
        bound: dict[str, list[ast.expr | None]] = {}
        for node in ast.walk(definition):
            for target, value in _bindings(node):
                bound.setdefault(target, []).append(value)
        self.values = {
            name: values[0]
            for name, values in bound.items()
            if len(values) == 1 and values[0] is not None and name not in self.parameters
        }

    def resolved(self, node: ast.expr) -> ast.expr:
        """What a variable stands for."""
        seen: set[str] = set()
        while isinstance(node, ast.Name) and node.id in self.values and node.id not in seen:
            seen.add(node.id)
            node = self.values[node.id]
        return node

    def parameters_in(self, node: ast.expr) -> frozenset[str]:
        """Parameters that go into a value, through variables."""
        found: set[str] = set()
        waiting, seen = [node], set[str]()
        while waiting:
            for one in ast.walk(waiting.pop()):
                if not isinstance(one, ast.Name) or one.id in seen:
                    continue
                seen.add(one.id)
                if one.id in self.values:
                    waiting.append(self.values[one.id])
                else:
                    found.add(one.id)
        return frozenset(found)

    def axes_with(self, name: str) -> frozenset[int]:
        """Axes of the program's numbers that a variable is multiplied with; none, where it is
        also multiplied or divided with what holds a program's number and is none itself."""
        found: set[int] = set()
        for node in ast.walk(self._definition):
            if not isinstance(node, ast.BinOp) or isinstance(node.op, ast.Add | ast.Sub):
                continue
            sides = (node.left, node.right)
            for one, other in (sides, sides[::-1]):
                if not (isinstance(one, ast.Name) and one.id == name):
                    continue
                axis = self._number(other)
                if isinstance(node.op, ast.Mult) and axis is not None:
                    found.add(axis)
                elif self._holds_a_number(other):
                    return frozenset()
        return frozenset(found)

    def _number(self, node: ast.expr) -> int | None:
        """The axis of a program's number, or of the one that follows it: a part's end."""
        node = self.resolved(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            if isinstance(node.right, ast.Constant):
                return _axis(self.resolved(node.left))
            if isinstance(node.left, ast.Constant):
                return _axis(self.resolved(node.right))
        return _axis(node)

    def _holds_a_number(self, node: ast.expr) -> bool:
        waiting, seen = [node], set[str]()
        while waiting:
            for one in ast.walk(waiting.pop()):
                if isinstance(one, ast.Call) and _called(one) == PROGRAM:
                    return True
                if isinstance(one, ast.Name) and one.id in self.values and one.id not in seen:
                    seen.add(one.id)
                    waiting.append(self.values[one.id])
        return False


def _rounded(value: ast.expr, names: _Names) -> tuple[str, str | int] | None:
    """Of `cdiv(cdiv(N, S), B) * B` or `cdiv(N, S * B) * B`: B, and S."""
    if not (isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult)):
        return None
    for blocks, size in ((value.left, value.right), (value.right, value.left)):
        if not (isinstance(size, ast.Name) and size.id in names.parameters):
            continue
        divided = _ceiled(names.resolved(blocks))
        if divided is None:
            continue
        whole, by = divided
        if _is(by, size.id):
            divided = _ceiled(names.resolved(whole))
        else:
            factor = _other_factor(names.resolved(by), size.id)
            divided = None if factor is None else (whole, factor)
        if divided is None or size.id in names.parameters_in(divided[0]):
            continue
        count = _count(names.resolved(divided[1]), names)
        if count is not None:
            return size.id, count
    return None


def _ceiled(node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """Of `cdiv(a, b)` and of `(a + b - 1) // b`: a, and b."""
    if isinstance(node, ast.Call) and _called(node) == "cdiv" and len(node.args) == 2:
        return node.args[0], node.args[1]
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv)):
        return None
    above, by = node.left, node.right
    if not (isinstance(above, ast.BinOp) and isinstance(above.op, ast.Sub)):
        return None
    both, one = above.left, above.right
    if not (isinstance(one, ast.Constant) and one.value == 1 and isinstance(both, ast.BinOp)):
        return None
    if isinstance(both.op, ast.Add) and ast.dump(both.right) == ast.dump(by):
        return both.left, by
    return None


def _other_factor(node: ast.expr, size: str) -> ast.expr | None:
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)):
        return None
    if _is(node.left, size):
        return node.right
    return node.left if _is(node.right, size) else None


def _count(node: ast.expr, names: _Names) -> str | int | None:
    if isinstance(node, ast.Name) and node.id in names.parameters:
        return node.id
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    return None


def _bindings(node: ast.AST) -> list[tuple[str, ast.expr | None]]:
    """Names that a statement binds, each with its value; `None` = it is not known."""
    if isinstance(node, ast.Assign):
        return [one for target in node.targets for one in _bound(target, node.value)]
    if isinstance(node, ast.AnnAssign):
        return _bound(node.target, node.value)
    if isinstance(node, ast.AugAssign | ast.For):
        return _bound(node.target, None)
    return []


def _bound(target: ast.expr, value: ast.expr | None) -> list[tuple[str, ast.expr | None]]:
    if isinstance(target, ast.Name):
        return [(target.id, value)]
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = zip(target.elts, value.elts, strict=False)
        return [found for one, other in pairs for found in _bound(one, other)]
    return [(one.id, None) for one in ast.walk(target) if isinstance(one, ast.Name)]


def _axis(node: ast.expr) -> int | None:
    """Of `tl.program_id(2)`, `tl.program_id(axis=2)`."""
    if not (isinstance(node, ast.Call) and _called(node) == PROGRAM):
        return None
    given = [*node.args, *(one.value for one in node.keywords if one.arg == "axis")]
    axis = given[0] if given else None
    return axis.value if isinstance(axis, ast.Constant) and type(axis.value) is int else None


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else ""


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
