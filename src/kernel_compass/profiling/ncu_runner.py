"""Profile a program: run it under ncu as often as its regimes need, and keep what comes out."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from kernel_compass.errors import ProfilingCause, ProfilingError
from kernel_compass.profiling.device_probe import choose_metrics, probe_gpus
from kernel_compass.profiling.ncu_command import CLOCK_CONTROL, RunSpec
from kernel_compass.profiling.ncu_progress import Progress
from kernel_compass.profiling.ncu_regimes import (
    RegimePlan,
    overlaid,
    plan,
    replay_mode_text,
    took_one_pass,
)
from kernel_compass.profiling.ncu_run import NcuRuns, RunCapture
from kernel_compass.profiling.ncu_saved import CaptureFolder
from kernel_compass.profiling.ncu_tool import find_ncu
from kernel_compass.records.profile import Profile, Source, SourceFormat
from kernel_compass.records.request import ProfileRequest

__all__ = ["Progress", "run_profile"]

STUCK_AFTER_S = 30.0
"""A communication kernel without progress for this long does not end any more."""


def run_profile(
    request: ProfileRequest,
    on_progress: Callable[[Progress], None] | None = None,
    target_stdout: int | None = None,
    stuck_after_s: float = STUCK_AFTER_S,
) -> tuple[Profile, ...]:
    """Run the target under ncu and read one profile per regime, in the order asked for.

    The target runs once for `warm`, once for `cold` and twice for `in_situ` (once where `warm` is
    asked for as well). `timeout_s` is for the whole job: when it strikes, what was profiled until
    then is returned with warnings, and only a job that has nothing fails. A capture is kept in
    `save_dir` as soon as its regime is complete.

    Args:
        request: target, regimes and filters.
        on_progress: told about every kernel, and at least once a second.
        target_stdout: file descriptor for the target's standard output, by default ours.
        stuck_after_s: seconds without progress after which a communication kernel is given up.

    Raises:
        ProfilingError: ncu or the target failed, or nothing was profiled.
        UsageError: the request names no regime, or `save_dir` cannot be used.
        KeyboardInterrupt: interrupted; by then every process of the job has ended, and the
            regimes that were complete are kept.
    """
    with ThreadPoolExecutor(1) as pool:
        probing = pool.submit(probe_gpus)
        tool = find_ncu()
        gpus = probing.result()
    metrics = choose_metrics(gpus, tool.version)
    plans = plan(request.regimes, metrics)
    folder = None
    if request.save_dir is not None:
        folder = CaptureFolder(request.save_dir, request, [gpu.name for gpu in gpus])
    limit = request.timeout_s
    deadline = None if limit is None else time.monotonic() + limit
    with tempfile.TemporaryDirectory(prefix="kernel-compass-", ignore_cleanup_errors=True) as work:
        shared = (on_progress, target_stdout, stuck_after_s, deadline)
        job = _Job(NcuRuns(request, tool, Path(work), *shared), folder)
        profiles = job.profiles(plans)
    first = replace(profiles[0], warnings=(*metrics.warnings, *profiles[0].warnings))
    return (first, *profiles[1:])


class _Job:
    """One request on its way; a run that several regimes share is made once."""

    def __init__(self, runs: NcuRuns, folder: CaptureFolder | None) -> None:
        self._runs = runs
        self._folder = folder
        self._captures: dict[RunSpec, RunCapture] = {}

    def profiles(self, plans: Sequence[RegimePlan]) -> tuple[Profile, ...]:
        """The profiles of the regimes; those for which the time did not suffice are left out."""
        done: list[Profile] = []
        missed: list[str] = []
        for one in plans:
            try:
                done.append(self._profile(one))
            except ProfilingError as error:
                if error.cause is not ProfilingCause.TIMEOUT or not done:
                    raise
                missed.append(one.regime.value)
        if missed:
            limit = self._runs.request.timeout_s
            note = f"the time-out of {limit:g} s left no time for: {', '.join(missed)}."
            done[0] = replace(done[0], warnings=(*done[0].warnings, note))
        return tuple(done)

    def _profile(self, one: RegimePlan) -> Profile:
        base = self._capture(one.base, one)
        spec = one.residency
        residency = self._capture(spec, one) if spec else None
        if residency and one.fallback and not took_one_pass(residency.profile):
            spec, residency = one.fallback, self._capture(one.fallback, one)
        profile = overlaid(base.profile, residency.profile) if residency else base.profile
        source = Source(
            path=None,
            format=SourceFormat.NCU_RUN,
            regime=one.regime,
            cache_control=one.base.cache_control,
            clock_control=CLOCK_CONTROL,
            replay_mode=replay_mode_text(one.base, spec),
            ncu_version=self._runs.tool.version,
        )
        profile = replace(profile, source=source)
        if self._folder is None:
            return profile
        runs = [(one.base, base), *([(spec, residency)] if spec and residency else [])]
        return _kept(self._folder, profile, runs)

    def _capture(self, spec: RunSpec, one: RegimePlan) -> RunCapture:
        if spec not in self._captures:
            self._captures[spec] = self._runs.run(spec, one.regime)
        return self._captures[spec]


def _kept(
    folder: CaptureFolder, profile: Profile, runs: Sequence[tuple[RunSpec, RunCapture]]
) -> Profile:
    """The profile with the path of its files; a full disk costs the files, not the result."""
    try:
        files = [folder.keep(spec.name, run.report, run.table) for spec, run in runs]
        folder.add(profile.source, files)
    except OSError as error:
        note = f"the capture could not be kept: {error.strerror or error}."
        return replace(profile, warnings=(*profile.warnings, note))
    return replace(profile, source=replace(profile.source, path=str(files[-1].table)))
