"""A candidate under trial: draws of inputs with what they should give, and watched calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from kernel_compass.errors import NotTaken, shortened
from kernel_compass.records.problem import ProblemWorkload
from kernel_compass.records.trial import Reason
from kernel_compass.validation.allocations import Around, filled_allocations
from kernel_compass.validation.found import Found
from kernel_compass.validation.guards import Guarded, all_intact, guard_all
from kernel_compass.validation.in_place import NEW_VALUES, REORDERINGS, silently
from kernel_compass.validation.judge_contracts import (
    Change,
    Effort,
    GateFinding,
    JudgedProblem,
    Machine,
    Runner,
)
from kernel_compass.validation.outputs import all_same, flat
from kernel_compass.validation.peeking import Audit, listening
from kernel_compass.validation.sealing import Sealed
from kernel_compass.validation.touching import looking_at, versions
from kernel_compass.validation.watch import Watch

NAN_BYTE, ZERO_BYTE, ODD_BYTE = 0xFF, 0x00, 0x3C


class Rejected(Exception):
    """Carries what was found out of the steps.

    Args:
        reason: of the closed list.
        detail: one sentence.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


@dataclass
class Draw:
    """Inputs with what they should give, sealed."""

    inputs: dict[str, Any]
    sealed: Sealed
    problem: JudgedProblem

    def gate(self, outputs: Sequence[Any]) -> GateFinding:
        """Whether outputs are right."""
        with self.sealed.opened() as expected:
            return self.problem.gate(outputs, expected)


@dataclass
class Session:
    """What the steps share; each of them raises `Rejected`."""

    torch: Any
    problem: JudgedProblem
    workload: ProblemWorkload
    machine: Machine
    watch: Watch
    effort: Effort
    unseen: list[str] = field(default_factory=list)
    """What could not be looked at."""
    found: GateFinding | None = None
    """The worst of the gate's findings that passed, or the one that did not."""
    draws: list[Draw] = field(default_factory=list)
    """The public one, then secret ones."""
    sizes: list[int] = field(default_factory=list)
    """In bytes, of what outputs may take."""
    copies: list[Any] = field(default_factory=list)
    """Of the last call's outputs, as they were when it returned."""
    written: list[str] = field(default_factory=list)
    """Operands that the last call wrote into, as torch counts it."""
    audit: Audit = field(default_factory=Audit)

    def drawn(self, workload: ProblemWorkload, seed: int) -> Draw:
        """Fresh inputs."""
        return self.of(workload, self.problem.inputs(workload, seed))

    def of(self, workload: ProblemWorkload, inputs: dict[str, Any]) -> Draw:
        """These inputs, as they are now."""
        sealed = Sealed(self.torch, self.problem.expected(workload, inputs))
        return Draw(inputs, sealed, self.problem)

    def of_changed(
        self, workload: ProblemWorkload, inputs: dict[str, Any], change: Change
    ) -> Draw | None:
        """Inputs that were made into others than the problem draws; `None` = they tell nothing."""
        expected = self.problem.expected(workload, inputs, change)
        return (
            None if expected is None else Draw(inputs, Sealed(self.torch, expected), self.problem)
        )

    def keep_worst(self, finding: GateFinding) -> None:
        """Keep the finding with the largest error."""
        known = [self.found] if self.found else []
        self.found = max(*known, finding, key=_error) if known else finding

    def rest(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The operands that come with each call."""
        return {n: value for n, value in given.items() if n not in self.problem.held}

    def prepared(self, runner: Runner, given: Mapping[str, Any]) -> Any:
        """What the candidate makes of the operands it takes over."""
        held = {name: given[name] for name in self.problem.held}
        try:
            return runner.prepare(held)
        except Exception as error:
            raise rejected_for(error) from error

    def called(self, runner: Runner, given: Mapping[str, Any]) -> list[Any]:
        """One call of a candidate that has packed nothing before."""
        return self.ran(runner, self.prepared(runner, given), given)

    def ran(
        self,
        runner: Runner,
        state: Any,
        given: Mapping[str, Any],
        within: AbstractContextManager[None] | None = None,
    ) -> list[Any]:
        """One call, its outputs as tensors.

        Args:
            runner: the candidate.
            state: what `prepared` gave.
            given: all operands.
            within: a context that the call runs in.
        """
        self.machine.poison(self.sizes)
        then = versions(self.torch, given)
        self.machine.synchronize()  # operands are there, on whatever stream it reads them
        try:
            with within or nullcontext(), listening(self.audit):
                outputs = runner.run(state, self.rest(given))
                self.machine.synchronize()
        except Exception as error:
            self.looked()
            raise rejected_for(error) from error
        now = versions(self.torch, given)
        self.written = [name for name, count in then.items() if now.get(name) != count]
        found = flat(self.torch, outputs)
        if not isinstance(found, Found):
            self.copies = [one.clone() for one in found]  # at once: it may still be at work
        self.looked()
        self.left_alone()
        if isinstance(found, Found):
            raise Rejected(found.reason, found.detail)
        return found

    def once_more(self, runner: Runner, state: Any, given: Mapping[str, Any]) -> list[Any]:
        """One call of many, looked at for its outputs alone."""
        self.machine.synchronize()
        try:
            outputs = runner.run(state, self.rest(given))
            self.machine.synchronize()
        except Exception as error:
            raise rejected_for(error) from error
        return self.tensors(outputs)

    def tensors(self, outputs: Any) -> list[Any]:
        """What a call gave, as tensors."""
        found = flat(self.torch, outputs)
        if isinstance(found, Found):
            raise Rejected(found.reason, found.detail)
        return found

    def still_right(self, draw: Draw, outputs: Any) -> None:
        """Whether a call that was made for another purpose gave the right result, too."""
        finding = draw.gate(self.tensors(outputs))
        if finding.reason is not None:
            raise Rejected(
                Reason.NOT_REPEATABLE, f"Right at first, wrong at a later call: {finding.detail}"
            )

    def left_alone(self) -> None:
        """Whether clocks, checks and global state are what they were."""
        for found in (self.watch.patched(), self.watch.changed()):
            if found:
                raise Rejected(found.reason, found.detail)

    def untouched(self, draw: Draw, given: Mapping[str, Any], guards: Sequence[Guarded]) -> None:
        """Whether operands, and what lies beside them, are what they were."""
        for name, value in draw.inputs.items():
            is_tensor = isinstance(value, self.torch.Tensor)
            if is_tensor and not all_same(self.torch, [value], [given[name]]):
                raise Rejected(Reason.CHANGES_INPUTS, f"It wrote into its input {name!r}.")
        self.intact(guards, NAN_BYTE)
        if self.written:
            raise _put_back(self.written[0])

    def touches_nothing(self, runner: Runner, draw: Draw) -> None:
        """Whether operands are what they were while the call runs, too."""
        given, _ = guard_all(self.torch, draw.inputs, NAN_BYTE)
        state = self.prepared(runner, given)
        with looking_at(self.torch, given) as touched:
            outputs = self.once_more(runner, state, given)
        if touched.name is not None:
            raise _put_back(touched.name)
        self.still_right(draw, outputs)

    def intact(self, guards: Sequence[Guarded], byte: int) -> None:
        """Whether what lies beside operands still holds this byte."""
        if not all_intact(guards, byte):
            raise Rejected(Reason.WRITES_OUTSIDE, "It wrote beside one of its operands.")

    def inside_its_own(self, runner: Runner, draw: Draw) -> None:
        """Whether it keeps inside the memory that it allocates."""
        around = Around(self.torch, ODD_BYTE)
        given, _ = guard_all(self.torch, draw.inputs, NAN_BYTE)
        try:
            self.ran(runner, self.prepared(runner, given), given, filled_allocations(0.0, around))
        except Rejected as no:
            if no.reason is not Reason.RAISED:  # memory that it may not resize, say
                raise
        if not all_intact(around.guards, ODD_BYTE):
            raise Rejected(Reason.WRITES_OUTSIDE, "It wrote beside memory that it had allocated.")

    def leaves_gaps(self, runner: Runner, draw: Draw) -> bool:
        """Whether what it allocates and does not write comes out: NaN once, and zeros then."""
        seen = []
        for value in (float("nan"), 0.0):
            given, _ = guard_all(self.torch, draw.inputs, ZERO_BYTE)
            state = self.prepared(runner, given)
            outputs = self.ran(runner, state, given, filled_allocations(value))
            seen.append([o.clone() for o in outputs])
        pairs = [(a, b) for a, b in zip(*seen, strict=True) if a.dtype.is_floating_point]
        return any(bool((a.isnan() & ~b.isnan()).any()) for a, b in pairs)

    def changed_in_place(self, given: Mapping[str, Any], other: Draw, change: str) -> bool:
        """Write other contents to the same addresses, by aliases that bump no version counter.

        Returns:
            Whether any could be written.
        """
        any_changed = False
        for name, tensor in self.rest(given).items():
            if not isinstance(tensor, self.torch.Tensor):
                continue
            new = other.inputs[name] if change == NEW_VALUES else REORDERINGS[change](tensor)
            if new is None or tuple(new.shape) != tuple(tensor.shape):
                continue
            any_changed |= silently(self.torch, tensor, new)
        return any_changed

    def looked(self) -> None:
        """Whether it searched where a kernel has nothing to look for."""
        if self.audit.looks:
            raise Rejected(
                Reason.LOOKS_AT_THE_JUDGE,
                f"It calls {self.audit.looks[0]}: a kernel has nothing to look for there.",
            )


def _put_back(name: str) -> Rejected:
    return Rejected(
        Reason.CHANGES_INPUTS, f"It wrote into its input {name!r}, and put it back afterwards."
    )


def said(error: BaseException) -> str:
    """What an exception says, with its kind."""
    return shortened(f"{type(error).__name__}: {error}", 600)


def rejected_for(error: Exception) -> Exception:
    """The rejection of a candidate that raised; what the user named wrong is none of its faults."""
    if isinstance(error, NotTaken):
        return NotTaken(error.found, error.remedy)
    return Rejected(_reason_of(error), said(error))


def _reason_of(error: Exception) -> Reason:
    low, kind = said(error).lower(), type(error).__name__
    for reason, applies in (
        (Reason.OUT_OF_MEMORY, isinstance(error, MemoryError) or "out of memory" in low),
        (Reason.ILLEGAL_ACCESS, "illegal memory access" in low or "misaligned address" in low),
        (Reason.DOES_NOT_FIT, "out of resource" in low or kind == "OutOfResources"),
        (
            Reason.BUILD_FAILED,
            kind in ("CompilationError", "CompileTimeAssertionFailure", "PTXASError"),
        ),
        (Reason.NOT_SUPPORTED, kind == "ConfigPruned"),  # a kernel's own rule
    ):
        if applies:
            return reason
    return Reason.RAISED


def _error(finding: GateFinding) -> float:
    return finding.fidelity_error_pct or 0.0
