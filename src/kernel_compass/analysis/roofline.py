"""Hierarchical roofline: one point a memory level, under the roof that level allows.

After Williams, Waterman and Patterson (2009), with one intensity a level as in the hierarchical
roofline of Yang, Kurth and Williams (2020). Coordinates only; drawing them is a report's work.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from kernel_compass.analysis.ceilings import Ceilings
from kernel_compass.errors import UsageError


class Level(StrEnum):
    """A memory level whose bytes are counted."""

    L2 = "l2"
    DRAM = "dram"


@dataclass(frozen=True)
class Roof:
    """One level's roof: attainable = min(peak, bandwidth x intensity)."""

    level: Level
    bandwidth_tbs: float
    peak_tflops: float

    @property
    def ridge_flops_per_byte(self) -> float:
        """The intensity at which arithmetic takes over from the level."""
        return self.peak_tflops / self.bandwidth_tbs

    def attainable_tflops(self, intensity: float) -> float:
        """The roof at this intensity, TFLOP/s."""
        return min(self.peak_tflops, self.bandwidth_tbs * intensity)


@dataclass(frozen=True)
class RooflinePoint:
    """A kernel at one level."""

    level: Level
    bytes: float
    intensity_flops_per_byte: float | None
    """`None` where the level moved nothing: its intensity is unbounded and it bounds nothing."""
    attainable_tflops: float
    attained_tflops: float

    @property
    def attained_pct(self) -> float:
        """Attained of attainable, percent; above 100 where bytes were counted too high, or the
        kernel beats the calibration's streaming kernel."""
        return 100.0 * self.attained_tflops / self.attainable_tflops


@dataclass(frozen=True)
class Roofline:
    """A kernel under the roofs of a machine; levels in the order L2, DRAM."""

    math: str
    roofs: tuple[Roof, ...]
    points: tuple[RooflinePoint, ...]

    @property
    def nearest(self) -> RooflinePoint:
        """The level whose roof the kernel is nearest to."""
        return max(self.points, key=lambda point: point.attained_pct)


def roofs(ceilings: Ceilings, math_format: str) -> tuple[Roof, ...]:
    """The roof of each level for this format of arithmetic."""
    peak = ceilings.peak(math_format)
    return (
        Roof(Level.L2, ceilings.bw_l2_tbs, peak),
        Roof(Level.DRAM, ceilings.bw_dram_tbs, peak),
    )


def roofline(
    flops: float,
    level_bytes: Mapping[Level, float],
    time_us: float,
    ceilings: Ceilings,
    math_format: str = "bf16",
) -> Roofline:
    """One kernel's place under the roofs.

    Args:
        flops: arithmetic of one launch.
        level_bytes: bytes each level moved in it, counted or compulsory; levels may be missing.
        time_us: its time, fixed cost included.
        ceilings: of the machine.
        math_format: which peak bounds the arithmetic, as in `Traffic.math`.

    Raises:
        UsageError: no level, a time that is not positive, no arithmetic, or negative bytes.
    """
    if not level_bytes:
        raise UsageError("No level's bytes are known.", "Profile with DRAM and L2 bytes.")
    _check("time_us", time_us, above=0.0)
    _check("flops", flops, above=0.0)
    for level, moved in level_bytes.items():
        _check(f"bytes of {level}", moved)
    above = roofs(ceilings, math_format)
    attained = flops / time_us / 1e6
    points = tuple(
        _point(roof, flops, level_bytes[roof.level], attained)
        for roof in above
        if roof.level in level_bytes
    )
    return Roofline(math_format, above, points)


def _point(roof: Roof, flops: float, moved: float, attained_tflops: float) -> RooflinePoint:
    intensity = flops / moved if moved > 0 else None
    attainable = roof.peak_tflops if intensity is None else roof.attainable_tflops(intensity)
    return RooflinePoint(roof.level, moved, intensity, attainable, attained_tflops)


def _check(name: str, value: float, above: float | None = None) -> None:
    floor = 0.0 if above is None else above
    if not math.isfinite(value) or value < floor or (above is not None and value <= above):
        raise UsageError(f"{name} is {value}.", "A roofline needs measured, positive numbers.")
