"""What the loop over a step needs of the world: with recorded answers it runs without a machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kernel_compass.records.step_action import StepAction, StepProposal
from kernel_compass.records.step_capture import SourceLine, StepCapture
from kernel_compass.records.step_loop import (
    ConfigTime,
    PlaceKind,
    ProductFound,
    StepPlace,
    StepSampled,
    StepTried,
)
from kernel_compass.records.workload import Workload

Actions = tuple[StepAction, ...]


class Group(Protocol):
    """A run of short kernels between two long ones."""

    @property
    def kernels(self) -> tuple[int, ...]:
        """Places in `StepCapture.kernels`."""

    @property
    def time_us(self) -> float:
        """Of its kernels."""

    @property
    def gap_us(self) -> float:
        """Between them."""

    @property
    def saves_at_most_us(self) -> float:
        """Were it one kernel at its floor."""

    @property
    def first_line(self) -> SourceLine | None:
        """Of the user's."""

    @property
    def last_line(self) -> SourceLine | None:
        """Of the user's."""

    @property
    def module(self) -> str | None:
        """The innermost module that holds it."""


GroupsOf = Callable[[StepCapture], Sequence[Group]]


class StepBench(Protocol):
    """The program, its machine, and studies of products; each call may take minutes."""

    def capture(self, accepted: Actions) -> StepCapture:
        """The step as it is with these on.

        Raises:
            KernelCompassError: the program does not run, or has no step.
        """

    def study(self, workload: Workload, dtype: str) -> ProductFound:
        """What is fastest for a product alone."""

    def rank(self, accepted: Actions, actions: Actions) -> tuple[ConfigTime, ...]:
        """The step's time with each of these on, roughly, in one process."""

    def attempt(self, accepted: Actions, action: StepAction) -> StepTried:
        """The step with and without one change, in turns, and what its outputs become."""

    def sample(self, process: int, actions: Actions) -> StepSampled:
        """The step with all changes beside the untouched one, in a fresh process."""


@dataclass(frozen=True)
class StepView:
    """The step as it stands, for proposers."""

    capture: StepCapture
    places: tuple[StepPlace, ...]
    """Those worked on."""
    accepted: Actions
    budget_pct: float
    launch_us: float | None = None
    """What a launch costs at least: t0 of the calibration."""
    speedups: Mapping[str, float] = field(default_factory=dict)
    """Of products by `Workload.shape_text`: what the model says other formats may win."""
    basis: str = ""
    """What those rest on."""

    @property
    def on_gpu(self) -> bool:
        """Whether the step runs on one."""
        return self.capture.environment.device.compute_capability is not None or bool(
            self.capture.kernels
        )

    def of(self, *kinds: PlaceKind) -> tuple[StepPlace, ...]:
        """Places of some kinds, in their order."""
        return tuple(one for one in self.places if one.kind in kinds)


@dataclass(frozen=True)
class Offer:
    """A change that may be tried."""

    proposal: StepProposal
    cost_s: float
    """What trying it takes, estimated."""
    study: Workload | None = None
    """A product: a study of it alone says first which implementation."""
    configs: Actions = ()
    """A Triton kernel, or a region with products: these are timed in the step first, and the best
    of them is tried."""

    @property
    def key(self) -> str:
        """What is tried once as the step stands."""
        return key_of(self.proposal.action)

    @property
    def worth(self) -> float:
        """Predicted gain per cost; of what is not known, a small part of its share."""
        saves = self.proposal.saves_us
        guess = self.proposal.share * UNKNOWN_GAIN if saves is None else saves
        return guess / self.cost_s


UNKNOWN_GAIN = 0.05
"""Of the share of a change whose gain nobody can tell: it comes after those that can."""


def key_of(action: StepAction) -> str:
    """An action as a word."""
    target = action.target
    places = (target.module, target.module_class, target.function, target.kernel_sha256)
    work = target.workload.shape_text if target.workload is not None else ""
    return " | ".join([action.text, *map(str, places), work])


class StepProposer(Protocol):
    """A source of changes, of one kind."""

    @property
    def name(self) -> str:
        """As a trial names it."""

    def propose(self, view: StepView) -> Sequence[Offer]:
        """All changes that it knows for the step as it stands now."""
