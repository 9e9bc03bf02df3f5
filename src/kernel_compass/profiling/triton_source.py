"""Which meta-parameters of a Triton kernel its grid has to follow, by its source."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from kernel_compass.profiling.triton_parts import Part, Parts

_TIED = (ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.LShift, ast.RShift)
_GRID = ("program_id", "num_programs")
_NUMBER = frozenset([""])
"""The taint of a program's number."""
_SHAPED = ("zeros", "full")
"""Their first argument is a shape: it says nothing of the values."""


@dataclass(frozen=True)
class Tied:
    """What a kernel's source says of its grid."""

    names: frozenset[str]
    """Parameters that the grid has to follow, whatever its size."""
    parts: frozenset[Part] = frozenset()
    """What others only round: they are free where the grid has as many programs as parts."""

    def at(self, grid: tuple[int, ...], arguments: Mapping[str, Any]) -> frozenset[str]:
        """Parameters that a grid of this size has to follow.

        Args:
            grid: of the launch.
            arguments: of the launch, by name.
        """
        return self.names | {one.size for one in self.parts if not one.covered(grid, arguments)}


@cache
def tied_to_grid(function: Any) -> Tied | None:
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
    parts = Parts.of(definition, names)
    taints = _Taints(names, parts)
    for _ in range(len(names) + 8):  # loops carry taints backwards; a few rounds settle it
        before = dict(taints.of)
        taints.visit(definition)
        if before == taints.of:
            break
    return Tied(frozenset(taints.tied), parts.found)


class FollowedBy(dict[str, Any]):
    """Meta-parameters as a grid's function is given them: which of them does it read?"""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """As a dict's."""
        self.read.add(name)
        return super().get(name, default)


def stuck(
    function: Any,
    grid: Any,
    arguments: Mapping[str, Any],
    followed: dict[Any, frozenset[str]] | None = None,
) -> frozenset[str]:
    """Meta-parameters that cannot be changed at a launch, as its grid would not follow them.

    A grid that is a function of the meta-parameters follows those that it reads.

    Args:
        function: the kernel's Python function.
        grid: as the launch is given it.
        arguments: of the launch, meta-parameters included, by name.
        followed: what grids were found to read, by their code: a function is asked once.
    """
    tied = tied_to_grid(function)
    if tied is not None and not (tied.names or tied.parts):
        return frozenset()
    if not callable(grid):
        return _parameters(function) if tied is None else tied.at(_sizes(grid), arguments)
    code = getattr(grid, "__code__", None)
    read = None if followed is None or code is None else followed.get(code)
    try:
        if read is None:
            given = FollowedBy(arguments)
            grid(given)
            read = frozenset(given.read)
        if followed is not None and code is not None:
            followed[code] = read
        if tied is None:
            return _parameters(function) - read
        if all(one.size in read for one in tied.parts):
            return tied.names - read
        return tied.at(_sizes(grid(arguments)), arguments) - read
    except Exception:  # it needs what an autotuner chooses: that is its author's affair
        return frozenset()


def _sizes(grid: Any) -> tuple[int, ...]:
    return tuple(int(one) for one in (grid if isinstance(grid, tuple | list) else (grid,)))


@cache
def _parameters(function: Any) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


class _Taints(ast.NodeVisitor):
    """Which parameters, and whether a program's number, went into each name."""

    def __init__(self, parameters: list[str], parts: Parts) -> None:
        self.of: dict[str, frozenset[str]] = {name: frozenset([name]) for name in parameters}
        self.tied: set[str] = set()
        self._parts = parts

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
        if _is_range(node):
            self._meet(node.args[:2])
            self._strides(node)
        elif name not in ("load", "store", "arange", "where", *_GRID):
            self._meet([*node.args, *(one.value for one in node.keywords)])

    def _strides(self, node: ast.Call) -> None:
        """From a program's number to the end of all work: the step is how many programs there are.
        To the end of a part it is a size of the program's own."""
        if len(node.args) == 3:
            start, stop, step = map(self._taint, node.args)
            if "" in start and "" not in stop:
                self.tied |= step - {""}

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        found = self._taint(value)
        for one in ast.walk(target):
            if isinstance(one, ast.Name):
                # how long a part is does not depend on what it is rounded to: `Tied.at` sees to it
                rounded = self._parts.rounding.get(one.id, frozenset())
                self.of[one.id] = self.of.get(one.id, frozenset()) | (found - rounded)

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


def _is_range(node: ast.Call) -> bool:
    return _called(node) == "range" or (isinstance(node.func, ast.Name) and node.func.id == "range")


def _parts(node: ast.AST, called: str) -> list[ast.AST]:
    """What an expression's value is made of."""
    if isinstance(node, ast.Call):
        if called in _SHAPED:
            return [*node.args[1:], *(one.value for one in node.keywords if one.arg != "shape")]
        if called == "arange":  # how many there are says nothing of where they are
            return []
        if _is_range(node):
            return list(node.args[:2])
    return list(ast.iter_child_nodes(node))
