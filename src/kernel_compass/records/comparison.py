"""Is one faster than the other: the rule, and what it found."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from kernel_compass.errors import UsageError
from kernel_compass.records.environment import Environment
from kernel_compass.records.measurement import LaunchMode
from kernel_compass.records.profile import Regime

MINIMUM_EFFECT = 0.02
"""The least speedup worth the name: less is hidden by run-to-run differences."""
MIN_PAIRS = 12
"""Under that the error of a ratio cannot be estimated."""

MIN_ALPHA = 1e-12
"""Under that the boundaries of the looks are beyond what double precision can integrate."""


class Decision(StrEnum):
    """What a comparison has shown, at the rule's minimum effect."""

    FASTER = "faster"
    """The whole interval lies beyond the minimum effect."""
    SLOWER = "slower"
    """The whole interval lies beyond the minimum effect, on the other side."""
    EQUIVALENT = "equivalent"
    """The whole interval lies within the minimum effect, either way."""
    UNDECIDED = "undecided"
    """The interval straddles the minimum effect and no look is left: an answer, not a failure."""
    CONTINUE = "continue"
    """Not decided yet; more pairs may decide."""


class Stage(StrEnum):
    """Which question the samples can answer."""

    IN_PROCESS = "in_process"
    """One process, looked at repeatedly: screens; placement in memory is the same throughout."""
    HOLD_OUT = "hold_out"
    """Fresh processes, looked at once: the only figure reported for a change."""


@dataclass(frozen=True)
class Rule:
    """When two times differ. Fixed before the first pair is measured.

    Raises:
        UsageError: a value with which the error rates would not hold.
    """

    minimum_effect: float = MINIMUM_EFFECT
    """The least speedup worth the name: 0.02 = 1.02 times."""
    noninferiority_margin: float = 0.01
    """The slowdown that is tolerated in the regimes that were not asked for."""
    alpha: float = 0.01
    """Chance of a wrong `faster` or `slower`, both together, over all looks of one comparison."""
    looks: tuple[int, ...] = (50, 100, 200, 400, 800)
    """Pairs measured in total when the data is looked at, ascending; the last ends it."""
    spending_power: float = 1.5
    """`alpha` spent by a look: (its share of the pairs) ** this."""
    candidates: int = 1
    """Comparisons that share `alpha` (Bonferroni): any of them wrong, at most `alpha`."""
    hold_out_alpha: float = 0.05
    """The same chance for the hold-out, which is looked at once."""
    hold_out_processes: int = 5
    """Fewest fresh processes of a hold-out."""
    noise_floor_pct: float | None = None
    """Standard deviation between processes (a calibration's), percent; widens what is reported
    of one process, decides nothing."""

    def __post_init__(self) -> None:
        self._check_fractions()
        previous = (MIN_PAIRS - 1, *self.looks)
        if not all(type(look) is int for look in self.looks):
            raise UsageError(f"looks {self.looks} are not whole numbers.", "Use (50, 100, 200).")
        if not self.looks or any(a >= b for a, b in pairwise(previous)):
            raise UsageError(
                f"looks {self.looks} are not ascending pair counts from {MIN_PAIRS} on.",
                "Use (50, 100, 200).",
            )
        if self.candidates < 1 or self.hold_out_processes < 3:
            raise UsageError(
                f"{self.candidates} candidates, {self.hold_out_processes} hold-out processes.",
                "A comparison needs at least 1 candidate and 3 processes.",
            )
        if not 0 < self.spending_power <= 10:
            raise UsageError(f"spending_power {self.spending_power} is not in (0, 10].")
        floor = self.noise_floor_pct
        if floor is not None and not 0 <= floor < 100:
            raise UsageError(f"noise_floor_pct {floor} is no percentage.", "Pass None if unknown.")

    def _check_fractions(self) -> None:
        for name in ("minimum_effect", "noninferiority_margin", "alpha", "hold_out_alpha"):
            value = getattr(self, name)
            if not (math.isfinite(value) and 0 < value < 0.5):
                raise UsageError(f"{name} {value} is not in (0, 0.5).", "2 % is written 0.02.")
        for name in ("alpha", "hold_out_alpha"):
            if getattr(self, name) < MIN_ALPHA:
                found = f"{name} {getattr(self, name)} is below {MIN_ALPHA}."
                raise UsageError(found, "So rare an error cannot be computed; use 0.01.")

    @property
    def side_alpha(self) -> float:
        """Chance of one wrong direction in one of the candidates' comparisons."""
        return self.alpha / 2 / self.candidates


@dataclass(frozen=True)
class Interval:
    """A speedup (baseline time / candidate time; above 1 is faster) with what is known of it."""

    estimate: float
    low: float
    high: float
    confidence: float
    """0 to 1, both sides together."""


@dataclass(frozen=True)
class ComparisonResult:
    """What one comparison of a candidate with a baseline found, in one regime."""

    decision: Decision
    stage: Stage
    speedup: Interval
    """In process: covers the truth of *this process* at all looks together. Hold-out: over
    processes."""
    minimum_effect: float
    regime: Regime
    launch_mode: LaunchMode
    launches_per_replay: int
    pairs: int
    looks: int
    processes: int
    alpha_spent: float
    """Of the rule's `alpha` (both directions), over the looks made."""
    pair_noise_pct: float
    """Standard deviation of one pair's ratio, percent, such that noise / sqrt(pairs) is the error
    of the estimate in one process: serial correlation is in it."""
    reasons: tuple[str, ...]
    reproducible: Interval | None = None
    """In process only: `speedup` widened by the noise floor, for what another process may see;
    `None` where no noise floor is known."""
    warnings: tuple[str, ...] = ()
    """What was said against the times of its pairs, each once."""
    environment: Environment | None = None
    p_value: float | None = None
    """Hold-out only: of "faster by no more than the minimum effect", one-sided."""


class Rejection(StrEnum):
    """Why a hold-out did not accept."""

    NOT_FASTER = "not_faster"
    """Not shown to clear the minimum effect in a regime that was asked for."""
    INFERIOR_ELSEWHERE = "inferior_elsewhere"
    """A slowdown beyond the margin is not excluded in a regime that was not asked for."""


@dataclass(frozen=True)
class Verdict:
    """Whether a hold-out accepts a candidate, over all regimes measured."""

    results: tuple[ComparisonResult, ...]
    """One a regime."""
    asked: tuple[Regime, ...]
    rejection: Rejection | None
    reasons: tuple[str, ...]

    @property
    def accepted(self) -> bool:
        """True where no gate rejected it."""
        return self.rejection is None
