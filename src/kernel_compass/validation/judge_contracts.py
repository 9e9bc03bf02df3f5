"""What the judge meets: problems and candidates as they are in the process that judges them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kernel_compass.records.problem import ProblemWorkload
from kernel_compass.records.trial import Reason

Tensors = Mapping[str, Any]


class Runner(Protocol):
    """A candidate that was built."""

    def prepare(self, held: Tensors) -> Any:
        """Take over operands that stay: weights are packed here, once."""

    def run(self, state: Any, given: Tensors) -> Any:
        """One call: a tensor, or a tuple, list or dictionary of tensors.

        Args:
            state: what `prepare` returned.
            given: all other operands; they may change in place between calls.
        """


@dataclass(frozen=True)
class GateFinding:
    """What a gate says of outputs."""

    reason: Reason | None
    """`None` = they are right."""
    detail: str
    fidelity_error_pct: float | None = None
    format_error_pct: float | None = None


@dataclass(frozen=True)
class Change:
    """How inputs differ from what a problem draws; what rounding makes of them is looked at."""

    far: bool
    """So far that rounding may decide the result, and operands that are rounded on their way into
    products count; else the problem's own allowance holds on the whole."""
    slack: float = 0.0
    """The relative error, beside the baseline's, that honest kernels may make with them."""
    own: Tensors = field(default_factory=dict)
    """What they were made from, as the problem draws them."""


class JudgedProblem(Protocol):
    """A problem in the process that judges."""

    @property
    def name(self) -> str:
        """What reports call it."""

    @property
    def held(self) -> frozenset[str]:
        """Inputs that `Runner.prepare` takes over; the rest comes with each call."""

    def variants(self, workload: ProblemWorkload) -> Sequence[ProblemWorkload]:
        """Other sizes at which a candidate for this workload must be right too."""

    def inputs(self, workload: ProblemWorkload, seed: int) -> dict[str, Any]:
        """Fresh random inputs, the same for the same seed."""

    def expected(
        self, workload: ProblemWorkload, inputs: Tensors, change: Change | None = None
    ) -> Any:
        """What `gate` compares with: computed in float64, before the candidate sees the inputs.

        Args:
            workload: its sizes.
            inputs: drawn by `inputs`, or changed.
            change: of inputs that are none of the problem's own.

        Returns:
            `None` where inputs far off tell nothing: rounding alone makes another result.
        """

    def gate(self, outputs: Sequence[Any], expected: Any) -> GateFinding:
        """Whether outputs are right."""

    def controls(self, expected: Any) -> Mapping[str, Sequence[Any]]:
        """Wrong outputs by name that the gate has to refuse: zeros, a constant, a permutation."""

    def baseline(self, inputs: Tensors) -> Any:
        """The outputs of what is to be beaten."""

    @property
    def functions(self) -> Sequence[Any]:
        """The problem's own baseline and reference: a candidate that calls them is none."""


class Machine(Protocol):
    """What the judge needs of the device."""

    kind: str
    """`cpu` or `cuda`."""

    def synchronize(self) -> None:
        """Wait for all work."""

    def poison(self, sizes: Sequence[int]) -> None:
        """Fill free memory of these sizes in bytes, so that what is not written shows."""

    def carve_out_bytes(self) -> int | None:
        """Of L2, what is set aside for persisting accesses; `None` = there is no such thing."""

    def leaves_side_streams(self, call: Any) -> bool | None:
        """Whether work is left on another stream when the current one is done; `None` = unknown."""


@dataclass(frozen=True)
class Effort:
    """How hard the judge looks."""

    seeds: int = 3
    """Fresh draws beside the public one."""
    repeats: int = 40
    """Calls that must give the same bits."""
    repeat_s: float = 2.0
    """... as long as they take no longer together."""
    later: int = 400
    """Calls after all others, at most: a quarter of them at least, in a number nobody knows."""
    settle_s: float = 0.03
    """What a result may not change in, after a call has returned."""


@dataclass(frozen=True)
class Judgement:
    """Steps 1 to 3 of validation."""

    reason: Reason | None
    """`None` = nothing was found against it."""
    detail: str
    fidelity_error_pct: float | None = None
    format_error_pct: float | None = None
    unseen: tuple[str, ...] = field(default=())
    """What could not be looked at here."""
