"""Run a program under ncu and diagnose it."""

from __future__ import annotations

from collections.abc import Callable

from kernel_compass.api.diagnosing import diagnose_profiles
from kernel_compass.profiling.ncu_runner import Progress, run_profile
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
