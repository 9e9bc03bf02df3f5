"""Runs a user's program and captures its step; started as a script, in a process of its own.

    python step_child.py capture|count FOLDER KIND TARGET NAME INPUTS [ARGS...]

FOLDER gets `capture.json.gz` and, on a GPU, the traces; or `error.json`, which says what went
wrong. The exit code is the program's. With `count` nothing is captured: the step is called once
more in a range that ncu, which this process runs under, is told to look at.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

CAPTURE, ERROR = "capture.json.gz", "error.json"
COUNT = "count"
_HERE = Path(__file__).resolve().parent
_PACKAGES = _HERE.parent.parent


def _find_package() -> None:
    """The package is the parent's, and its folder shadows no module of the program's."""
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != _HERE]
    before = list(sys.path)
    sys.path.insert(0, str(_PACKAGES))
    importlib.import_module("kernel_compass")
    sys.path[:] = before


def main(argv: Sequence[str]) -> int:
    """Run, capture, write."""
    _find_package()
    from kernel_compass.codec.step_capture_document import packed
    from kernel_compass.errors import KernelCompassError
    from kernel_compass.profiling.step_held import hold_step
    from kernel_compass.profiling.step_measuring import captured, counted
    from kernel_compass.records.step_program import Program, ProgramKind

    how, folder, kind, target, name, inputs, *arguments = argv
    own = os.getpid()
    try:
        step = hold_step(Program(ProgramKind(kind), target, tuple(arguments), inputs))
        if how == COUNT:
            counted(step)
            return 0
        data = packed(captured(step, name, Path(folder)))
    except KeyboardInterrupt:
        return 130
    except KernelCompassError as error:
        if os.getpid() != own:
            raise
        _write(Path(folder, ERROR), json.dumps(_told(error)).encode())
        return 1
    if os.getpid() == own:  # a fork of the program's that falls through writes nothing
        _write(Path(folder, CAPTURE), data)
    return step.exit_code


def _told(error: Exception) -> dict[str, str]:
    return {
        "kind": type(error).__name__,
        "cause": str(getattr(error, "cause", "")),
        "found": error.found,  # type: ignore[attr-defined]
        "remedy": error.remedy,  # type: ignore[attr-defined]
    }


def _write(path: Path, data: bytes) -> None:
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(data)
    part.replace(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
