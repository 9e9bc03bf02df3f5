"""Why a run gave no capture: ncu's messages, exit code and output become one cause. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernel_compass.errors import ProfilingCause, ProfilingError
from kernel_compass.profiling.ncu_progress import COMMUNICATION
from kernel_compass.profiling.ncu_remedies import (
    REMEDIES,
    nothing_profiled_remedy,
    stuck_remedy,
    timeout_remedy,
)
from kernel_compass.profiling.ncu_tool import NcuTool
from kernel_compass.records.request import ProfileRequest

TIMEOUT = "timeout"
STUCK = "stuck"

_SHOWN_LINES = 8
_SHOWN_ERRORS = 3
_SIGNALS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV"}
_ERROR = re.compile(r"==ERROR==\s*(.+)")
_CONNECTED = re.compile(r"==PROF== Connected to process (\d+) \((.*)\)")
_TARGET_CODE = re.compile(r"The application returned an error code \((-?\d+)\)")
_NO_SUCH_TARGET = re.compile(r"does not exist or is not an executable")
_CONSEQUENCE = re.compile(r"An error occurred while trying to profile|No kernels were profiled")
_PATTERNS = (
    (
        ProfilingCause.NO_PERMISSION,
        re.compile(r"ERR_NVGPUCTRPERM|permission to access NVIDIA GPU Performance Counters", re.I),
    ),
    (
        ProfilingCause.DRIVER_MISMATCH,
        re.compile(
            r"driver is not compatible|failed to connect to the CUDA driver"
            r"|Failed to load Nsight Compute CUDA modules|driver version is insufficient",
            re.IGNORECASE,
        ),
    ),
    (
        ProfilingCause.COUNTERS_BUSY,
        re.compile(
            r"driver resource was unavailable|other tool \(like DCGM\)|create lock file"
            r"|nsight-compute-lock|another profiler|profiling session .*(?:active|in use)"
            r"|CUPTI_ERROR_MULTIPLE_SUBSCRIBERS",
            re.IGNORECASE,
        ),
    ),
    (
        ProfilingCause.UNSUPPORTED_GPU,
        re.compile(r"(?:device|GPU|profiling|chip)\b.* (?:is|are) not supported", re.IGNORECASE),
    ),
)


@dataclass(frozen=True)
class RunEvidence:
    """What is known after a run without a usable capture."""

    request: ProfileRequest
    tool: NcuTool
    returncode: int
    log: str
    """ncu's log file."""
    stdout_tail: tuple[str, ...] = ()
    """The last lines of the target's standard output."""
    stderr_tail: tuple[str, ...] = ()
    """The last lines of standard error, where ncu writes some of its own messages too."""
    stopped: str | None = None
    """`TIMEOUT` or `STUCK` where the run was stopped."""
    seconds: float = 0.0
    kernel_name: str | None = None
    """The kernel under way when it was stopped."""
    kernels_done: int = 0
    warned_slow: bool = False


def error_lines(evidence: RunEvidence) -> tuple[str, ...]:
    """ncu's `==ERROR==` messages in order, those on standard error first."""
    text = "\n".join((*evidence.stderr_tail, evidence.log))
    return tuple(line.strip() for line in _ERROR.findall(text))


def target_code(evidence: RunEvidence) -> int | None:
    """The exit code of the target as ncu reports it, `None` where it reports none."""
    found = _TARGET_CODE.search("\n".join(error_lines(evidence)))
    return int(found[1]) if found else None


def failure_of(evidence: RunEvidence) -> ProfilingError:
    """The one cause of a run without a usable capture, with what was seen and what to do."""
    if evidence.stopped is not None:
        return _stopped(evidence)
    errors = error_lines(evidence)
    known = next(filter(None, map(known_failure, errors)), None)
    if known is not None:
        return known
    own = [e for e in errors if not (_TARGET_CODE.search(e) or _CONSEQUENCE.search(e))]
    code = target_code(evidence)
    if own or (code is None and evidence.returncode != 0):
        return _ncu_failed(evidence, "; ".join(own[:_SHOWN_ERRORS]))
    return _nothing_profiled(evidence) if code is None else _target_failed(evidence, code)


def known_failure(line: str) -> ProfilingError | None:
    """The failure that one of ncu's messages stands for, where it is a known one."""
    for cause, pattern in _PATTERNS:
        if pattern.search(line):
            return ProfilingError(cause, f"ncu reports: {line}", REMEDIES[cause])
    if _NO_SUCH_TARGET.search(line):
        return ProfilingError(
            ProfilingCause.TARGET_FAILED,
            f"The program could not be started: {line}",
            "Name an executable or a Python script that exists.",
        )
    return None


def warnings_of(evidence: RunEvidence, name: str) -> tuple[str, ...]:
    """What went wrong in a run that gave launches all the same.

    Args:
        evidence: the run.
        name: what to call it, e.g. `warm`.
    """
    if evidence.stopped == TIMEOUT:
        return (
            f"the time-out stopped the {name} run after {evidence.seconds:.0f} s: later launches "
            "are missing, and shares of time are those of the part that ran.",
        )
    warnings = []
    code = target_code(evidence)
    if code is not None:
        warnings.append(
            f"the program ended with {code_text(code)} in the {name} run; the launches before "
            "its end were profiled."
        )
    others = [e for e in error_lines(evidence) if not _TARGET_CODE.search(e)]
    if others:
        warnings.append(f"ncu reported an error in the {name} run: {others[0]}")
    return tuple(warnings)


def code_text(code: int) -> str:
    """An exit code as text; ncu passes the number of a signal on as if it were one."""
    name = _SIGNALS.get(abs(code))
    return f"exit code {code} (or signal {abs(code)}, {name})" if name else f"exit code {code}"


def _stopped(evidence: RunEvidence) -> ProfilingError:
    where = f"{evidence.kernels_done} kernel launches profiled"
    if evidence.kernel_name:
        where += f", the last one {evidence.kernel_name}"
    communicates = bool(COMMUNICATION.search(evidence.kernel_name or ""))
    if evidence.stopped == STUCK or (evidence.warned_slow and communicates):
        return ProfilingError(
            ProfilingCause.STUCK_COMMUNICATION,
            f"The kernel {evidence.kernel_name} does not end under ncu: it waits for kernels of "
            f"other processes or GPUs, which ncu holds back ({where}).",
            stuck_remedy(evidence.tool),
        )
    slow = (
        " ncu warned that a launch takes more time than expected." if evidence.warned_slow else ""
    )
    return ProfilingError(
        ProfilingCause.TIMEOUT,
        f"The time-out struck after {evidence.seconds:.0f} s: {where}.{slow}{_output(evidence)}",
        timeout_remedy(evidence.request),
    )


def _ncu_failed(evidence: RunEvidence, line: str) -> ProfilingError:
    found = f"ncu reports: {line}" if line else f"ncu ended with {code_text(evidence.returncode)}."
    return ProfilingError(
        ProfilingCause.NCU_FAILED,
        found + _output(evidence),
        "Run the program alone to see that it works; kernel-compass doctor tests ncu itself. If "
        "memory is short (ncu saves what a kernel writes), profile fewer launches or kernels.",
    )


def _target_failed(evidence: RunEvidence, code: int) -> ProfilingError:
    return ProfilingError(
        ProfilingCause.TARGET_FAILED,
        f"The program ended with {code_text(code)} before any kernel was profiled."
        + _output(evidence),
        "Run the program alone first: " + " ".join(evidence.request.command),
    )


def _nothing_profiled(evidence: RunEvidence) -> ProfilingError:
    processes = _CONNECTED.findall(evidence.log)
    if processes:
        named = ", ".join(f"{path} ({pid})" for pid, path in processes[:5])
        found = f"No kernel was profiled. Processes with CUDA that ncu saw: {named}"
        found += f" and {len(processes) - 5} more." if len(processes) > 5 else "."
    else:
        found = "No kernel was profiled: neither the program nor a process it started used CUDA."
    filters = filters_text(evidence.request)
    found += f" Filters on: {filters}." if filters else " No filter was on."
    remedy = nothing_profiled_remedy(evidence.request, bool(processes))
    return ProfilingError(ProfilingCause.NOTHING_PROFILED, found, remedy)


def filters_text(request: ProfileRequest) -> str:
    """The filters of a request as options, empty where there is none."""
    parts = []
    if request.kernels is not None:
        parts.append(f"--kernels {request.kernels}")
    if request.nvtx is not None:
        parts.append(f"--nvtx {request.nvtx}")
    if request.launch_skip:
        parts.append(f"--launch-skip {request.launch_skip}")
    if request.launch_count is not None:
        parts.append(f"--launch-count {request.launch_count}")
    return ", ".join(parts)


def _output(evidence: RunEvidence) -> str:
    """The last lines the target wrote, standard error before standard output."""
    own = [line for line in evidence.stderr_tail if not line.startswith("==")]
    lines = [line for line in (own or evidence.stdout_tail) if line.strip()][-_SHOWN_LINES:]
    return "\nThe program's last output:\n  " + "\n  ".join(lines) + "\n" if lines else ""
