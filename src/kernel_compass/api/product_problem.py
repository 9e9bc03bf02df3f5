"""`bmm` and `linear` as problems of the loop, and implementations of them as candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kernel_compass.api.kernel_verdicts import verdict
from kernel_compass.kernels.library import torch_library
from kernel_compass.kernels.quantize import linear_weight, quantize
from kernel_compass.kernels.references import expected, product
from kernel_compass.records.contracts import Config, Implementation
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.problem import ProblemWorkload
from kernel_compass.records.trial import Reason
from kernel_compass.records.workload import Op, Workload
from kernel_compass.validation.format_budget import format_error
from kernel_compass.validation.judge_contracts import Change, GateFinding, Tensors

MOST_TOKENS = 513


class ProductExpected:
    """What one draw of operands should give."""

    def __init__(self, a: Any, weight: Any, number_format: NumberFormat) -> None:
        self.a = a
        self.quantized = quantize(weight, number_format)
        self.product = expected(a, self.quantized)
        self.full = product(a, weight)
        self.values = (self.product.value,)


class ProductProblem:
    """One product in one number format, judged with that format's gates.

    Args:
        workload: its sizes.
        number_format: of weights and activations.
        implementation: whose roundings are allowed for.
        budget: largest relative error against full precision, 0.03 = 3 %.
        device: `cpu`, `cuda:0`.
    """

    held = frozenset({"weight"})

    def __init__(
        self,
        workload: Workload,
        number_format: NumberFormat,
        implementation: str,
        budget: float,
        device: str = "cpu",
    ) -> None:
        self.name = workload.shape_text
        self._format = number_format
        self._implementation = implementation
        self._budget = budget
        self._device = device

    def variants(self, workload: ProblemWorkload) -> Sequence[ProblemWorkload]:
        """One token, and a number of them that is a multiple of nothing."""
        w = _product(workload)
        counts = {1, min(2 * w.tokens + 1, MOST_TOKENS)} - {w.tokens}
        return [of_product(replace(w, tokens=m)) for m in sorted(counts)]

    def inputs(self, workload: ProblemWorkload, seed: int) -> dict[str, Any]:
        """Gaussian weights with variance 1/K, Gaussian activations with an outlier channel."""
        torch, w = torch_library(), _product(workload)
        generator = torch.Generator(self._device).manual_seed(seed)
        kind = torch.float16 if self._format.name == "fp16" else torch.bfloat16

        def random(*shape: int) -> Any:
            return torch.randn(shape, generator=generator, device=self._device)

        if w.op is Op.LINEAR:
            weight = random(w.columns, w.reduction) * w.reduction**-0.5
            a = random(w.tokens, w.reduction)
        else:
            weight = random(w.heads, w.reduction, w.columns) * w.reduction**-0.5
            a = random(w.heads, w.tokens, w.reduction)
        a[..., seed % w.reduction] *= 8.0
        return {"a": a.to(kind), "weight": weight.to(kind)}

    def expected(
        self, workload: ProblemWorkload, inputs: Tensors, change: Change | None = None
    ) -> ProductExpected:
        """Of the weight as the format holds it; its gate knows what rounding any operands costs."""
        del change
        return ProductExpected(
            inputs["a"].clone(), _heads(workload, inputs["weight"]), self._format
        )

    def gate(self, outputs: Sequence[Any], expected: Any) -> GateFinding:
        """Fidelity to the dequantized operands, then the error against full precision."""
        if len(outputs) != 1 or tuple(outputs[0].shape) != tuple(expected.product.value.shape):
            shapes = [tuple(one.shape) for one in outputs]
            found = f"It returned {shapes}; one {tuple(expected.product.value.shape)} is due."
            return GateFinding(Reason.WRONG_SHAPE, found)
        output = outputs[0]
        if output.dtype != expected.a.dtype:
            found = f"The output is {output.dtype}; it should be {expected.a.dtype}."
            return GateFinding(Reason.WRONG_SHAPE, found)
        fault, off = verdict(
            self._implementation, output, expected.a, expected.quantized, expected.product
        )
        pct = None if off is None else 100.0 * off
        if fault is not None:
            reason = Reason.NOT_FINITE if fault.startswith("not_finite") else Reason.WRONG_RESULT
            return GateFinding(reason, fault, pct)
        whole = format_error(output, expected.full)
        if whole > self._budget:
            found = f"{self._format.name} is {whole:.2%} off; the budget is {self._budget:.2%}."
            return GateFinding(Reason.OVER_BUDGET, found, pct, 100.0 * whole)
        return GateFinding(None, f"{whole:.2%} off full precision.", pct, 100.0 * whole)

    def controls(self, expected: Any) -> Mapping[str, Sequence[Any]]:
        """Zeros, the mean, rows and columns moved by one."""
        right = expected.product.value.to(expected.a.dtype)
        found: dict[str, Sequence[Any]] = {
            "zeros": [right * 0],
            "its mean": [right * 0 + right.double().mean().to(right.dtype)],
        }
        for axis in range(right.ndim):
            if right.shape[axis] > 1:
                found[f"itself moved along axis {axis}"] = [right.roll(1, axis)]
        return found

    def baseline(self, inputs: Tensors) -> Any:
        """As PyTorch has it, in 16 bits."""
        torch, a, weight = torch_library(), inputs["a"], inputs["weight"]
        return a @ weight.t() if a.ndim == 2 else torch.bmm(a, weight)

    @property
    def functions(self) -> Sequence[Any]:
        """What a candidate may not call."""
        return (self.baseline,)


class ImplementationRunner:
    """An implementation as a candidate: quantizes and packs what it is handed, once."""

    def __init__(
        self,
        implementation: Implementation,
        workload: Workload,
        number_format: NumberFormat,
        config: Config | None = None,
    ) -> None:
        self._implementation = implementation
        self._workload = workload
        self._format = number_format
        self._config = config or None

    def prepare(self, held: Tensors) -> Any:
        """Pack the weight."""
        weight = _heads(of_product(self._workload), held["weight"])
        quantized = quantize(weight, self._format)
        return self._implementation.prepare(quantized, self._workload, self._config)

    def run(self, state: Any, given: Tensors) -> Any:
        """One launch."""
        return self._implementation.run(state, state.streamed, given["a"])


def of_product(workload: Workload) -> ProblemWorkload:
    """A product as a problem's workload."""
    sizes: dict[str, int | float | str | bool] = {
        "heads": workload.heads,
        "tokens": workload.tokens,
        "reduction": workload.reduction,
        "columns": workload.columns,
    }
    return ProblemWorkload(workload.shape_text, {"op": workload.op.value, **sizes}, workload)


def _product(workload: ProblemWorkload) -> Workload:
    assert workload.product is not None
    return workload.product


def _heads(workload: ProblemWorkload, weight: Any) -> Any:
    """`(H, K, N)`, whatever the op holds."""
    return linear_weight(weight) if _product(workload).op is Op.LINEAR else weight
