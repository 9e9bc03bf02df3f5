"""What is worth working on first, and why the rest is passed over."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kernel_compass.records.profile import Regime


class PassedOver(StrEnum):
    """Why something is not tried."""

    AT_ITS_FLOOR = "at_its_floor"
    """Even at its floor the program gains less than the least effect."""
    SMALL_SHARE = "small_share"
    """Were it free, the program would gain less than that."""
    NO_FLOOR = "no_floor"
    """What it could take is not known here."""


@dataclass(frozen=True)
class Measured:
    """A workload's baseline beside its floor in one regime."""

    workload: str
    regime: Regime
    time_us: float
    floor_us: float | None
    weight: float = 1.0
    """How often it runs beside the others."""


@dataclass(frozen=True)
class Selected:
    """A place in the order of work."""

    workload: str
    share: float
    """Of the time of all, 0 to 1, over the regimes asked for."""
    headroom: float | None
    """Time over floor; the least of the regimes, as a change has to win in each."""
    gain: float
    """How much faster the whole would be with this one at its floor: 1.25 = 25 %; 1 where no floor
    is known."""
    passed_over: PassedOver | None
    why: str
