"""The functions and classes that targets name, found among what the program has loaded."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path, PurePath
from types import FunctionType
from typing import Any

from kernel_compass.records.step_action import StepTarget


@dataclass(frozen=True)
class Place:
    """An attribute that a function is called through."""

    owner: Any
    name: str


@dataclass(frozen=True)
class Named:
    """What a target names: a function of a file by its name, dotted where it is a method."""

    file: str
    """As the target writes it: `model.py`, `pkg/model.py`."""
    name: str

    @property
    def text(self) -> str:
        """`model.py:DecoderBlock.forward`."""
        return f"{self.file}:{self.name}"

    def is_file(self, path: str) -> bool:
        """Whether a path is this file's."""
        return same_file(path, self.file)


def named_by(target: StepTarget) -> Named | None:
    """The function that a target stands for; of a class of modules, its `forward`."""
    text = target.function
    if text is None and target.module_class is not None:
        text = f"{target.module_class}.forward"
    if text is None:
        return None
    file, colon, name = text.rpartition(":")
    return Named(file, name) if colon and file and name else None


def same_file(path: str, written: str) -> bool:
    """Whether a path ends in a file as targets write it."""
    wanted = PurePath(written).parts
    return PurePath(path).parts[-len(wanted) :] == wanted


def places_of(named: Named) -> list[Place]:
    """Every attribute that the function is bound to: of its module or class, and by import."""
    functions = list(_defined(named))
    if not functions:
        return []
    found = [place for place, _ in functions]
    own = {id(one) for _, one in functions}
    for module in _modules():
        for name, value in tuple(vars(module).items()):
            place = Place(module, name)
            if id(value) in own and place not in found:
                found.append(place)
    return found


def _defined(named: Named) -> Iterator[tuple[Place, Any]]:
    """Where it is defined; a name without dots is also that of a method, if of one alone."""
    seen = []
    for module in _modules():
        if not named.is_file(getattr(module, "__file__", None) or ""):
            continue
        exact = _attribute(module, named.name)
        if exact is not None:
            yield exact
            continue
        if "." not in named.name:
            seen += _methods(module, named.name)
    if len({id(one) for _, one in seen}) == 1:
        yield seen[0]


def _attribute(module: Any, dotted: str) -> tuple[Place, Any] | None:
    owner: Any = module
    *outer, name = dotted.split(".")
    for one in outer:
        owner = vars(owner).get(one) if hasattr(owner, "__dict__") else None
        if not isinstance(owner, type):
            return None
    value = vars(owner).get(name)
    return (Place(owner, name), value) if _is_callable(value) else None


def _methods(module: Any, name: str) -> list[tuple[Place, Any]]:
    classes = [one for one in vars(module).values() if isinstance(one, type)]
    return [
        (Place(one, name), vars(one)[name])
        for one in classes
        if one.__module__ == module.__name__ and _is_callable(vars(one).get(name))
    ]


def _is_callable(value: Any) -> bool:
    return isinstance(value, FunctionType | staticmethod | classmethod) or (
        callable(value) and not isinstance(value, type) and hasattr(value, "__wrapped__")
    )


def _modules() -> list[Any]:
    """The program's modules: not torch's, nor this package's, nor those of the standard library."""
    found = []
    for module in tuple(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and inspect.ismodule(module) and not _foreign(path):
            found.append(module)
    return found


@cache
def _foreign(path: str) -> bool:
    base = Path(inspect.__file__).parent
    ours = Path(__file__).parents[2]
    own = Path(path)
    if "site-packages" in own.parts or "dist-packages" in own.parts:
        return own.parts[-2:-1] == ("torch",) or "torch" in own.parts or "triton" in own.parts
    return own.is_relative_to(base) or own.is_relative_to(ours)


def changed_file(files: Mapping[str, str], folder: Path | None) -> str | None:
    """The first of a program's files that is not there or not as it was; `None` = all are.

    Args:
        files: as targets write them, with their SHA-256.
        folder: that they are relative to; those that do not lie there, and all where it is `None`,
            are where the loaded modules say, or where one would be imported from.
    """
    for name, digest in files.items():
        paths = paths_of(name, folder)
        if not paths:
            return f"{name} is not among the program's files"
        if all(hashlib.sha256(one.read_bytes()).hexdigest() != digest for one in paths):
            return f"{name} is not the file that was measured"
    return None


def paths_of(name: str, folder: Path | None) -> list[Path]:
    """The files that a name may stand for; several, where no folder says which."""
    if folder is not None and (folder / name).is_file():
        return [folder / name]
    loaded = (getattr(module, "__file__", None) for module in _modules())
    found = [Path(path) for path in loaded if path and same_file(path, name)]
    found += [] if found else [Path(one) / name for one in sys.path]
    return [path for path in dict.fromkeys(found) if path.is_file()]


def changed_package(packages: Mapping[str, str]) -> str | None:
    """The first of some installed packages that is not the one that was measured."""
    for name, version in packages.items():
        try:
            now = metadata.version(name)
        except metadata.PackageNotFoundError:
            return f"{name} {version} is not installed here"
        if now != version:
            return f"{name} was {version} and is {now}"
    return None
