"""Once a study: what limits the baselines and the best so far, by counters, for the rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernel_compass.optimizer.loop_answers import geometric_mean
from kernel_compass.optimizer.loop_book import Book
from kernel_compass.optimizer.loop_budget import COUNTED_S, LoopBudget
from kernel_compass.optimizer.loop_setup import LoopSetup, ends_of
from kernel_compass.optimizer.loop_work import Work, waiting
from kernel_compass.optimizer.proposers.findings import Finding, Findings
from kernel_compass.optimizer.proposers.rules import best_of
from kernel_compass.records.loop_contracts import Executor
from kernel_compass.records.profile import Regime
from kernel_compass.records.trial import Trial

ANSWER = "diagnosis"
"""What a resumed run finds it by."""
TRIED = 4
"""Screens of each workload before: so that the best so far is worth a look."""
SIDE_S = 2.0
"""What one launch takes under all counters, built and diagnosed; estimated."""
MOST_S = 120.0
"""Where the minutes have no limit."""


class Diagnosing:
    """Fills `findings` once each workload that is worked on has some screens behind it.

    Baselines and best candidates of all workloads are counted in one process, in one regime. What
    was found, or that nothing was, is kept for a resumed run.
    """

    def __init__(
        self,
        setup: LoopSetup,
        executor: Executor,
        book: Book,
        budget: LoopBudget,
        works: Sequence[Work],
        findings: Findings,
        say: Callable[[str], None],
    ) -> None:
        self._setup, self._executor, self._book = setup, executor, book
        self._budget, self._works, self._findings, self._say = budget, works, findings, say
        self._is_done = setup.options.counters_share <= 0

    def look(self, works: Sequence[Work]) -> None:
        """Diagnose, where it is time to, and was not done before.

        Args:
            works: those that are worked on, the most important first.
        """
        if self._is_done or any(len(work.tried) < TRIED for work in works):
            return
        chosen = [(work, best) for work in works if (best := best_of(work.tried)) is not None]
        if not chosen:
            return
        self._is_done = True
        known = self._book.answer(ANSWER)
        if known is None and self._book.has_finals:
            return  # an earlier run came to its end without
        if known is None:
            known = self._asked(chosen)
            self._book.keep_answer(ANSWER, known)
        self._take(known)

    def _asked(self, chosen: Sequence[tuple[Work, Trial]]) -> dict[str, Any]:
        """By workload what was found of both sides; or `unavailable`."""
        minutes, left_s = self._setup.request.limits.minutes, self._budget.left_s
        share = self._setup.options.counters_share
        budget_s = MOST_S if minutes is None else 60 * minutes * share
        if left_s is not None:
            budget_s = min(budget_s, left_s - self._budget.kept_s(waiting(self._works)))
        count = int((budget_s - COUNTED_S) / (2 * SIDE_S))
        if count < 1:
            return {"unavailable": f"{max(budget_s, 0.0):.0f} s would be all there is for it"}
        chosen = chosen[:count]
        regime = farthest(chosen, self._setup.regimes)
        self._say(
            f"counting what limits {len(chosen)} baselines and the best so far, {regime.value}"
        )
        sides = [
            (work.workload, candidate)
            for work, best in chosen
            for candidate in (None, best.proposal.candidate)
        ]
        task = self._setup.tasks.diagnose(sides, regime, budget_s)
        for end in ends_of(self._executor, [task]):
            if end.answer is None:
                return {"unavailable": end.failure.detail if end.failure else "no answer"}
            if "unavailable" in end.answer:
                return {"unavailable": end.answer["unavailable"]}
            found = end.answer["found"]
            rows = zip(chosen, found[::2], found[1::2], strict=True)
            return {"found": [_row(w, t, regime, b, c) for (w, t), b, c in rows]}
        return {"unavailable": "no answer"}

    def _take(self, known: Mapping[str, Any]) -> None:
        if "unavailable" in known:
            why = known["unavailable"]
            self._say(f"what limits them is not known by counters, the floor speaks: {why}")
            return
        for row in known["found"]:
            name = row["workload"]
            for what, by in (("baseline", self._findings.baseline), ("best", self._findings.best)):
                one = row[what]
                words = "the baseline" if what == "baseline" else f"trial {row['trial']}"
                if "unavailable" in one:
                    self._say(f"{name}: {words}: not known: {one['unavailable']}")
                    continue
                family = row["family"] if what == "best" else None
                found = Finding(one["limiter"], tuple(one["flags"]), _said(row, one), family)
                by[name] = found
                self._say(f"{name}: {words} is {found.text}")


def farthest(chosen: Sequence[tuple[Work, Trial]], regimes: Sequence[Regime]) -> Regime:
    """Where the best are farthest from their floors; the first regime where none is known."""
    far: dict[Regime, float] = {}
    for regime in regimes:
        ratios = [r for work, best in chosen for r in _over_floor(work, best, regime)]
        if ratios:
            far[regime] = geometric_mean(ratios)
    return max(far, key=lambda regime: far[regime], default=regimes[0])


def _over_floor(work: Work, best: Trial, regime: Regime) -> list[float]:
    candidate = best.proposal.candidate
    same = (candidate.implementation, candidate.format)
    floors = [s.floors_us.get(regime) for s in work.spaces if (s.implementation, s.format) == same]
    times = [one.candidate_us for one in best.results if one.regime is regime]
    return [time / floor for time in times for floor in floors if floor]


def _row(
    work: Work,
    best: Trial,
    regime: Regime,
    baseline_found: Mapping[str, Any],
    best_found: Mapping[str, Any],
) -> dict[str, Any]:
    c = best.proposal.candidate
    return {
        "workload": work.workload.name,
        "trial": best.number,
        "family": " ".join(filter(None, (c.implementation, c.format))),
        "regime": regime.value,
        "baseline": dict(baseline_found),
        "best": dict(best_found),
    }


def _said(row: Mapping[str, Any], one: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(f"{row['regime']}, by counters: {text}" for text in one["evidence"])
