"""Our plain Triton kernels of 8-bit products, block-scaled fp8, and the first study's kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

from kernel_compass.errors import INSTALL_TORCH, MissingDependency, UsageError
from kernel_compass.kernels.plain_layouts import capability_of
from kernel_compass.kernels.providers.base import (
    check_sizes,
    compulsory,
    grid_too_small,
    needs_triton,
    quantizer_scale_bytes,
    triton_older_than,
)
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.records.contracts import Config, Implementation, Prepared, Target, Tensor
from kernel_compass.records.number_format import Code, NumberFormat
from kernel_compass.records.workload import Traffic, Workload

FP8_PRODUCTS_SINCE = (3, 6)
"""Release of Triton that compiles products of fp8 by fp8; 3.5.1 refuses how their sums are cut."""
OLDEST_CAPABILITY = {Code.INT4: (8, 0), Code.INT8: (8, 0), Code.FP8: (8, 9)}
"""What the kernel files say, `CAPABILITIES`; a plan is made without importing them."""
LONGEST_REDUCTION = {Code.INT8: (2**31 - 1) // 127**2}
"""Likewise, where it is less than 2^31 - 1."""


@dataclass(frozen=True)
class WiderKernel:
    """One kernel file as an implementation; the file is imported when it is first needed."""

    name: str
    file: str
    """Module of `kernel_compass.kernels`, with `CAPABILITIES`, `space`, `pack` and `run`."""
    weights: frozenset[Code]
    eight_bit_activations: bool
    block: bool = False
    provider: str = "own"

    def supports(
        self, workload: Workload, number_format: NumberFormat, target: Target
    ) -> str | None:
        """Why it cannot; `None` = it can."""
        return (
            self._format_objection(number_format)
            or needs_triton(target, OLDEST_CAPABILITY[number_format.weight])
            or _release_objection_of(number_format, target)
            or self._size_objection(workload, number_format)
        )

    def _format_objection(self, number_format: NumberFormat) -> str | None:
        eight = number_format.activation.bits == 8
        if (
            number_format.weight in self.weights
            and eight == self.eight_bit_activations
            and number_format.block == self.block
        ):
            return None
        return f"{self.name} does not compute {number_format.name}"

    def _size_objection(self, workload: Workload, number_format: NumberFormat) -> str | None:
        longest = LONGEST_REDUCTION.get(number_format.weight, 2**31 - 1)
        if workload.reduction > longest:
            return f"K = {workload.reduction} overflows 32-bit sums; the most is {longest}"
        return grid_too_small(workload)

    def space(
        self,
        workload: Workload,
        number_format: NumberFormat,
        target: Target,
    ) -> Sequence[Config]:
        """All configurations that may be tried, the default first."""
        return cast("Sequence[Config]", self._module().space(workload, target.capability))

    def prepare(
        self, weight: QuantizedWeight, workload: Workload, config: Config | None = None
    ) -> Prepared:
        """Pack a weight where it lies; the layout is that of the kernel file's `pack`.

        Raises:
            UsageError: the weight's format or sizes are not those of the kernel and the workload,
                the configuration has other names than the kernel's, or Triton is too old to
                compile it for the GPU that the weight lies on.
        """
        objection = self._format_objection(weight.format)
        if objection:
            raise UsageError(f"{objection}.", "Quantize the weight to a format that it supports.")
        check_sizes(weight, workload)
        module = self._module()
        if weight.codes.is_cuda and (too_old := _release_objection(weight.format)):
            raise UsageError(f"{self.name} in {weight.format.name} {too_old}.", INSTALL_TORCH)
        default = module.default_config(workload, capability_of(weight.codes))
        chosen = default if config is None else config
        if chosen.keys() != default.keys():
            raise UsageError(
                f"{dict(chosen)} is no configuration of {self.name}.",
                f"Its names are {', '.join(default)}.",
            )
        streamed = module.pack(weight)
        held = sum(tensor.numel() * tensor.element_size() for tensor in streamed)
        return Prepared(workload, weight.format, chosen, streamed, held)

    def run(
        self, prepared: Prepared, streamed: Sequence[Tensor], a: Tensor, out: Tensor | None = None
    ) -> Tensor:
        """The product; see the contract."""
        return self._module().run(prepared, streamed, a, out)

    def traffic(self, workload: Workload, number_format: NumberFormat) -> Traffic:
        """Compulsory bytes and operations of one launch."""
        return compulsory(workload, number_format, quantizer_scale_bytes(number_format))

    def _module(self) -> Any:
        try:
            return import_module(f"kernel_compass.kernels.{self.file}")
        except ModuleNotFoundError as error:
            if error.name not in ("torch", "triton"):
                raise
            raise MissingDependency(f"{self.name} needs {error.name}.", INSTALL_TORCH) from error


def _release_objection_of(number_format: NumberFormat, target: Target) -> str | None:
    compiled = target.kind == "cuda" and not target.planned
    return _release_objection(number_format) if compiled else None


def _release_objection(number_format: NumberFormat) -> str | None:
    both = {number_format.weight, number_format.activation}
    return triton_older_than(FP8_PRODUCTS_SINCE) if both == {Code.FP8} else None


OWN_W8A8 = WiderKernel("own_w8a8", "w8a8", frozenset({Code.INT8, Code.FP8}), True)
OWN_FP8_BLOCK = WiderKernel("own_fp8_block", "fp8_block", frozenset({Code.FP8}), True, block=True)
STUDY_W4A16 = WiderKernel("study_w4a16", "study_w4a16", frozenset({Code.INT4}), False)
STUDY_W8A8 = WiderKernel("study_w8a8", "study_w8a8", frozenset({Code.INT8, Code.FP8}), True)


WIDER: tuple[Implementation, ...] = (OWN_W8A8, OWN_FP8_BLOCK, STUDY_W4A16, STUDY_W8A8)
"""What `own.py` offers beside the decode product."""
