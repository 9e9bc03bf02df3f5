"""Headroom from counters: a kernel's time over the time this machine needs for its traffic.

The floor here is that of the bytes and instructions as the counters saw them (basis `traffic`):
DRAM's bytes at the rate of the cold curve, L2's at the rate of the warm curve within L2, the
busiest arithmetic pipe's own time; the longest of the three. A kernel that moves bytes nobody needs
has more to win than this says.

ncu's duration and a calibrated time hold different fixed costs: ncu's is about 1.5 us for an empty
kernel, that of a launch in a graph is the calibration's t0. The floor gets ncu's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernel_compass.analysis.stream_time import Streams, Time, TimeCurve, streams_of
from kernel_compass.records.calibration import Calibration
from kernel_compass.records.diagnosis import Evidence, Headroom, Limiter

BASIS = "traffic"
NCU_EMPTY_US = 1.5
"""ncu's duration of an empty kernel (recorded on an H200: 1.54 us with its clocks as found); no
calibration holds another GPU's."""
NCU_EMPTY_GPU = "H200"
_NOTICEABLY_FASTER = 0.98
_HARDLY_MORE = 1.15
_MOSTLY_EMPTY = 10.0
"""Up to so many times ncu's empty kernel a floor is said to rest on it, on another GPU."""


@dataclass(frozen=True)
class Found:
    """The headroom, and the number behind it."""

    headroom: Headroom
    evidence: Evidence


def headroom(
    metrics: Mapping[str, float],
    q: Mapping[str, float],
    limiter: Limiter,
    calibration: Calibration,
) -> Found | None:
    """Time over floor; `None` where the capture or the calibration does not say enough.

    Args:
        metrics: a kernel's metrics.
        q: the quantities derived from them (`analysis.quantities`), duration included.
        limiter: what was found to bound the kernel. Without L2 bytes only a DRAM-bound kernel
            has a known floor.
        calibration: the machine the capture was taken on.
    """
    duration = q.get("duration_us")
    if not duration or duration < 0 or "compute_pct" not in q:
        return None
    streams = streams_of(calibration)
    times = _times(metrics, limiter, streams)
    if times is None:
        return None
    moved = {level: NCU_EMPTY_US + max(t.us - streams.origin_us, 0.0) for level, t in times.items()}
    moved["arithmetic"] = duration * min(q["compute_pct"], 100.0) / 100.0
    level = max(moved, key=lambda name: moved[name])
    guesses = times[level].guesses if level in times else ()
    value = duration / moved[level]
    return Found(
        Headroom(value, BASIS), _evidence(moved[level], level, value, guesses, calibration)
    )


def _times(
    metrics: Mapping[str, float], limiter: Limiter, streams: Streams
) -> dict[str, Time] | None:
    dram, l2 = _dram_bytes(metrics), _l2_bytes(metrics)
    if dram is None or streams.cold is None:
        return None
    times = {"DRAM": streams.cold.at(dram)}
    if l2 is not None and streams.warm is not None:
        times["L2"] = _within_l2(l2, streams.warm, streams.capacity_bytes)
    elif limiter is not Limiter.DRAM_BOUND:
        return None
    return times


def _dram_bytes(metrics: Mapping[str, float]) -> float | None:
    if "dram_bytes_read" in metrics:
        return metrics["dram_bytes_read"] + metrics.get("dram_bytes_written", 0.0)
    return metrics.get("dram_bytes")


def _l2_bytes(metrics: Mapping[str, float]) -> float | None:
    if "l2_bytes" in metrics:
        return metrics["l2_bytes"]
    if "l2_bytes_read" in metrics:
        return metrics["l2_bytes_read"] + metrics.get("l2_bytes_written", 0.0)
    return None


def _within_l2(size: float, warm: TimeCurve, capacity: float | None) -> Time:
    """Time to move bytes between L2 and the SMs, all of them hits, however many."""
    top = warm.best_rate_at(capacity or 0.0)
    if top is None or size <= top:
        return warm.at(size)
    half = warm.at(top / 2).us
    slope = (warm.at(top).us - half) / (top / 2)
    return Time(warm.at(top).us + slope * (size - top))


def _evidence(
    floor_us: float, level: str, value: float, guesses: tuple[str, ...], calibration: Calibration
) -> Evidence:
    typical = NCU_EMPTY_GPU not in (calibration.environment.device.name or "")
    if floor_us <= _HARDLY_MORE * NCU_EMPTY_US:
        meaning = "hardly more than ncu measures of an empty kernel"
    elif level == "arithmetic":
        meaning = "the time its busiest arithmetic pipe was busy"
    else:
        how = " (extrapolated)" if guesses else ""
        meaning = f"what streaming its {level} bytes takes, calibration {calibration.name}{how}"
    if typical and level != "arithmetic" and floor_us <= _MOSTLY_EMPTY * NCU_EMPTY_US:
        meaning += f" ({NCU_EMPTY_US} us of it, typical of an {NCU_EMPTY_GPU} and not this GPU's)"
    if value < _NOTICEABLY_FASTER:
        meaning += "; the kernel is faster than the calibrated one, so the floor is not its bound"
    return Evidence("floor_us", floor_us, "us", meaning)
