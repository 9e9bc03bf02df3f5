"""The shape of a `kernel-compass/advice/1` document, field by field, as msgspec sees it.

`schemas/advice-1.schema.json` says the same for other languages; a test holds the two together.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from kernel_compass.codec.diagnosis_document import DeviceDocument
from kernel_compass.codec.json_reading import Int64

SCHEMA = "kernel-compass/advice/1"


class WorkloadDocument(msgspec.Struct):
    """`workload`; `heads` is 1 for `linear`."""

    op: str
    heads: Int64
    tokens: Int64
    reduction: Int64
    columns: Int64
    name: str | None = None


class ErrorDocument(msgspec.Struct):
    """One of `errors`."""

    format: str
    relative_pct: float


class FloorDocument(msgspec.Struct):
    """`floor`."""

    time_us: float
    high_us: float | None
    bound: str
    basis: str
    notes: list[str]


class EstimateDocument(msgspec.Struct):
    """`estimate`."""

    time_us: float
    low_us: float
    high_us: float
    bound: str


class FormatDocument(msgspec.Struct):
    """One of `formats`."""

    precision: str
    weight_bytes: Int64
    working_set_bytes: Int64
    cache_fit: str
    floor: FloorDocument | None
    estimate: EstimateDocument | None
    at_most: float | None
    errors: list[ErrorDocument]
    within_budget: bool | None
    verdict: str | None
    reason: str
    l2_flops_per_byte: float | UnsetType = UNSET
    dram_flops_per_byte: float | UnsetType = UNSET


class RegimeDocument(msgspec.Struct):
    """One of `regimes`."""

    regime: str
    formats: list[FormatDocument]


class WorkloadAdviceDocument(msgspec.Struct):
    """One of `workloads`."""

    workload: WorkloadDocument
    layers: Int64 | None
    sharded: str | None
    assumption: str | None
    regimes: list[RegimeDocument]


class TotalDocument(msgspec.Struct):
    """One of `totals`."""

    tokens: Int64
    regime: str
    precision: str
    estimate_us: float | None
    floor_us: float | None


class AdviceDocument(msgspec.Struct):
    """The whole document."""

    schema: str
    calibration: str
    device: DeviceDocument
    launch_mode: str
    budget_pct: float | None
    model: str | None
    tp: Int64 | None
    workloads: list[WorkloadAdviceDocument]
    totals: list[TotalDocument]
    notes: list[str]
