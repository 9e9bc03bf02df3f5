"""Why a whole space is not tried: its floor is no gain, or its format costs too much."""

from __future__ import annotations

from kernel_compass.records.loop import Baseline, LoopOptions
from kernel_compass.records.search_space import CandidateSpace
from kernel_compass.records.trial import Reason
from kernel_compass.units import bytes_text, duration_text

Objection = tuple[Reason, str]


def objection(
    space: CandidateSpace, baseline: Baseline, budget_pct: float, options: LoopOptions
) -> Objection | None:
    """Why no configuration of it can be accepted; `None` = one may be.

    A floor is what a good streaming kernel takes for the same bytes. A candidate has to win in
    every regime asked for, so one regime in which its floor is no gain decides.

    Args:
        space: with the floors of its bytes and arithmetic.
        baseline: measured.
        budget_pct: the largest error.
        options: the minimum effect, and how far over the budget a guide may be.
    """
    guide = space.error_guide_pct
    if guide is not None and guide > budget_pct * options.guide_margin:
        text = f"{space.format} is {guide:g} % off on Gaussian data; the budget is {budget_pct:g} %"
        return Reason.OVER_BUDGET, text
    for one in baseline.regimes:
        floor = space.floors_us.get(one.regime)
        if floor is None or floor * (1 + options.minimum_effect) < one.time_us:
            continue
        size = "" if space.weight_bytes is None else f" for {bytes_text(space.weight_bytes)}"
        text = (
            f"{one.regime.value}: the floor{size} is {duration_text(floor)}"
            f" ({space.bounds.get(one.regime, 'bytes')}), the baseline takes "
            f"{duration_text(one.time_us)}"
        )
        return Reason.CANNOT_PAY, text
    return None
