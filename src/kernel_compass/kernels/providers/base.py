"""What the implementations of all libraries share: reasons, checks, counts of bytes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module, metadata
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

from kernel_compass.errors import INSTALL_TORCH, UsageError
from kernel_compass.kernels.library import torch_library
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.records.contracts import Config, Implementation, Prepared, Target, Tensor
from kernel_compass.records.number_format import Code, NumberFormat
from kernel_compass.records.workload import Op, Traffic, Workload

INSTALL_PROVIDERS = "pip install '.[providers]' in a checkout of kernel-compass"
"""What gives a Python the libraries, in the versions that are known to work."""
MOST_HEADS = 65_535
"""Blocks along a grid's second dimension."""
torch = torch_library
"""The module `torch`, imported when it is first needed."""
ONLY: Config = MappingProxyType({})
"""The configuration of an implementation that leaves nothing to choose."""


@dataclass
class Library:
    """A provider that is one installed package."""

    name: str
    package: str
    """Its name among the installed distributions."""
    offered: tuple[Implementation, ...]
    extra: str | None = "providers"

    def version(self) -> str | None:
        """Version of the package; `None` = not installed."""
        return installed(self.package)

    def implementations(self) -> Sequence[Implementation]:
        """What it offers; importable without the package."""
        return self.offered


def installed(package: str) -> str | None:
    """The version of an installed distribution; `None` = not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def missing(package: str, target: Target) -> str | None:
    """Why a package cannot be used: it is not installed; `None` = it is, or only a plan is made."""
    if target.planned or installed(package) is not None:
        return None
    install = INSTALL_TORCH if package in ("torch", "triton") else INSTALL_PROVIDERS
    return f"{package} is not installed: {install}"


def target_of(tensor: Tensor) -> Target:
    """The device that a tensor lies on, as a target."""
    device = tensor.device
    if device.type != "cuda":
        return Target(device.type)
    found = torch().cuda.get_device_properties(device)
    capability = (int(found.major), int(found.minor))
    return Target("cuda", capability, str(found.name), int(found.multi_processor_count))


def first(*reasons: str | None) -> str | None:
    """The first reason there is."""
    return next((reason for reason in reasons if reason is not None), None)


def needs_gpu(target: Target, capability: tuple[int, int]) -> str | None:
    """Why the target is not enough: no NVIDIA GPU, or an older one than `capability`."""
    major, minor = capability
    if target.kind != "cuda":
        return f"needs an NVIDIA GPU (compute capability {major}.{minor} or newer)"
    if target.capability is not None and target.capability < capability:
        found = "{}.{}".format(*target.capability)
        return f"needs compute capability {major}.{minor} or newer, this GPU has {found}"
    return None


def needs_triton(target: Target, oldest: tuple[int, int]) -> str | None:
    """Why a Triton kernel of this package cannot run there; `None` = it can.

    Args:
        target: a CPU will do under Triton's interpreter.
        oldest: the compute capability that the kernel needs.
    """
    if not target.planned and (find_spec("torch") is None or find_spec("triton") is None):
        return f"torch and triton are not installed: {INSTALL_TORCH}"
    if target.kind == "cpu":
        interpreted = os.environ.get("TRITON_INTERPRET") == "1"
        return None if interpreted else "on a CPU it runs under TRITON_INTERPRET=1 only"
    if target.capability is not None and target.capability >= oldest:
        return None
    if target.planned and target.capability is None:
        return None
    have = "{}.{}".format(*target.capability) if target.capability else "none"
    return f"needs compute capability {oldest[0]}.{oldest[1]}; the device has {have}"


def triton_older_than(release: tuple[int, int]) -> str | None:
    """Why a kernel cannot be compiled: Triton is of an older release; `None` = it is not. Imports
    triton."""
    version = str(import_module("triton").__version__)
    if tuple(map(int, re.findall(r"\d+", version)[:2])) >= release:
        return None
    return f"needs Triton {release[0]}.{release[1]} or newer, and this is {version}"


def grid_too_small(workload: Workload) -> str | None:
    """Why a kernel with a program row a head cannot: more heads than a grid has rows."""
    if workload.heads > MOST_HEADS:
        return f"H = {workload.heads} is over the grid's {MOST_HEADS}"
    return None


def check_sizes(weight: QuantizedWeight, workload: Workload) -> None:
    """Refuse a weight of another shape.

    Raises:
        UsageError: it is not the workload's.
    """
    shape = (weight.heads, weight.reduction, weight.columns)
    wanted = (workload.heads, workload.reduction, workload.columns)
    if shape != wanted:
        raise UsageError(
            f"The weight is (H, K, N) = {shape}; {workload.shape_text} has {wanted}.",
            "Hand in the weight of this workload.",
        )


def only_formats(number_format: NumberFormat, *names: str) -> str | None:
    """Why the format is none of `names`; a name ending in `*` stands for all that begin so."""
    asked = number_format.name
    for name in names:
        if asked == name or (name.endswith("*") and asked.startswith(name[:-1])):
            return None
    return f"computes {', '.join(names)}, not {asked}"


def multiples(workload: Workload, reduction: int = 1, columns: int = 1) -> str | None:
    """Why K or N does not fit: no multiple of what the library's tiles need."""
    if workload.reduction % reduction:
        return f"K must be a multiple of {reduction}, and is {workload.reduction}"
    if workload.columns % columns:
        return f"N must be a multiple of {columns}, and is {workload.columns}"
    return None


def one_head(workload: Workload) -> str | None:
    """Why a library that multiplies matrices cannot: several heads, a launch for each."""
    if workload.op is Op.BMM and workload.heads != 1:
        return f"multiplies one matrix a launch, and bmm has H = {workload.heads}"
    return None


def checked(
    implementation: Implementation,
    weight: QuantizedWeight,
    workload: Workload,
    config: Config | None,
) -> Config:
    """The configuration to prepare a weight in, everything about the request having been checked.

    Raises:
        UsageError: the weight is not of the workload's shape, the implementation does not support
            the request, or the configuration is not one of its space.
    """
    check_sizes(weight, workload)
    target = target_of(weight.codes)
    reason = implementation.supports(workload, weight.format, target)
    if reason is not None:
        raise UsageError(
            f"{implementation.name} cannot compute {workload.shape_text} in {weight.format.name}: "
            f"{reason}.",
            "Choose another implementation.",
        )
    space = implementation.space(workload, weight.format, target)
    if config is None:
        return space[0]
    if dict(config) not in [dict(one) for one in space]:
        raise UsageError(
            f"{dict(config)} is no configuration of {implementation.name} here.",
            f"Use one of: {'; '.join(str(dict(one)) for one in space)}.",
        )
    return config


def exactly(values: Tensor, dtype: Any, what: str) -> Tensor:
    """Scales or the like in the dtype that a library wants, if that changes none of them.

    Raises:
        UsageError: a value would be rounded: the library would compute another weight.
    """
    converted = values.to(dtype)
    if not bool((converted.to(torch().float32) == values.to(torch().float32)).all()):
        raise UsageError(
            f"{what} in {dtype}, which cannot hold these ({values.dtype}) exactly.",
            f"Quantize with scales rounded to {dtype} first.",
        )
    return converted


def held_bytes(weight: QuantizedWeight, *held: Tensor | None) -> int:
    """Bytes of memory that `held` keeps beside the memory of the weight that was handed in."""
    ours = [weight.codes, weight.scales, weight.zeros]
    known = {one.untyped_storage().data_ptr() for one in ours if one is not None}
    found = {}
    for tensor in held:
        if tensor is not None and tensor.numel():
            storage = tensor.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
    return sum(size for place, size in found.items() if place not in known)


def quantizer_scale_bytes(number_format: NumberFormat) -> int:
    """Bytes of a group's scale and zero point where both are kept as `kernels.quantize` makes them:
    bfloat16, float32 for blocks, and a byte."""
    return (4 if number_format.block else 2) + number_format.zero_points


def compulsory(
    workload: Workload,
    number_format: NumberFormat,
    scale_bytes: int,
    code_bytes: int | None = None,
) -> Traffic:
    """Compulsory bytes and operations of a launch: every operand once, as stored.

    Args:
        workload: what is computed.
        number_format: how its weights are stored.
        scale_bytes: bytes that belong to one group of weights: scale, and zero point if there are.
        code_bytes: all weights without those, where a layout pads them; `None` = not padded.
    """
    if code_bytes is None:
        code_bytes = -(-workload.weights * number_format.weight.bits // 8)
    scales = number_format.scale_count(workload.heads, workload.reduction, workload.columns)
    rows = workload.heads * workload.tokens
    converted = number_format.weight.bits < number_format.activation.bits
    sixteen = number_format.activation in (Code.BF16, Code.FP16)
    return Traffic(
        weight_bytes=code_bytes + scales * scale_bytes,
        activation_bytes=2 * rows * workload.reduction,
        output_bytes=2 * rows * workload.columns,
        flops=workload.flops,
        dequantized_weights=workload.weights if converted else 0,
        math="bf16" if sixteen else number_format.activation.value,
        tokens=workload.tokens,
    )


def with_streamed(
    weight: QuantizedWeight,
    workload: Workload,
    config: Config,
    streamed: Mapping[str, Tensor],
    extra: Any = None,
    kept: Sequence[Tensor] = (),
) -> Prepared:
    """A prepared weight whose added bytes are counted from the tensors it holds."""
    tensors = tuple(streamed.values())
    added = held_bytes(weight, *tensors, *kept)
    return Prepared(workload, weight.format, config, tensors, added, extra)
