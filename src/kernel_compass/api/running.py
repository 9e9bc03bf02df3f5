"""Run a program under ncu, or under torch.profiler without counters, and diagnose it."""

from __future__ import annotations

from collections.abc import Callable

from kernel_compass.api.diagnosing import diagnose_profiles
from kernel_compass.api.timelines import diagnose_traces
from kernel_compass.profiling.ncu_runner import Progress, run_profile
from kernel_compass.profiling.timeline_runner import TimelineProgress, run_timeline
from kernel_compass.records.report import Report
from kernel_compass.records.request import ProfileRequest


def profile_target(
    request: ProfileRequest,
    on_progress: Callable[[Progress], None] | None = None,
    target_stdout: int | None = None,
    calibration: str | None = None,
) -> Report:
    """Profile the request's program in its regimes and diagnose what was seen.

    Args:
        request: target, regimes, filters.
        on_progress: called while ncu works.
        target_stdout: file descriptor for the program's own standard output; default: inherit.
        calibration: as in `diagnose_files`.

    Raises:
        ProfilingError: ncu or the program failed, or nothing was profiled.
    """
    profiles = run_profile(request, on_progress, target_stdout)
    return diagnose_profiles(profiles, request.label, calibration)


def profile_timeline(
    request: ProfileRequest,
    on_progress: Callable[[TimelineProgress], None] | None = None,
    target_stdout: int | None = None,
    calibration: str | None = None,
) -> list[Report]:
    """Run the request's Python program under torch.profiler, without counters, and diagnose it.

    Args:
        request: target, time-out, folder; regimes and filters are not used.
        on_progress: called while the program runs.
        target_stdout: file descriptor for the program's own standard output; default: inherit.
        calibration: as in `diagnose_files`.

    Raises:
        UsageError: the target is no Python program.
        MissingDependency: its Python has no torch.
        ProfilingError: the program failed, or did no work on a GPU.
    """
    traces = run_timeline(request, on_progress, target_stdout)
    return diagnose_traces(traces, request.label, calibration)
