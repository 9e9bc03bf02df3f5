"""A copy that only changes strides is left out where what reads it takes strides as they are."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_compass.analysis.step_runs import is_heavy, is_view
from kernel_compass.optimizer.step_doors import Offer, StepView
from kernel_compass.optimizer.step_proposers.predicting import evidence_of
from kernel_compass.records.step_action import (
    StepAction,
    StepActionKind,
    StepProposal,
    StepTarget,
)
from kernel_compass.records.step_capture import StepCapture, StepOp
from kernel_compass.records.step_loop import PlaceKind, StepPlace

COST_S = 12.0
TAKES_STRIDES = ("mm", "bmm", "addmm", "baddbmm", "matmul")
"""Operators that read a transposed operand as it is."""


class Layout:
    """One proposal a line with such a copy."""

    name = "layout"

    def propose(self, view: StepView) -> Sequence[Offer]:
        """Copies of the same dtype whose every reader takes strides."""
        done = {one.target for one in view.accepted}
        found = []
        for place in view.of(PlaceKind.COPY):
            ops = [op for op in view.capture.ops if op.index in place.ops]
            if not ops or not all(_is_needless(view.capture, op) for op in ops):
                continue
            line = ops[0].line
            target = StepTarget(
                f"copy at {line.text}" if line else f"copy {ops[0].name}",
                module=ops[0].module,
                function=None if line is None else f"{line.file}:{line.line}",
                shapes=tuple(dict.fromkeys(tensor.shape for op in ops for tensor in op.outputs)),
            )
            if target in done:
                continue
            found.append(Offer(_proposal(target, place, ops[0]), COST_S))
        return found


def _proposal(target: StepTarget, place: StepPlace, op: StepOp) -> StepProposal:
    return StepProposal(
        StepAction(StepActionKind.LAYOUT, target, settings={"op": op.name}),
        "It writes the same numbers in another order, and what reads them takes either.",
        evidence_of(place),
        place.selected.share,
        None,
        place.time_us,
        preconditions=("its readers take strides", "nothing writes to the copy"),
    )


def _is_needless(capture: StepCapture, op: StepOp) -> bool:
    if not op.inputs or not op.outputs or op.inputs[0].dtype != op.outputs[0].dtype:
        return False
    if op.inputs[0].shape != op.outputs[0].shape or op.name.rpartition("::")[2] == "cat":
        return False
    made = op.outputs[0].storage
    readers = [
        one
        for one in capture.ops
        if one.index > op.index and not is_view(one) and any(t.storage == made for t in one.inputs)
    ]
    return bool(readers) and all(
        is_heavy(one) and one.name.rpartition("::")[2] in TAKES_STRIDES and not one.writes
        for one in readers
    )
