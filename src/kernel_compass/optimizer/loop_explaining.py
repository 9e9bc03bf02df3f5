"""Step 5: did the counter move that was predicted, and were the operands read at all?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kernel_compass.records.counters import DRAM_BYTES_READ, L2_SECTORS_READ, SECTOR_BYTES
from kernel_compass.records.trial import CounterMovement, Outcome, Reason, Trial
from kernel_compass.units import bytes_text

LEAST_READ = 0.98
"""Share of the compulsory bytes that must be seen at L2."""
_NAMES = {
    DRAM_BYTES_READ: "bytes read from DRAM by a cold launch",
    L2_SECTORS_READ: "bytes read from L2",
}


def explained(trial: Trial, counted: Mapping[str, Any]) -> Trial:
    """A trial that passed its hold-out, with what the counters say of it.

    Args:
        trial: accepted, but for this.
        counted: of an explain task: `baseline` and `candidate`, each values by metric,
            `compulsory_bytes`, `warm`; or `unavailable`, why there are none.
    """
    if "unavailable" in counted:
        note = f"whether the predicted counter moved is not known: {counted['unavailable']}"
        return replace(trial, notes=(*trial.notes, note))
    least, sectors = counted.get("compulsory_bytes"), counted["candidate"].get(L2_SECTORS_READ)
    if least is not None and sectors is not None and sectors * SECTOR_BYTES < LEAST_READ * least:
        read = bytes_text(sectors * SECTOR_BYTES)
        detail = f"a launch reads {read} at L2, its operands are {bytes_text(least)}"
        return replace(trial, outcome=Outcome.REJECTED, reason=Reason.TOO_FEW_BYTES, detail=detail)
    movements = [_seen(one, counted) for one in _predicted(trial)]
    known = [one for one in movements if one.seen is not None]
    if not known:
        return replace(trial, notes=(*trial.notes, *_bytes(counted)))
    moved = all(one.moved for one in known)
    notes = (*(_text(one) for one in known), *_bytes(counted))
    detail = trial.detail if moved else f"faster, not for the predicted reason; {trial.detail}"
    return replace(trial, explained=moved, detail=detail, notes=(*trial.notes, *notes))


def _predicted(trial: Trial) -> tuple[CounterMovement, ...]:
    prediction = trial.proposal.prediction
    return () if prediction is None else prediction.counters


def _seen(one: CounterMovement, counted: Mapping[str, Any]) -> CounterMovement:
    before, after = (counted[side].get(one.metric) for side in ("baseline", "candidate"))
    return one if not before or after is None else replace(one, seen=after / before)


def _text(one: CounterMovement) -> str:
    what = _NAMES.get(one.metric, one.metric)
    return f"{what}: {one.seen:.2f} of the baseline's, {one.expected:.2f} was predicted"


def _bytes(counted: Mapping[str, Any]) -> tuple[str, ...]:
    """What a launch reads from where, in each regime that was counted, in a sentence."""
    found = [_read("cold", counted)]
    if "warm" in counted:
        found.append(_read("warm", counted["warm"]))
    return tuple(filter(None, found))


def _read(regime: str, both: Mapping[str, Any]) -> str:
    parts = []
    places = (("DRAM", DRAM_BYTES_READ, 1), ("L2", L2_SECTORS_READ, SECTOR_BYTES))
    for place, metric, unit in places:
        before, after = (both[side].get(metric) for side in ("baseline", "candidate"))
        if before is not None and after is not None:
            parts.append(f"{bytes_text(unit * before)} -> {bytes_text(unit * after)} from {place}")
    return f"a {regime} launch reads {', '.join(parts)}" if parts else ""
