"""A whole run: what was asked for, where, how far it got, and what a resumed one has to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kernel_compass.records.dispatch import DispatchEntry
from kernel_compass.records.environment import Environment
from kernel_compass.records.problem import ProblemSource, Value
from kernel_compass.records.profile import Regime
from kernel_compass.records.step_study import StepStudy
from kernel_compass.records.trial import Outcome, Proposal, Trial


class StudyState(StrEnum):
    """How far a study got."""

    RUNNING = "running"
    STOPPED = "stopped"
    """Ended before its time, in good order: Ctrl-C, say."""
    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    """It was running, and no process runs it any more; found when it is read, never written."""


@dataclass(frozen=True)
class StudyLimits:
    """When a study ends at the latest; `None` = no limit of that kind."""

    minutes: float | None = None
    trials: int | None = None


@dataclass(frozen=True)
class StudyRequest:
    """What decides a study, the machine apart."""

    source: ProblemSource
    regimes: tuple[Regime, ...]
    """Those in which a candidate must win."""
    error_budget_pct: float | None = None
    """Largest relative error against full precision; `None` = the problem's own."""
    formats: tuple[str, ...] = ()
    """Number formats that may be tried; empty = all that fit the budget."""
    limits: StudyLimits = field(default_factory=StudyLimits)
    seed: int = 0
    strategy: str = "model"
    options: Mapping[str, Value] = field(default_factory=dict)
    """What else decides it: the minimum effect, the executor's size, ..."""


@dataclass(frozen=True)
class Study:
    """A run, as it is named and found again."""

    identifier: str
    """Lower-case letters, digits, `.`, `_` and `-`: a folder's name."""
    request: StudyRequest
    environment: Environment
    state: StudyState = StudyState.RUNNING


@dataclass(frozen=True)
class Tell:
    """A measurement that a search strategy was told."""

    stream: str
    """Which strategy over which space."""
    index: int
    time_us: float | None
    """`None` = it failed there."""


@dataclass(frozen=True)
class Interruption:
    """A trial that was begun and did not end."""

    number: int
    attempt: int
    """From 1."""
    detail: str
    blamed: bool
    """Whether it counts against the candidate; one that the user stopped does not."""


@dataclass(frozen=True)
class PendingTrial:
    """A trial that was begun, has not ended, and is to be tried again."""

    number: int
    workload: str
    proposal: Proposal
    attempts: int
    """Made so far."""


@dataclass(frozen=True)
class RecordedStudy:
    """Everything that a ledger knows of a study."""

    study: Study
    trials: tuple[Trial, ...] = ()
    """Those that ended, by number."""
    entries: tuple[DispatchEntry, ...] = ()
    """What was accepted, for a dispatch table."""
    pending: tuple[PendingTrial, ...] = ()
    tells: tuple[Tell, ...] = ()
    """In the order in which they were told."""
    interruptions: tuple[Interruption, ...] = ()
    begun: str | None = None
    """ISO 8601, UTC."""
    changed: str | None = None
    """When something was last recorded."""
    detail: str = ""
    """What was said of the last state."""
    step: StepStudy | None = None
    """Of a study over a user's step; its trials are in `trials` too, in brief."""

    @property
    def accepted(self) -> tuple[Trial, ...]:
        """The trials that were accepted."""
        return tuple(one for one in self.trials if one.outcome is Outcome.ACCEPTED)

    @property
    def next_number(self) -> int:
        """The number of the next new trial."""
        numbers = [one.number for one in self.trials] + [one.number for one in self.pending]
        return max(numbers, default=0) + 1
