"""Which of torch's backends computes attention: none is known to be best, so each is measured."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_compass.optimizer.step_doors import Offer, StepView
from kernel_compass.optimizer.step_proposers.predicting import evidence_of
from kernel_compass.records.step_action import (
    StepAction,
    StepActionKind,
    StepProposal,
    StepTarget,
)
from kernel_compass.records.step_loop import PlaceKind, StepPlace

COST_S = 15.0
NEAR_ITS_FLOOR = 1.1
"""Times its floor; nearer, no backend has much to win, and each costs a trial."""
ON_GPU = ("flash", "cudnn", "efficient", "math")
ON_CPU = ("flash", "math")
_NOW = {
    "flash": "flash_attention",
    "efficient": "efficient_attention",
    "cudnn": "cudnn_attention",
    "math": "attention_math",
}


def _is_far(place: StepPlace) -> bool:
    """Whether another backend could be faster by more than its floor is uncertain."""
    headroom = place.selected.headroom
    return headroom is None or headroom > NEAR_ITS_FLOOR


class Attention:
    """Every backend but the one that the step uses now."""

    name = "sdpa_backend"

    def propose(self, view: StepView) -> Sequence[Offer]:
        """For all attention of the step at once."""
        places = [one for one in view.of(PlaceKind.ATTENTION) if _is_far(one)]
        if not places or any(o.kind is StepActionKind.SDPA_BACKEND for o in view.accepted):
            return ()
        names = " ".join(op.name for op in view.capture.ops)
        share = sum(one.selected.share for one in places)
        found = []
        for backend in ON_GPU if view.on_gpu else ON_CPU:
            if _NOW[backend] in names:
                continue
            proposal = StepProposal(
                StepAction(
                    StepActionKind.SDPA_BACKEND,
                    StepTarget("scaled_dot_product_attention"),
                    settings={"backend": backend},
                ),
                f"Attention by torch's {backend} backend; which one is fastest depends on the "
                "shapes, and is not known beforehand.",
                tuple(row for one in places[:3] for row in evidence_of(one)),
                share,
                None,
                None,
                preconditions=("the backend takes these shapes and this mask",),
            )
            found.append(Offer(proposal, COST_S))
        return found
