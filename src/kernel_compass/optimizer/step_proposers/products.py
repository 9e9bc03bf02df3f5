"""A product with a constant weight by another implementation, its weight packed once.

Which implementation, and how fast it is alone, a study of that product says first; that figure is
then the prediction for the step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kernel_compass.optimizer.step_doors import Offer, StepView
from kernel_compass.optimizer.step_proposers.predicting import evidence_of, saved_us
from kernel_compass.records.comparison import Interval
from kernel_compass.records.step_action import (
    StepAction,
    StepActionKind,
    StepProposal,
    StepTarget,
)
from kernel_compass.records.step_loop import PlaceKind, ProductChoice, ProductFound
from kernel_compass.units import bytes_text

COST_S = 120.0
"""Of a study; the least a second is good for."""
DTYPES = frozenset(["bfloat16"])
"""Of activations that implementations take."""


class Products:
    """One proposal a product; products of the same sizes are replaced together."""

    name = "product"

    def propose(self, view: StepView) -> Sequence[Offer]:
        """Those of a GPU in bf16 that are not replaced yet."""
        done = {one.target.workload for one in view.accepted}
        found = []
        for place in view.of(PlaceKind.PRODUCT):
            work = place.workload
            if work is None or work in done or place.dtype not in DTYPES or not view.on_gpu:
                continue
            speedup = view.speedups.get(work.shape_text)
            evidence = list(evidence_of(place))
            if speedup is not None:
                evidence.append(f"{speedup:.2f}x by {view.basis or 'the model'}")
            proposal = StepProposal(
                StepAction(
                    StepActionKind.PRODUCT,
                    StepTarget(work.shape_text, workload=work),
                ),
                "Its time is that of reading its weight: fewer bytes, or a better kernel.",
                tuple(evidence),
                place.selected.share,
                speedup,
                saved_us(place, speedup),
                preconditions=("its weight is constant", "no gradient is wanted"),
            )
            found.append(Offer(proposal, COST_S, study=work))
        return found


def decided(offer: Offer, found: ProductFound, total_us: float | None) -> list[Offer]:
    """The proposals once a study of the product said which implementation, and how fast it is; each
    for where the step's outputs refuse the one before."""
    left = range(len(found.choices) - 1, -1, -1)
    return [
        _decided(offer, found.study, one, total_us, finer)
        for one, finer in zip(found.choices, left, strict=True)
    ]


def _decided(
    offer: Offer, study: str | None, found: ProductChoice, total_us: float | None, finer: int
) -> Offer:
    proposal = offer.proposal
    least = least_speedup(found.speedups)
    saves = None
    if total_us is not None and least is not None:
        saves = proposal.share * total_us * (1 - 1 / least)
    alone = ", ".join(f"{o.estimate:.3f}x {name}" for name, o in sorted(found.speedups.items()))
    evidence = [*proposal.evidence, f"alone {alone} (study {study})"]
    if found.added_bytes:
        evidence.append(f"{bytes_text(found.added_bytes)} beside each weight")
    action = replace(proposal.action, candidate=found.candidate)
    return replace(
        offer,
        proposal=replace(
            proposal,
            action=action,
            evidence=tuple(evidence),
            part_speedup=least,
            saves_us=saves,
            added_bytes=found.added_bytes or 0,
            finer=finer,
        ),
    )


def least_speedup(speedups: Mapping[str, Interval]) -> float | None:
    """In the regime where it is least: nobody knows where L2 stands in the step."""
    return min((one.estimate for one in speedups.values()), default=None)
