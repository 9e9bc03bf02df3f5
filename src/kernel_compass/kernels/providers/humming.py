"""humming: CUDA kernels compiled at the first launch, by nvcc or NVRTC. Apache 2.0.

A layer of the library packs codes and scales; its functional entry then takes every tensor from
the caller. Only the locks by which blocks add up their shares of K stay with the prepared weight:
they are written, and belong to one stream at a time.
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
    group_values,
    weight_rows,
)
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.records.contracts import Config, Prepared, Target, Tensor
from kernel_compass.records.number_format import Code, NumberFormat
from kernel_compass.records.workload import Workload

_TILE_N, _TILE_K = 128, 64
"""Its tiles on Hopper: N is padded to a multiple, K must be one."""
_ALIGNED = 16
"""Bytes: its tensor copies start at a multiple."""
_PACKED = 32
"""Codes that are packed together; zero points are packed along N."""
_TENSORS = ("weight", "weight_scale", "zero_point", "weight_scale_2")
"""What a launch may read of a weight, in the order in which it is streamed."""


class _Humming(MatrixImplementation):
    """16-bit activations; weights become 16-bit in registers."""

    provider = "humming"
    package = "humming-kernels"
    formats: tuple[str, ...] = ()

    def reason(self, workload: Workload, number_format: NumberFormat, target: Target) -> str | None:
        """Why it cannot."""
        group = number_format.group
        return first(
            only_formats(number_format, *self.formats),
            missing("cuda-bindings", target),
            needs_gpu(target, (8, 0)),
            multiples(workload, reduction=_TILE_K, columns=_PACKED),
            multiples(workload, reduction=group or 1),
            None
            if group is None or (group >= 16 and group & (group - 1) == 0)
            else f"groups must be a power of two, 16 or more, not {group}",
        )

    def prepare(
        self, weight: QuantizedWeight, workload: Workload, config: Config | None = None
    ) -> Prepared:
        """Repack by its layer; no value is changed.

        Raises:
            UsageError: see `checked`; or bf16 cannot hold the scales.
        """
        config = checked(self, weight, workload, config)
        device = weight.codes.device
        with torch().cuda.device(device):
            layer = _layer(weight).to(device)
            layer.load_from_tensors(_tensors(weight))
            layer.transform()
        found = {name: getattr(layer, name, None) for name in _TENSORS}
        tensors = {name: one.detach() for name, one in found.items() if one is not None}
        extra = (layer.humming_config, tuple(tensors), layer.locks)
        return with_streamed(weight, workload, config, tensors, extra, kept=(layer.locks,))

    def multiply(
        self, prepared: Prepared, streamed: Sequence[Tensor], rows: Tensor, into: Tensor | None
    ) -> Tensor:
        """One launch; it writes to a dense `out` itself."""
        config, names, locks = prepared.extra
        dense = into is not None and into.is_contiguous() and into.data_ptr() % _ALIGNED == 0
        rows = rows.contiguous()
        product: Tensor = import_module("humming.forward").humming_forward(
            config,
            inputs=rows if rows.data_ptr() % _ALIGNED == 0 else rows.clone(),
            outputs=into if dense else None,
            locks=locks,
            **dict(zip(names, streamed, strict=True)),
        )
        return into if dense and into is not None else product


class HummingW4A16(_Humming):
    """4-bit weights, symmetric or with zero points."""

    name = "humming_w4a16"
    formats = ("w4a16_*",)


class HummingW8A16(_Humming):
    """int8 and fp8 weights with a scale a column."""

    name = "humming_w8a16"
    formats = ("w8a16_int8", "w8a16_fp8")


def _layer(weight: QuantizedWeight) -> Any:
    kind = {Code.INT4: "uint4", Code.INT8: "uint8", Code.FP8: "float8e4m3"}[weight.format.weight]
    one_group = weight.format.groups(weight.reduction) == 1
    return import_module("humming.layer").HummingLayer(
        shape_n=weight.columns,
        shape_k=weight.reduction,
        weight_config={
            "dtype": kind,
            "group_size": 0 if one_group else weight.format.group,
            "has_zero_point": weight.zeros is not None,
        },
        pad_n_to_multiple=_TILE_N,
        torch_dtype=torch().bfloat16,
    )


def _tensors(weight: QuantizedWeight) -> dict[str, Tensor]:
    """Codes as unsigned numbers (int8 plus 128; fp8 as its bits), packed into 32-bit words."""
    pack = import_module("humming.ops").pack_weight
    bits = weight.format.weight.bits
    codes = weight_rows(weight)
    if weight.format.weight is Code.INT8:
        codes = (codes.to(torch().int16) + 128).to(torch().uint8)
    scales = group_values(weight.scales)
    found = {
        "weight": pack(codes.view(torch().uint8), bits),
        "weight_scale": exactly(scales, torch().bfloat16, "humming keeps scales"),
    }
    if weight.zeros is not None:  # packed along N
        found["zero_point"] = pack(weight.zeros[0].contiguous(), bits).t().contiguous()
    return found


PROVIDER = Library(
    name="humming", package="humming-kernels", offered=(HummingW4A16(), HummingW8A16())
)
