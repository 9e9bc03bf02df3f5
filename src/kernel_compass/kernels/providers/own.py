"""The project's own decode products: low-bit weights in fragment order, 16-bit activations."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from kernel_compass import __version__
from kernel_compass.errors import UsageError
from kernel_compass.kernels.decode import (
    DecodeConfig,
    configuration,
    counters_of,
    launch,
    legal,
    space,
)
from kernel_compass.kernels.decode_table import choose
from kernel_compass.kernels.fragments import PackedWeight, pack, packed_bytes, with_streamed
from kernel_compass.kernels.gluon_support import gluon_objection, is_hopper
from kernel_compass.kernels.launching import check_can_launch
from kernel_compass.kernels.library import torch_library as torch
from kernel_compass.kernels.providers.base import (
    check_sizes,
    compulsory,
    grid_too_small,
    needs_triton,
    quantizer_scale_bytes,
    target_of,
)
from kernel_compass.kernels.providers.own_wider import WIDER
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.records.contracts import Config, Implementation, Prepared, Target, Tensor
from kernel_compass.records.number_format import Code, NumberFormat
from kernel_compass.records.workload import Op, Traffic, Workload

GROUPS = (32, 64, 128)
LEAST_CAPABILITY = (8, 0)
MOST_REACH = 2**31
"""Elements from a head's first row to its last: the kernels count them in 32 bits."""


class Decode:
    """`decode.py` as an implementation.

    Where `gluon_objection` says that Gluon's kernels cannot be used, `space` and `prepare` have the
    plain kernel alone; on a Hopper GPU the reason is then `Prepared.note`.
    """

    provider = "own"

    def __init__(self, name: str, invariant: bool) -> None:
        self.name = name
        self.invariant = invariant

    def supports(
        self, workload: Workload, number_format: NumberFormat, target: Target
    ) -> str | None:
        """Why it cannot; `None` = it can."""
        return _format_objection(self.name, workload, number_format) or needs_triton(
            target, LEAST_CAPABILITY
        )

    def space(
        self, workload: Workload, number_format: NumberFormat, target: Target
    ) -> Sequence[Config]:
        """All configurations that may be tried, the default first."""
        gluon = gluon_objection(target.capability) is None
        default = choose(workload, number_format, gluon, self.invariant)
        if self.invariant:
            return (default.as_config(),)
        rest = (c for c in space(workload, number_format, gluon) if c != default)
        return tuple(c.as_config() for c in (default, *rest))

    def prepare(
        self, weight: QuantizedWeight, workload: Workload, config: Config | None = None
    ) -> Prepared:
        """Pack a weight into fragments where it lies.

        Raises:
            UsageError: the weight is not of the workload's sizes, or of another format; fp8 codes
                that are NaN; a Gluon configuration where Gluon cannot be used.
        """
        objection = _format_objection(self.name, workload, weight.format)
        if objection:
            raise UsageError(f"{objection}.", "Quantize the weight to a format that it supports.")
        check_sizes(weight, workload)
        _check_codes(weight)
        capability = target_of(weight.codes).capability
        why_plain = gluon_objection(capability)
        if config:
            chosen = configuration(config)
            _check_kernel(chosen, why_plain)
            _check_legal(chosen, workload, weight.format)
        else:
            chosen = choose(workload, weight.format, why_plain is None, self.invariant)
        packed = pack(weight)
        counters = counters_of(packed, chosen)
        kept = packed.streamed if counters is None else (*packed.streamed, counters)
        held = sum(t.numel() * t.element_size() for t in kept)
        note = f"{self.name} ran its plain kernel: {why_plain}" if why_plain else None
        return Prepared(
            workload,
            weight.format,
            chosen.as_config(),
            packed.streamed,
            held,
            (packed, chosen, counters),
            note=note if is_hopper(capability) else None,
        )

    def run(
        self, prepared: Prepared, streamed: Sequence[Tensor], a: Tensor, out: Tensor | None = None
    ) -> Tensor:
        """One launch; see `Implementation.run`."""
        packed, config, counters = prepared.extra
        linear = prepared.workload.op is Op.LINEAR
        wide = a.unsqueeze(0) if linear else a
        _check_activations(packed, wide)
        if out is None:
            out = a.new_empty((*a.shape[:-1], packed.columns))
        else:
            _check_output(out, (*a.shape[:-1], packed.columns))
        given = packed if streamed is prepared.streamed else with_streamed(packed, tuple(streamed))
        if out.numel() and not (a.is_cuda and packed.words.is_cuda):
            check_can_launch(_plain_kernel(), a, packed.words)
        whole = config.kernel == "plain" and os.environ.get("TRITON_INTERPRET") == "1"
        target = out.unsqueeze(0) if linear else out
        launch(given, wide, target, config, counters=counters, wide=whole)
        return out

    def traffic(self, workload: Workload, number_format: NumberFormat) -> Traffic:
        """Compulsory bytes and operations, the weights padded to whole fragments."""
        w = workload
        codes = packed_bytes(number_format, w.heads, w.reduction, w.columns)
        return compulsory(w, number_format, quantizer_scale_bytes(number_format), codes)


class Own:
    """The kernels of this package."""

    name = "own"
    extra: str | None = "gpu"

    def version(self) -> str | None:
        """This package's, where torch and triton are installed."""
        return __version__ if find_spec("torch") and find_spec("triton") else None

    def implementations(self) -> Sequence[Implementation]:
        """The decode product, fastest and bitwise batch-invariant, and 8-bit products."""
        return (Decode("own_decode", False), Decode("own_decode_invariant", True), *WIDER)


PROVIDER = Own()


def _format_objection(name: str, workload: Workload, number_format: NumberFormat) -> str | None:
    if number_format.activation.bits == 8:
        other = "own_fp8_block" if number_format.block else "own_w8a8"
        return (
            f"{name} takes 16-bit activations, and {number_format.name} quantizes them: that is "
            f"{other}"
        )
    group = number_format.group
    if group is not None and group not in GROUPS:
        return f"{name} has groups of 32, 64, 128 and all of K, not of {group}"
    return grid_too_small(workload)


def _plain_kernel() -> Any:
    return import_module("kernel_compass.kernels.decode_plain").decode_plain


def _check_kernel(config: DecodeConfig, why_plain: str | None) -> None:
    """A kernel that cannot run is refused here and not by an exception of its compiler."""
    if config.kernel != "plain" and why_plain is not None:
        raise UsageError(
            f"The kernel {config.kernel} cannot run here: {why_plain}.",
            "Take a configuration of `space`, or none for the default.",
        )


def _check_legal(config: DecodeConfig, workload: Workload, number_format: NumberFormat) -> None:
    """What `legal` refuses may not compile, or leave parts of a program idle."""
    if not legal(config, workload, number_format):
        raise UsageError(
            f"{dict(config.as_config())} cannot be built for {workload.shape_text} in "
            f"{number_format.name}.",
            "Take a configuration of `space`, or none for the default.",
        )


def _check_codes(weight: QuantizedWeight) -> None:
    """NaN codes of e4m3 would become 480: refused once, not in every launch."""
    if weight.format.weight is not Code.FP8:
        return
    if bool(((weight.codes.view(torch().uint8) & 0x7F) == 0x7F).any()):
        raise UsageError("The weight has NaN among its fp8 codes.", "Mend the checkpoint.")


def _check_activations(packed: PackedWeight, a: Any) -> None:
    wanted = "float16" if packed.format.weight is Code.FP16 else "bfloat16"
    if str(a.dtype) != f"torch.{wanted}":
        raise UsageError(f"Activations are {a.dtype}.", f"This weight's kernel takes {wanted}.")
    fits = a.dim() == 3 and (a.shape[0], a.shape[2]) == (packed.heads, packed.reduction)
    if not fits or a.stride(2) != 1:
        raise UsageError(
            f"Activations are {tuple(a.shape)} with strides {a.stride()}.",
            f"Give ({packed.heads}, M, {packed.reduction}), dense along K.",
        )
    _check_reach(a, "activations")


def _check_output(out: Any, wanted: tuple[int, ...]) -> None:
    """A kernel writes where these sizes say, whatever lies there."""
    if tuple(out.shape) != wanted or (wanted[-1] > 1 and out.stride(-1) != 1):
        raise UsageError(
            f"The output is {tuple(out.shape)} with strides {out.stride()}.",
            f"Give {wanted}, dense along N.",
        )
    _check_reach(out, "outputs")


def _check_reach(rows: Any, what: str) -> None:
    """Rows of a head that 32-bit offsets cannot reach would be read or written elsewhere."""
    if rows.shape[-2] * abs(rows.stride(-2)) >= MOST_REACH:
        raise UsageError(
            f"The {what} have {rows.shape[-2]} rows, {rows.stride(-2)} elements apart.",
            f"Give fewer at a time: their product must stay under {MOST_REACH}.",
        )
