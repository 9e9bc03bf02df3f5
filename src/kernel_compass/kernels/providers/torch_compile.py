"""16-bit products as Inductor compiles them: it measures its Triton templates against cuBLAS."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from kernel_compass.kernels.providers.base import (
    checked,
    compulsory,
    first,
    missing,
    needs_gpu,
    only_formats,
    torch,
    with_streamed,
)
from kernel_compass.kernels.providers.torch_cublas import laid_out
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.records.contracts import Config, Prepared, Target, Tensor
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.workload import Op, Traffic, Workload

_MODES = ("max-autotune-no-cudagraphs", "default")
"""CUDA graphs are left to whoever times: a graph inside one cannot be captured."""


class TorchCompileBf16:
    """`torch.compile` of the product for every shape by itself; the first call of each compiles."""

    name = "torch_compile_bf16"
    provider = "torch"

    def supports(
        self, workload: Workload, number_format: NumberFormat, target: Target
    ) -> str | None:
        """Why it cannot; `None` = it can."""
        return first(
            missing("torch"),
            only_formats(number_format, "bf16", "fp16"),
            _no_compiler() if target.kind == "cpu" else needs_gpu(target, (7, 0)),
            missing("triton") if target.kind == "cuda" else None,
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
        key = (a.shape, a.stride(), None if out is None else out.stride())
        compiled: dict[Any, Callable[..., Tensor]] = prepared.extra
        if key not in compiled:
            compiled[key] = _compiled(out is not None, str(prepared.config["mode"]))
        with torch().no_grad():
            return compiled[key](a, weight) if out is None else compiled[key](a, weight, out)

    def traffic(self, workload: Workload, number_format: NumberFormat) -> Traffic:
        """Compulsory bytes and operations of one launch."""
        return compulsory(workload, number_format, scale_bytes=0)


def _product(a: Tensor, weight: Tensor) -> Tensor:
    return a @ weight


def _product_into(a: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    return out.copy_(a @ weight)


def _compiled(into: bool, mode: str) -> Callable[..., Tensor]:
    """A function of its own for each shape: Dynamo counts recompilations by code object, and after
    eight of one it would quietly run uncompiled."""
    source = _product_into if into else _product
    fresh = FunctionType(source.__code__.replace(), source.__globals__, source.__name__)
    made: Callable[..., Tensor] = torch().compile(fresh, mode=mode, dynamic=False, fullgraph=True)
    return made


def _no_compiler() -> str | None:
    from importlib import import_module

    try:
        import_module("torch._inductor.cpp_builder").get_cpp_compiler()
    except Exception as error:  # of several kinds, by version
        return f"Inductor needs a C++ compiler on a CPU, and found none ({type(error).__name__})"
    return None
