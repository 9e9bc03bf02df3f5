"""Times in a regime, and whether cold is cold."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kernel_compass.errors import ProfilingError
from kernel_compass.measurement import fresh
from kernel_compass.measurement.device import TimingDevice
from kernel_compass.measurement.recipe import Recipe
from kernel_compass.measurement.subject import Subject
from kernel_compass.measurement.timing import TimingOptions, measure
from kernel_compass.profiling.graph_traffic import GraphTraffic, graph_traffic
from kernel_compass.records.profile import Regime

__all__ = [
    "ColdCheck",
    "Recipe",
    "Subject",
    "TimingOptions",
    "WatchedLaunch",
    "measure",
    "open_device",
    "verify_cold",
    "watch",
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


@dataclass(frozen=True)
class WatchedLaunch:
    """What one launch of a recipe reads, by ncu's counters."""

    streamed_bytes: int
    """Of one set of streamed operands."""
    dram_bytes: float
    l2_bytes: float | None
    """Read by multiprocessors; `None` where it was not counted."""


def watch(
    recipes: Sequence[Recipe],
    device: str = "cuda:0",
    l2: bool = False,
    regimes: Sequence[Regime] | None = None,
) -> list[WatchedLaunch | str]:
    """Count, under ncu, what launches read; all recipes in one process.

    The launches of a replay are profiled as one CUDA graph, in one pass.

    Args:
        recipes: each builds a subject.
        device: `cuda:0` and the like.
        l2: whether reads of L2 are counted too.
        regimes: of each recipe `cold`, launches rotated, or `warm`, one set read again and again;
            `None` = all cold.

    Returns:
        Of each recipe its launch, or why it could not be watched.
    """
    words = [one.value for one in regimes or (Regime.COLD,) * len(recipes)]
    documents = [one.document() for one in recipes]
    request = json.dumps({"recipes": documents, "regimes": words, "device": device})
    command = [sys.executable, "-m", fresh.__name__, request]
    try:
        traffic = graph_traffic(command, l2=l2)
    except ProfilingError as error:
        return [f"bytes could not be read: {error.found}"] * len(recipes)
    told = _told(traffic.printed).get("watched")
    if told is None or (traffic.failure is not None and all("error" not in one for one in told)):
        found = traffic.failure.found if traffic.failure else "the program did not report."
        return [f"bytes could not be read: {found}"] * len(recipes)
    return list(_launches(told, traffic))


def _launches(
    told: Sequence[Mapping[str, Any]], traffic: GraphTraffic
) -> Iterator[WatchedLaunch | str]:
    """The last replay of each recipe: earlier ones find what making the operands left."""
    seen = 0
    for one in told:
        if "error" in one:
            yield one["error"]
            continue
        seen += one["replays"]
        if len(traffic.dram_bytes_read) < seen:
            yield "bytes could not be read: ncu saw fewer graphs than were replayed."
            continue
        dram, l2 = (
            None if len(reads) < seen else reads[seen - 1] / one["launches"]
            for reads in (traffic.dram_bytes_read, traffic.l2_bytes_read)
        )
        assert dram is not None
        yield WatchedLaunch(one["streamed_bytes"], dram, l2)


def verify_cold(recipe: Recipe, device: str = "cuda:0") -> ColdCheck:
    """Count, under ncu, the DRAM bytes that a rotated launch reads; see `watch`.

    Args:
        recipe: builds the subject; it is built in a process of its own.
        device: `cuda:0` and the like.
    """
    (found,) = watch([recipe], device)
    if isinstance(found, str):
        return ColdCheck(None, None, found)
    share = found.dram_bytes / found.streamed_bytes
    words = f"a launch reads {share:.0%} of its streamed bytes from DRAM"
    return ColdCheck(share >= COLD_SHARE, share, words)


def _told(printed: Sequence[str]) -> dict[str, Any]:
    """The program's own report among what it and its libraries printed."""
    for line in reversed(printed):
        if line.startswith("{"):
            with suppress(ValueError):
                return dict(json.loads(line))
    return {}
