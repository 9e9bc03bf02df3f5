"""Why recording a timeline gave nothing, or not all: what was seen and what to do. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernel_compass.errors import (
    INSTALL_TORCH,
    MissingDependency,
    NotATimeline,
    ProfilingCause,
    ProfilingError,
)
from kernel_compass.profiling.ncu_failures import TIMEOUT, code_text
from kernel_compass.profiling.ncu_process import Outcome
from kernel_compass.profiling.torch_runner import NO_TORCH
from kernel_compass.records.request import ProfileRequest

_SHOWN_LINES = 8
_PROFILER_LOG = ("USDT:", "INFO:", "STAGE:")
"""How lines begin that torch.profiler itself logs."""


def no_trace(
    outcome: Outcome, status: Mapping[str, Any], request: ProfileRequest
) -> ProfilingError | MissingDependency:
    """Why a run left no trace.

    Args:
        outcome: how the program ended.
        status: what the runner told.
        request: what was asked for.
    """
    if outcome.returncode == NO_TORCH and "no_torch" in status:
        return MissingDependency(
            f"{request.command[0]} cannot import torch.profiler: {status['no_torch']}.",
            f"Install PyTorch there ({INSTALL_TORCH}), or run kernel-compass with the Python that "
            "the program uses.",
        )
    if outcome.stopped == TIMEOUT:
        return ProfilingError(
            ProfilingCause.TIMEOUT,
            f"The time-out struck after {outcome.seconds:.0f} s, and the program wrote no trace."
            + _output(outcome),
            "Give more time, --timeout SECONDS, or make the program do less.",
        )
    if "export_error" in status:
        return ProfilingError(
            ProfilingCause.TARGET_FAILED,
            f"torch.profiler could not write the trace: {status['export_error']}."
            + _output(outcome),
            "If the program uses torch.profiler itself, leave that out: two cannot record at once; "
            "or hand its own trace to kernel-compass diagnose.",
        )
    if outcome.returncode:
        return target_failed(outcome.returncode, outcome, request)
    return ProfilingError(
        ProfilingCause.NOTHING_PROFILED,
        "The program ended without giving Python the chance to write the trace (os._exit or exec)."
        + _output(outcome),
        "Let it end by returning or by sys.exit.",
    )


def target_failed(code: int, outcome: Outcome, request: ProfileRequest) -> ProfilingError:
    """The program ended badly before it did anything on a GPU."""
    return ProfilingError(
        ProfilingCause.TARGET_FAILED,
        f"The program ended with {code_text(code)} before any GPU work was recorded."
        + _output(outcome),
        "Run the program alone first: " + " ".join(request.command),
    )


def nothing_recorded(error: NotATimeline, status: Mapping[str, Any]) -> ProfilingError:
    """No GPU events, with what is known of why."""
    recorded = ", ".join(map(str, status.get("activities", ()))) or "unknown"
    what = error.found.partition(" is a trace without GPU events: ")[2] or error.found
    found = f"No GPU work was recorded: {what} Recorded activities: {recorded}."
    children = status.get("children", 0)
    remedy = "Check that the program uses the GPU: python -c 'import torch; print(torch.cuda."
    remedy += "is_available())'; kernel-compass doctor."
    if children:
        found += f" The program started {children} other processes, which are not recorded."
        remedy += (
            " If those do the work, profile one of them, or let it all run in one process (vLLM: "
            "VLLM_ENABLE_V1_MULTIPROCESSING=0), or record with the server's own profiler and read "
            "that: kernel-compass diagnose FOLDER."
        )
    return ProfilingError(ProfilingCause.NOTHING_PROFILED, found, remedy)


def notes_of(outcome: Outcome, status: Mapping[str, Any]) -> list[str]:
    """What went wrong in a run that gave a trace all the same."""
    notes = []
    code = status.get("code")
    if outcome.stopped == TIMEOUT:
        notes.append(
            f"the time-out stopped the program after {outcome.seconds:.0f} s: what it would have "
            "done later is missing."
        )
    elif code:
        notes.append(f"the program ended with {code_text(int(code))}; what ran before is reported.")
    if status.get("children"):
        notes.append(
            f"the program started {status['children']} other processes; what they did on a GPU is "
            "not recorded."
        )
    return notes


def _output(outcome: Outcome) -> str:
    """The last lines the target wrote, standard error before standard output."""
    own = [line for line in outcome.stderr_tail if not line.startswith(_PROFILER_LOG)]
    lines = [line for line in (own or outcome.stdout_tail) if line.strip()]
    shown = lines[-_SHOWN_LINES:]
    return "\nThe program's last output:\n  " + "\n  ".join(shown) + "\n" if shown else ""
