"""Stage 3: share of the time x headroom, by Amdahl."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kernel_compass.records.comparison import MINIMUM_EFFECT
from kernel_compass.records.selection import Measured, PassedOver, Selected
from kernel_compass.units import percent_text


def select(measured: Iterable[Measured], least_effect: float = MINIMUM_EFFECT) -> list[Selected]:
    """Workloads in the order in which they are worth trying; those passed over come last.

    A workload's time and floor are added up over its regimes: at run time nobody knows where L2
    stands. `gain = T / (T - t + f)`: T of all, t of this one, f its floor (Amdahl).

    Args:
        measured: one a workload and regime.
        least_effect: what the whole has to gain at least, 0.02 = 1.02 times.
    """
    rows: dict[str, list[Measured]] = {}
    for one in measured:
        rows.setdefault(one.workload, []).append(one)
    total = sum(one.time_us * one.weight for group in rows.values() for one in group)
    found = [_placed(name, group, total, least_effect) for name, group in rows.items()]
    return sorted(found, key=lambda one: (one.passed_over is not None, -one.gain, one.workload))


def _placed(name: str, group: Sequence[Measured], total: float, least_effect: float) -> Selected:
    time_us = sum(one.time_us * one.weight for one in group)
    share = time_us / total if total else 0.0
    floors = [one.floor_us for one in group]
    if any(floor is None for floor in floors):
        if _gain(total, time_us, 0.0) < 1 + least_effect:
            return _small(name, share, None, 1.0, total, time_us)
        why = "No floor is known here: calibrate, or name a shipped calibration."
        return Selected(name, share, None, 1.0, PassedOver.NO_FLOOR, why)
    floor_us = sum((one.floor_us or 0.0) * one.weight for one in group)
    headroom = min(one.time_us / one.floor_us for one in group if one.floor_us)
    gain = _gain(total, time_us, min(floor_us, time_us))
    if _gain(total, time_us, 0.0) < 1 + least_effect:
        return _small(name, share, headroom, gain, total, time_us)
    if gain < 1 + least_effect:
        why = (
            f"At its floor ({headroom:.2f} times away at least) the whole would be "
            f"{percent_text(100 * (gain - 1))} faster, under {percent_text(100 * least_effect)}."
        )
        return Selected(name, share, headroom, gain, PassedOver.AT_ITS_FLOOR, why)
    why = (
        f"{percent_text(100 * share)} of the time, {headroom:.2f} times its floor: up to "
        f"{gain:.2f} times faster in all."
    )
    return Selected(name, share, headroom, gain, None, why)


def _small(
    name: str, share: float, headroom: float | None, gain: float, total: float, time_us: float
) -> Selected:
    free = _gain(total, time_us, 0.0)
    why = f"{percent_text(100 * share)} of the time: were it free, {free:.3f} times faster in all."
    return Selected(name, share, headroom, gain, PassedOver.SMALL_SHARE, why)


def _gain(total: float, time_us: float, becomes_us: float) -> float:
    left = total - time_us + becomes_us
    return total / left if left > 0 else float("inf")
