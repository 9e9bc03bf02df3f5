"""A problem given by plain functions, judged by the general gate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from kernel_compass.errors import UsageError
from kernel_compass.records.problem import ERROR_BUDGET_PCT, ProblemWorkload
from kernel_compass.validation import output_gate
from kernel_compass.validation.domain import Steps, steps
from kernel_compass.validation.judge_contracts import Change, GateFinding, Tensors
from kernel_compass.validation.op_record import has_products
from kernel_compass.validation.sensitivity import (
    NO_NOISE,
    TF32,
    Noise,
    Rounded,
)

FEW_OUTPUTS = 64
"""The baseline's error on fewer is no measure of what rounding costs."""
SHORT = ("bfloat16", "float16")
_ONE_ROUNDING = 1.0 / 16
"""Of a type's spacing: with `sensitivity.UNITS` and the gate's factor, half of it, which is the
most that one rounding does."""
MOST_VARIANTS = 4
"""Other workloads that a candidate is tried at beside its own."""


@dataclass(frozen=True)
class ProblemFunctions:
    """What a problem consists of."""

    inputs: Callable[[Mapping[str, Any], Any], dict[str, Any]]
    """Of a workload's values and a `torch.Generator`."""
    reference: Callable[..., Any]
    """Of all inputs by name; gets floating-point ones in float64."""
    baseline: Callable[..., Any]
    """Of all inputs by name, in their own types."""


class FunctionProblem:
    """A problem in the process that judges.

    Args:
        torch: the module.
        name: what reports call it.
        workloads: all its sizes.
        functions: what it consists of.
        budget: relative error that a coarser number format may cost, 0.03 = 3 %.
        held: inputs that a candidate may take over once.
        variants: sizes that correctness alone is judged at; else the other workloads.
        device: where inputs are made.
        also: other functions that no candidate may call.
    """

    def __init__(
        self,
        torch: Any,
        name: str,
        workloads: Sequence[ProblemWorkload],
        functions: ProblemFunctions,
        budget: float = ERROR_BUDGET_PCT / 100.0,
        held: frozenset[str] = frozenset(),
        variants: Sequence[ProblemWorkload] = (),
        device: str = "cpu",
        also: Sequence[Any] = (),
    ) -> None:
        self.name = name
        self.held = held
        self.workloads = tuple(workloads)
        self._torch = torch
        self._functions = functions
        self._budget = budget
        self._variants = tuple(variants)
        self._device = device
        self._also = tuple(also)
        self._products: bool | None = None
        self._on_cpu = self._torch.device(device).type == "cpu"

    def variants(self, workload: ProblemWorkload) -> Sequence[ProblemWorkload]:
        """Sizes named for it, or the problem's other workloads."""
        others = self._variants or self.workloads
        return [one for one in others if one.values != workload.values][:MOST_VARIANTS]

    def inputs(self, workload: ProblemWorkload, seed: int) -> dict[str, Any]:
        """Drawn by the problem's own function."""
        generator = self._torch.Generator(self._device).manual_seed(seed)
        return self._functions.inputs(dict(workload.values), generator)

    def expected(
        self, _workload: ProblemWorkload, inputs: Tensors, change: Change | None = None
    ) -> output_gate.Reference | None:
        """The reference in float64, beside what rounding costs the baseline."""
        merges = False
        if change is not None:
            own, now = self._steps(change.own), self._steps(inputs)
            if now.breaks_more(own):
                return None
            merges = now.merges_more(own)
        exact = self._outputs(self.exact(inputs), "reference")
        ours = self._outputs(self.baseline(inputs), "baseline")
        self._agree(exact, ours)
        rounded = Rounded(
            self._torch,
            lambda changed: self._outputs(self.exact(changed), ""),
            lambda changed: self._outputs(self.baseline(changed), ""),
            inputs,
            exact,
        )
        places = rounded.undecided()
        if merges:
            places = tuple(
                None if one.dtype.is_floating_point else self._torch.ones_like(one).bool()
                for one in exact
            )
        if self._products is None:
            self._products = has_products(self._torch, lambda: self.baseline(inputs))
        noise: Noise | None = NO_NOISE
        if change is not None:
            noise = rounded.noise_of_changed(change.far, change.slack, self._rounding(inputs))
        elif any(one.numel() < FEW_OUTPUTS for one in exact):
            noise = rounded.noise()
        if noise is None:
            return None
        may_use_tf32 = self._products and not self._on_cpu
        return output_gate.reference(exact, ours, self._budget, places, may_use_tf32, noise)

    def _steps(self, inputs: Tensors) -> Steps:
        return steps(self._torch, lambda: self._outputs(self.exact(inputs), "reference"))

    def _rounding(self, inputs: Tensors) -> dict[str, float]:
        """Of operands on their way into products; 16-bit ones may be scaled, and rounded again.

        Else of 16-bit ones where several are as the largest: their sum may be stored before it is
        used, as a residual.
        """
        if not self._products:
            return self._stored_sums(inputs)
        finest = {name: self._torch.finfo(getattr(self._torch, name)).eps for name in SHORT}
        return finest if self._on_cpu else {**finest, "float32": TF32}

    def _stored_sums(self, inputs: Tensors) -> dict[str, float]:
        found = {}
        for kind in SHORT:
            dtype = getattr(self._torch, kind)
            ones = [one for one in inputs.values() if getattr(one, "dtype", None) == dtype]
            shapes = Counter(tuple(one.shape) for one in ones)
            if ones and shapes[max(shapes, key=prod)] > 1:
                found[kind] = _ONE_ROUNDING * self._torch.finfo(dtype).eps
        return found

    def exact(self, inputs: Tensors) -> Any:
        """The reference's outputs."""
        with self._torch.no_grad():
            return self._functions.reference(**_wide(self._torch, inputs))

    def baseline(self, inputs: Tensors) -> Any:
        """The baseline's outputs."""
        with self._torch.no_grad():
            return self._functions.baseline(**inputs)

    def gate(self, outputs: Sequence[Any], expected: Any) -> GateFinding:
        """See `output_gate`."""
        return output_gate.check_outputs(outputs, expected)

    def controls(self, expected: Any) -> Mapping[str, Sequence[Any]]:
        """See `output_gate`."""
        return output_gate.controls(self._torch, expected)

    @property
    def functions(self) -> Sequence[Any]:
        """Nothing of these may be called by a candidate."""
        own = (self._functions.baseline, self._functions.reference)
        return (self.baseline, self.exact, *own, *self._also)

    def _outputs(self, outputs: Any, whose: str) -> list[Any]:
        if isinstance(outputs, Mapping):
            outputs = list(outputs.values())
        listed = list(outputs) if isinstance(outputs, tuple | list) else [outputs]
        for one in listed:
            if not isinstance(one, self._torch.Tensor):
                raise UsageError(
                    f"The {whose} of {self.name} returned a {type(one).__name__}, not a tensor.",
                    "It has to return a tensor, or a tuple, list or dictionary of tensors.",
                )
        return listed

    def _agree(self, exact: list[Any], ours: list[Any]) -> None:
        shapes = [tuple(one.shape) for one in exact], [tuple(one.shape) for one in ours]
        if shapes[0] != shapes[1]:
            raise UsageError(
                f"The reference of {self.name} returns {shapes[0]}, its baseline {shapes[1]}.",
                "Both have to return tensors of the same shapes, in the same order.",
            )
        for one, other in zip(exact, ours, strict=True):
            if other.dtype.is_floating_point and one.dtype != self._torch.float64:
                raise UsageError(
                    f"The reference of {self.name} returns {one.dtype}, not float64.",
                    "It gets its inputs in float64 and must not round them.",
                )


def _wide(torch: Any, inputs: Tensors) -> dict[str, Any]:
    return {
        name: value.double()
        if isinstance(value, torch.Tensor) and value.dtype.is_floating_point
        else value
        for name, value in inputs.items()
    }
