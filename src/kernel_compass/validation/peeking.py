"""Looks of a candidate at the judge, and work it hands to other processes: told by audit events.

`sys._getframe`, `gc.get_objects`, the frame of a traceback and the like raise events that cannot be
switched off. Libraries may look for a candidate; that is why the answer is sealed as well.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kernel_compass import library_work

_LOOKS = frozenset(
    (
        "sys._getframe",
        "sys._current_frames",
        "sys._current_exceptions",
        "gc.get_objects",
        "gc.get_referrers",
        "gc.get_referents",
    )
)
_FRAMES = frozenset(("tb_frame", "gi_frame", "cr_frame", "ag_frame"))
"""Attributes that lead from a traceback, a generator or a coroutine to frames."""
_HANDS_OVER = frozenset(("subprocess.Popen", "os.fork", "os.posix_spawn", "os.system", "os.exec"))
_STANDARD = ("stdlib", "platstdlib", "purelib", "platlib")


def _libraries() -> tuple[str, ...]:
    """Folders of the standard library and of what was installed, wherever `sys.path` has it."""
    known = (sysconfig.get_path(name) for name in _STANDARD)
    installed = (one for one in sys.path if one and any(Path(one).glob("*.dist-info/RECORD")))
    return tuple(dict.fromkeys(filter(None, (*known, *installed))))


_LIBRARIES = _libraries()
"""As they are before any candidate runs: what it adds to `sys.path` is none."""


class Audit:
    """What was seen while it was listening."""

    def __init__(self) -> None:
        self.looks: list[str] = []
        """Looks by code that belongs to no library."""
        self.handed_over: list[str] = []
        """Processes that were started."""


_listening: list[Audit] = []
_installed: list[bool] = []


@contextmanager
def listening(audit: Audit) -> Iterator[None]:
    """Record what happens within the block; the hook itself stays for the process's life."""
    if not _installed:
        _installed.append(True)
        sys.addaudithook(_heard)
    _listening.append(audit)
    try:
        yield
    finally:
        _listening.remove(audit)


def _heard(event: str, arguments: Any) -> None:
    if not _listening:
        return
    if event in _HANDS_OVER:
        _listening[-1].handed_over.append(event)
    elif event in _LOOKS or (event == "object.__getattr__" and arguments[1] in _FRAMES):
        audit = _listening.pop()  # what is called here must not be heard
        try:
            frame: Any = sys._getframe(1)
            while frame is not None and frame.f_code.co_filename.endswith("/inspect.py"):
                frame = frame.f_back
            file = "" if frame is None else frame.f_code.co_filename
            if file and file != library_work.__file__ and not of_a_library(file):
                audit.looks.append(event if event in _LOOKS else str(arguments[1]))
        finally:
            _listening.append(audit)


def of_a_library(filename: str) -> bool:
    """Whether code is from Python's own library, or from what was installed."""
    return filename.startswith(("<frozen", *_LIBRARIES))
