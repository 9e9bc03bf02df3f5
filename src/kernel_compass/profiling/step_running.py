"""Runs a user's program in this process, as Python itself would."""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from kernel_compass.errors import ProfilingCause, ProfilingError, UsageError
from kernel_compass.records.step_program import Program, ProgramKind


def folder_of(program: Program) -> str:
    """What the program's files are named relative to: the folder of its file, else the working
    directory."""
    file = program.file
    return str(Path(file).absolute().parent if file else Path.cwd())


def file_of(program: Program) -> str:
    """The file that was run; of a package its `__main__`. The program has been run."""
    if program.file is not None:
        return str(Path(program.file).absolute())
    spec = importlib.util.find_spec(program.target)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{program.target}.__main__")
    return (spec.origin if spec else None) or program.target


def prepare(program: Program) -> None:
    """`sys.argv` and `sys.path` as Python sets them."""
    name = "-m" if program.kind is ProgramKind.MODULE else str(program.file)
    sys.argv[:] = [name, *program.arguments]
    sys.path.insert(0, folder_of(program))


def run(program: Program) -> int:
    """Run a script or a module to its end, whichever way it ends; its exit code.

    Raises:
        KeyboardInterrupt: it was interrupted.
    """
    try:
        run_once(program)
    except SystemExit as end:
        return _code_of(end)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        print_error(error)
        return 1
    return 0


def run_once(program: Program) -> None:
    """Run a script or a module; whatever it raises comes through.

    It stays `__main__` when it has ended, as in an interpreter of its own: its step is called
    again, and what is put on is put where its functions look names up.
    """
    if program.kind is ProgramKind.MODULE:
        _run_module(program.target)
        return
    path = Path(program.target).absolute()
    if path.is_dir() or path.suffix == ".pyc":
        runpy.run_path(str(path), run_name="__main__")
        return
    exec(compile(path.read_bytes(), str(path), "exec"), vars(main_module(str(path))))


def main_module(path: str, spec: ModuleSpec | None = None) -> ModuleType:
    """A new `__main__`, as Python makes it for a script, or for `-m` where a spec is given."""
    _KEPT.append(sys.modules["__main__"])
    made = ModuleType("__main__")
    loader = SourceFileLoader("__main__", path) if spec is None else spec.loader
    found = {
        "__file__": path,
        "__builtins__": __builtins__,
        "__loader__": loader,
        "__cached__": None,
        "__annotations__": {},
        "__spec__": spec,
        "__package__": None if spec is None else spec.parent,
    }
    vars(made).update(found)
    sys.modules["__main__"] = made
    return made


_KEPT: list[ModuleType] = []
"""Those that were `__main__` before: what runs in them runs on."""


def _run_module(name: str) -> None:
    """Like `python -m NAME`; what Python's loaders have no source or bytecode of, runpy runs."""
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    code = getattr(spec.loader, "get_code", lambda _: None)(spec.name) if spec else None
    if spec is None or spec.origin is None or code is None:
        runpy.run_module(name, run_name="__main__", alter_sys=True)  # raises as Python does
        return
    sys.argv[0] = spec.origin
    exec(code, vars(main_module(spec.origin, spec)))


def entry_of(program: Program) -> Callable[[], Any]:
    """The function of an entry.

    Raises:
        UsageError: there is no such file or function.
        ProfilingError: the file fails.
    """
    return _function(program.target, "--entry", {})


def inputs_function_of(program: Program) -> Callable[[], Any]:
    """The function that yields inputs; where it stands in the entry's file, the one beside it.

    Raises:
        UsageError: there is no such file or function.
        ProfilingError: the file fails.
    """
    return _function(program.inputs, "--inputs", _LOADED)


def _function(word: str, option: str, loaded: Mapping[Path, ModuleType]) -> Callable[[], Any]:
    path, _, name = word.rpartition(":")
    file = Path(path)
    if not file.is_file():
        raise UsageError(f"There is no file {file}.", f"Write {option} FILE:FUNCTION.")
    module = loaded.get(file.resolve()) or _load(file, word)
    function = getattr(module, name, None)
    if not callable(function):
        names = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        told = f"It has {', '.join(names[:8])}." if names else "It has no functions."
        raise UsageError(f"{file} has no function {name!r}.", told)
    return function  # type: ignore[no-any-return]


_LOADED: dict[Path, ModuleType] = {}
"""Files of entries, as they were loaded last."""


def _load(file: Path, word: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise UsageError(f"{file} is no Python file.", "Write FILE.py:FUNCTION.")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(file.stem, module)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        print_error(error)
        raise failed(word, error) from error
    _LOADED[file.resolve()] = module
    return module


def failed(what: str, error: BaseException) -> ProfilingError:
    """The program's own failure."""
    found = f"{what} failed: {type(error).__name__}: {error}"
    return ProfilingError(
        ProfilingCause.TARGET_FAILED, found, "Its own messages stand above; run it by itself first."
    )


@contextmanager
def silenced() -> Iterator[None]:
    """Nothing that is written to standard output or error comes out, nothing can be read: the
    program's step is called more often than the program calls it."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    kept = [(number, os.dup(number)) for number in (0, 1, 2) if _is_open(number)]
    null = os.open(os.devnull, os.O_RDWR)
    try:
        for number, _ in kept:
            os.dup2(null, number)
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        for number, before in kept:
            os.dup2(before, number)
            os.close(before)
        os.close(null)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _code_of(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)  # noqa: T201
    return 1


def print_error(error: BaseException) -> None:
    """The traceback as the program alone would show it."""
    frames = error.__traceback__
    own = (str(Path(__file__).resolve().parent), runpy.__file__, "<frozen ")
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(own):
        frames = frames.tb_next
    traceback.print_exception(type(error), error, frames or error.__traceback__)
