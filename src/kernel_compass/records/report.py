"""What a user is shown: the kernels of one program, ranked, in one or several regimes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernel_compass.records.device import Device
from kernel_compass.records.diagnosis import Diagnosis
from kernel_compass.records.profile import DurationStats, KernelProfile, Regime, Source
from kernel_compass.records.timeline import KernelTimeline, TimelineSummary


@dataclass(frozen=True)
class RegimeView:
    """One kernel as one regime's capture shows it."""

    launches: int
    duration_stats: DurationStats | None
    metrics: Mapping[str, float]
    diagnosis: Diagnosis


@dataclass(frozen=True)
class ReportKernel:
    """One kernel. `kernel.diagnosis` is set; it is that of the leading regime."""

    kernel: KernelProfile
    share_of_time: float | None
    """Share (0-1) of the capture's kernel time, `None` where durations are missing."""
    regimes: Mapping[Regime, RegimeView | None] | None = None
    """Per regime where several captures were joined; `None` with one capture."""
    timeline: KernelTimeline | None = None
    """What a timeline adds; `None` for captures of ncu."""


@dataclass(frozen=True)
class Report:
    """A diagnosed program: kernels ranked by share of time."""

    label: str | None
    device: Device | None
    sources: tuple[Source, ...]
    kernels: tuple[ReportKernel, ...]
    warnings: tuple[str, ...] = ()
    timeline: TimelineSummary | None = None
    """The program's use of its GPUs, where the report is of a timeline."""
    calibration: str | None = None
    """Name of the calibration the headrooms rest on; `None` = none was used."""
