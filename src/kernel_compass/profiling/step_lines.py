"""Where in the user's code something is called: the innermost frame that is neither torch's, nor
Triton's, nor this package's, nor the standard library's."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

from kernel_compass.records.step_capture import SourceLine

_HIDDEN = ("torch", "triton", "kernel_compass", "functorch")
_MODES = ("__torch_dispatch__", "__torch_function__")
"""A mode of the user's own stands between an operator and the line that calls it."""
_GENERATED = f"{os.sep}torchinductor"
"""In the path of what torch's compiler writes."""
_COMPILERS = (f"torch{os.sep}_inductor", f"{os.sep}triton{os.sep}", "cpp_extension")


def folder_of(package: str) -> str | None:
    """Where a package lies, with a separator at its end; it is not imported."""
    spec = find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec else []
    return f"{os.path.realpath(places[0])}{os.sep}" if places else None


class Lines:
    """Finds and names lines.

    Args:
        root: the program's folder; its files are named relative to it.
    """

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)
        found = (folder_of(package) for package in _HIDDEN)
        library = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib"))
        self._packages = tuple(filter(None, found))
        self._library = tuple(f"{os.path.realpath(path)}{os.sep}" for path in library)
        self._sites = _sites()
        self._names: dict[str, str | None] = {}

    @property
    def seen(self) -> tuple[str, ...]:
        """The user's files that a line was found in."""
        return tuple(file for file, name in self._names.items() if name is not None)

    def here(self, skip: int = 1) -> SourceLine | None:
        """The user's line that is running in this thread; where it has none (a thread of
        autograd), that of the main thread."""
        line = self._of(sys._getframe(skip))
        if line is None and threading.current_thread() is not threading.main_thread():
            main = sys._current_frames().get(threading.main_thread().ident or 0)
            line = self._of(main)
        return line

    def compiler_is_running(self) -> bool:
        """Whether a compiler of torch or Triton is among the callers."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if any(part in frame.f_code.co_filename for part in _COMPILERS):
                return True
            frame = frame.f_back
        return False

    def of_code(self, code: object) -> SourceLine | None:
        """Where a code object is defined."""
        file = getattr(code, "co_filename", None)
        if file is None:
            return None
        name = self.name_of(file) or _in_package(os.path.realpath(file))
        return SourceLine(name, code.co_firstlineno, _function(code))  # type: ignore[attr-defined]

    def of_frame(self, file: str, line: int, function: str) -> SourceLine | None:
        """A frame that torch describes."""
        name = self.name_of(file)
        return None if name is None else SourceLine(name, line, function)

    def name_of(self, file: str) -> str | None:
        """How a file is written; `None` = it is none of the user's."""
        if file not in self._names:
            self._names[file] = self._named(file)
        return self._names[file]

    def package_of(self, file: str) -> str | None:
        """The top-level name of the installed package that it belongs to; `None` = of none."""
        path = os.path.realpath(file)
        for folder in self._sites:
            if path.startswith(folder):
                return path[len(folder) :].partition(os.sep)[0].removesuffix(".py")
        return None

    def is_programs_own(self, file: str) -> bool:
        """Whether it lies in the program's folder and is no installed package."""
        path = os.path.realpath(file)
        inside = path.startswith(self.root + os.sep) and not path.startswith(self._sites)
        return inside and Path(path).is_file()

    def _of(self, frame: FrameType | None) -> SourceLine | None:
        while frame is not None:
            code = frame.f_code
            name = self.name_of(code.co_filename)
            if name is not None and code.co_name not in _MODES:
                return SourceLine(name, frame.f_lineno, _function(code))
            frame = frame.f_back
        return None

    def _named(self, file: str) -> str | None:
        if file.startswith("<"):
            return None
        path = os.path.realpath(file)
        if path.startswith(self._packages) or _GENERATED in path:
            return None
        for folder in self._sites:
            if path.startswith(folder):
                return path[len(folder) :]
        if path.startswith(self.root + os.sep):
            return path[len(self.root) + 1 :]
        if path.startswith(self._library):
            return None
        return _in_package(path)


def _function(code: object) -> str:
    """`DecoderBlock.forward`; what surrounds a local function is left out."""
    name = getattr(code, "co_qualname", None) or getattr(code, "co_name", "")
    return str(name).rpartition("<locals>.")[2]


def _sites() -> tuple[str, ...]:
    folders = [*site.getsitepackages(), site.getusersitepackages()]
    folders += [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    return tuple(dict.fromkeys(f"{os.path.realpath(folder)}{os.sep}" for folder in folders))


def _in_package(path: str) -> str:
    """A file somewhere else as the package that it belongs to, or by its name."""
    file = Path(path)
    parts = [file.name]
    for folder in file.parents:
        if not (folder / "__init__.py").is_file():
            break
        parts.insert(0, folder.name)
    return "/".join(parts)


def own_files(lines: Lines, apart: Collection[str] = (), *more: str) -> Mapping[str, str]:
    """Paths of the program's own files that were loaded, by how they are written.

    Args:
        lines: of the program.
        apart: files that are not counted.
        more: files that are no modules any more: the script's.
    """
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    found: dict[str, str] = {}
    for file in (*files, *more, *lines.seen):
        if not isinstance(file, str) or not file.endswith(".py") or file in apart:
            continue
        if lines.is_programs_own(file):
            name = lines.name_of(file)
            if name is not None:
                found[name] = os.path.realpath(file)
    return dict(sorted(found.items()))


@dataclass(frozen=True)
class Touched:
    """What a step goes through outside of the program's folder."""

    files: Mapping[str, str]
    """Paths of files of no installed package, by how they are written."""
    packages: Mapping[str, str]
    """Installed distributions with their versions."""


def touched(lines: Lines, own: Collection[str], apart: Collection[str] = ()) -> Touched:
    """Where else lines, regions, classes and kernels of a step were found.

    Args:
        lines: of the program.
        own: how its own files are written: no other is written so.
        apart: files that are not counted.
    """
    files: dict[str, str] = {}
    packages: dict[str, str] = {}
    known: Mapping[str, list[str]] = {}
    for file in lines.seen:
        path = os.path.realpath(file)
        if file in apart or lines.is_programs_own(file) or not Path(path).is_file():
            continue
        top = lines.package_of(file)
        if top is None:
            files[_distinct(path, {*own, *files})] = path
            continue
        known = known or metadata.packages_distributions()
        for one in known.get(top, ()):
            packages[one] = metadata.version(one)
    return Touched(dict(sorted(files.items())), dict(sorted(packages.items())))


def _distinct(path: str, taken: Collection[str]) -> str:
    """How a file is written, with more folders where another one is written so."""
    name = _in_package(path)
    parts = Path(path).parts
    while name in taken and len(Path(name).parts) < len(parts):
        name = "/".join(parts[-len(Path(name).parts) - 1 :])
    return name
