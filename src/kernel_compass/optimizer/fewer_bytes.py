"""What a smaller weight can win, and what it cannot: both regimes, with the bytes."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_compass.records.loop import Baseline, FewerBytes, FormatRoom
from kernel_compass.records.profile import Regime
from kernel_compass.records.search_space import CandidateSpace

KEPT = 0.9
"""A weight up to this share of what L2 effectively holds is still there at the next launch."""


def fewer_bytes(
    spaces: Sequence[CandidateSpace], baseline: Baseline, l2_bytes: float | None
) -> FewerBytes | None:
    """The most that each number format could win, by the floors of its bytes.

    A floor is what a good streaming kernel takes on this machine, launch included; where several
    implementations store a format alike their floors are one.

    Args:
        spaces: of one workload, those that were passed over too.
        baseline: of it, measured.
        l2_bytes: what L2 effectively holds; `None` = not known.

    Returns:
        `None` where no floor or no weight is known.
    """
    rooms = []
    for name in dict.fromkeys(one.format for one in spaces if one.format is not None):
        same = [s for s in spaces if s.format == name and s.floors_us and s.weight_bytes]
        if same:
            least = min(same, key=lambda one: (min(one.floors_us.values()), one.implementation))
            rooms.append(_room(name, least, baseline))
    if not rooms:
        return None
    weight = max(one.weight_bytes for one in rooms)
    return FewerBytes(weight, l2_bytes, _stays(weight, l2_bytes), tuple(rooms))


def _stays(weight_bytes: int, l2_bytes: float | None) -> bool | None:
    return None if l2_bytes is None else weight_bytes <= KEPT * l2_bytes


def _room(name: str, space: CandidateSpace, baseline: Baseline) -> FormatRoom:
    known: list[Regime] = [r for r in baseline.times_us if r in space.floors_us]
    return FormatRoom(
        name,
        space.weight_bytes or 0,
        {regime: baseline.time_us(regime) / space.floors_us[regime] for regime in known},
        {regime: space.bounds[regime] for regime in known if regime in space.bounds},
    )
