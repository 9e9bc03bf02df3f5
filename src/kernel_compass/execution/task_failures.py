"""Failures of a task, from its process to ours: the same exception on both sides."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from kernel_compass import errors
from kernel_compass.errors import (
    KernelCompassError,
    MeasurementCause,
    MeasurementError,
    MissingDependency,
    ProfilingCause,
    ProfilingError,
    shortened,
)
from kernel_compass.execution.task_pipes import LARGEST_LINE

_PROGRAM = "Run it again with KERNEL_COMPASS_DEBUG=1 for the whole traceback."
_SHOWN_LINES = 4
_LONGEST_MESSAGE = 2000
_LONGEST_FOUND = 4000


def error_document(error: BaseException) -> dict[str, Any]:
    """An exception as the JSON object that `error_of` reads."""
    known = _as_known(error)
    cause = known.cause.value if isinstance(known, MeasurementError | ProfilingError) else None
    return {
        "kind": type(known).__name__,
        "cause": cause,
        "found": _text(known.found, _LONGEST_FOUND),
        "remedy": _text(known.remedy),
    }


def error_of(document: Mapping[str, Any]) -> KernelCompassError:
    """The exception that a worker wrote down."""
    found, remedy = str(document.get("found")), str(document.get("remedy") or "")
    kind, cause = str(document.get("kind")), str(document.get("cause"))
    if kind == ProfilingError.__name__:
        return ProfilingError(ProfilingCause(cause), found, remedy)
    plain = getattr(errors, kind, None)
    ours = isinstance(plain, type) and issubclass(plain, KernelCompassError)
    if isinstance(plain, type) and ours and plain is not MeasurementError:
        known: KernelCompassError = plain(found, remedy)
        return known
    words = {c.value for c in MeasurementCause}
    why = MeasurementCause(cause) if cause in words else MeasurementCause.CALLABLE_FAILED
    return MeasurementError(why, found, remedy)


def ended_without_answer(name: str, code: int, said: Sequence[str]) -> MeasurementError:
    """A process that ended, or was ended, before its task returned.

    Args:
        name: the task.
        code: the exit code; negative: the signal.
        said: the last lines of its standard error.
    """
    how = f"was ended by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
    last = f": {' | '.join(_telling(said))}" if said else "; it said nothing."
    return MeasurementError(
        MeasurementCause.WORKER_DIED,
        f"The process of {name} {how} before it had an answer{last}",
        _remedy(code),
    )


def said_too_much(name: str) -> MeasurementError:
    """A process that wrote a line longer than any answer may be."""
    return MeasurementError(
        MeasurementCause.CALLABLE_FAILED,
        f"{name} answers with more than {LARGEST_LINE >> 20} MiB.",
        "Write what is large to a file, and answer with its path.",
    )


def _telling(said: Sequence[str]) -> Sequence[str]:
    """A fault as Python reports it, with where it happened; else the last lines."""
    fault = [line for line in said if line.startswith("Fatal Python error")]
    starts = [i for i, line in enumerate(said) if line.startswith("Current thread")]
    where = said[starts[-1] + 1 : starts[-1] + _SHOWN_LINES] if starts else ()
    return [*fault, *where] if fault else said[-_SHOWN_LINES:]


def _remedy(code: int) -> str:
    if code == -signal.SIGKILL:
        return "Look in `dmesg` whether memory ran out; free some and try again."
    return "Try again; if it ends the same way, look at `dmesg` and `nvidia-smi` for GPU faults."


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _as_known(error: BaseException) -> KernelCompassError:
    """Any exception as one of ours."""
    if isinstance(error, KernelCompassError):
        return error
    if isinstance(error, ModuleNotFoundError) and error.name in ("torch", "triton"):
        found = f"Measuring needs {error.name}, which this Python does not have."
        return MissingDependency(found, f"{errors.INSTALL_TORCH}.")
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" ({last[0].filename}:{last[0].lineno})" if last else ""
    found = f"{type(error).__name__}: {_text(error)}{where}"
    if type(error).__name__ == "OutOfMemoryError" or isinstance(error, MemoryError):
        free = "Free memory on the GPU (`nvidia-smi` lists who uses it) and try again."
        return MeasurementError(MeasurementCause.OUT_OF_MEMORY, found, free)
    return MeasurementError(MeasurementCause.CALLABLE_FAILED, found, _PROGRAM)


def _text(said: object, longest: int = _LONGEST_MESSAGE) -> str:
    """As a message shows it, even where an exception cannot say what it is."""
    try:
        return shortened(str(said), longest)
    except Exception as error:
        return f"no text: its __str__ raised {type(error).__name__}"
