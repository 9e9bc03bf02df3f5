"""The small problem that the judge proves itself on: rows of a softmax over a product.

Its outputs are small (about 1 / N), so that an absolute tolerance would let zeros pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernel_compass.records.problem import ProblemWorkload
from kernel_compass.validation import output_gate
from kernel_compass.validation.judge_contracts import Change, GateFinding, Tensors
from kernel_compass.validation.sensitivity import NO_NOISE, TF32, Noise, Rounded

SIZES = {"batch": 3, "rows": 33, "depth": 48, "columns": 65}
"""None of them a multiple of a tile."""
BUDGET = 0.03


class SelfTestProblem:
    """`softmax(x @ w)`, `x (batch, rows, depth)`, `w (depth, columns)`, float32."""

    name = "softmax of a product"
    held: frozenset[str] = frozenset()

    def __init__(self, torch: Any, device: str = "cpu") -> None:
        self._torch = torch
        self._device = device

    @property
    def workload(self) -> ProblemWorkload:
        """The one it is judged on."""
        return ProblemWorkload("trial", dict(SIZES))

    def variants(self, workload: ProblemWorkload) -> Sequence[ProblemWorkload]:
        """A single row, and sizes that are multiples of nothing."""
        sizes = ({"rows": 1}, {"batch": 1, "rows": 70, "columns": 129}, {"depth": 31})
        return [
            ProblemWorkload(
                ", ".join(f"{k} {v}" for k, v in other.items()), {**workload.values, **other}
            )
            for other in sizes
        ]

    def inputs(self, workload: ProblemWorkload, seed: int) -> dict[str, Any]:
        """Gaussian, with an outlier channel."""
        torch, v = self._torch, workload.values
        generator = torch.Generator(self._device).manual_seed(seed)

        def random(*shape: Any) -> Any:
            return torch.randn(shape, generator=generator, device=self._device)

        x = random(v["batch"], v["rows"], v["depth"])
        x[..., 3] *= 3.0
        return {"x": x, "w": random(v["depth"], v["columns"]) / 4.0}

    def expected(
        self, workload: ProblemWorkload, inputs: Tensors, change: Change | None = None
    ) -> output_gate.Reference | None:
        """In float64."""
        exact, tf32 = self.exact(inputs), self._device != "cpu"
        noise: Noise | None = NO_NOISE
        if change is not None:
            rounded = Rounded(
                self._torch,
                lambda changed: [self.exact(changed)],
                lambda changed: [self.baseline(changed)],
                inputs,
                [exact],
            )
            rounding = {"float32": TF32} if tf32 else None
            noise = rounded.noise_of_changed(change.far, change.slack, rounding)
        if noise is None:
            return None
        return output_gate.reference(
            [exact], [self.baseline(inputs)], BUDGET, products=tf32, noise=noise
        )

    def exact(self, inputs: Tensors) -> Any:
        """The reference."""
        product = inputs["x"].double() @ inputs["w"].double()
        return self._torch.softmax(product, -1)

    def baseline(self, inputs: Tensors) -> Any:
        """As PyTorch has it."""
        return self._torch.softmax(inputs["x"] @ inputs["w"], -1)

    def gate(self, outputs: Sequence[Any], expected: Any) -> GateFinding:
        """See `output_gate`."""
        return output_gate.check_outputs(outputs, expected)

    def controls(self, expected: Any) -> Mapping[str, Sequence[Any]]:
        """See `output_gate`."""
        return output_gate.controls(self._torch, expected)

    @property
    def functions(self) -> Sequence[Any]:
        """Nothing of these may be called by a candidate."""
        return (self.baseline, self.exact)
