"""Time to stream bytes, read off the calibrated curves: monotone, and open about its guesses.

A curve is made monotone from the right: what streams more bytes in some time streams fewer in it
as well, so a point that lies above a larger one is noise. Between points the time is linear in the
bytes, below the first one linear from the launch's fixed cost, beyond the last one it goes on with
the last slope.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_compass.records.calibration import (
    Access,
    Basis,
    Calibration,
    CurvePoint,
    StreamCurve,
)
from kernel_compass.records.measurement import LaunchMode
from kernel_compass.records.profile import Regime

FEW_WRITTEN = 0.05
"""Share of written bytes up to which it does not matter that writing was not calibrated."""
FAR = 1.3
"""Working sets from this many capacities on are re-read from DRAM (measured on an H200: the
curves of re-reading and of rotating meet at 1.13 capacities)."""


@dataclass(frozen=True)
class Time:
    """A time off a curve, and why it is more than an interpolation of measured points."""

    us: float
    guesses: tuple[str, ...] = ()
    """Reasons to call it extrapolated; empty where measured points surround it."""


class TimeCurve:
    """Microseconds over bytes.

    Args:
        points: `(bytes, us, measured)` in any order, sizes above 0; at least one. Of several of
            one size the fastest counts.
        origin_us: the time at zero bytes: the launch's fixed cost, inside every point.
        name: what the curve is called in a guess.
    """

    def __init__(
        self, points: Sequence[tuple[float, float, bool]], origin_us: float, name: str
    ) -> None:
        ordered = sorted(points)
        self._bytes = [0.0]
        self._us = [min(origin_us, ordered[0][1])]
        self._measured = [True]
        for size, us, measured in ordered:
            if size <= self._bytes[-1]:
                continue
            self._bytes.append(float(size))
            self._us.append(us)
            self._measured.append(measured)
        for i in range(len(self._us) - 2, -1, -1):
            self._us[i] = min(self._us[i], self._us[i + 1])
        self._name = name

    def at(self, size: float) -> Time:
        """Time for this many bytes, 0 or more."""
        right = min(max(bisect_left(self._bytes, size), 1), len(self._bytes) - 1)
        low, high = self._bytes[right - 1], self._bytes[right]
        rise = self._us[right] - self._us[right - 1]
        if size > high and rise <= 0:  # a flat end: go on at the average rate instead
            low, rise = 0.0, self._us[right] - self._us[0]
        us = self._us[right] + rise * (size - high) / (high - low)
        return Time(us, tuple(self._guesses(size, right)))

    def best_rate_at(self, limit: float) -> float | None:
        """Bytes of the point with the highest bandwidth up to a limit; `None` without a point."""
        there = [i for i in range(1, len(self._bytes)) if self._bytes[i] <= limit]
        if not there:
            return None
        return self._bytes[max(there, key=lambda i: self._bytes[i] / self._us[i])]

    def _guesses(self, size: float, right: int) -> list[str]:
        found = []
        if size > self._bytes[-1]:
            found.append(f"beyond the largest point of the {self._name} curve")
        elif 0 < size < self._bytes[1]:
            found.append(f"below the smallest point of the {self._name} curve")
        if not all(self._measured[max(right - 1, 0) : right + 1]):
            found.append(f"the {self._name} curve is itself extrapolated")
        return found


@dataclass(frozen=True)
class Streams:
    """What a calibration knows about streaming; `None` where it knows nothing."""

    warm: TimeCurve | None
    """Re-read of the same bytes."""
    cold: TimeCurve | None
    """Read from DRAM."""
    write: TimeCurve | None
    """What writing so many bytes takes beyond reading them."""
    capacity_bytes: float | None
    """Effective L2 capacity."""
    origin_us: float

    def written(self, size: float, total: float) -> Time:
        """What writing so many of all bytes adds to the time of reading them.

        Few written bytes make no guess of it: what they add lies between nothing and the
        smallest point's.
        """
        if self.write is None:
            guess = ("writes are taken to cost what reads do: no read_write curve",)
            return Time(0.0, guess if size > FEW_WRITTEN * total else ())
        time = self.write.at(size)
        return Time(time.us, tuple(g for g in time.guesses if "below" not in g))


def streams_of(calibration: Calibration) -> Streams:
    """The curves of a calibration, ready to be asked.

    Without a cold curve one is derived from the warm curve beyond the capacity, where a re-read
    comes from DRAM: its slope there, carried down to the fixed cost.
    """
    graph = calibration.launch_mode is LaunchMode.GRAPH
    t0 = calibration.t0_graph_us if graph else calibration.t0_eager_us
    warm_curve = calibration.curve(Access.READ, Regime.WARM)
    cold_curve = calibration.curve(Access.READ, Regime.COLD)
    origin = t0.value if t0.value is not None else 0.0
    capacity = calibration.c_eff_bytes.value
    warm = _curve(warm_curve, origin, "warm read")
    cold = _curve(cold_curve, origin, "cold read") or _derived_cold(warm_curve, warm, capacity)
    both = calibration.curve(Access.READ_WRITE, Regime.WARM)
    return Streams(warm, cold, _surcharge(both, warm), capacity, origin)


def _curve(curve: StreamCurve | None, origin_us: float, name: str) -> TimeCurve | None:
    if curve is None or not curve.points:
        return None
    points = [(p.bytes, p.duration_us, p.basis is Basis.MEASURED) for p in curve.points]
    return TimeCurve(points, origin_us, name)


def _derived_cold(
    curve: StreamCurve | None, warm: TimeCurve | None, capacity: float | None
) -> TimeCurve | None:
    """The DRAM slope of the warm curve's far points, from its time at zero bytes on."""
    if curve is None or warm is None or capacity is None:
        return None
    far: list[CurvePoint] = [p for p in curve.points if p.bytes > FAR * capacity]
    if len(far) < 2:
        return None
    slope = (far[-1].duration_us - far[0].duration_us) / (far[-1].bytes - far[0].bytes)
    if slope <= 0:
        return None
    origin = warm.at(0).us
    points = [
        (p.bytes, max(origin + slope * p.bytes, warm.at(p.bytes).us), False) for p in curve.points
    ]
    return TimeCurve(points, origin, "cold read (derived from the warm one)")


def _surcharge(both: StreamCurve | None, reads: TimeCurve | None) -> TimeCurve | None:
    """What writing half of the bytes adds to reading them all, over the bytes written."""
    if both is None or not both.points or reads is None:
        return None
    points = [
        (p.bytes / 2, max(p.duration_us - reads.at(p.bytes).us, 0.0), p.basis is Basis.MEASURED)
        for p in both.points
    ]
    return TimeCurve(points, 0.0, "read_write")
