"""The exception tree. Every failure the tool expects is one of these, with the next step in it.

KernelCompassError
├── UsageError                 the command line or the arguments do not fit together
│   └── NotTaken               a candidate does not take the configuration that was named
├── CaptureError               a file handed in cannot be used
│   ├── NotAMetricTable        no metric table in it (text page, source page, a failed run's log)
│   ├── AmbiguousCapture       numbers or rows that can be read in two ways
│   ├── NotATimeline           no GPU timeline in it (other JSON, a trace of the CPU alone)
│   └── DamagedCapture         truncated, shifted, mixed or otherwise broken
├── MissingDependency          an optional package or program is not installed
├── ProfilingError             ncu or its target failed; `cause` says which way
├── MeasurementError           a time could not be taken; `cause` says why
├── CalibrationError           a calibration is missing or cannot be used
├── JudgeError                 the judge did not catch what it has to catch
└── StudyError                 a study's ledger or a dispatch table is missing or cannot be used
"""

from __future__ import annotations

from enum import StrEnum

INSTALL_TORCH = "pip install torch triton nvidia-ml-py"
"""What gives a Python all that measuring and Triton kernels need: the extra `gpu`, which a name of
this project can stand for only once it is on an index."""

_LONGEST = 4000
_LONGEST_WORD = 200


def shortened(text: str, longest: int = _LONGEST_WORD) -> str:
    """A text without its middle where it is longer than a message should be, in characters."""
    if len(text) <= longest:
        return text
    kept = max(longest - 40, 2) // 2
    return f"{text[:kept]} ... {len(text):,} characters ... {text[-kept:]}"


class KernelCompassError(Exception):
    """Base of all expected failures.

    Args:
        found: what was found, in one sentence.
        remedy: what is needed and the next command; may be empty.
    """

    def __init__(self, found: str, remedy: str = "") -> None:
        found = shortened(found, _LONGEST)
        super().__init__(f"{found} {remedy}".strip())
        self.found = found
        self.remedy = remedy


class UsageError(KernelCompassError):
    """The command line or the arguments do not fit together."""


class NotTaken(UsageError):
    """A candidate does not take the configuration that was named, as its call shows."""


class CaptureError(KernelCompassError):
    """A capture file cannot be used."""


class NotAMetricTable(CaptureError):
    """The file holds no Nsight Compute metric table."""


class AmbiguousCapture(CaptureError):
    """The file can be read in more than one way, so it is not read at all."""


class NotATimeline(CaptureError):
    """The file holds no timeline of a GPU."""


class DamagedCapture(CaptureError):
    """The file is truncated, shifted, mixed or otherwise broken."""


class MissingDependency(KernelCompassError):
    """An optional package or program that this request needs is not installed."""


class ProfilingCause(StrEnum):
    """Why profiling produced no usable capture."""

    NCU_MISSING = "ncu_missing"
    NCU_TOO_OLD = "ncu_too_old"
    NO_PERMISSION = "no_permission"
    DRIVER_MISMATCH = "driver_mismatch"
    COUNTERS_BUSY = "counters_busy"
    TARGET_FAILED = "target_failed"
    NOTHING_PROFILED = "nothing_profiled"
    TIMEOUT = "timeout"
    STUCK_COMMUNICATION = "stuck_communication"
    UNSUPPORTED_GPU = "unsupported_gpu"
    NCU_FAILED = "ncu_failed"


class ProfilingError(KernelCompassError):
    """ncu or its target failed.

    Args:
        cause: which way it failed.
        found: what was seen (exit code, last lines, processes).
        remedy: what to do next.
    """

    def __init__(self, cause: ProfilingCause, found: str, remedy: str) -> None:
        super().__init__(found, remedy)
        self.cause = cause


class MeasurementCause(StrEnum):
    """Why a callable has no time."""

    NO_GPU = "no_gpu"
    CALLABLE_FAILED = "callable_failed"
    NO_GPU_WORK = "no_gpu_work"
    OUT_OF_MEMORY = "out_of_memory"
    ZERO_INPUTS = "zero_inputs"
    SIDE_STREAM = "side_stream"
    L2_PERSISTING = "l2_persisting"
    NOT_COLD = "not_cold"
    UNSTABLE = "unstable"
    TIMED_WRONG = "timed_wrong"
    REGIME = "regime"
    TIMEOUT = "timeout"
    WORKER_DIED = "worker_died"
    MACHINE_LOST = "machine_lost"


class MeasurementError(KernelCompassError):
    """A callable could not be timed, or its time would mean nothing.

    Args:
        cause: why.
        found: what was seen.
        remedy: what to do next.
    """

    def __init__(self, cause: MeasurementCause, found: str, remedy: str) -> None:
        super().__init__(found, remedy)
        self.cause = cause


class CalibrationError(KernelCompassError):
    """A calibration is missing, or its file cannot be used."""


class JudgeError(KernelCompassError):
    """The judge did not prove itself on the built-in cheats: nothing may be judged here."""


class StudyError(KernelCompassError):
    """A study's ledger, the memory of rejected ideas or a dispatch table is missing or cannot be
    used."""
