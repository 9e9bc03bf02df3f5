"""The noise floor: a kernel compared with itself, in several processes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kernel_compass.analysis.distributions import chi2_quantile
from kernel_compass.analysis.hold_out import by_process
from kernel_compass.analysis.location import Location
from kernel_compass.errors import UsageError
from kernel_compass.records.calibration import Basis, NoiseFloor, Quantity
from kernel_compass.records.measurement import PairedSamples

FEWEST_PROCESSES = 3


def noise_floor(samples: Sequence[PairedSamples], confidence: float = 0.95) -> NoiseFloor:
    """Standard deviations of A/A pairs: within a process and between processes, percent.

    - *within*: of one pair's ratio, serial correlation included, so that within / sqrt(pairs) is
      the error of one process's speedup; pooled over processes.
    - *between*: of the processes' true ratios; what their estimates scatter beyond the error they
      have anyway (one-way variance components). 0 where they scatter no more than that.

    The intervals are chi-squared ones, of normal noise; the one of *between* treats the error
    within as known.

    Raises:
        UsageError: under three processes, or samples measured differently.
        MeasurementError: times that are no times.
    """
    processes = list(by_process(samples).values())
    if len(processes) < FEWEST_PROCESSES:
        raise UsageError(
            f"{len(processes)} processes of A/A pairs; the noise between them needs at least 3.",
            "Compare the kernel with itself in more fresh processes.",
        )
    source = f"A/A, {len(processes)} processes, {sum(p.pairs for p in processes)} pairs"
    return NoiseFloor(
        _within(processes, confidence, source), _between(processes, confidence, source)
    )


def _within(processes: Sequence[Location], confidence: float, source: str) -> Quantity:
    variance = float(np.mean([p.pair_noise**2 for p in processes]))
    dof = sum(p.groups.dof for p in processes)
    low, high = _variance_interval(variance, dof, confidence)
    return Quantity(_pct(variance), Basis.MEASURED, source, _pct(low), _pct(high))


def _between(processes: Sequence[Location], confidence: float, source: str) -> Quantity:
    total = float(np.var([p.center for p in processes], ddof=1))
    error = float(np.mean([p.groups.standard**2 for p in processes]))
    low, high = _variance_interval(total, len(processes) - 1, confidence)
    return Quantity(
        _pct(total - error), Basis.MEASURED, source, _pct(low - error), _pct(high - error)
    )


def _variance_interval(variance: float, dof: int, confidence: float) -> tuple[float, float]:
    tail = (1 - confidence) / 2
    scaled = variance * dof
    return scaled / chi2_quantile(tail, dof), scaled / chi2_quantile(1 - tail, dof)


def _pct(variance: float) -> float:
    return 100 * math.sqrt(max(variance, 0.0))
