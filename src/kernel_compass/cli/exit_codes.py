"""What the process returns, and which failure returns it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum

from kernel_compass.errors import (
    CalibrationError,
    CaptureError,
    JudgeError,
    KernelCompassError,
    MeasurementCause,
    MeasurementError,
    MissingDependency,
    ProfilingCause,
    ProfilingError,
    StudyError,
    UsageError,
)


class ExitCode(IntEnum):
    """Exit codes; part of the interface."""

    OK = 0
    BUG = 1
    USAGE = 2
    CAPTURE = 3
    PROFILING = 4
    TARGET = 5
    NOTHING_PROFILED = 6
    TIMEOUT = 7
    MISSING_DEPENDENCY = 8
    MEASUREMENT = 9
    CALIBRATION = 10
    STUDY = 11
    JUDGE = 12
    """The judge did not catch a cheat that it has to catch."""
    DOES_NOT_HOLD = 13
    """A candidate was rejected, or a claim does not hold here."""
    INTERRUPTED = 130
    BROKEN_PIPE = 141


MEANINGS: Mapping[ExitCode, str] = {
    ExitCode.OK: "done",
    ExitCode.BUG: "unexpected error, a bug (KERNEL_COMPASS_DEBUG=1 shows where)",
    ExitCode.USAGE: "wrong usage",
    ExitCode.CAPTURE: "a capture file cannot be used",
    ExitCode.PROFILING: "profiling failed: ncu, counter permission or driver",
    ExitCode.TARGET: "the profiled program failed",
    ExitCode.NOTHING_PROFILED: "no kernel was profiled",
    ExitCode.TIMEOUT: "time-out",
    ExitCode.MISSING_DEPENDENCY: "a program or package that is needed is not installed",
    ExitCode.MEASUREMENT: "measuring failed: no GPU, or the callable cannot be timed",
    ExitCode.CALIBRATION: "there is no such calibration, or its file cannot be used",
    ExitCode.JUDGE: "the judge did not catch a cheat that it has to catch",
    ExitCode.DOES_NOT_HOLD: "a candidate was rejected, or an accepted claim does not hold here",
    ExitCode.STUDY: "there is no such study or dispatch table, or its file cannot be used",
    ExitCode.INTERRUPTED: "interrupted (Ctrl-C)",
    ExitCode.BROKEN_PIPE: "the reader of the output went away",
}

EXIT_CODES_TEXT = "\b\nExit codes:\n" + "\n".join(
    f"  {code.value:>3}  {meaning}" for code, meaning in MEANINGS.items()
)
"""The table as every `--help` ends with it."""

_BY_CAUSE: Mapping[ProfilingCause, ExitCode] = {
    ProfilingCause.NCU_MISSING: ExitCode.MISSING_DEPENDENCY,
    ProfilingCause.TARGET_FAILED: ExitCode.TARGET,
    ProfilingCause.NOTHING_PROFILED: ExitCode.NOTHING_PROFILED,
    ProfilingCause.TIMEOUT: ExitCode.TIMEOUT,
    ProfilingCause.STUCK_COMMUNICATION: ExitCode.TIMEOUT,
}
_BY_CLASS: Sequence[tuple[type[KernelCompassError], ExitCode]] = (
    (UsageError, ExitCode.USAGE),
    (CaptureError, ExitCode.CAPTURE),
    (MissingDependency, ExitCode.MISSING_DEPENDENCY),
    (MeasurementError, ExitCode.MEASUREMENT),
    (CalibrationError, ExitCode.CALIBRATION),
    (StudyError, ExitCode.STUDY),
    (JudgeError, ExitCode.JUDGE),
)


class Failures(Exception):
    """Some of several inputs failed after the others were reported.

    Args:
        errors: the failures, in the order of the inputs; at least one.
    """

    def __init__(self, errors: Sequence[KernelCompassError]) -> None:
        super().__init__("; ".join(map(str, errors)))
        self.errors = tuple(errors)


def exit_code_of(error: KernelCompassError) -> ExitCode:
    """The code of an expected failure."""
    if isinstance(error, ProfilingError):
        return _BY_CAUSE.get(error.cause, ExitCode.PROFILING)
    if isinstance(error, MeasurementError) and error.cause is MeasurementCause.TIMEOUT:
        return ExitCode.TIMEOUT
    return next((code for kind, code in _BY_CLASS if isinstance(error, kind)), ExitCode.BUG)
