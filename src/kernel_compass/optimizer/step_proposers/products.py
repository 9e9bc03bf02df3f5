"""A product with a constant weight by another implementation, its weight packed once; products of
one input as one.

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
from kernel_compass.records.step_loop import PlaceKind, ProductChoice, ProductFound, StepPlace
from kernel_compass.records.trial import Candidate
from kernel_compass.units import bytes_text

COST_S = 120.0
"""Of a study; the least a second is good for."""
DTYPES = frozenset(["bfloat16"])
"""Of activations that implementations take."""
START_US = 3.0
"""What a product takes beyond its floor, whatever its size: measured on an H200 (docs/step_loop.md,
"What is foretold")."""
NOT_IN_THESE = "nothing was faster in the formats that were asked for"
TORCHS = Candidate("cublas_bf16", {}, "bf16")
"""torch's own product of all columns."""


class Products:
    """One proposal a product; products of the same sizes are replaced together."""

    name = "product"

    def propose(self, view: StepView) -> Sequence[Offer]:
        """Those of a GPU in bf16 that are not replaced yet."""
        done = {one.target.workload for one in view.accepted if not one.target.parts}
        found = []
        for place in view.of(PlaceKind.PRODUCT):
            work, left = place.workload, _left(view, place)
            if work is None or work in done or place.dtype not in DTYPES or not view.on_gpu:
                continue
            if not left:
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
                left * place.selected.share,
                speedup,
                _part(saved_us(place, speedup), left),
                preconditions=("its weight is constant", "no gradient is wanted"),
            )
            found.append(Offer(proposal, COST_S, study=work))
        return found


class SharedInputs:
    """One proposal for products of one input, computed as one: by another implementation, or by
    torch."""

    name = "shared_input"

    def propose(self, view: StepView) -> Sequence[Offer]:
        """Those of a GPU in bf16 that are not one yet."""
        done = {(one.target.workload, one.target.parts) for one in view.accepted}
        found = []
        for place in view.of(PlaceKind.SHARED):
            work = place.workload
            if work is None or (work, place.columns) in done:
                continue
            if place.dtype not in DTYPES or not view.on_gpu:
                continue
            speedup = view.speedups.get(work.shape_text)
            evidence = list(evidence_of(place))
            if speedup is not None:
                evidence.append(f"as one {speedup:.2f}x by {view.basis or 'the model'}")
            target = StepTarget(place.selected.workload, workload=work, parts=place.columns)
            proposal = StepProposal(
                StepAction(StepActionKind.PRODUCT, target),
                "They read the same input: one product has one start and one end, and more "
                "columns to share out.",
                tuple(evidence),
                place.selected.share,
                speedup,
                _as_one_us(place.time_us, place.columns, speedup),
                preconditions=(
                    "their weights are constant",
                    "no gradient is wanted",
                    "nothing writes into their input between them",
                ),
            )
            found.append(Offer(proposal, COST_S, study=work))
        return found


def _as_one_us(
    time_us: float | None, columns: Sequence[int], speedup: float | None
) -> float | None:
    """What is saved where products become one, and that one so many times faster."""
    if time_us is None:
        return None
    starts = min((len(columns) - 1) * START_US, time_us)
    return starts + (time_us - starts) * (1 - 1 / (speedup or 1.0))


def _left(view: StepView, place: StepPlace) -> float:
    """Which part of a product's calls is not computed with others yet."""
    done = {(one.target.workload, one.target.parts) for one in view.accepted if one.target.parts}
    joined = {
        op
        for one in view.of(PlaceKind.SHARED)
        if (one.workload, one.columns) in done
        for op in one.ops
    }
    if not place.ops:
        return 1.0
    return sum(op not in joined for op in place.ops) / len(place.ops)


def _part(saves_us: float | None, part: float) -> float | None:
    return None if saves_us is None else part * saves_us


def choices_of(
    offer: Offer, found: ProductFound, formats: Sequence[str] = ()
) -> tuple[ProductChoice, ...]:
    """What is tried, one after the other; products of one input by torch at the last.

    Args:
        offer: the product.
        found: by its study.
        formats: that it may be computed in; none = all.
    """
    known = found.choices
    if offer.proposal.action.target.parts:
        bf16 = [one for one in known if one.candidate.format == TORCHS.format]
        known = known if bf16 else (*known, ProductChoice(TORCHS))
    return tuple(one for one in known if not formats or one.candidate.format in (None, *formats))


def decided(
    offer: Offer, found: ProductFound, total_us: float | None, formats: Sequence[str] = ()
) -> list[Offer]:
    """The proposals once a study of the product said which implementation, and how fast it is; each
    for where the step's outputs refuse the one before.

    Args:
        offer: the product.
        found: by its study.
        total_us: of the step.
        formats: that it may be computed in; none = all.
    """
    choices = choices_of(offer, found, formats)
    left = range(len(choices) - 1, -1, -1)
    return [
        _decided(offer, found.study, one, total_us, finer)
        for one, finer in zip(choices, left, strict=True)
    ]


def _decided(
    offer: Offer, study: str | None, found: ProductChoice, total_us: float | None, finer: int
) -> Offer:
    proposal = offer.proposal
    least = least_speedup(found.speedups)
    parts = proposal.action.target.parts
    saves = None
    if total_us is not None and parts:
        saves = _as_one_us(proposal.share * total_us, parts, least)
    elif total_us is not None and least is not None:
        saves = proposal.share * total_us * (1 - 1 / least)
    alone = ", ".join(f"{o.estimate:.3f}x {name}" for name, o in sorted(found.speedups.items()))
    evidence = [*proposal.evidence, *([f"alone {alone} (study {study})"] if alone else [])]
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
