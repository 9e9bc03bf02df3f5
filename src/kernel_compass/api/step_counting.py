"""A program's step once more under ncu: launches with counters, and what those say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernel_compass.analysis.step_counters import Counted, counted, paired
from kernel_compass.analysis.step_join import usual_steps
from kernel_compass.analysis.timeline_match import seen_in
from kernel_compass.analysis.timeline_runs import TYPICAL, FixedCost
from kernel_compass.api.calibration_choice import capture_calibration
from kernel_compass.api.timelines import diagnose_traces
from kernel_compass.errors import CaptureError, KernelCompassError
from kernel_compass.profiling.ncu_runner import run_profile
from kernel_compass.profiling.step_measuring import RANGE
from kernel_compass.records.profile import Profile, Regime
from kernel_compass.records.request import ProfileRequest
from kernel_compass.records.trace import Trace


@dataclass(frozen=True)
class StepCounters:
    """Of each event of the step's timeline what counters say, and what has to be said of that."""

    launches: Sequence[Counted | None] = ()
    notes: tuple[str, ...] = ()


def counted_launches(
    command: Sequence[str], timeout_s: float | None = None, target_stdout: int | None = None
) -> Profile | str:
    """Run the program's process under ncu: the launches of one step, as the step leaves caches.

    What goes wrong costs the counters alone.

    Args:
        command: the process that calls the step in its range.
        timeout_s: of all runs together.
        target_stdout: file descriptor for the program's standard output.

    Returns:
        The launches in their order, or why there are none.
    """
    request = ProfileRequest(
        tuple(command), (Regime.IN_SITU,), nvtx=RANGE, timeout_s=timeout_s, each_launch=True
    )
    try:
        (found,) = run_profile(request, target_stdout=target_stdout)
    except (KernelCompassError, CaptureError) as error:
        return f"no counters: {error.found} {error.remedy}".strip()
    return found


def counters_of(
    times: Trace, launches: Profile | str | None, calibration: str | None = None
) -> StepCounters:
    """What counters say of the step whose timeline is joined to its operators.

    Args:
        times: the step as it is.
        launches: under ncu; a text says why there are none.
        calibration: what floors rest on.
    """
    steps = usual_steps(times)
    if launches is None or not steps:
        return StepCounters()
    if isinstance(launches, str):
        return StepCounters(notes=(launches,))
    pairs = paired(steps[0], launches.kernels)
    machine = capture_calibration(calibration, times.device)
    (report,) = diagnose_traces([times], None, calibration)
    fixed = TYPICAL if machine is None else FixedCost.of(machine.t0_graph_us.value)
    seen = seen_in(report, [item.kernel for item in report.kernels], fixed)
    found = counted(steps[0], pairs.launches, launches, machine, seen)
    return StepCounters(found, (*pairs.notes, *launches.warnings))
