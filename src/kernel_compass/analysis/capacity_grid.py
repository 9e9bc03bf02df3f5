"""Which working sets to measure: a grid over all sizes, then dense steps around the cliff."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kernel_compass.analysis.capacity import capacity
from kernel_compass.units import MIB

STEP_BYTES = MIB // 2
"""The finest step, and the unit of all sizes."""

_MARGIN_STEPS = 4

_QUICK_MIB: Sequence[float] = (
    *(0.5, 1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 192, 256, 512),
)
_FULL_MIB: Sequence[float] = (
    *(0.5, 1, 1.5, 2, 3, 4, 6, 8, 10, 12, 14, 16),
    *range(20, 65, 4),
    *range(72, 145, 8),
    *(160, 192, 256, 384, 512),
)


def working_sets(quick: bool) -> tuple[int, ...]:
    """The first grid, bytes, ascending: 0.5 to 512 MiB, denser where L2 caches end.

    Args:
        quick: half of the points.
    """
    return tuple(round(mib * MIB) for mib in (_QUICK_MIB if quick else _FULL_MIB))


def refine_grid(
    sizes_bytes: npt.ArrayLike, times_us: npt.ArrayLike, max_points: int = 32
) -> tuple[int, ...]:
    """Sizes still to measure around the cliff of a curve; empty when it is dense or has no cliff.

    The cliff's bracket is filled with equal steps, a multiple of 0.5 MiB and as fine as
    `max_points` allow; what is left of them goes on with the same step on both sides, the nearest
    first. Call again with the longer curve for finer steps.

    Args:
        sizes_bytes: sizes measured so far, `(sizes,)`.
        times_us: their times, `(sizes,)` or `(repeats, sizes)`.
        max_points: how many the time allows.

    Raises:
        CalibrationError: a curve that is none.
    """
    found = capacity(sizes_bytes, times_us)
    if found is None or max_points < 1:
        return ()
    last, first = found.last_resident_bytes, found.first_spilled_bytes
    steps = 1 + int((first - last) / STEP_BYTES - 1) // (max_points + 1)
    while _multiples(last, first, steps * STEP_BYTES).size > max_points:
        steps += 1
    step = steps * STEP_BYTES
    margin = max(_MARGIN_STEPS * STEP_BYTES, (first - last) / 4)
    wanted = _multiples(max(last - margin, 0) - 1, first + margin + 1, step)
    known = np.asarray(sizes_bytes, float)
    wanted = wanted[np.abs(wanted[:, None] - known).min(axis=1) >= STEP_BYTES / 2]
    outside = np.maximum(np.maximum(last - wanted, wanted - first), 0)
    nearest = wanted[np.argsort(outside, kind="stable")][:max_points]
    return tuple(int(size) for size in np.sort(nearest))


def _multiples(low: float, high: float, step: int) -> npt.NDArray[np.float64]:
    """The multiples of a step strictly between two sizes, none of them 0."""
    first = max(int(low // step) + 1, 1)
    return step * np.arange(first, max(int(-(-high // step)), first), dtype=float)
