"""One comparison in one process, looked at as pairs come in.

At every look the interval is a *repeated confidence interval* (Jennison & Turnbull, J. R. Stat.
Soc. B 51, 1989): all of them together cover the truth with probability 1 - alpha, whatever made the
comparison stop. So one interval serves all answers: beyond the minimum effect, within it, or on
its edge. The level of each look comes from alpha spending and is carried over to Student's t, since
the noise is estimated too (the significance-level approach, Jennison & Turnbull 2000).
Nothing is drawn at random: the same pairs give the same answer.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from kernel_compass.analysis.decision import decide, interval, reason
from kernel_compass.analysis.location import Location, locate
from kernel_compass.analysis.pairing import Array, check_alike, log_ratios
from kernel_compass.analysis.spending import nominal_levels, normal_quantile, power_spending
from kernel_compass.errors import UsageError
from kernel_compass.records.comparison import ComparisonResult, Decision, Interval, Rule, Stage
from kernel_compass.records.measurement import PairedSamples
from kernel_compass.units import percent_text


class SequentialComparison:
    """Takes pairs until they decide, or until the last look.

    Args:
        rule: fixed beforehand.
    """

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._logs: Array = np.zeros(0)
        self._first: PairedSamples | None = None
        self._warnings: tuple[str, ...] = ()
        self._fractions: tuple[float, ...] = ()
        self._result: ComparisonResult | None = None

    @property
    def decision(self) -> Decision:
        """The answer at the last look; `continue` before the first."""
        return self._result.decision if self._result else Decision.CONTINUE

    @property
    def pairs_wanted(self) -> int:
        """Pairs to measure before the next look; 0 once decided."""
        if self.decision is not Decision.CONTINUE:
            return 0
        return next(look for look in self._rule.looks if look > self._logs.size) - self._logs.size

    def add(self, pairs: PairedSamples) -> Decision:
        """Add pairs in the order measured; look where a planned look has been reached.

        Raises:
            UsageError: pairs measured differently or in another process, or after the end.
            MeasurementError: times that are no times.
        """
        logs = log_ratios(pairs)
        self._check(pairs)
        due = self.pairs_wanted
        self._first = self._first or pairs
        self._warnings = tuple(dict.fromkeys((*self._warnings, *pairs.warnings)))
        self._logs = np.concatenate([self._logs, logs])
        if logs.size >= due:
            self._result = self._look(self._first)
        return self.decision

    def result(self) -> ComparisonResult:
        """What the last look found.

        Raises:
            UsageError: no look yet.
        """
        if self._result is None:
            raise UsageError(
                f"{self._logs.size} pairs, and the first look is at {self._rule.looks[0]}.",
                f"Measure {self.pairs_wanted} more.",
            )
        return self._result

    def stop(self) -> ComparisonResult:
        """End before the last look (out of time): what is not decided is undecided."""
        found = self.result()
        if found.decision is Decision.CONTINUE:
            why = f"stopped after {found.pairs} of {self._rule.looks[-1]} pairs"
            undecided = Decision.UNDECIDED
            words = reason(undecided, found.speedup, found.minimum_effect)
            reasons = (words, why, *found.reasons[1:])
            self._result = found = replace(found, decision=undecided, reasons=reasons)
        return found

    def _check(self, pairs: PairedSamples) -> None:
        if self.decision is not Decision.CONTINUE:
            raise UsageError(
                f"The comparison has ended: {self.decision}.",
                "Pairs added after the answer would change its error rate; start a new one.",
            )
        if self._first is None:
            return
        check_alike(self._first, pairs)
        if self._first.process != pairs.process:
            raise UsageError(
                f"Pairs of processes {self._first.process} and {pairs.process} in one comparison.",
                "Several processes are a hold-out: use confirm.",
            )

    def _look(self, first: PairedSamples) -> ComparisonResult:
        rule, pairs = self._rule, self._logs.size
        self._fractions = (*self._fractions, min(pairs / rule.looks[-1], 1.0))
        spent = power_spending(rule.side_alpha, rule.spending_power, self._fractions)
        level = nominal_levels(spent, self._fractions)[-1]
        where = locate(self._logs)
        found = interval(where.center, where.half_width(level), 1 - 2 * rule.side_alpha)
        decision = decide(found, rule.minimum_effect)
        if decision is Decision.UNDECIDED and pairs < rule.looks[-1]:
            decision = Decision.CONTINUE
        return ComparisonResult(
            decision=decision,
            stage=Stage.IN_PROCESS,
            speedup=found,
            minimum_effect=rule.minimum_effect,
            regime=first.regime,
            launch_mode=first.launch_mode,
            launches_per_replay=first.launches_per_replay,
            pairs=pairs,
            looks=len(self._fractions),
            processes=1,
            alpha_spent=2 * rule.candidates * spent[-1],
            pair_noise_pct=100 * where.pair_noise,
            reasons=_reasons(decision, found, rule, where),
            reproducible=_widened(where, level, rule),
            warnings=self._warnings,
            environment=first.environment,
        )


def _reasons(decision: Decision, found: Interval, rule: Rule, where: Location) -> tuple[str, ...]:
    words = [reason(decision, found, rule.minimum_effect)]
    if decision is Decision.UNDECIDED:
        noise = percent_text(100 * where.pair_noise)
        words.append(f"{where.pairs} pairs whose ratio scatters by {noise} tell no more")
    if rule.noise_floor_pct is None:
        words.append("one process: what placement in memory does to it is not known")
    return tuple(words)


def _widened(where: Location, level: float, rule: Rule) -> Interval | None:
    """What another process may find: its placement is drawn anew."""
    if rule.noise_floor_pct is None:
        return None
    floor = normal_quantile(rule.side_alpha) * rule.noise_floor_pct / 100
    half = math.hypot(where.half_width(level), floor)
    return interval(where.center, half, 1 - 2 * rule.side_alpha)
