"""The shape of a `kernel-compass/diagnosis/1` document, field by field, as msgspec sees it.

`schemas/diagnosis-1.schema.json` says the same for other languages; a test holds the two together.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from kernel_compass.codec.json_reading import Int64
from kernel_compass.records.timeline import KernelTimeline, TimelineSummary

SCHEMA = "kernel-compass/diagnosis/1"

REQUIRED_METRICS = (
    "sm_throughput_pct",
    "dram_throughput_pct",
    "l2_throughput_pct",
    "l1_throughput_pct",
    "l2_hit_rate_pct",
    "achieved_occupancy_pct",
    "theoretical_occupancy_pct",
    "registers_per_thread",
    "waves_per_sm",
    "tensor_pipe_pct",
    "dram_bytes_read",
    "dram_bytes_written",
    "l2_bytes_read",
)
"""Keys that `metrics` always carries, `null` where the capture has no value."""

Grid = tuple[Int64, Int64, Int64]
Metrics = dict[str, float | None]


class DeviceDocument(msgspec.Struct):
    """`device`."""

    name: str | None = None
    compute_capability: str | None = None
    sm_count: Int64 | None = None
    l2_bytes: Int64 | None = None


class SourceDocument(msgspec.Struct):
    """One of `sources`."""

    path: str | None
    format: str
    regime: str = "unknown"
    cache_control: str | None = None
    clock_control: str | None = None
    replay_mode: str | None = None
    ncu_version: str | None = None


class DurationDocument(msgspec.Struct):
    """`duration_us`."""

    mean: float
    median: float
    min: float
    max: float
    total: float


class EvidenceDocument(msgspec.Struct):
    """One of `evidence`; `threshold` is there only where a rule has one."""

    metric: str
    value: float
    unit: str
    meaning: str
    threshold: float | UnsetType = UNSET


class HeadroomDocument(msgspec.Struct):
    """`headroom`."""

    value: float
    basis: str


class DiagnosisDocument(msgspec.Struct):
    """`diagnosis`."""

    limiter: str
    pipe: str | None
    confidence: float
    evidence: list[EvidenceDocument]
    flags: list[str]
    reuse: str | None
    headroom: HeadroomDocument | None
    advice: list[str]


class RegimeDocument(msgspec.Struct):
    """One of `regimes`."""

    launches: Int64
    duration_us: DurationDocument | None
    metrics: Metrics
    diagnosis: DiagnosisDocument


class KernelDocument(msgspec.Struct):
    """One of `kernels`; `device` is there only in captures of several GPUs, `timeline` only where
    the report is of a timeline."""

    name: str
    grid: Grid | None
    block: Grid | None
    launches: Int64
    share_of_time: float | None
    duration_us: DurationDocument | None
    metrics: Metrics
    diagnosis: DiagnosisDocument
    regimes: dict[str, RegimeDocument | None] | UnsetType = UNSET
    device: Int64 | UnsetType = UNSET
    timeline: KernelTimeline | UnsetType = UNSET


class Document(msgspec.Struct):
    """The whole document; `calibration` is there only where one was used, `timeline` only where the
    report is of one."""

    schema: str
    label: str | None
    warnings: list[str]
    device: DeviceDocument | None
    sources: list[SourceDocument]
    kernels: list[KernelDocument]
    timeline: TimelineSummary | UnsetType = UNSET
    calibration: str | UnsetType = UNSET
