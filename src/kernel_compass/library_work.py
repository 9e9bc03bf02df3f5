"""Threads and processes that installed libraries keep for themselves: told by their code.

A name says nothing: whoever starts a thread names it, and code objects carry whatever file name
they were compiled with. What a thread runs is therefore compared with what the file on disk, in a
folder of installed packages, compiles to.

Out of reach: code that writes into the folders of packages before this process starts.
"""

from __future__ import annotations

import concurrent.futures.thread
import contextlib
import os
import sys
import sysconfig
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

_SINCE = time.time()
"""A file that was changed later is no library's any more."""
_compile, _read_clock = compile, time.clock_gettime_ns
_OF_A_PROCESS, _OF_A_THREAD = 2, 6
"""Low bits of the number of a clock of Linux's; the others are the inverted id."""
_STANDARD = ("stdlib", "platstdlib")
_PACKAGES = ("purelib", "platlib")
_COMPILERS = ("torch/_inductor/", "torch/_dynamo/", "triton/")
"""Below a folder of packages: whose steps start threads that outlive them."""
_COMPILE_WORKER = "_inductor/compile_worker/__main__.py"
_MOST_FRAMES = 200
_STARTERS = ("_start_new_thread", "_start_joinable_thread")
"""Of `threading`, by version."""


def _folders() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Of packages and of the standard library; what a candidate adds to `sys.path` is neither."""
    installed = (one for one in sys.path if one and any(Path(one).glob("*.dist-info/RECORD")))
    known = (sysconfig.get_path(name) for name in _PACKAGES)
    standard = (sysconfig.get_path(name) for name in _STANDARD)
    return tuple(
        tuple(dict.fromkeys(os.path.normpath(one) + os.sep for one in group if one))
        for group in ((*known, *installed), standard)
    )  # type: ignore[return-value]


_PACKAGE_FOLDERS, _STANDARD_FOLDERS = _folders()


def is_librarys(thread: threading.Thread) -> bool:
    """Whether a thread was made to run a package's own code, and does now.

    Neither the standard library's code counts, which runs what it is given, nor a package's
    function that is at work in code of someone else.
    """
    entry = _entry(thread)
    return entry is not None and _package_path(entry) is not None and _runs_known_code(thread)


def is_compilers(thread: threading.Thread) -> bool:
    """Whether a compiler's step started a thread, and it runs known code alone.

    Known where `attend_starts` was called before. A worker of a pool is one as well: see
    `cpu_times` for what it does afterwards.
    """
    entry = _entry(thread)
    started = _starts.get(thread)
    if entry is None or started is None or not _is_known(entry):
        return False
    return _by_a_compiler(started) and _runs_known_code(thread)


def attend_starts() -> None:
    """From now on, keep who starts a thread; for the life of this process.

    Python 3.11 raises no audit event for it, so what `threading` starts threads with is replaced.
    """
    for name in _STARTERS:
        start = getattr(threading, name, None)
        if start is not None and not hasattr(start, "attends"):
            setattr(threading, name, _attending(start))


def waits(threads: Iterable[threading.Thread], within_s: float = 0.02) -> bool:
    """Whether none of them takes any time of a processor for a moment."""
    held = list(threads)
    before = [cpu_time_ns(one) for one in held]
    time.sleep(within_s)
    return before == [cpu_time_ns(one) for one in held]


def cpu_time_ns(thread: threading.Thread) -> int:
    """What a thread has taken of processors so far; 0 where it has ended."""
    return 0 if thread.native_id is None else _clock_ns(~thread.native_id << 3 | _OF_A_THREAD)


def process_cpu_time_ns(pid: int) -> int:
    """The same of all threads of a process."""
    return _clock_ns(~pid << 3 | _OF_A_PROCESS)


def _clock_ns(clock: int) -> int:
    try:
        return _read_clock(clock)
    except OSError:
        return 0


def is_compile_worker(pid: int, owner: int) -> bool:
    """Whether a process is Inductor's, started by `owner`, or a fork that it made to compile.

    Told by its program and by the file of the installed torch that it was started to run. What is
    sent to it is beyond that: see `process_cpu_time_ns`.

    Args:
        pid: the process.
        owner: the process whose torch would have started it.
    """
    script = _compile_worker()
    command = _command(pid)
    if script is None or not _same_program(pid, owner) or not _runs_script(command, script, owner):
        return False
    parent = _parent(pid)
    if parent == owner:
        return True
    return parent is not None and _parent(parent) == owner and _command(parent) == command


_starts: weakref.WeakKeyDictionary[threading.Thread, tuple[CodeType, ...]] = (
    weakref.WeakKeyDictionary()
)


def _attending(start: Callable[..., Any]) -> Callable[..., Any]:
    def attended(function: Any, *arguments: Any, **named: Any) -> Any:
        thread = getattr(function, "__self__", None)
        if isinstance(thread, threading.Thread):
            _starts[thread] = _callers()
        return start(function, *arguments, **named)

    attended.attends = True  # type: ignore[attr-defined]
    return attended


def _callers() -> tuple[CodeType, ...]:
    """Code of whoever started a thread, the innermost first."""
    try:
        raise RuntimeError  # a frame that is found like this raises no audit event of its own
    except RuntimeError as error:
        frame: Any = error.__traceback__.tb_frame.f_back.f_back  # type: ignore[union-attr]
    found: list[CodeType] = []
    while frame is not None and len(found) < _MOST_FRAMES:
        found.append(frame.f_code)
        frame = frame.f_back
    return tuple(found)


def _by_a_compiler(started: Iterable[CodeType]) -> bool:
    """Whether known code alone lies between the start and a compiler's."""
    for code in started:
        path = _package_path(code)
        if path is not None and path.startswith(_COMPILERS):
            return True
        if path is None and not _is_standard(code):
            return False
    return False


def _entry(thread: threading.Thread) -> CodeType | None:
    """What a thread was made to run; `None` = no function of Python's."""
    if "run" in vars(thread):
        return None
    run: Any = next((vars(k)["run"] for k in type(thread).__mro__ if "run" in vars(k)), None)
    if run is threading.Thread.run:
        run = getattr(thread, "_target", None)
    if isinstance(run, MethodType):
        run = run.__func__
    return run.__code__ if isinstance(run, FunctionType) else None


def _runs_known_code(thread: threading.Thread) -> bool:
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None:
        return not thread.is_alive()
    while frame is not None:
        if not _is_known(frame.f_code):
            return False
        frame = frame.f_back
    return True


def waits_in_a_pool(thread: threading.Thread) -> bool:
    """Whether it is a worker of a pool of threads that has nothing to do."""
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and frame.f_code is concurrent.futures.thread._worker.__code__


def _is_known(code: CodeType) -> bool:
    return _is_standard(code) or _package_path(code) is not None


def _is_standard(code: CodeType) -> bool:
    path = os.path.normpath(code.co_filename)
    if path.startswith(_PACKAGE_FOLDERS) or not path.startswith(_STANDARD_FOLDERS):
        return False
    return code in _codes(path)


def _package_path(code: CodeType) -> str | None:
    """Where below a folder of packages its file lies; `None` = it is no package's."""
    path = os.path.normpath(code.co_filename)
    for folder in _PACKAGE_FOLDERS:
        if path.startswith(folder):
            return path.removeprefix(folder) if code in _codes(path) else None
    return None


@cache
def _codes(path: str) -> frozenset[CodeType]:
    """All code of a file, as it was when this process began."""
    with contextlib.suppress(OSError, ValueError, SyntaxError):
        if Path(path).stat().st_ctime < _SINCE:
            whole = _compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
            return frozenset(_within(whole))
    return frozenset()


def _within(code: CodeType) -> list[CodeType]:
    found = [code]
    for one in code.co_consts:
        if isinstance(one, CodeType):
            found += _within(one)
    return found


@cache
def _compile_worker() -> str | None:
    """Of the torch that is installed; it is not imported."""
    try:
        spec = find_spec("torch")
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    return str(Path(spec.origin).parent / _COMPILE_WORKER)


def _runs_script(command: list[str], script: str, owner: int) -> bool:
    if len(command) < 3 or os.path.normpath(command[1]) != os.path.normpath(script):
        return False
    picklers = [one for one in command if one.startswith("--pickler=")]
    return f"--parent={owner}" in command and all(
        one.startswith("--pickler=torch._inductor.") for one in picklers
    )


def _same_program(pid: int, owner: int) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/exe") == os.readlink(f"/proc/{owner}/exe")  # noqa: PTH115
    except OSError:
        return False


def _command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return []


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None
