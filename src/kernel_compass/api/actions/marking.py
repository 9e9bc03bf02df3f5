"""Decorates functions that are waited for, while a program's files are compiled in memory."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

from kernel_compass.api.actions.finding import Named

_BOUND = frozenset(["staticmethod", "classmethod", "property", "cached_property"])
_MARK = "__import__('kernel_compass.api.actions.deferred', fromlist=['mark']).mark({!r})"
Function = ast.FunctionDef | ast.AsyncFunctionDef


def marked_code(source: bytes, path: str, named: Sequence[Named]) -> CodeType:
    """A file's code with the functions decorated that are its own; lines are as they are.

    Raises:
        SyntaxError: it is no Python.
    """
    tree = ast.parse(source, path)
    wanted = [one for one in named if one.is_file(path)]
    for one in wanted:
        for function in functions_named(tree, one.name):
            _decorate(function, one)
    code: CodeType = compile(tree, path, "exec", dont_inherit=True)
    return code


def functions_named(tree: ast.Module, name: str) -> list[Function]:
    """The functions of a file with a dotted name; without dots also a method's, if of one alone."""
    known: list[tuple[str, Function]] = []
    _collect(tree, "", known)
    exact = [function for at, function in known if at == name]
    if exact or "." in name:
        return exact
    ending = [function for at, function in known if at.rpartition(".")[2] == name]
    return ending if len(ending) == 1 else []


def _collect(node: ast.AST, prefix: str, known: list[tuple[str, Function]]) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            known.append((f"{prefix}{child.name}", child))
            _collect(child, "", known)  # names of local functions stand alone
        elif isinstance(child, ast.ClassDef):
            _collect(child, f"{prefix}{child.name}.", known)
        else:
            _collect(child, prefix, known)


def _decorate(function: Function, named: Named) -> None:
    mark = ast.parse(_MARK.format(named.text), mode="eval").body
    first = function.decorator_list[0] if function.decorator_list else function
    for node in ast.walk(mark):
        ast.copy_location(node, first)
    names = {getattr(one, "id", getattr(one, "attr", "")) for one in function.decorator_list}
    bound = bool(names & _BOUND) or "setter" in names
    function.decorator_list.insert(len(function.decorator_list) if bound else 0, mark)


class MarkingFinder(MetaPathFinder):
    """Finds the program's modules with functions that are waited for.

    Args:
        named: the functions.
    """

    def __init__(self, named: Sequence[Named]) -> None:
        self._named = tuple(named)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where such a module lies; `None` = it is none of those."""
        if not self._named:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        loader = None if spec is None else spec.loader
        if spec is None or type(loader) is not SourceFileLoader or spec.origin is None:
            return None
        if not any(one.is_file(spec.origin) for one in self._named):
            return None
        spec.loader = _MarkingLoader(fullname, spec.origin, self._named)
        return spec


class _MarkingLoader(SourceFileLoader):
    """Compiles from the source, and leaves Python's cache of compiled files alone."""

    def __init__(self, fullname: str, path: str, named: Sequence[Named]) -> None:
        super().__init__(fullname, path)
        self._named = named

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return marked_code(self.get_data(path), path, self._named)


class AfterImport(MetaPathFinder):
    """Calls something once a module was imported for the first time.

    Args:
        name: of the module.
        call: is called in the thread that imported it.
    """

    def __init__(self, name: str, call: Callable[[], None]) -> None:
        self._name, self._call = name, call

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's own place."""
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Calling(spec.loader, self._call)  # type: ignore[assignment]
                return spec
        return None


class _Calling:
    """A loader that calls something after the module ran."""

    def __init__(self, loader: Loader, call: Callable[[], None]) -> None:
        self._loader, self._then = loader, call

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the module's own loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run it; its own loader is the one that it names afterwards."""
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._then()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
