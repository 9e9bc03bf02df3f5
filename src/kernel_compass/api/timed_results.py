"""Is a candidate right when it is timed: one launch as it was timed, with other contents."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernel_compass.measurement.subject import Renewed
from kernel_compass.records.problem import ProblemWorkload
from kernel_compass.records.trial import Reason
from kernel_compass.validation.found import Found
from kernel_compass.validation.guards import base_of, overlaps
from kernel_compass.validation.in_place import silently
from kernel_compass.validation.judge_contracts import JudgedProblem
from kernel_compass.validation.outputs import flat, overlap
from kernel_compass.validation.sealing import Sealed

_SPOILT = 0x5A
"""Of whole numbers; floating-point ones become NaN."""


def renewing(
    torch: Any,
    problem: JudgedProblem,
    workload: ProblemWorkload,
    named: Callable[[Sequence[Any]], Mapping[str, Any]],
    changing: Sequence[str],
) -> Callable[[Sequence[Any]], Renewed]:
    """What `Subject.renew` is for a candidate of a problem.

    Args:
        torch: the module.
        problem: what is computed.
        workload: its sizes.
        named: all inputs by name, of the operands of a launch.
        changing: names of tensors that the launch reads where they are.
    """

    def renew(operands: Sequence[Any]) -> Renewed:
        try:
            return RenewedOperands(torch, problem, workload, named(operands), changing)
        except torch.OutOfMemoryError:  # what was timed takes the memory that a reference needs
            return Unknown()

    return renew


class Unknown:
    """Operands of which nobody can tell here what a launch should make of them."""

    def spoil(self, result: Any) -> None:
        """Nothing is overwritten."""

    def fault(self, result: Any) -> None:
        """Nothing is found."""


class RenewedOperands:
    """Operands with contents drawn anew, and what a launch should make of them.

    Contents stay where a launch may depend on what the host knows of them: whole numbers beside
    them, tensors of another device.
    """

    def __init__(
        self,
        torch: Any,
        problem: JudgedProblem,
        workload: ProblemWorkload,
        inputs: Mapping[str, Any],
        changing: Sequence[str],
    ) -> None:
        self._torch, self._problem = torch, problem
        self._operands = [v for v in inputs.values() if isinstance(v, torch.Tensor)]
        self._before = Sealed(torch, problem.expected(workload, inputs))
        new = problem.inputs(workload, secrets.randbits(30) + 1)
        if self._can_change(inputs, new, changing):
            for name in changing:
                silently(torch, inputs[name], new[name])
        self._now = Sealed(torch, problem.expected(workload, inputs))

    def spoil(self, result: Any) -> None:
        """Overwrite an earlier result where it lies: a launch that does nothing leaves that."""
        outputs = flat(self._torch, result)
        for one in () if isinstance(outputs, Found) else outputs:
            is_operand = any(overlap(one, operand) for operand in self._operands)
            if not is_operand and not one.is_inference() and not overlaps(base_of(one)):
                base_of(one).fill_(float("nan") if one.is_floating_point() else _SPOILT)

    def fault(self, result: Any) -> tuple[Reason, str] | None:
        """What is wrong with the launch's result."""
        outputs = flat(self._torch, result)
        if isinstance(outputs, Found):
            return outputs.reason, f"When it was timed: {outputs.detail}"
        with self._now.opened() as expected:
            finding = self._problem.gate(outputs, expected)
        if finding.reason is None:
            return None
        with self._before.opened() as expected:
            is_stale = self._problem.gate(outputs, expected).reason is None
        if is_stale:
            return (
                Reason.STALE_RESULT,
                "When it was timed, it gave the result of what its operands held before.",
            )
        return (
            Reason.NOT_REPEATABLE,
            f"Right when it was judged, wrong when it was timed: {finding.detail}",
        )

    def _can_change(
        self, inputs: Mapping[str, Any], new: Mapping[str, Any], changing: Sequence[str]
    ) -> bool:
        if len({one.device for one in self._operands}) > 1:
            return False
        for name, value in inputs.items():
            if name in changing:
                if new[name].shape != value.shape or new[name].dtype != value.dtype:
                    return False
            elif not isinstance(value, self._torch.Tensor) and new.get(name, value) != value:
                return False
        return True
