"""One run of the target under ncu: start it, follow it, export its report, read the table."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_compass.errors import CaptureError, ProfilingCause, ProfilingError
from kernel_compass.profiling.capture import read_capture
from kernel_compass.profiling.ncu_command import (
    RunSpec,
    export_argv,
    ncu_environment,
    profile_argv,
)
from kernel_compass.profiling.ncu_failures import (
    STUCK,
    TIMEOUT,
    RunEvidence,
    failure_of,
    warnings_of,
)
from kernel_compass.profiling.ncu_process import Outcome, run_watched
from kernel_compass.profiling.ncu_progress import LogFollower, Progress
from kernel_compass.profiling.ncu_tool import NcuTool
from kernel_compass.profiling.quiet_run import run_quietly
from kernel_compass.records.profile import Profile, Regime
from kernel_compass.records.request import ProfileRequest

_EXPORT_TIMEOUT_S = 900.0


@dataclass(frozen=True)
class RunCapture:
    """What one run gave."""

    profile: Profile
    report: Path
    table: Path


@dataclass(frozen=True)
class NcuRuns:
    """Everything that the runs of one job have in common."""

    request: ProfileRequest
    tool: NcuTool
    work: Path
    """A temporary folder for reports, tables and logs."""
    on_progress: Callable[[Progress], None] | None
    target_stdout: int | None
    stuck_after_s: float
    deadline: float | None
    """On the monotonic clock; `None` for no limit."""

    def run(self, spec: RunSpec, regime: Regime) -> RunCapture:
        """Run ncu once and read its report.

        Raises:
            ProfilingError: there is nothing to read, or the target is stuck.
        """
        log = self.work / f"{spec.name}.log"
        report, table = log.with_suffix(".ncu-rep"), log.with_suffix(".csv")
        follower = LogFollower(log, regime.value, self.on_progress)
        if self._time_is_up():
            outcome = Outcome(0, TIMEOUT, (), (), 0.0)
        else:
            argv = profile_argv(self.tool, spec, self.request, report, log)
            outcome = self._watched(argv, follower)
            follower.poll()
        evidence = self._evidence(outcome, follower, log)
        if outcome.stopped == STUCK or not report.exists() or not self._export(report, table):
            raise failure_of(evidence)
        try:
            profile = read_capture(table, regime, self.request.label, self.request.each_launch)
        except CaptureError as error:
            raise _unread(evidence, error) from error
        warnings = (*warnings_of(evidence, spec.name), *profile.warnings)
        return RunCapture(replace(profile, warnings=warnings), report, table)

    def _watched(self, argv: list[str], follower: LogFollower) -> Outcome:
        def watch() -> str | None:
            follower.poll()
            if self._time_is_up():
                return TIMEOUT
            slow = follower.warned_slow or follower.idle_s > self.stuck_after_s
            return STUCK if slow and follower.waits_in_communication else None

        try:
            return run_watched(argv, ncu_environment(), watch, self.target_stdout)
        except OSError as error:
            raise ProfilingError(
                ProfilingCause.NCU_FAILED,
                f"{self.tool.path} cannot be run: {error.strerror}.",
                "kernel-compass doctor tests ncu.",
            ) from error

    def _time_is_up(self) -> bool:
        return self.deadline is not None and time.monotonic() > self.deadline

    def _evidence(self, outcome: Outcome, follower: LogFollower, log: Path) -> RunEvidence:
        text = ""
        with contextlib.suppress(OSError):
            text = log.read_text(encoding="utf-8", errors="replace")
        return RunEvidence(
            request=self.request,
            tool=self.tool,
            returncode=outcome.returncode,
            log=text,
            stdout_tail=outcome.stdout_tail,
            stderr_tail=outcome.stderr_tail,
            stopped=outcome.stopped,
            seconds=outcome.seconds,
            kernel_name=follower.kernel_name,
            kernels_done=follower.kernels_done,
            warned_slow=follower.warned_slow,
        )

    def _export(self, report: Path, table: Path) -> bool:
        """Turn the report into CSV; whether that gave a file."""
        try:
            run_quietly(export_argv(self.tool, report, table), _EXPORT_TIMEOUT_S, ncu_environment())
        except (OSError, subprocess.TimeoutExpired):
            return False
        return table.exists()


def _unread(evidence: RunEvidence, error: CaptureError) -> ProfilingError:
    """The run's own failure where it had one, else that its report cannot be read."""
    failure = failure_of(evidence)
    if evidence.stopped or failure.cause is not ProfilingCause.NOTHING_PROFILED:
        return failure
    return ProfilingError(
        ProfilingCause.NCU_FAILED,
        f"ncu's report cannot be read: {error.found}",
        "kernel-compass doctor tests ncu; another version of it may help "
        "(KERNEL_COMPASS_NCU=/path/to/ncu).",
    )
