"""What a loop over a step is given, and what it would try on a captured step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kernel_compass.optimizer.step_doors import Actions, GroupsOf, Offer, StepProposer, StepView
from kernel_compass.optimizer.step_selecting import select_places, worked_on
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.step_action import StepAction, StepEntry, StepTrial
from kernel_compass.records.step_capture import StepCapture
from kernel_compass.records.step_loop import StepOptions, StepPlace
from kernel_compass.records.step_study import StepFinal
from kernel_compass.records.study import StudyLimits

MakeEntry = Callable[[StepTrial, StepFinal], StepEntry]
FULL_BITS = 16
"""Of weights as they are."""


@dataclass(frozen=True)
class StepSetup:
    """All that the loop knows before it starts."""

    options: StepOptions
    budget_pct: float
    limits: StudyLimits
    proposers: Sequence[StepProposer]
    groups: GroupsOf
    entry: MakeEntry
    launch_us: float | None = None
    """t0 of the calibration, in a graph."""
    speedups: Callable[[Sequence[StepPlace]], Mapping[str, float]] = lambda _: {}
    """What the model says of products, by their shape."""
    basis: str = ""
    """What they rest on."""
    formats: tuple[str, ...] = ()
    """That products may be computed in; none = all that fit the budget."""

    @property
    def weights_budget_pct(self) -> float:
        """What weights of fewer bits may cost: nothing, where no format that was named has them."""
        named = [NumberFormat.parse(one).weight.bits for one in self.formats]
        return 0.0 if named and min(named) == FULL_BITS else self.budget_pct


def view_of(
    setup: StepSetup, capture: StepCapture, places: tuple[StepPlace, ...], accepted: Actions
) -> StepView:
    """A step as proposers see it.

    Args:
        setup: of the loop.
        capture: the step as it is.
        places: those worked on.
        accepted: what is on.
    """
    return StepView(
        capture,
        places,
        accepted,
        setup.budget_pct,
        setup.launch_us,
        setup.speedups(places),
        setup.basis,
    )


def plan_step(
    setup: StepSetup, capture: StepCapture, accepted: tuple[StepAction, ...] = ()
) -> tuple[tuple[StepPlace, ...], tuple[Offer, ...]]:
    """Select and propose on a captured step, with nothing measured: places, and offers by worth."""
    limits = (setup.options.least_share, setup.weights_budget_pct)
    places = select_places(capture, setup.groups(capture), *limits)
    working = tuple(one for one in places if worked_on(one))
    view = view_of(setup, capture, working, accepted)
    offers = [o for p in setup.proposers for o in p.propose(view)]
    return places, tuple(sorted(offers, key=lambda one: (-one.worth, one.key)))
