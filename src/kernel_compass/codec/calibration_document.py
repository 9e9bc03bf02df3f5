"""The shape of a `kernel-compass/calibration/1` document, field by field, as msgspec sees it.

`schemas/calibration-1.schema.json` says the same for other languages; a test holds the two
together.
"""

from __future__ import annotations

import msgspec

NAME = "kernel-compass/calibration"
VERSION = 1
SCHEMA = f"{NAME}/{VERSION}"


class Part(msgspec.Struct, forbid_unknown_fields=True):
    """What all parts have in common: a misspelt key is an error, never ignored."""


class DeviceDocument(Part):
    """`environment.device`."""

    name: str | None
    compute_capability: str | None = None
    sm_count: int | None = None
    l2_bytes: int | None = None


class EnvironmentDocument(Part):
    """`environment`."""

    device: DeviceDocument
    driver: str | None = None
    torch: str | None = None
    triton: str | None = None
    python: str | None = None
    kernel_compass: str | None = None
    date: str | None = None


class QuantityDocument(Part):
    """A calibrated number; `value` is null exactly where `basis` is `absent`."""

    value: float | None
    basis: str
    source: str
    low: float | None = None
    high: float | None = None


class PointDocument(Part):
    """One of `points`."""

    bytes: int
    duration_us: float
    basis: str = "measured"


class CurveDocument(Part):
    """One of `curves`."""

    access: str
    regime: str
    source: str
    points: list[PointDocument]


class NoiseDocument(Part):
    """`noise`."""

    within_process_pct: QuantityDocument
    between_processes_pct: QuantityDocument


Quantities = dict[str, QuantityDocument]


class Document(Part):
    """The whole document."""

    schema: str
    name: str
    environment: EnvironmentDocument
    launch_mode: str
    curves: list[CurveDocument]
    c_eff_bytes: QuantityDocument
    peak_tflops: Quantities
    dequantization_tweights_s: Quantities
    t0_graph_us: QuantityDocument
    t0_eager_us: QuantityDocument
    bytes_in_flight: Quantities
    noise: NoiseDocument
    datasheet: Quantities
    notes: list[str]


class Heading(msgspec.Struct):
    """What is read first: which document it is."""

    schema: str
