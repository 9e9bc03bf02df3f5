"""The step in a CUDA graph: what the GPU waits for the CPU is gone."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_compass.optimizer.step_doors import Offer, StepView
from kernel_compass.optimizer.step_proposers.predicting import evidence_of, total_us
from kernel_compass.records.step_action import (
    StepAction,
    StepActionKind,
    StepProposal,
    StepTarget,
)
from kernel_compass.records.step_loop import PlaceKind
from kernel_compass.units import duration_text

COST_S = 15.0
REPLAY_US = 10.0
"""What launching a graph takes itself, about."""


class Graph:
    """Proposed where the program replays no graph of its own and the GPU waits."""

    name = "step_graph"

    def propose(self, view: StepView) -> Sequence[Offer]:
        """One, or none."""
        capture, whole = view.capture, total_us(view)
        if any(one.kind is StepActionKind.STEP_GRAPH for one in view.accepted):
            return ()
        found = view.of(PlaceKind.IDLE)
        if not found or whole is None or capture.idle_us is None:
            return ()
        saves = max(capture.idle_us - REPLAY_US, 0.0)
        launches = sum(one.launches for one in capture.kernels)
        evidence = [*evidence_of(found[0]), f"{launches:g} launches a step"]
        if view.launch_us is not None:
            evidence.append(f"a launch in a graph costs about {duration_text(view.launch_us)}")
        proposal = StepProposal(
            StepAction(StepActionKind.STEP_GRAPH, StepTarget("step")),
            f"The GPU has nothing to do for {duration_text(capture.idle_us)} of "
            f"{duration_text(whole)}: in a graph nothing is launched from the CPU.",
            tuple(evidence),
            min(capture.idle_us / whole, 1.0),
            None,
            saves,
            preconditions=(
                "nothing waits for the GPU during the step",
                "its inputs keep shapes, dtypes and devices",
                "what it returns lies on the GPU",
            ),
        )
        return (Offer(proposal, COST_S),)
