"""The working set at which DRAM reads begin, from counters: the capacity as ncu sees it.

The share of a launch's bytes that DRAM served rises from none to all around `c_eff`. Two sizes are
read off it, made monotone first (isotonic regression: counters are noisy and a share that falls
again is no capacity):

- `onset`: the share passes a tenth, this project's threshold for `l2_resident`. DRAM reads have
  begun; the time does not show it yet, because DRAM delivers them beside L2.
- `c_eff` comparable with the one from times: the share passes one half. DRAM then delivers its
  half of the bytes in the time in which L2 delivers all of them, since its bandwidth is about half
  of L2's (H100: 3.26 of 5.26 TB/s, H200: 4.5 of 8.4 by the slope), and the times leave the L2
  branch. On the H100 re-read published with both, counters say 39.5 MiB and times 40.25.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernel_compass.errors import CalibrationError

BEGIN_SHARE = 0.1
COMPARABLE_SHARE = 0.5

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Crossing:
    """Where the share of DRAM passes a threshold; bytes of working set."""

    bytes: float
    """Linear between the neighbours."""
    low_bytes: float
    """The largest size below the threshold."""
    high_bytes: float
    """The next size, above it."""


@dataclass(frozen=True)
class DramOnset:
    """Both thresholds; `None` where the sizes measured do not pass one."""

    onset: Crossing | None
    c_eff: Crossing | None


def dram_onset(points: Sequence[tuple[float, float]]) -> DramOnset:
    """Where DRAM begins to serve a re-read, and where it serves half of it.

    Args:
        points: working set in bytes and DRAM bytes read by one launch, in any order.

    Raises:
        CalibrationError: values that are no sizes or byte counts.
    """
    table = np.asarray(sorted(points), float).reshape(-1, 2)
    sizes, read = table[:, 0], table[:, 1]
    if not np.isfinite(table).all() or (sizes <= 0).any() or (read < 0).any():
        raise CalibrationError(
            "Working sets or DRAM bytes are negative, zero or not finite.",
            "Profile them again with cache control none.",
        )
    unique, index, counts = np.unique(sizes, return_inverse=True, return_counts=True)
    share = _rising(np.bincount(index, read / sizes, unique.size) / counts, counts.astype(float))
    return DramOnset(
        _crossing(unique, share, BEGIN_SHARE), _crossing(unique, share, COMPARABLE_SHARE)
    )


def _crossing(sizes: Array, share: Array, threshold: float) -> Crossing | None:
    above = int(np.searchsorted(share, threshold, side="right"))
    if above in (0, share.size):
        return None
    low, high = sizes[above - 1], sizes[above]
    part = (threshold - share[above - 1]) / (share[above] - share[above - 1])
    return Crossing(float(low + part * (high - low)), float(low), float(high))


def _rising(values: Array, weights: Array) -> Array:
    """The closest rising sequence in least squares: pool adjacent violators (Ayer et al. 1955)."""
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        block = (float(value), float(weight), 1)
        while blocks and blocks[-1][0] > block[0]:
            mean, mass, count = blocks.pop()
            total = mass + block[1]
            block = ((mean * mass + block[0] * block[1]) / total, total, count + block[2])
        blocks.append(block)
    return np.repeat([b[0] for b in blocks], [b[2] for b in blocks]).astype(float)
