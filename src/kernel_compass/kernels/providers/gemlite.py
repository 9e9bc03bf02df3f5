"""gemlite: Triton kernels tuned at the first launch of each shape. Apache 2.0.

Its packed weights, scales and metadata are handed to its functional entry, so that every launch
reads the tensors it is given. It tunes once for a range of M (powers of two, then halves), which
takes seconds at the first call; H100 tunings that it ships are used on an H100 alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from kernel_compass.kernels.providers.base import (
    Library,
    checked,
    exactly,
    first,
    missing,
    multiples,
    needs_gpu,
    only_formats,
    torch,
    with_streamed,
)
from kernel_compass.kernels.providers.matrix import (
    MatrixImplementation,
    channel_scales,
    group_values,
    weight_rows,
)
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.records.contracts import Config, Prepared, Target, Tensor
from kernel_compass.records.number_format import Code, NumberFormat
from kernel_compass.records.workload import Workload

_STEP = 32
"""K must be a multiple: its smallest tile."""
_MIDDLE = 8
"""The int4 code that stands for 0 where there are no zero points."""


class _Gemlite(MatrixImplementation):
    """Whatever the format, a launch reads packed weights, scales and zeros (which may be empty)."""

    provider = "gemlite"
    package = "gemlite"
    formats: tuple[str, ...] = ()

    def reason(self, workload: Workload, number_format: NumberFormat, target: Target) -> str | None:
        """Why it cannot."""
        return first(
            only_formats(number_format, *self.formats),
            missing("triton", target),
            needs_gpu(target, (8, 9) if _fp8_products(number_format) else (8, 0)),
            multiples(workload, reduction=max(_STEP, number_format.group or 1)),
        )

    def prepare(
        self, weight: QuantizedWeight, workload: Workload, config: Config | None = None
    ) -> Prepared:
        """Pack by its own packing; no value is changed.

        Raises:
            UsageError: see `checked`; or the library cannot hold the scales exactly.
        """
        config = checked(self, weight, workload, config)
        layer = self.packed(weight, config)
        packed, scales, zeros, unused = (one.detach() for one in layer.get_tensor_args())
        tensors = {"weight": packed, "scales": scales, "zeros": zeros}
        meta = [int(value) for value in layer.get_meta_args()]
        return with_streamed(weight, workload, config, tensors, (meta, unused), kept=(unused,))

    def packed(self, weight: QuantizedWeight, config: Config) -> Any:
        """A packed `GemLiteLinear`."""
        raise NotImplementedError

    def multiply(
        self, prepared: Prepared, streamed: Sequence[Tensor], rows: Tensor, into: Tensor | None
    ) -> Tensor:
        """One launch, two where it quantizes activations; it takes no `out`."""
        meta, unused = prepared.extra
        core = import_module("gemlite.core")
        product: Tensor = core.forward_functional(rows, None, [*streamed, unused], meta)
        return product


class GemliteW8A16(_Gemlite):
    """8-bit weights, converted (and by default scaled) before the product."""

    name = "gemlite_w8a16"
    formats = ("w8a16_fp8", "w8a16_int8")
    scale_bytes = 4

    def space(
        self, workload: Workload, number_format: NumberFormat, target: Target
    ) -> Sequence[Config]:
        """Weights scaled before the product, as its helper does, or sums after it."""
        return ({"post_scale": False}, {"post_scale": True})

    def packed(self, weight: QuantizedWeight, config: Config) -> Any:
        """Scales in float32: in bf16 it would round sums before it scales them."""
        helper = import_module("gemlite.helper")
        kind = helper.A16W8_FP8 if weight.format.weight is Code.FP8 else helper.A16W8_INT8
        maker = kind(
            device=str(weight.codes.device),
            dtype=torch().bfloat16,
            post_scale=bool(config["post_scale"]),
        )
        scales = channel_scales(weight).float()[:, None]
        return maker.from_weights(weight_rows(weight), scales=scales)


class GemliteW4A16(_Gemlite):
    """4-bit weights by groups, eight to a 32-bit word."""

    name = "gemlite_w4a16"
    formats = ("w4a16_*",)

    def space(
        self, workload: Workload, number_format: NumberFormat, target: Target
    ) -> Sequence[Config]:
        """`fma`: `code * scale + zero` with `zero` rounded to bf16 and stored by groups, as its
        helper does; else `(code - zero) * scale`, with one zero for all where all are 8."""
        return ({"fma": True}, {"fma": False})

    def packed(self, weight: QuantizedWeight, config: Config) -> Any:
        """Codes as they are; scales and zeros in bf16."""
        bf16, fma = torch().bfloat16, bool(config["fma"])
        scales = exactly(group_values(weight.scales), bf16, "gemlite_w4a16 keeps scales")
        columns, reduction = weight.columns, weight.reduction
        layer = _layer(4, weight.format.group or reduction, reduction, columns)
        zeros: Any = _MIDDLE
        if weight.zeros is not None:
            zeros = group_values(weight.zeros).to(bf16)
        elif fma:
            zeros = torch().full_like(scales, _MIDDLE)
        layer.pack(weight_rows(weight), scales, zeros, fma_mode=fma)
        if weight.format.groups(reduction) == 1:  # as its helper does: else it scales bf16 sums
            layer.W_group_mode, layer.channel_scale_mode = 3, 0
        return layer


class GemliteW8A8(_Gemlite):
    """8-bit products; a launch before quantizes the rows of activations, or 1 x 128 of them."""

    name = "gemlite_w8a8"
    formats = ("w8a8_fp8", "w8a8_int8", "w8a8_fp8_block")
    scale_bytes = 4

    def packed(self, weight: QuantizedWeight, config: Config) -> Any:
        """Scales in float32."""
        helper = import_module("gemlite.helper")
        fp8 = weight.format.weight is Code.FP8
        maker = (helper.A8W8_FP8_dynamic if fp8 else helper.A8W8_INT8_dynamic)(
            device=str(weight.codes.device),
            dtype=torch().bfloat16,
            block_quant=weight.format.block,
        )
        block = weight.format.block
        scales = group_values(weight.scales) if block else channel_scales(weight)[:, None]
        return maker.from_weights(weight_rows(weight), scales=scales.float())


def _fp8_products(number_format: NumberFormat) -> bool:
    return Code.FP8 in (number_format.weight, number_format.activation)


def _layer(bits: int, group: int, reduction: int, columns: int) -> Any:
    core = import_module("gemlite.core")
    bf16 = core.DType.BF16
    return core.GemLiteLinear(
        bits,
        group_size=group,
        in_features=reduction,
        out_features=columns,
        input_dtype=bf16,
        output_dtype=bf16,
    )


PROVIDER = Library(
    name="gemlite",
    package="gemlite",
    offered=(GemliteW8A16(), GemliteW4A16(), GemliteW8A8()),
)
