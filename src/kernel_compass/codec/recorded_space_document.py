"""The shape of a `kernel-compass/recorded-space/1` document, which is stored in gzip."""

from __future__ import annotations

import msgspec

from kernel_compass.codec.json_reading import Int64

SCHEMA = "kernel-compass/recorded-space/1"


class PointDocument(msgspec.Struct, omit_defaults=True):
    """One of `points`."""

    config: dict[str, bool | Int64 | str]
    warm_us: float | None = None
    cold_us: float | None = None
    failure: str | None = None
    detail: str | None = None
    error: float | None = None
    static: dict[str, float] = {}


class WorkloadDocument(msgspec.Struct, omit_defaults=True):
    """The product."""

    op: str
    heads: Int64
    tokens: Int64
    reduction: Int64
    columns: Int64
    name: str | None = None


class EnvironmentDocument(msgspec.Struct, omit_defaults=True):
    """The machine and its software."""

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


class SpaceDocument(msgspec.Struct):
    """The whole document."""

    schema: str
    workload: WorkloadDocument
    format: str
    implementation: str
    method: str
    total: Int64
    environment: EnvironmentDocument
    points: list[PointDocument]
