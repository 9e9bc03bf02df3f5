"""Events that come in dozens and say the same: shown once, when the last of them was told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kernel_compass.report.phrases import count_text

OVER_BUDGET = "over_budget"
_PASSED_OVER = ("select", "static")
_Key = tuple[str, ...]


@dataclass
class Gathering:
    """Passes events on; formats over the budget, and what a compilation ruled out, in sums.

    Each of them is a trial of its own in the ledger. What passes over other things comes through
    between them; anything else ends the sums.
    """

    show: Callable[[str, str], None]
    """Shows a line: its stage, its text."""
    _sums: dict[_Key, list[Any]] = field(default_factory=dict)

    def take(self, event: Any) -> bool:
        """Whether it is kept back, to be shown in a sum."""
        key = _key(event)
        if key is not None:
            self._sums.setdefault(key, []).append(event.trial)
        elif event.trial is None or event.stage.value not in _PASSED_OVER:
            self.flush()
        return key is not None

    def flush(self) -> None:
        """Show the sums."""
        sums, self._sums = self._sums, {}
        for key, trials in sums.items():
            self.show(key[0], _text(key, trials))


def _key(event: Any) -> _Key | None:
    """What it is summed up under: a format, or a reason of the compiler at a workload."""
    trial, stage = event.trial, event.stage.value
    if trial is None or trial.reason is None:
        return None
    reason, number_format = trial.reason.value, trial.proposal.candidate.format
    if stage == "select" and reason == OVER_BUDGET and number_format is not None:
        return stage, number_format, reason
    if stage == "static":
        return stage, trial.workload, reason
    return None


def _text(key: _Key, trials: list[Any]) -> str:
    stage, what, reason = key
    first, last = trials[0], trials[-1]
    numbers = f"trial {first.number}" if len(trials) == 1 else f"{first.number} to {last.number}"
    if stage == "select":
        names = sorted({one.proposal.candidate.implementation for one in trials})
        places = count_text(len({one.workload for one in trials}), "workload")
        of = f"{len(names)} implementations" if len(names) > 1 else names[0]
        return f"{what}  {reason}: {first.detail}. Not tried: {of}, {places} ({numbers})"
    candidate = first.proposal.candidate
    name = " ".join(filter(None, (candidate.implementation, candidate.format)))
    count = count_text(len(trials), "configuration")
    return f"{what}  {reason}: {count} ({numbers}), like {name}: {first.detail}"
