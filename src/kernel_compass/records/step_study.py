"""What a study over a user's step holds, beside what every study has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernel_compass.records.comparison import Interval
from kernel_compass.records.selection import Selected
from kernel_compass.records.step_action import OutputError, StepEntry, StepTrial
from kernel_compass.records.step_capture import NotHandled


@dataclass(frozen=True)
class StepFinal:
    """The whole set beside the untouched program, in fresh processes."""

    accepted: bool
    detail: str
    speedup: Interval | None = None
    before_us: float | None = None
    after_us: float | None = None
    outputs: tuple[OutputError, ...] = ()
    added_bytes: int = 0
    processes: int = 0
    trials: tuple[int, ...] = ()
    """Of the changes that were on."""
    inputs: int = 1
    """That outputs were compared on."""


@dataclass(frozen=True)
class StepStudy:
    """What a ledger holds of a study over a step beside its trials."""

    steps: tuple[StepTrial, ...] = ()
    entries: tuple[StepEntry, ...] = ()
    final: StepFinal | None = None
    not_handled: tuple[NotHandled, ...] = ()
    passed_over: tuple[Selected, ...] = ()
    step_us: float | None = None
    """Before anything was changed, as captured."""
    step: str = ""
    notes: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of the files that the step goes through, as it was captured."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions of installed packages that it goes through."""

    @property
    def kept(self) -> tuple[StepTrial, ...]:
        """The changes that stayed on."""
        return tuple(one for one in self.steps if one.reason is None)
