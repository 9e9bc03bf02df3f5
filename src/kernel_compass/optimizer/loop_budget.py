"""How much may be tried: minutes and trials, with room for the hold-out."""

from __future__ import annotations

from collections.abc import Callable

from kernel_compass.records.loop import LoopOptions, Why
from kernel_compass.records.study import StudyLimits

FIRST_SCREEN_S = 5.0
"""What a screen takes until one was seen."""
PROCESS_S = 4.0
"""What a fresh process takes before it measures."""
COUNTED_S = 10.0
"""What counting takes: one process under ncu, before it launches anything."""
COUNTED_LAUNCH_S = 2.5
"""What counting one launch adds, its operands made and packed."""
SANITIZED_S = 40.0
"""What a finalist takes under both tools of compute-sanitizer: a process each."""
OF_A_SCREEN = 0.4
"""A finalist's part in one process, as a share of a screen: what it was on an H200, where five
finalists in two regimes took 7 s a process, and a screen, which judges and compiles too, 2 s."""


class LoopBudget:
    """What is left of a study's limits.

    Args:
        limits: of the study; the minutes of a resumed one count anew.
        options: of the hold-out.
        clock: seconds, monotonic.
        began: when the minutes began; `None` = now.
        regimes: in how many a finalist's launches are counted.
    """

    def __init__(
        self,
        limits: StudyLimits,
        options: LoopOptions,
        clock: Callable[[], float],
        began: float | None = None,
        regimes: int = 2,
    ) -> None:
        self._regimes = regimes
        self._limits, self._options, self._clock = limits, options, clock
        self._start = clock() if began is None else began
        self._screens = 0
        self._screen_s = 0.0
        self.trials = 0
        """Screened in the whole study, by earlier runs too."""

    def screened(self, wall_s: float | None) -> None:
        """Count a screen; `None` = an earlier run made it."""
        self.trials += 1
        if wall_s is not None:
            self._screens += 1
            self._screen_s += wall_s

    @property
    def left_s(self) -> float | None:
        """Until the minutes are over; `None` = there is no limit."""
        if self._limits.minutes is None:
            return None
        return max(60 * self._limits.minutes - (self._clock() - self._start), 0.0)

    @property
    def most_trials(self) -> int | None:
        """Screens of the whole study; `None` = there is no limit."""
        return self._limits.trials

    @property
    def trials_left(self) -> int | None:
        """Screens that are left; `None` = there is no limit."""
        return None if self._limits.trials is None else max(self._limits.trials - self.trials, 0)

    def over(self, workloads: int) -> Why | None:
        """Why no more is screened, with finalists of so many waiting; `None` = go on."""
        if self.trials_left == 0:
            return Why.TRIALS
        left = self.left_s
        return Why.MINUTES if left is not None and left <= self.kept_s(workloads) else None

    def kept_s(self, workloads: int) -> float:
        """What is kept for the hold-out, with finalists of so many workloads waiting."""
        share = self._options.finals_share * 60 * (self._limits.minutes or 0.0)
        return max(self.finals_s(workloads * self._options.finalists), share)

    def has_room(self, finalists: int) -> bool:
        """Whether a hold-out of so many still fits into the minutes."""
        left = self.left_s
        return left is None or self.finals_s(finalists) <= left

    def finals_s(self, finalists: int) -> float:
        """What a hold-out of so many will take, estimated from the screens."""
        mean = self._screen_s / self._screens if self._screens else FIRST_SCREEN_S
        processes = self._options.processes
        timed = finalists * mean * (1 + OF_A_SCREEN * processes)
        if self._options.sanitize:
            timed += finalists * SANITIZED_S
        return processes * PROCESS_S + self.counted_s(finalists, self._regimes) + timed

    def counted_s(self, finalists: int, regimes: int) -> float:
        """What counting launches of so many and of their baselines takes, in one process."""
        return COUNTED_S + 2 * finalists * regimes * COUNTED_LAUNCH_S

    def counts(self, finalists: int) -> int:
        """In how many regimes there is time to count; 0 = in none."""
        left = self.left_s
        if left is None:
            return self._regimes
        fitting = (n for n in range(self._regimes, 0, -1) if self.counted_s(finalists, n) <= left)
        return next(fitting, 0)
