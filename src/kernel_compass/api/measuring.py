"""Times in a regime, and whether cold is cold."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kernel_compass.errors import ProfilingError
from kernel_compass.measurement import fresh
from kernel_compass.measurement.device import TimingDevice
from kernel_compass.measurement.recipe import Recipe
from kernel_compass.measurement.subject import Subject
from kernel_compass.measurement.timing import TimingOptions, measure
from kernel_compass.profiling.graph_traffic import graph_traffic

__all__ = [
    "ColdCheck",
    "Recipe",
    "Subject",
    "TimingOptions",
    "measure",
    "open_device",
    "verify_cold",
]

COLD_SHARE = 0.9
"""A cold launch reads at least this share of its streamed bytes from DRAM."""


def open_device(name: str = "cuda:0") -> TimingDevice:
    """A GPU to time on, or `simulated`.

    Raises:
        MissingDependency: torch is not installed.
        MeasurementError: there is no GPU.
    """
    return fresh.device_named(name)


@dataclass(frozen=True)
class ColdCheck:
    """Whether rotated launches read their operands from DRAM."""

    cold: bool | None
    """`None` where counters cannot be read; `reason` says why."""
    dram_share: float | None
    """DRAM bytes read by a launch over the bytes of one set of streamed operands; over 1 where it
    reads more than these."""
    reason: str


def verify_cold(recipe: Recipe, device: str = "cuda:0") -> ColdCheck:
    """Count, under ncu, the DRAM bytes that a rotated launch reads.

    Once a kernel: the launches of a replay are profiled as one CUDA graph, in one pass.

    Args:
        recipe: builds the subject; it is built in a process of its own.
        device: `cuda:0` and the like.
    """
    request = json.dumps({"recipe": recipe.document(), "device": device})
    try:
        traffic = graph_traffic([sys.executable, "-m", fresh.__name__, request])
    except ProfilingError as error:
        return ColdCheck(None, None, f"DRAM bytes could not be read: {error.found}")
    told = _told(traffic.printed)
    if "error" in told:
        return ColdCheck(None, None, told["error"])
    if traffic.failure is not None or not told:
        found = traffic.failure.found if traffic.failure else "the program did not report."
        return ColdCheck(None, None, f"DRAM bytes could not be read: {found}")
    share = traffic.dram_bytes_read[-1] / told["launches"] / told["streamed_bytes"]
    words = f"a launch reads {share:.0%} of its streamed bytes from DRAM"
    return ColdCheck(share >= COLD_SHARE, share, words)


def _told(printed: Sequence[str]) -> dict[str, Any]:
    """The program's own report among what it and its libraries printed."""
    for line in reversed(printed):
        if line.startswith("{"):
            with suppress(ValueError):
                return dict(json.loads(line))
    return {}
