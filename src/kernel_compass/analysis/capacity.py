"""Effective L2 capacity, from the times of re-reading working sets of many sizes.

**Definition.** While a working set stays in L2, the time of a re-read lies on a straight line over
its size: the launch, plus the bytes at L2's bandwidth (the *L2 branch*). `c_eff` is the largest
working set on that branch: the midpoint between the last size whose time is within
`DEPARTURE_PCT` (5 %) of the branch and the next size measured. How it is found:

1. The cliff is where bandwidth falls furthest below the best one seen at smaller sizes (the
   maximum drawdown of the curve, after a running median of three that no single outlier moves).
   Bandwidths beyond the cliff play no part, so a DRAM plateau above the L2 peak (it includes no
   launch) does not hide it. A drawdown under `MIN_DROP_PCT` is no cliff: absent, never a guess.
2. The branch is a Theil-Sen line through the times of the sizes before the cliff, from half the
   best working set on; its slope lies between 0 and that of constant bandwidth.
3. The branch ends at the last size within 5 % of it, at or before the foot of the cliff: a dip in
   between, from which the times come back to the branch, is a disturbance and no capacity.

The 5 % are those of the study that published capacities for A100, H100, B200 and B300 (midpoint
of the best bandwidth and the first point more than 5 % below it); the branch instead of the best
point makes the answer independent of where noise puts the maximum, and of how soft the cliff is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernel_compass.analysis.capacity_curve import Curve, curve_of, resampled, theil_sen
from kernel_compass.records.calibration import Basis, Quantity
from kernel_compass.units import bytes_text

DEPARTURE_PCT = 5.0
"""Slower than the L2 branch by more than this: no longer on it."""

MIN_DROP_PCT = 10.0
"""Bandwidth must fall at least this far for a cliff."""

MIN_SIZES = 5
_RESAMPLES = 200
_COVERAGE = 0.95
_RECOVERS_WITHIN = 2.0
"""A dip ends within this factor of its first size; beyond, the branch is too far extrapolated."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Capacity:
    """Where a re-read stops being served by L2; sizes in bytes."""

    c_eff_bytes: float
    """Midpoint of the next two."""
    last_resident_bytes: float
    """The largest size measured on the L2 branch."""
    first_spilled_bytes: float
    """The next size measured."""
    foot_bytes: float
    """The size of the lowest bandwidth behind the cliff: from `c_eff_bytes` to here it is soft."""
    drop_pct: float
    """How far bandwidth fell below its best."""
    low_bytes: float
    """Lower end of the interval: the grid's neighbours, and 95 % of the resampled repeats."""
    high_bytes: float


def c_eff(sizes_bytes: npt.ArrayLike, times_us: npt.ArrayLike, seed: int = 0) -> Quantity:
    """The effective capacity as a calibrated quantity; `absent`, with the reason, without a cliff.

    Args:
        sizes_bytes: working sets, shape `(sizes,)`, in any order.
        times_us: times of one re-read, `(sizes,)` or `(repeats, sizes)`; NaN where a repeat has
            no time for a size.
        seed: of the resampling.

    Raises:
        CalibrationError: shapes that differ, or times that are no times.
    """
    curve = curve_of(sizes_bytes, times_us)
    if curve.sizes.size < MIN_SIZES:
        return _absent(f"{curve.sizes.size} sizes are too few to find a cliff in")
    found = capacity(sizes_bytes, times_us, seed)
    if found is None:
        reach = bytes_text(float(curve.sizes[-1]))
        return _absent(f"no fall of bandwidth by {MIN_DROP_PCT:g} % up to {reach}")
    return Quantity(
        value=found.c_eff_bytes,
        basis=Basis.MEASURED,
        source=f"end of the L2 branch of the warm read curve ({_count(curve)}, "
        f"bandwidth falls by {found.drop_pct:.0f} %)",
        low=found.low_bytes,
        high=found.high_bytes,
    )


def capacity(sizes_bytes: npt.ArrayLike, times_us: npt.ArrayLike, seed: int = 0) -> Capacity | None:
    """The cliff of a warm curve with its interval; `None` where there is none.

    Arguments and errors as for `c_eff`. With one repeat the interval is the grid's alone.
    """
    curve = curve_of(sizes_bytes, times_us)
    cliff = _cliff(curve.sizes, curve.median)
    if cliff is None:
        return None
    last, first, foot, drop = cliff
    lows, highs = [last], [first]
    for medians in resampled(curve, _RESAMPLES if len(curve.repeats) > 1 else 0, seed):
        again = _cliff(curve.sizes, medians)
        if again is not None:
            lows.append(again[0])
            highs.append(again[1])
    outside = (1 - _COVERAGE) / 2
    return Capacity(
        c_eff_bytes=(last + first) / 2,
        last_resident_bytes=last,
        first_spilled_bytes=first,
        foot_bytes=foot,
        drop_pct=drop,
        low_bytes=min(last, float(np.quantile(lows, outside))),
        high_bytes=max(first, float(np.quantile(highs, 1 - outside))),
    )


def _cliff(sizes: Array, times: Array) -> tuple[float, float, float, float] | None:
    """Last size on the branch, the next one, the foot (bytes), the fall of bandwidth in percent.

    Dips from which the curve comes back to the branch are taken out one by one.
    """
    while sizes.size >= MIN_SIZES:
        found = _deepest_fall(sizes / times)
        if found is None:
            return None
        best, foot, drop = found
        excess = times / _branch(sizes, times, best) - 1
        on = np.flatnonzero(excess <= DEPARTURE_PCT / 100)
        last = int(max([best, *on[on < foot]]))  # the best size is on it, however curved
        back = on[(on > foot) & (sizes[on] <= _RECOVERS_WITHIN * sizes[last + 1])]
        if back.size < 2:
            return float(sizes[last]), float(sizes[last + 1]), float(sizes[foot]), drop
        keep = np.ones(sizes.size, bool)
        keep[last + 1 : int(back[0])] = False
        sizes, times = sizes[keep], times[keep]
    return None


def _deepest_fall(bandwidth: Array) -> tuple[int, int, float] | None:
    """Indices of the best size and of the foot of the cliff behind it, and the fall in percent."""
    smooth = _median_of_three(bandwidth)
    fall = 1 - smooth / np.maximum.accumulate(smooth)
    foot = int(np.argmax(fall))
    if 100 * fall[foot] < MIN_DROP_PCT:
        return None
    best = foot - int(np.argmax(smooth[foot::-1]))  # the last of equals
    near = slice(max(best - 1, 0), min(best + 2, foot))
    return near.start + int(np.argmax(bandwidth[near])), foot, float(100 * fall[foot])


def _median_of_three(values: Array) -> Array:
    """Running median; the ends lean on their neighbours, so that one alone is no fall."""
    padded = np.concatenate([[min(values[:2])], values, [max(values[-2:])]])
    windows = np.lib.stride_tricks.sliding_window_view(padded, 3)
    return np.asarray(np.median(windows, axis=1), float)


def _branch(sizes: Array, times: Array, best: int) -> Array:
    """The L2 branch's times at all sizes, from those up to the best one."""
    first = min(int(np.searchsorted(sizes, sizes[best] / 2)), max(best - 2, 0))
    x, y = sizes[first : best + 1], times[first : best + 1]
    at_best_bandwidth = float(np.min(_median_of_three(times / sizes)[first : best + 1]))
    slope = float(np.clip(theil_sen(x, y), 0.0, at_best_bandwidth))
    return np.asarray(np.median(y - slope * x) + slope * sizes, float)


def _count(curve: Curve) -> str:
    return "1 repeat" if len(curve.repeats) == 1 else f"{len(curve.repeats)} repeats"


def _absent(why: str) -> Quantity:
    return Quantity(None, Basis.ABSENT, why)
