"""Which meta-parameters of a Triton kernel its grid has to follow, by its source."""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import cache
from typing import Any

_TIED = (ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.LShift, ast.RShift)
_GRID = ("program_id", "num_programs")
_NUMBER = frozenset([""])
"""The taint of a program's number."""
_SHAPED = ("zeros", "full")
"""Their first argument is a shape: it says nothing of the values."""


@cache
def tied_to_grid(function: Any) -> frozenset[str] | None:
    """Parameters that stand with a program's number in one product, quotient or call.

    Those decide which part of the work a program does, so the grid has to follow them. `None` = the
    source cannot be read: any may be one.
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return None
    definition = next(one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef))
    names = [one.arg for one in definition.args.args]
    taints = _Taints(names)
    for _ in range(len(names) + 8):  # loops carry taints backwards; a few rounds settle it
        before = dict(taints.of)
        taints.visit(definition)
        if before == taints.of:
            break
    return frozenset(taints.tied)


class _Taints(ast.NodeVisitor):
    """Which parameters, and whether a program's number, went into each name."""

    def __init__(self, parameters: list[str]) -> None:
        self.of: dict[str, frozenset[str]] = {name: frozenset([name]) for name in parameters}
        self.tied: set[str] = set()

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            self._bind(target, node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.generic_visit(node)
        self._bind(node.target, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.generic_visit(node)
        if node.value is not None:
            self._bind(node.target, node.value)

    def visit_For(self, node: ast.For) -> None:
        self._bind(node.target, node.iter)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self.generic_visit(node)
        if isinstance(node.op, _TIED):
            self._meet([node.left, node.right])

    def visit_Compare(self, node: ast.Compare) -> None:
        self.generic_visit(node)
        self._meet_whole(node)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        name = _called(node)
        if name not in ("load", "store", "arange", "where", "range", *_GRID):
            self._meet([*node.args, *(one.value for one in node.keywords)])

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        found = self._taint(value)
        for one in ast.walk(target):
            if isinstance(one, ast.Name):
                self.of[one.id] = self.of.get(one.id, frozenset()) | found

    def _taint(self, node: ast.AST) -> frozenset[str]:
        if isinstance(node, ast.Name):
            return self.of.get(node.id, frozenset())
        name = _called(node)
        if name in _GRID or name.startswith("atomic_"):  # a program's number, or a ticket like one
            return _NUMBER
        found = frozenset[str]().union(*(self._taint(one) for one in _parts(node, name)))
        # What is read may be a program's number that a table holds; which parameters led to its
        # place says nothing of it.
        return found & _NUMBER if name == "load" else found

    def _meet(self, parts: list[ast.expr]) -> None:
        taints = [self._taint(one) for one in parts]
        for index, one in enumerate(taints):
            if "" in one:
                for other in (t for n, t in enumerate(taints) if n != index):
                    self.tied |= other - {""}

    def _meet_whole(self, node: ast.Compare) -> None:
        sides = [self._taint(one) for one in (node.left, *node.comparators)]
        for side in sides:
            if "" in side:
                self.tied |= {name for other in sides if other is not side for name in other} - {""}


def _called(node: ast.AST) -> str:
    """The name that is called as an attribute, `tl.load`; of all else none."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr
    return ""


def _parts(node: ast.AST, called: str) -> list[ast.AST]:
    """What an expression's value is made of."""
    if isinstance(node, ast.Call) and called in _SHAPED:
        return [*node.args[1:], *(one.value for one in node.keywords if one.arg != "shape")]
    return list(ast.iter_child_nodes(node))
