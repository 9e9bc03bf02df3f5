"""The tensors of a product: random weights, activations as engines hold them, and the checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kernel_compass.api.kernel_verdicts import verdict
from kernel_compass.kernels.library import torch_library
from kernel_compass.kernels.quantize import quantize
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.kernels.references import expected, product
from kernel_compass.records.contracts import Target, Tensor
from kernel_compass.records.kernel_table import Layout
from kernel_compass.records.number_format import Code, NumberFormat
from kernel_compass.records.workload import Op, Workload
from kernel_compass.validation.format_budget import format_error


class Case(Protocol):
    """One workload with its operands in one format."""

    weight: QuantizedWeight
    a: Tensor

    def new_output(self) -> Tensor:
        """Where a kernel writes, poisoned."""

    def check(self, output: Tensor, implementation: str) -> Checked:
        """The output of this implementation against float64."""


class Checked(Protocol):
    """What came of a check."""

    fault: str | None
    """Why the output is no product of its operands; `None` = it is."""
    fidelity_error_pct: float | None
    format_error_pct: float | None


class Operands(Protocol):
    """Where operands come from: PyTorch, or a test's stand-in."""

    target: Target

    def case(self, workload: Workload, number_format: NumberFormat, layout: Layout) -> Case:
        """Operands of a workload in a format; the same weight for every batch size."""

    def same(self, one: Tensor, other: Tensor) -> bool:
        """Whether two tensors hold the same bits in the same shape."""


class TorchChecked:
    """Errors of one output, percent, relative Frobenius."""

    def __init__(self, fault: str | None, fidelity: float | None, whole: float | None) -> None:
        self.fault = fault
        self.fidelity_error_pct = None if fidelity is None else 100.0 * fidelity
        self.format_error_pct = None if whole is None else 100.0 * whole


class TorchCase:
    """A `Case` of torch tensors; references are computed once, when first needed."""

    def __init__(
        self,
        weight: QuantizedWeight,
        a: Tensor,
        full: Callable[[], Tensor],
        workload: Workload,
        layout: Layout,
    ) -> None:
        self.weight = weight
        self.a = a
        self._full = full
        self._workload = workload
        self._layout = layout
        self._expected: Any = None

    def new_output(self) -> Tensor:
        """NaN everywhere, so that what a kernel leaves out shows."""
        torch, w = torch_library(), self._workload
        kind = torch.float16 if self.weight.format.activation is Code.FP16 else torch.bfloat16
        shape = _shape(w, w.columns, self._layout)
        base = torch.full(shape, float("nan"), dtype=kind, device=self.a.device)
        return _view(base, w, self._layout)

    def check(self, output: Tensor, implementation: str) -> TorchChecked:
        """Fidelity against the dequantized operands, and the error against full precision."""
        if self._expected is None:
            self._expected = expected(self.a, self.weight)
        fault, off = verdict(implementation, output, self.a, self.weight, self._expected)
        if fault is not None:
            return TorchChecked(fault, off, None)
        return TorchChecked(None, off, format_error(output, self._full()))


class TorchOperands:
    """Operands of torch on one device.

    Args:
        where: `cuda:0`, `cpu`.
        seed: of all random numbers.
    """

    def __init__(self, where: str, seed: int = 0) -> None:
        self._torch = torch_library()
        self._where = where
        self._seed = seed
        self.target = _target(self._torch, where)
        self._full: tuple[Any, Tensor] | None = None
        self._quantized: dict[str, QuantizedWeight] = {}
        self._cases: dict[tuple[Any, ...], TorchCase] = {}
        self._products: dict[Any, Tensor] = {}

    def case(self, workload: Workload, number_format: NumberFormat, layout: Layout) -> TorchCase:
        """Operands of a workload in a format; the same weight for every batch size.

        Weights are Gaussian with variance 1/K, so that outputs have that of activations, rounded
        to the format's 16-bit activations: what a checkpoint holds before it is quantized.
        """
        if any(known != workload for known, *_ in self._cases):
            self._cases, self._products = {}, {}  # references of one workload at a time
        key = (workload, number_format, layout)
        if key not in self._cases:
            self._cases[key] = self._case(workload, number_format, layout)
        return self._cases[key]

    def _case(self, workload: Workload, number_format: NumberFormat, layout: Layout) -> TorchCase:
        full = self._weight(workload, number_format)
        if number_format.name not in self._quantized:
            self._quantized[number_format.name] = quantize(full, number_format)
        weight = self._quantized[number_format.name]
        a = self._activations(workload, number_format, layout)

        def full_product() -> Tensor:
            if a.dtype not in self._products:
                self._products[a.dtype] = product(a, full)
            return self._products[a.dtype]

        return TorchCase(weight, a, full_product, workload, layout)

    def same(self, one: Tensor, other: Tensor) -> bool:
        """Whether two tensors hold the same bits in the same shape and strides."""
        if one.shape != other.shape or one.dtype != other.dtype or one.stride() != other.stride():
            return False
        bits = self._torch.uint8
        left, right = (t.contiguous().view(-1).view(bits) for t in (one, other))
        return bool(self._torch.equal(left, right))

    def _weight(self, workload: Workload, number_format: NumberFormat) -> Tensor:
        w, torch = workload, self._torch
        kind = torch.float16 if number_format.weight is Code.FP16 else torch.bfloat16
        shape = (w.op, w.heads, w.reduction, w.columns, kind)
        if self._full is None or self._full[0] != shape:
            self._full, self._quantized = None, {}
            linear = w.op is Op.LINEAR
            sizes = (w.columns, w.reduction) if linear else (w.heads, w.reduction, w.columns)
            values = self._random(sizes, kind, self._seed).mul_(w.reduction**-0.5)
            self._full = (shape, values.t().unsqueeze(0) if linear else values)
        return self._full[1]

    def _activations(
        self, workload: Workload, number_format: NumberFormat, layout: Layout
    ) -> Tensor:
        torch = self._torch
        kind = torch.float16 if number_format.activation is Code.FP16 else torch.bfloat16
        shape = _shape(workload, workload.reduction, layout)
        base = self._random(shape, kind, self._seed + 1 + workload.tokens)
        return _view(base, workload, layout)

    def _random(self, shape: tuple[int, ...], dtype: Any, seed: int) -> Tensor:
        torch = self._torch
        generator = torch.Generator(device=self._where).manual_seed(seed)
        return torch.randn(shape, generator=generator, dtype=dtype, device=self._where)


def _shape(workload: Workload, width: int, layout: Layout) -> tuple[int, ...]:
    """Of the memory that activations or outputs lie in."""
    heads, tokens = workload.heads, workload.tokens
    if workload.op is Op.LINEAR:
        return tokens, width
    return (heads, tokens, width) if layout is Layout.CONTIGUOUS else (tokens, heads, width)


def _view(base: Tensor, workload: Workload, layout: Layout) -> Tensor:
    """That memory as `(H, M, width)`, or `(M, width)` of a linear."""
    strided = workload.op is Op.BMM and layout is Layout.SERVING
    return base.transpose(0, 1) if strided else base


def _target(torch: Any, where: str) -> Target:
    if not where.startswith("cuda"):
        return Target(where)
    p = torch.cuda.get_device_properties(where)
    capability = (int(p.major), int(p.minor))
    return Target("cuda", capability, str(p.name), int(p.multi_processor_count))
