"""How the grid fills the GPU: occupancy and its limit, waves, and what an uneven last wave cost."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kernel_compass.records.metrics import OCCUPANCY_LIMITS
from kernel_compass.records.profile import KernelProfile

LAUNCH_OVERHEAD_CYCLES = 3000.0
"""Elapsed cycles of an empty kernel (measured: 2,660-3,150 for one block of 32 threads, H200)."""


def launch_shape(kernel: KernelProfile, active_share: float | None) -> dict[str, float]:
    """Occupancy, block limits, waves and idle SM time.

    Args:
        kernel: its launch configuration and metrics.
        active_share: share of the elapsed time that the average SM had work, 0 to 1.
    """
    metrics = kernel.metrics
    copied = ("achieved_occupancy_pct", "theoretical_occupancy_pct", "sm_count")
    q = {key: metrics[key] for key in copied if key in metrics}
    limits = {
        r: metrics[k] for r in OCCUPANCY_LIMITS if metrics.get(k := f"occupancy_limit_{r}", 0.0) > 0
    }
    q |= {f"limited_by_{r}": float(limit == min(limits.values())) for r, limit in limits.items()}
    grid = metrics.get("grid_size")
    if grid is None and kernel.grid is not None:
        grid = float(math.prod(kernel.grid))
    if grid is not None and q.get("sm_count", 0.0) > 0:
        q["blocks_per_sm"] = grid / q["sm_count"]
    if kernel.block is not None:
        q["block_size"] = float(math.prod(kernel.block))
        q["threads_of_last_warp"] = float(math.prod(kernel.block) % 32)
    waves = _exact_waves(metrics, q, limits)
    if waves > 0:
        q["waves"] = waves
        q["wave_rounding_pct"] = 100.0 * (math.ceil(waves - 1e-9) / waves - 1.0)
    if active_share is not None:
        overhead = 100.0 * LAUNCH_OVERHEAD_CYCLES / metrics["sm_elapsed_cycles"]
        q["sm_idle_beyond_launch_pct"] = max(100.0 * (1.0 - active_share) - overhead, 0.0)
    return q


def _exact_waves(
    metrics: Mapping[str, float], q: Mapping[str, float], limits: Mapping[str, float]
) -> float:
    """Waves from the block limits; ncu prints two decimals, which hides one block too many."""
    if "blocks_per_sm" in q and limits and metrics.get("cluster_size", 0.0) <= 1:
        return q["blocks_per_sm"] / min(limits.values())
    return metrics.get("waves_per_sm", 0.0)
