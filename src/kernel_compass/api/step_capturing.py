"""Capture a program's step, or take a server's trace for it."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kernel_compass.analysis.floor import Floors
from kernel_compass.analysis.step_groups import groups_of
from kernel_compass.analysis.step_join import joined
from kernel_compass.analysis.step_traces import capture_of
from kernel_compass.analysis.timeline_diagnosis import Floor
from kernel_compass.analysis.timeline_runs import TYPICAL, FixedCost
from kernel_compass.api.calibration_choice import capture_calibration, missing_calibration
from kernel_compass.api.step_counting import counted_launches, counters_of
from kernel_compass.api.timelines import diagnose_traces, floor_by
from kernel_compass.codec.step_capture_document import decode
from kernel_compass.errors import (
    INSTALL_TORCH,
    CaptureError,
    MissingDependency,
    ProfilingCause,
    ProfilingError,
    UsageError,
)
from kernel_compass.profiling import step_child
from kernel_compass.profiling.kineto import read_traces
from kernel_compass.profiling.ncu_process import Outcome, run_watched
from kernel_compass.profiling.ncu_tool import find_ncu
from kernel_compass.profiling.step_measuring import MARKS, TIMES
from kernel_compass.records.calibration import Calibration
from kernel_compass.records.profile import Profile, Regime
from kernel_compass.records.step_capture import StepCapture
from kernel_compass.records.step_program import Program
from kernel_compass.records.trace import GpuEvent, Trace
from kernel_compass.records.workload import Traffic
from kernel_compass.report.step_capture import text_of

HEARTBEAT_S = 1.0
_TIMEOUT = "time-out"


def capture_program(
    program: Program,
    calibration: str | None = None,
    timeout_s: float | None = None,
    on_progress: Callable[[float], None] | None = None,
    target_stdout: int | None = None,
    counters: bool = False,
) -> StepCapture:
    """Run a program in a process of its own and capture its step.

    What it prints, its exit code and its results are its own.

    Args:
        program: what is run.
        calibration: what floors rest on, as in `diagnose_files`.
        timeout_s: after so long it is stopped, and nothing is captured.
        on_progress: told the seconds, about once a second.
        target_stdout: file descriptor for the program's standard output, by default ours.
        counters: run the program under ncu as well, twice, and let its counters say what limits
            each kernel.

    Raises:
        MissingDependency: there is no torch.
        UsageError: there is no such file or function.
        ProfilingError: the program failed, was stopped, has no step, or its step cannot be called
            again; with `counters` also that there is no ncu.
        KeyboardInterrupt: interrupted; every process of the program has ended by then.
    """
    if counters:
        find_ncu()
    with tempfile.TemporaryDirectory(prefix="kernel-compass-", ignore_cleanup_errors=True) as work:
        folder = Path(work)
        argv = child_argv("capture", folder, program)
        outcome = run_watched(argv, os.environ, _watch(timeout_s, on_progress), target_stdout)
        file = folder / step_child.CAPTURE
        if not file.is_file():
            raise _failure(folder / step_child.ERROR, outcome, program, timeout_s)
        launches = None
        if counters and (folder / TIMES).is_file():
            argv = child_argv(step_child.COUNT, folder, program)
            launches = counted_launches(argv, timeout_s, target_stdout)
        return capture_in(folder, calibration, launches)


def child_argv(how: str, folder: Path, program: Program) -> list[str]:
    """The process that runs a program and captures its step, or has ncu count it."""
    argv = [sys.executable, step_child.__file__, how, str(folder), program.kind.value]
    return [*argv, program.target, shown_name(program), program.inputs, *program.arguments]


def capture_in(
    folder: Path, calibration: str | None = None, launches: Profile | str | None = None
) -> StepCapture:
    """The capture that a program's process left in a folder, joined to its traces.

    Args:
        folder: where.
        calibration: what floors rest on.
        launches: of the step under ncu; a text says why there are none.

    Raises:
        ProfilingError: nothing is computed in it.
    """
    capture = decode((folder / step_child.CAPTURE).read_bytes(), "The capture")
    if (folder / TIMES).is_file():
        capture = _with_kernels(capture, folder, calibration, launches)
    if not (capture.ops or capture.launches or capture.regions or capture.kernels):
        raise _empty(capture)
    return capture


def _empty(capture: StepCapture) -> ProfilingError:
    also = "".join(f" It has {one.what}: {one.why}." for one in capture.not_handled[:1])
    return ProfilingError(
        ProfilingCause.NOTHING_PROFILED,
        f"{capture.program} has no step: called once more, {capture.step} runs no operator of "
        f"torch, no Triton kernel and no compiled function.{also}",
        "Name a function that makes the inputs and returns what is called: kernel-compass capture "
        "--entry FILE.py:FUNCTION; or of a server a trace: kernel-compass capture --trace FILE.",
    )


def shown_name(program: Program) -> str:
    """A program as the user named it, without folders."""
    if program.file is None:
        return program.target
    name = Path(program.file).name
    return f"{name}:{program.function}" if program.function else name


def capture_trace(path: Path, calibration: str | None = None) -> tuple[StepCapture, ...]:
    """What a server's own profiler recorded, as captures: one for every rank.

    Args:
        path: a trace that torch.profiler wrote.
        calibration: as in `diagnose_files`.

    Raises:
        NotATimeline: it is no trace of a GPU.
        AmbiguousCapture: several ranks that cannot be taken apart.
        DamagedCapture: it is cut off or malformed.
    """
    found = []
    for trace in read_traces(path):
        floor, notes = _floor(calibration, trace)
        capture = capture_of(trace, path.name, floor, _limiters(trace, calibration))
        found.append(replace(capture, notes=(*capture.notes, *notes)))
    return tuple(found)


def report_of(
    capture: StepCapture, calibration: str | None = None, width: int = 100, all_rows: bool = False
) -> str:
    """A capture as text: its table, its groups, what is not handled."""
    fixed, stream_us = step_costs(capture, calibration)
    return text_of(capture, groups_of(capture, fixed, stream_us), width, all_rows)


def step_costs(
    capture: StepCapture, calibration: str | None = None
) -> tuple[FixedCost, Callable[[int], float | None] | None]:
    """What a launch costs on a capture's GPU, and the least time to move bytes there."""
    machine = _machine(capture, calibration)
    if machine is None:
        return TYPICAL, None
    floors = Floors(machine)

    def stream_us(size: int) -> float | None:
        found = floors.of(Traffic(0, size, 0, 0, math="fp32"), Regime.WARM)
        return None if found is None else found.time_us

    return FixedCost.of(machine.t0_graph_us.value), stream_us


def _machine(capture: StepCapture, word: str | None) -> Calibration | None:
    device = capture.environment.device
    return capture_calibration(word, device) if device.name else None


def _watch(
    timeout_s: float | None, on_progress: Callable[[float], None] | None
) -> Callable[[], str | None]:
    start = told = time.monotonic()

    def watch() -> str | None:
        nonlocal told
        now = time.monotonic()
        if on_progress is not None and now - told >= HEARTBEAT_S:
            told = now
            on_progress(now - start)
        return _TIMEOUT if timeout_s is not None and now - start > timeout_s else None

    return watch


def _with_kernels(
    capture: StepCapture,
    folder: Path,
    calibration: str | None,
    launches: Profile | str | None,
) -> StepCapture:
    """The capture joined to its traces; without them it says why."""
    try:
        (times, *_), (marks, *_) = (read_traces(folder / name) for name in (TIMES, MARKS))
    except CaptureError as error:
        return replace(capture, notes=(*capture.notes, f"no kernels: {error.found}"))
    floor, notes = _floor(calibration, times)
    counters = counters_of(times, launches, calibration)
    limiters = _limiters(times, calibration)
    found = joined(capture, times, marks, floor, limiters, counters.launches)
    return replace(found, notes=(*found.notes, *notes, *counters.notes))


def _floor(word: str | None, trace: Trace) -> tuple[Floor | None, Sequence[str]]:
    machine = capture_calibration(word, trace.device)
    if machine is None:
        return None, missing_calibration(word, trace.device, "no headroom")
    return floor_by(machine), ()


def _limiters(trace: Trace, calibration: str | None) -> Callable[[GpuEvent], str | None]:
    """What the diagnosis of the timeline says of each kernel."""
    (report,) = diagnose_traces([trace], None, calibration)
    found: Mapping[tuple[object, ...], str] = {
        (row.kernel.name, row.kernel.grid, row.kernel.block): row.kernel.diagnosis.limiter.value
        for row in report.kernels
        if row.kernel.diagnosis is not None
    }
    return lambda event: found.get((event.name, event.shape.grid, event.shape.block))


def _failure(
    file: Path, outcome: Outcome, program: Program, timeout_s: float | None
) -> MissingDependency | UsageError | ProfilingError:
    if outcome.stopped == _TIMEOUT:
        return ProfilingError(
            ProfilingCause.TIMEOUT,
            f"{program.target} was stopped after {timeout_s:g} s; nothing was captured.",
            "Give it longer with --timeout, or make it do fewer steps.",
        )
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        last = outcome.stderr_tail[-1] if outcome.stderr_tail else "it said nothing"
        return ProfilingError(
            ProfilingCause.TARGET_FAILED,
            f"{program.target} ended with {_ending(outcome.returncode)} before its step could be "
            f"captured; its last line: {last}",
            "A program that ends itself (os._exit, a signal) leaves nothing to capture: name its "
            "step with --entry FILE.py:FUNCTION.",
        )
    if told["kind"] == "MissingDependency":
        return MissingDependency(told["found"], told["remedy"] or INSTALL_TORCH)
    if told["kind"] == "UsageError":
        return UsageError(told["found"], told["remedy"])
    cause = told["cause"] or ProfilingCause.TARGET_FAILED.value
    return ProfilingError(ProfilingCause(cause), told["found"], told["remedy"])


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
