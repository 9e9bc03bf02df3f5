"""The GPU a capture was taken on."""

from __future__ import annotations

from dataclasses import dataclass

CPU, SIMULATED = "cpu", "simulated"
"""Devices that are no GPU, as commands and tasks name them."""


@dataclass(frozen=True)
class Device:
    """One GPU model; every field may be unknown (`None`), none is looked up in a table."""

    name: str | None = None
    """As the driver calls it, e.g. `NVIDIA H200`."""
    compute_capability: str | None = None
    """`major.minor`, e.g. `9.0`."""
    sm_count: int | None = None
    l2_bytes: int | None = None
    """Nominal L2 capacity as the driver reports it; the effective one is smaller."""
