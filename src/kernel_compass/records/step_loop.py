"""What the loop over a step knows, asks of the machine, and is answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum

from kernel_compass.records.comparison import MINIMUM_EFFECT, ComparisonResult, Interval
from kernel_compass.records.environment import Environment
from kernel_compass.records.measurement import PairedSamples
from kernel_compass.records.selection import Selected
from kernel_compass.records.step_action import (
    OutputError,
    StepAction,
)
from kernel_compass.records.step_capture import SourceLine, StepCapture
from kernel_compass.records.study import StudyRequest
from kernel_compass.records.trial import Candidate, Reason
from kernel_compass.records.workload import Workload

PROCESS_FAULTS = frozenset(
    [
        Reason.BUILD_FAILED,
        Reason.COMPILE_TIMEOUT,
        Reason.RUN_TIMEOUT,
        Reason.ILLEGAL_ACCESS,
        Reason.CRASHED,
        Reason.EXITED,
        Reason.OUT_OF_MEMORY,
        Reason.RAISED,
        Reason.CANNOT_BE_TIMED,
        Reason.CANCELLED,
    ]
)
"""Of which a trial has failed; of others it was judged and rejected."""
WRONG_RESULTS = frozenset(
    [Reason.OVER_BUDGET, Reason.NOT_FINITE, Reason.WRONG_SHAPE, Reason.NOT_REPEATABLE]
)
"""What outputs say against a change."""


class PlaceKind(StrEnum):
    """What a part of the step is, for whoever proposes."""

    PRODUCT = "product"
    """A product with a constant weight."""
    SHARED = "shared"
    """Products with constant weights that have the same input: they could be one."""
    ATTENTION = "attention"
    TRITON = "triton"
    """A Triton kernel of the user's."""
    COPY = "copy"
    """Bytes that are moved as they are."""
    GROUP = "group"
    """A run of short kernels between two long ones."""
    IDLE = "idle"
    """The GPU waits for the CPU."""
    OTHER = "other"


@dataclass(frozen=True)
class StepPlace:
    """A part of the step that is worked on as one."""

    kind: PlaceKind
    selected: Selected
    """Share, headroom, and why it is tried or passed over."""
    time_us: float | None
    """Of a step; `None` = not known (no kernel times)."""
    floor_us: float | None
    launches: float = 1.0
    """A step."""
    workload: Workload | None = None
    """Of a product; of products with the same input, that of all their columns."""
    dtype: str | None = None
    modules: tuple[str, ...] = ()
    """Innermost ones of its operators, each once."""
    ops: tuple[int, ...] = ()
    launch: int | None = None
    """Of a Triton kernel: its first `StepLaunch.index`."""
    saves_at_most_us: float | None = None
    """Of a group: were it one kernel."""
    lines: tuple[SourceLine, ...] = ()
    columns: tuple[int, ...] = ()
    """Of products with the same input: those of each, as they are called."""


@dataclass(frozen=True)
class StepOptions:
    """How the loop over a step works; all of it decides the study, and is kept with it."""

    minimum_effect: float = 0.01
    """Of one change, on the whole step; several small ones add up."""
    final_effect: float = MINIMUM_EFFECT
    """Of all of them together, in fresh processes."""
    pairs: int = 48
    """Of a change, at most; it is looked at after a quarter and a half of them."""
    processes: int = 5
    final_pairs: int = 12
    """In each process."""
    top1_pct: float = 99.0
    kl_nats: float = 0.02
    start_timeout_s: float = 900.0
    """Until a program has begun its step, packing and compiling included."""
    run_timeout_s: float = 600.0
    least_share: float = 0.005
    """Of the time, under which a place is not looked at."""
    configs: int = 40
    """Of a Triton kernel of the user's, that are timed in the step before the best is tried."""

    @classmethod
    def of(cls, request: StudyRequest) -> StepOptions:
        """As they were when a study was begun."""
        known = {one.name for one in fields(cls)}
        return cls(**{k: v for k, v in request.options.items() if k in known})  # type: ignore[arg-type]

    @property
    def kept(self) -> dict[str, int | float]:
        """As a study's request keeps them."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


@dataclass(frozen=True)
class StepTried:
    """What came of one change in a process of its own."""

    reason: Reason | None
    """Why it cannot be kept, its speed apart; `None` = nothing is against it."""
    detail: str
    result: ComparisonResult | None = None
    """The whole step with it beside the step without it."""
    before_us: float | None = None
    after_us: float | None = None
    outputs: tuple[OutputError, ...] = ()
    added_bytes: int = 0
    notes: tuple[str, ...] = ()
    inputs: int = 1
    """That outputs were compared on."""


@dataclass(frozen=True)
class StepSampled:
    """All changes beside the untouched program, in one fresh process."""

    samples: PairedSamples | None
    reason: Reason | None = None
    detail: str = ""
    outputs: tuple[OutputError, ...] = ()
    added_bytes: int = 0
    inputs: int = 1
    """That outputs were compared on."""


@dataclass(frozen=True)
class ConfigTime:
    """A configuration of a Triton kernel, timed in the step; it orders, and accepts nothing."""

    time_us: float | None
    """`None` = it does not run, or its results are wrong."""
    detail: str = ""


@dataclass(frozen=True)
class ProductChoice:
    """An implementation that a study of a product alone found faster than the product."""

    candidate: Candidate
    speedups: Mapping[str, Interval] = field(default_factory=dict)
    """By regime."""
    added_bytes: int | None = None


@dataclass(frozen=True)
class ProductFound:
    """What a study of a product alone came to."""

    study: str | None
    candidate: Candidate | None
    """The one it accepted; `None` = none, and `detail` says why."""
    speedups: Mapping[str, Interval] = field(default_factory=dict)
    """By regime."""
    added_bytes: int | None = None
    detail: str = ""
    finer: tuple[ProductChoice, ...] = ()
    """The fastest of each smaller error, the largest first: for where the step's outputs refuse
    what was accepted."""

    @property
    def choices(self) -> tuple[ProductChoice, ...]:
        """All, in the order in which they are tried."""
        if self.candidate is None:
            return ()
        first = ProductChoice(self.candidate, self.speedups, self.added_bytes)
        return (first, *self.finer)


@dataclass(frozen=True)
class StepRecording:
    """A study over a step as it was answered, question by question; the loop runs on it again."""

    program: str
    budget_pct: float
    capture: StepCapture
    environment: Environment
    options: Mapping[str, int | float]
    calibration: str | None = None
    """That floors and predictions rested on."""
    answers: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """By question, as canonical JSON."""
    formats: tuple[str, ...] = ()
    """That products could be computed in; none = all that fit the budget."""


def actions_text(actions: tuple[StepAction, ...]) -> str:
    """Changes in a line each."""
    return "; ".join(one.text for one in actions) or "nothing"
