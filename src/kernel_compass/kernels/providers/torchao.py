"""torchao without mslk: int8 weights, and int8 or fp8 weights and activations. BSD 3-Clause.

Its quantized weights are wrappers around plain tensors, made anew for every launch around those it
is given, and multiplied by `torch.nn.functional.linear`. Compiled by Inductor, as its documentation
asks, or not. int4 is left out: its kernels come with the package mslk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from kernel_compass.kernels.providers.base import (
    Library,
    checked,
    first,
    multiples,
    needs_gpu,
    only_formats,
    torch,
    with_streamed,
)
from kernel_compass.kernels.providers.compiled import SEARCHING, cannot_compile, compiled, layout
from kernel_compass.kernels.providers.matrix import (
    MatrixImplementation,
    channel_scales,
    weight_rows,
)
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.records.contracts import Config, Prepared, Target, Tensor
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.workload import Workload

_WORKFLOWS = "torchao.quantization.quantize_.workflows"
_SHORT = 17
"""`torch._int_mm` on a GPU wants as many rows, and torchao pads none."""


class _Torchao(MatrixImplementation):
    """A weight dense along K and a float32 scale a column."""

    provider = "torchao"
    package = "torchao"
    scale_bytes = 4
    format_name = ""

    def reason(self, workload: Workload, number_format: NumberFormat, target: Target) -> str | None:
        """Why it cannot."""
        return first(only_formats(number_format, self.format_name), self.limit(workload, target))

    def limit(self, workload: Workload, target: Target) -> str | None:
        """What else the product needs."""
        raise NotImplementedError

    def space(
        self, workload: Workload, number_format: NumberFormat, target: Target
    ) -> Sequence[Config]:
        """Compiled, as torchao asks for, or kernel by kernel."""
        one_by_one = {"compiled": False}
        return (one_by_one,) if cannot_compile(target) else ({"compiled": True}, one_by_one)

    def prepare(
        self, weight: QuantizedWeight, workload: Workload, config: Config | None = None
    ) -> Prepared:
        """Keep the codes, dense along K; the scales in float32. `extra`: what is compiled."""
        config = checked(self, weight, workload, config)
        scales = channel_scales(weight).float()[:, None]
        tensors = {"codes": weight_rows(weight), "scales": scales}
        return with_streamed(weight, workload, config, tensors, extra={})

    def wrapped(self, codes: Tensor, scales: Tensor) -> Tensor:
        """The library's tensor around `(N, K)` codes and `(N, 1)` scales."""
        raise NotImplementedError

    def multiply(
        self, prepared: Prepared, streamed: Sequence[Tensor], rows: Tensor, into: Tensor | None
    ) -> Tensor:
        """Several launches; it takes no `out`."""
        weight = self.wrapped(*streamed)
        with torch().no_grad():
            if not prepared.config["compiled"]:
                return torch().nn.functional.linear(rows, weight)
            known: dict[Any, Callable[..., Tensor]] = prepared.extra
            key = layout(rows)
            if key not in known:
                known[key] = compiled(_linear(), SEARCHING)
            return known[key](rows, weight)


class TorchaoInt8WeightOnly(_Torchao):
    """`Int8WeightOnlyConfig`: weights converted to bf16, products by cuBLAS or Inductor."""

    name = "torchao_int8_weight_only"
    format_name = "w8a16_int8"

    def limit(self, workload: Workload, target: Target) -> str | None:
        """A GPU of any kind will do, and so will a CPU."""
        return None if target.kind == "cpu" else needs_gpu(target, (8, 0))

    def wrapped(self, codes: Tensor, scales: Tensor) -> Tensor:
        """An `Int8Tensor`."""
        kind = import_module(f"{_WORKFLOWS}.int8.int8_tensor").Int8Tensor
        return kind(codes, scales, [1, codes.shape[1]], torch().bfloat16)


class TorchaoInt8Dynamic(_Torchao):
    """`Int8DynamicActivationInt8WeightConfig`: rows quantized to absmax / 127.5, not 127."""

    name = "torchao_int8_dynamic"
    format_name = "w8a8_int8"

    def limit(self, workload: Workload, target: Target) -> str | None:
        """Multiples of 8, and more than 16 rows."""
        if target.kind == "cpu":
            return None
        few = f"needs {_SHORT} or more tokens, and M is {workload.tokens}"
        return first(
            needs_gpu(target, (8, 0)),
            multiples(workload, reduction=8, columns=8),
            few if workload.tokens < _SHORT else None,
        )

    def wrapped(self, codes: Tensor, scales: Tensor) -> Tensor:
        """An `Int8Tensor` that quantizes activations by rows."""
        module = import_module(f"{_WORKFLOWS}.int8.int8_tensor")
        rows = module.QuantizeTensorToInt8Kwargs(granularity=module.PerRow())
        return module.Int8Tensor(
            codes, scales, [1, codes.shape[1]], torch().bfloat16, act_quant_kwargs=rows
        )


class TorchaoFloat8Dynamic(_Torchao):
    """`Float8DynamicActivationFloat8WeightConfig`, by rows, by `torch._scaled_mm`.

    Its own default, `use_fast_accum`, is left off: see `ScaledMmFp8`.
    """

    name = "torchao_float8_dynamic"
    format_name = "w8a8_fp8"

    def limit(self, workload: Workload, target: Target) -> str | None:
        """Multiples of 16, on Ada or newer."""
        return first(
            None if target.kind == "cpu" else needs_gpu(target, (8, 9)),
            multiples(workload, reduction=16, columns=16),
        )

    def wrapped(self, codes: Tensor, scales: Tensor) -> Tensor:
        """A `Float8Tensor` that quantizes activations by rows; sums in float32."""
        module = import_module(f"{_WORKFLOWS}.float8.float8_tensor")
        by_torch = module.KernelPreference.TORCH
        product = module.Float8MMConfig(use_fast_accum=False)
        rows = module.QuantizeTensorToFloat8Kwargs(mm_config=product, kernel_preference=by_torch)
        return module.Float8Tensor(
            codes,
            scales,
            block_size=[1, codes.shape[1]],
            mm_config=product,
            act_quant_kwargs=rows,
            kernel_preference=by_torch,
            dtype=torch().bfloat16,
        )


def _linear() -> Callable[[Tensor, Tensor], Tensor]:
    function = torch().nn.functional.linear  # an import inside would not be compiled

    def linear(rows: Tensor, weight: Tensor) -> Tensor:
        result: Tensor = function(rows, weight)
        return result

    return linear


PROVIDER = Library(
    name="torchao",
    package="torchao",
    offered=(TorchaoInt8WeightOnly(), TorchaoInt8Dynamic(), TorchaoFloat8Dynamic()),
)
