"""Runs a Python program under torch.profiler; started as a script, in a process of its own.

    python torch_runner.py TRACE (script FILE | module NAME | code TEXT) [ARGS...]

The program is not changed and sees its own arguments. The trace is exported however the program
ends, as long as Python gets to say so; `TRACE.status` tells how it ended. Only this process is
recorded: what the program forks or starts is not. When the parent is killed, the program's process
group ends, and TRACE and what lies beside it under its name are removed.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import select
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

NO_TORCH = 97
"""Exit code where torch cannot be imported; `TRACE.status` says why."""

_GRACE_MS = 2000
_CHILDREN = ("os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen")


class Status:
    """What the parent is told, written whole at every change."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._facts: dict[str, Any] = {"exported": False}
        self.children = 0

    def tell(self, **facts: Any) -> None:
        """Add facts and write all of them."""
        self._facts |= facts
        part = f"{self._path}.part"
        with open(part, "w", encoding="utf-8") as file:  # noqa: PTH123
            json.dump(self._facts, file)
        os.replace(part, self._path)  # noqa: PTH105

    def count_children(self) -> None:
        """Count the processes that the program starts from now on."""

        def hook(event: str, _args: tuple[object, ...]) -> None:
            if event in _CHILDREN:
                self.children += 1

        sys.addaudithook(hook)


def main(argv: Sequence[str]) -> int:
    """Run the program; returns its exit code."""
    trace, kind, target, *arguments = argv
    status = Status(f"{trace}.status")
    _end_with_parent(os.path.abspath(trace))  # noqa: PTH100
    try:
        profiler_module = importlib.import_module("torch.profiler")
        torch = importlib.import_module("torch")
    except Exception as error:  # a broken installation raises anything
        status.tell(no_torch=f"{type(error).__name__}: {error}")
        return NO_TORCH
    profiler, asked = _profiler(profiler_module)
    status.tell(torch=str(getattr(torch, "__version__", "")), activities=asked)
    own = os.getpid()
    _prepare(kind, target, arguments)
    status.count_children()
    profiler.start()
    code = 1
    try:
        code = _run(kind, target)
    finally:
        if os.getpid() == own:  # a fork of the program that falls through exports nothing
            _export(profiler, trace, status, code)
    return code


def _end_with_parent(trace: str) -> None:
    """Leave a process behind that outlives neither the parent nor this one by long (Linux).

    It is nobody's child, so that the program's own waiting never meets it, and it is forked before
    there are threads. In a session of its own it lives to remove the files.
    """
    if not hasattr(os, "pidfd_open"):
        return
    try:
        parent, own = os.pidfd_open(os.getppid()), os.pidfd_open(os.getpid())
    except OSError:  # an older kernel, or a sandbox
        return
    runner, leads = os.getpid(), os.getpgrp() == os.getpid()
    child = os.fork()
    if not child:
        os.setsid()
        if not os.fork():
            _guard(parent, own, -runner if leads else runner, trace)
        os._exit(0)
    os.waitpid(child, 0)
    os.close(parent)
    os.close(own)


def _guard(parent: int, own: int, target: int, trace: str) -> None:
    """Wait for the end of either; kill a process, or a group where it is negative."""
    waiting = select.poll()
    for number in (parent, own):
        waiting.register(number, select.POLLIN)
    if own in [number for number, _ in waiting.poll()]:
        return
    with suppress(OSError):
        os.kill(target, signal.SIGKILL)
    waiting.unregister(parent)
    waiting.poll(_GRACE_MS)
    folder, name = os.path.split(trace)
    with suppress(OSError):
        for entry in os.listdir(folder):  # noqa: PTH208
            if entry.startswith(name):
                os.remove(os.path.join(folder, entry))  # noqa: PTH107, PTH118
        os.rmdir(folder)  # noqa: PTH106


def _profiler(module: Any) -> tuple[Any, list[str]]:
    """The profiler, and the names of what it records."""
    activity = module.ProfilerActivity
    wanted = [activity.CPU]
    if activity.CUDA in module.supported_activities():
        wanted.append(activity.CUDA)
    names = [str(getattr(one, "name", one)) for one in wanted]
    return module.profile(activities=wanted, record_shapes=True), names


def _prepare(kind: str, target: str, arguments: Sequence[str]) -> None:
    """Arguments and path as Python itself would set them."""
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]  # noqa: PTH100
    if kind == "script":
        sys.argv[:] = [target, *arguments]
        if not os.path.isdir(target):  # noqa: PTH112
            sys.path.insert(0, os.path.dirname(os.path.abspath(target)))  # noqa: PTH100, PTH120
    else:
        sys.argv[:] = ["-m" if kind == "module" else "-c", *arguments]
        sys.path.insert(0, "" if kind == "code" else os.getcwd())  # noqa: PTH109


def _run(kind: str, target: str) -> int:
    """Run the program to its end, whichever way it ends."""
    try:
        if kind == "script":
            runpy.run_path(target, run_name="__main__")
        elif kind == "module":
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        else:
            exec(compile(target, "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        return _code_of(end)
    except KeyboardInterrupt:
        return 130
    except BaseException as error:
        _print_error(error)
        return 1
    return 0


def _code_of(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)  # noqa: T201
    return 1


def _print_error(error: BaseException) -> None:
    """The traceback as the program alone would show it: without this file and runpy."""
    frames = error.__traceback__
    own = (os.path.abspath(__file__), runpy.__file__, "<frozen runpy>")  # noqa: PTH100
    while frames is not None and frames.tb_frame.f_code.co_filename in own:
        frames = frames.tb_next
    traceback.print_exception(type(error), error, frames or error.__traceback__)


def _export(profiler: Any, trace: str, status: Status, code: int) -> None:
    """Write the trace; a failure is told, the program's own end stays what it was."""
    facts: dict[str, Any] = {"code": code, "children": status.children}
    try:
        status.tell(**facts)
        profiler.stop()
        part = f"{trace}.part.json"
        profiler.export_chrome_trace(part)
        os.replace(part, trace)  # noqa: PTH105
        facts["exported"] = True
    except BaseException as error:
        facts["export_error"] = f"{type(error).__name__}: {error}"
    with suppress(OSError):
        status.tell(**facts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
