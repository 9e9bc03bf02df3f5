"""16-bit products as Inductor compiles them: it measures its Triton templates against cuBLAS."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kernel_compass.kernels.providers.base import (
    checked,
    compulsory,
    first,
    missing,
    only_formats,
    torch,
    with_streamed,
)
from kernel_compass.kernels.providers.compiled import SEARCHING, cannot_compile, compiled, layout
from kernel_compass.kernels.providers.torch_cublas import laid_out
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.records.contracts import Config, Prepared, Target, Tensor
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.workload import Op, Traffic, Workload

_MODES = (SEARCHING, "default")


class TorchCompileBf16:
    """`torch.compile` of the product for every shape by itself; the first call of each compiles."""

    name = "torch_compile_bf16"
    provider = "torch"

    def supports(
        self, workload: Workload, number_format: NumberFormat, target: Target
    ) -> str | None:
        """Why it cannot; `None` = it can."""
        return first(
            missing("torch", target),
            only_formats(number_format, "bf16", "fp16"),
            cannot_compile(target),
        )

    def space(
        self, workload: Workload, number_format: NumberFormat, target: Target
    ) -> Sequence[Config]:
        """Inductor's modes, the searching one first."""
        return tuple({"mode": mode} for mode in _MODES)

    def prepare(
        self, weight: QuantizedWeight, workload: Workload, config: Config | None = None
    ) -> Prepared:
        """Keep the weight as it was handed in; what is compiled is kept in `extra`."""
        config = checked(self, weight, workload, config)
        tensors = {"weight": laid_out(weight.codes, "given")}
        return with_streamed(weight, workload, config, tensors, extra={})

    def run(
        self, prepared: Prepared, streamed: Sequence[Tensor], a: Tensor, out: Tensor | None = None
    ) -> Tensor:
        """One launch, after the first with these shapes and strides; see `Implementation.run`."""
        weight = streamed[0][0] if prepared.workload.op is Op.LINEAR else streamed[0]
        if a.numel() == 0:  # nothing to compile
            return torch().matmul(a, weight, out=out)
        key = layout(a, weight, out)
        known: dict[Any, Callable[..., Tensor]] = prepared.extra
        if key not in known:
            function = _product if out is None else _product_into
            known[key] = compiled(function, str(prepared.config["mode"]))
        with torch().no_grad():
            return known[key](a, weight) if out is None else known[key](a, weight, out)

    def traffic(self, workload: Workload, number_format: NumberFormat) -> Traffic:
        """Compulsory bytes and operations of one launch."""
        return compulsory(workload, number_format, scale_bytes=0)


def _product(a: Tensor, weight: Tensor) -> Tensor:
    return a @ weight


def _product_into(a: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    return out.copy_(a @ weight)
