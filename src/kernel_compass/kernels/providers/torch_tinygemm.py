"""4-bit weights by tinygemm, which PyTorch carries as `aten._weight_int4pack_mm`."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_compass.kernels.providers.base import (
    ONLY,
    checked,
    exactly,
    first,
    multiples,
    needs_gpu,
    only_formats,
    torch,
    with_streamed,
)
from kernel_compass.kernels.providers.matrix import (
    MatrixImplementation,
    group_values,
    weight_rows,
)
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.records.contracts import Config, Prepared, Target, Tensor
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.workload import Workload

GROUPS = (32, 64, 128, 256)
"""Groups along K that its kernels are built for."""
_MIDDLE = 8
"""It reads `(code - 8) * scale + zero`."""
_TILE = 16
"""K of one tile; `inner_k_tiles` of them lie together."""


class TinygemmW4(MatrixImplementation):
    """bf16 activations; the weights are multiplied in bf16, too, after `(code - 8) * scale + zero`.

    Zero points become `(8 - zero) * scale` in bf16, as the library wants them: exact where the
    zero point is 8, else rounded by up to 1/512 of that product.
    """

    name = "tinygemm_w4"
    provider = "torch"
    package = "torch"
    scale_bytes = 4
    """Scale and zero, bf16 each, also where the format has no zero points."""

    def reason(self, workload: Workload, number_format: NumberFormat, target: Target) -> str | None:
        """Why it cannot."""
        cpu = target.kind == "cpu"
        group = number_format.group or workload.reduction
        return first(
            only_formats(number_format, "w4a16_*"),
            None if cpu else needs_gpu(target, (8, 0)),
            None if group in GROUPS else f"groups must be of 32, 64, 128 or 256, not {group}",
            multiples(workload, reduction=group),
            multiples(workload, reduction=32, columns=16 if cpu else 8),
        )

    def space(
        self, workload: Workload, number_format: NumberFormat, target: Target
    ) -> Sequence[Config]:
        """How many tiles of K a thread's loads join: the most first."""
        if target.kind == "cpu":
            return (ONLY,)
        fitting = [tiles for tiles in (8, 4, 2) if workload.reduction % (tiles * _TILE) == 0]
        return tuple({"inner_k_tiles": tiles} for tiles in fitting)

    def prepare(
        self, weight: QuantizedWeight, workload: Workload, config: Config | None = None
    ) -> Prepared:
        """Repack the codes; scales and zeros side by side, `(G, N, 2)` in bf16.

        Raises:
            UsageError: see `checked`; or bf16 cannot hold the scales.
        """
        config = checked(self, weight, workload, config)
        codes = weight_rows(weight)
        if codes.is_cuda:
            pairs = (codes[:, ::2] << 4) | codes[:, 1::2]
            tiles = int(config["inner_k_tiles"])
            packed = torch().ops.aten._convert_weight_to_int4pack(pairs.contiguous(), tiles)
        else:
            whole = codes.to(torch().int32)
            packed = torch().ops.aten._convert_weight_to_int4pack_for_cpu(whole, 1)
        tensors = {"codes": packed, "scales_and_zeros": _scales_and_zeros(weight)}
        return with_streamed(weight, workload, config, tensors)

    def multiply(
        self, prepared: Prepared, streamed: Sequence[Tensor], rows: Tensor, into: Tensor | None
    ) -> Tensor:
        """One launch; it takes no `out` and wants dense rows."""
        packed, scales_and_zeros = streamed
        group = prepared.format.group or prepared.workload.reduction
        aten = torch().ops.aten
        product = aten._weight_int4pack_mm if rows.is_cuda else aten._weight_int4pack_mm_for_cpu
        return product(rows.contiguous(), packed, group, scales_and_zeros)


def _scales_and_zeros(weight: QuantizedWeight) -> Tensor:
    bf16 = torch().bfloat16
    scales = exactly(group_values(weight.scales), bf16, "tinygemm keeps scales")
    zeros = torch().zeros_like(scales)
    if weight.zeros is not None:
        distance = _MIDDLE - group_values(weight.zeros).float()
        zeros = (distance * scales.float()).to(bf16)
    return torch().stack((scales, zeros), dim=-1).transpose(0, 1).contiguous()
