"""The shape of a `kernel-compass/kernel-table/1` document: flat rows, the same in JSON and CSV.

`schemas/kernel-table-1.schema.json` says the same for other languages; a test holds them together.
"""

from __future__ import annotations

import msgspec

from kernel_compass.codec.json_reading import Int64

SCHEMA = "kernel-compass/kernel-table/1"


class RowDocument(msgspec.Struct):
    """One of `rows`; the fields are the columns of the CSV form, in order."""

    op: str
    heads: Int64
    tokens: Int64
    reduction: Int64
    columns: Int64
    format: str
    regime: str
    status: str
    weight_bytes: Int64
    moved_bytes: Int64
    flops: Int64
    model: str | None = None
    name: str | None = None
    layers: Int64 | None = None
    implementation: str | None = None
    layout: str = "serving"
    cache_fit: str = "unknown"
    floor_us: float | None = None
    floor_basis: str | None = None
    time_us: float | None = None
    spread_pct: float | None = None
    launches: Int64 | None = None
    tflops: float | None = None
    gb_s: float | None = None
    headroom: float | None = None
    model_us: float | None = None
    baseline_us: float | None = None
    speedup: float | None = None
    fidelity_error_pct: float | None = None
    format_error_pct: float | None = None
    reason: str | None = None
    warnings: str | None = None
    """Separated by `; `."""
    device: str | None = None
    compute_capability: str | None = None
    sm_count: Int64 | None = None
    l2_bytes: Int64 | None = None
    driver: str | None = None
    torch: str | None = None
    triton: str | None = None
    python: str | None = None
    kernel_compass: str | None = None
    date: str | None = None


DERIVED = ("flops", "tflops", "gb_s", "headroom", "model_us", "speedup")
"""Written for whoever reads, computed again when read."""


class TableDocument(msgspec.Struct):
    """The whole document."""

    schema: str
    calibration: str | None
    c_eff_bytes: float | None
    notes: list[str]
    rows: list[RowDocument]
