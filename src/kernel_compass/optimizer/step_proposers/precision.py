"""float32 products in TF32 on a GPU, where the budget of errors allows it."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_compass.analysis.step_runs import is_heavy
from kernel_compass.optimizer.step_doors import Offer, StepView
from kernel_compass.optimizer.step_proposers.predicting import evidence_of
from kernel_compass.records.step_action import (
    StepAction,
    StepActionKind,
    StepProposal,
    StepTarget,
)

COST_S = 15.0
LEAST_BUDGET_PCT = 0.05
"""TF32 keeps 10 bits of the mantissa: 2^-11 of each operand at most, 0.03 % of a product."""
BYTES_BOUND = 1.0
"""Of a product whose time is that of its bytes: TF32 reads the same."""
MATH_BOUND = 4.0
"""Of one that the arithmetic bounds: FP32 runs outside of the tensor cores, TF32 in them."""
ROWS = 64
"""From so many rows on the arithmetic is taken to bound it."""


class Precision:
    """One proposal, for all float32 products of the step."""

    name = "matmul_precision"

    def propose(self, view: StepView) -> Sequence[Offer]:
        """Where there is one, on a GPU, and the budget is no tighter than TF32."""
        known = {one.kind for one in view.accepted}
        if (
            not view.on_gpu
            or StepActionKind.MATMUL_PRECISION in known
            or view.budget_pct < LEAST_BUDGET_PCT
        ):
            return ()
        ops = {
            op.index: op
            for op in view.capture.ops
            if is_heavy(op) and "mm" in op.name and op.inputs and op.inputs[0].dtype == "float32"
        }
        places = [one for one in view.places if any(index in ops for index in one.ops)]
        if not places:
            return ()
        saves = 0.0
        for one in places:
            rows = one.workload.tokens if one.workload is not None else 0
            speedup = MATH_BOUND if rows >= ROWS else BYTES_BOUND
            saves += (one.time_us or 0.0) * (1 - 1 / speedup)
        share = sum(one.selected.share for one in places)
        proposal = StepProposal(
            StepAction(
                StepActionKind.MATMUL_PRECISION,
                StepTarget("float32 products"),
                settings={"precision": "high"},
            ),
            "Products of float32 leave the tensor cores idle; TF32 uses them.",
            tuple(row for one in places[:3] for row in evidence_of(one)),
            share,
            None,
            saves if all(one.time_us is not None for one in places) else None,
            preconditions=("the error stays within the budget",),
        )
        return (Offer(proposal, COST_S),)
