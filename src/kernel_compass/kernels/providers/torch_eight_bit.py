"""8-bit weights and activations by PyTorch's own products, the quantization of rows included."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_compass.kernels.providers.activations import quantize_rows, scaled
from kernel_compass.kernels.providers.base import (
    checked,
    first,
    multiples,
    needs_gpu,
    only_formats,
    torch,
    with_streamed,
)
from kernel_compass.kernels.providers.matrix import (
    MatrixImplementation,
    channel_scales,
    weight_rows,
)
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.records.contracts import Config, Prepared, Target, Tensor
from kernel_compass.records.number_format import Code, NumberFormat
from kernel_compass.records.workload import Workload

_SHORT = 32
"""`torch._int_mm` on a GPU wants more than 16 rows: fewer are computed in a block of this many."""
_STEP = 8
"""Beyond, rows are rounded up to this: cuBLASLt is picky about other leading dimensions."""


class _EightBit(MatrixImplementation):
    """A weight dense along K and a float32 scale a column."""

    provider = "torch"
    package = "torch"
    scale_bytes = 4

    def prepare(
        self, weight: QuantizedWeight, workload: Workload, config: Config | None = None
    ) -> Prepared:
        """Keep the codes, dense along K; the scales in float32, which holds all of them."""
        config = checked(self, weight, workload, config)
        tensors = {"codes": weight_rows(weight), "scales": channel_scales(weight).float()}
        return with_streamed(weight, workload, config, tensors)


class ScaledMmFp8(_EightBit):
    """`torch._scaled_mm` with a scale a row and a scale a column (CUTLASS on Hopper).

    Without `use_fast_accum`: sums left to Hopper's tensor cores lose more than a format may
    (`validation.fidelity`).
    """

    name = "scaled_mm_fp8"

    def reason(self, workload: Workload, number_format: NumberFormat, target: Target) -> str | None:
        """Why it cannot."""
        return first(
            only_formats(number_format, "w8a8_fp8"),
            needs_gpu(target, (8, 9)) if target.kind != "cpu" else None,
            multiples(workload, reduction=16, columns=16),
        )

    def multiply(
        self, prepared: Prepared, streamed: Sequence[Tensor], rows: Tensor, into: Tensor | None
    ) -> Tensor:
        """Two launches: rows to fp8, then the product."""
        weight, scales = streamed
        codes, row_scales = quantize_rows(rows, Code.FP8)
        return torch()._scaled_mm(
            codes,
            weight.t(),
            scale_a=row_scales,
            scale_b=scales[None, :],
            out_dtype=torch().bfloat16,
            use_fast_accum=False,
        )


class IntMm(_EightBit):
    """`torch._int_mm`: int8 products summed in int32 (cuBLASLt), then scaled."""

    name = "int_mm"

    def reason(self, workload: Workload, number_format: NumberFormat, target: Target) -> str | None:
        """Why it cannot."""
        return first(
            only_formats(number_format, "w8a8_int8"),
            needs_gpu(target, (7, 5)) if target.kind != "cpu" else None,
            multiples(workload, reduction=8, columns=8) if target.kind != "cpu" else None,
        )

    def multiply(
        self, prepared: Prepared, streamed: Sequence[Tensor], rows: Tensor, into: Tensor | None
    ) -> Tensor:
        """Three launches: rows to int8, the product, its scaling."""
        weight, scales = streamed
        tokens = rows.shape[0]
        padded = max(_SHORT, -(-tokens // _STEP) * _STEP) if rows.is_cuda else tokens
        codes, row_scales = quantize_rows(rows, Code.INT8, at_least=padded)
        product = torch()._int_mm(codes, weight.t())
        result = rows.new_empty((tokens, weight.shape[0])) if into is None else into
        return scaled(product, row_scales, scales, result)
