"""Measured curves over the working set: checked, sorted, resampled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernel_compass.errors import CalibrationError

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """Times over sizes."""

    sizes: Array
    """Bytes, ascending, each once; shape `(sizes,)`."""
    repeats: Array
    """Microseconds, `(repeats, sizes)`; NaN where a repeat has none."""
    median: Array
    """Over the repeats, `(sizes,)`."""


def curve_of(sizes_bytes: npt.ArrayLike, times_us: npt.ArrayLike) -> Curve:
    """A curve from what was measured; a size that stands there twice becomes one, by its mean.

    Raises:
        CalibrationError: shapes that differ, or values that are no sizes or times.
    """
    sizes = np.asarray(sizes_bytes, float)
    times = np.atleast_2d(np.asarray(times_us, float))
    if sizes.ndim != 1 or times.ndim != 2 or times.shape[-1] != sizes.size:
        found = f"A curve of {sizes.shape} sizes has times of the shape {times.shape}."
        raise CalibrationError(found, "Give one time for each size, or a row of them a repeat.")
    known = ~np.isnan(times)
    bad = bool((~np.isfinite(times[known]) | (times[known] <= 0)).any())
    if bad or not (np.isfinite(sizes) & (sizes > 0)).all():
        raise CalibrationError(
            "A curve has sizes or times that are not finite and positive.",
            "Measure it again with `kernel-compass calibrate`.",
        )
    sizes, times, known = (a[..., known.any(axis=0)] for a in (sizes, times, known))
    unique = np.unique(sizes)
    merged = np.full((len(times), unique.size), np.nan)
    for i, size in enumerate(unique):
        same, there = times[:, sizes == size], known[:, sizes == size]
        rows = there.any(axis=1)
        merged[rows, i] = np.nansum(same[rows], axis=1) / there[rows].sum(axis=1)
    return Curve(unique, merged, np.nanmedian(merged, axis=0) if unique.size else unique)


def resampled(curve: Curve, count: int, seed: int) -> Iterator[Array]:
    """Medians over repeats drawn with replacement, `(sizes,)` each (a bootstrap).

    A size that no drawn repeat has keeps its median over all.
    """
    rng = np.random.default_rng(seed)
    whole = not np.isnan(curve.repeats).any()
    for _ in range(count):
        drawn = curve.repeats[rng.integers(0, len(curve.repeats), len(curve.repeats))]
        if not whole:
            drawn = np.where(np.isnan(drawn).all(axis=0), curve.median, drawn)
        yield np.median(drawn, axis=0) if whole else np.nanmedian(drawn, axis=0)


def theil_sen(x: Array, y: Array) -> float:
    """The slope of a line: the median over all pairs of points (Theil 1950, Sen 1968)."""
    i, j = np.triu_indices(x.size, 1)
    return float(np.median((y[j] - y[i]) / (x[j] - x[i])))
