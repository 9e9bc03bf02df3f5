"""A weight packed for the entries of a dispatch table that can be used with it here."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kernel_compass import __version__
from kernel_compass.api.dispatch_sources import changed_file
from kernel_compass.errors import KernelCompassError, UsageError, shortened
from kernel_compass.kernels.library import torch_library
from kernel_compass.kernels.providers.base import held_bytes, installed
from kernel_compass.kernels.quantize import linear_weight, quantize
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.records.contracts import Implementation, Prepared, Target, Tensor
from kernel_compass.records.dispatch import DispatchEntry, DispatchTable, GpuModel
from kernel_compass.records.number_format import Code, NumberFormat
from kernel_compass.records.workload import Op


@dataclass(frozen=True)
class Product:
    """What a weight is multiplied as."""

    op: Op
    heads: int
    reduction: int
    columns: int
    dtype: Any
    device: Any

    @property
    def text(self) -> str:
        """`bmm 128xMx128x512`."""
        if self.op is Op.LINEAR:
            return f"linear Mx{self.columns}x{self.reduction}"
        return f"bmm {self.heads}xMx{self.reduction}x{self.columns}"

    def tokens(self, a: Tensor) -> int:
        """M of activations that meet the weight."""
        if self.op is Op.BMM:
            return int(a.shape[1])
        return int(a.numel()) // self.reduction

    def objection(self, a: Tensor) -> str | None:
        """Why activations are left to torch, whatever their number; `None` = they need not be."""
        if self.op is Op.BMM:
            fits = a.dim() == 3 and (a.shape[0], a.shape[2]) == (self.heads, self.reduction)
        else:
            fits = a.dim() >= 1 and a.shape[-1] == self.reduction
        if not fits:
            return f"activations {tuple(a.shape)} do not meet {self.text}"
        if a.dtype != self.dtype or a.device != self.device:
            return (
                f"activations are {a.dtype} on {a.device}, the weight {self.dtype} on {self.device}"
            )
        if a.numel() == 0:
            return "there are no tokens"
        if a.shape[-1] > 1 and a.stride(-1) != 1:
            return f"activations have the strides {a.stride()}, and kernels want K dense"
        return None


@dataclass(frozen=True)
class Packed:
    """A weight in the form of one entry."""

    entry: DispatchEntry
    implementation: Implementation
    prepared: Prepared
    notes: tuple[str, ...]


def product_of(weight: Tensor) -> Product:
    """What a weight is multiplied as: `(H, K, N)` by bmm, `(N, K)` by linear.

    Raises:
        UsageError: it is no such weight.
    """
    torch = torch_library()
    if not isinstance(weight, torch.Tensor) or weight.dtype not in (torch.bfloat16, torch.float16):
        kind = getattr(weight, "dtype", type(weight).__name__)
        raise UsageError(
            f"A weight is a tensor in bfloat16 or float16, not {kind}.",
            "Hand in the original weight: it is quantized here, as the table says.",
        )
    if weight.dim() not in (2, 3) or 0 in weight.shape:
        raise UsageError(
            f"A weight is (H, K, N) for bmm or (N, K) for linear, not {tuple(weight.shape)}.",
            "Hand in one layer's weight.",
        )
    if weight.dim() == 2:
        columns, reduction = weight.shape
        return Product(Op.LINEAR, 1, reduction, columns, weight.dtype, weight.device)
    heads, reduction, columns = weight.shape
    return Product(Op.BMM, heads, reduction, columns, weight.dtype, weight.device)


def packed_entries(
    table: DispatchTable,
    product: Product,
    weight: Tensor,
    target: Target,
    implementation_of: Callable[[str], Implementation],
) -> tuple[list[Packed], list[str], int]:
    """The entries that can be used, why others of this product cannot, and the memory added.

    Where the entry in force for some tokens cannot be used, the next best one is tried.
    """
    wide = linear_weight(weight) if product.op is Op.LINEAR else weight
    formats: dict[str, QuantizedWeight] = {}
    packed: list[Packed] = []
    passed_over: list[str] = []
    extra_bytes = 0
    filled: set[object] = set()
    for entry in table.contributions:
        if not _is_of(entry, product) or entry.place in filled:
            continue
        reason = _objection(entry, product, target)
        if reason is None:
            try:
                found = _prepared(entry, wide, formats, target, implementation_of)
                extra_bytes += _beside(found.prepared, formats)
                _shared(found, packed)
                packed.append(Packed(*found_with_notes(found, table)))
                filled.add(entry.place)
                continue
            except torch_library().OutOfMemoryError:
                raise
            except KernelCompassError as error:
                reason = error.found.rstrip(".")
            except Exception as error:  # a library that fails costs its own entry
                reason = f"{type(error).__name__}: {shortened(str(error))}"
        passed_over.append(f"{entry.reference} ({entry.candidate.implementation}): {reason}")
    return packed, passed_over, extra_bytes + _held(packed, weight)


def found_with_notes(
    found: Packed, table: DispatchTable
) -> tuple[DispatchEntry, Implementation, Prepared, tuple[str, ...]]:
    """An entry with what is doubtful about it here."""
    environment = table.environments.get(found.entry.study)
    here: Mapping[str, str | None] = {
        "torch": str(torch_library().__version__),
        "triton": installed("triton"),
        "kernel_compass": __version__,
    }
    notes = [found.prepared.note] if found.prepared.note else []
    for name, version in here.items():
        measured = getattr(environment, name, None)
        if measured is not None and measured != version:
            notes.append(
                f"measured with {name} {measured}, this is {version or 'without it'}: "
                f"`kernel-compass replay {found.entry.study}` says whether it holds"
            )
    return found.entry, found.implementation, found.prepared, tuple(notes)


def _is_of(entry: DispatchEntry, product: Product) -> bool:
    p = entry.pattern
    sizes = (product.op, product.heads, product.reduction, product.columns)
    return (p.op, p.heads, p.reduction, p.columns) == sizes


def _objection(entry: DispatchEntry, product: Product, target: Target) -> str | None:
    here = gpu_model(target)
    if here != entry.gpu:
        this = here.text if target.kind == "cuda" else f"a {target.kind.upper()}"
        return f"it was measured on {entry.gpu.text}, and this is {this}"
    if entry.candidate.format is None:
        return "it names no number format"
    wants = NumberFormat.parse(entry.candidate.format)
    sixteen = "float16" if wants.weight is Code.FP16 else "bfloat16"
    if str(product.dtype) != f"torch.{sixteen}":
        return f"{wants.name} takes {sixteen} activations, and the weight is {product.dtype}"
    changed = changed_file(entry.files)
    if changed is not None:
        return f"{changed} is not the file that was measured"
    return None


def gpu_model(target: Target) -> GpuModel:
    """A target as entries name what they were measured on; a CPU by its name and cores."""
    if target.capability is None or target.multiprocessors is None:
        return GpuModel(_processor(), target.kind, os.cpu_count() or 1)
    major, minor = target.capability
    return GpuModel(target.name, f"{major}.{minor}", target.multiprocessors)


@cache
def _processor() -> str:
    """The CPU's name, as Linux knows it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.machine() or "CPU"


def _prepared(
    entry: DispatchEntry,
    weight: Tensor,
    formats: dict[str, QuantizedWeight],
    target: Target,
    implementation_of: Callable[[str], Implementation],
) -> Packed:
    """The weight in an entry's form.

    Raises:
        UsageError: the implementation is not there, or refuses.
    """
    name = entry.candidate.format or ""
    implementation = implementation_of(entry.candidate.implementation)
    number_format = NumberFormat.parse(name)
    ends = {end for one in entry.pattern.tokens for end in (one.low, one.high)}
    for tokens in sorted(ends):
        workload = entry.pattern.workload(tokens)
        reason = implementation.supports(workload, number_format, target)
        if reason is not None:
            raise UsageError(
                f"{implementation.name} refuses {workload.shape_text}: {reason}.",
                f"Take {entry.study} out of the table (`kernel-compass revert {entry.study}`), or "
                "install what it was accepted with.",
            )
    if name not in formats:
        formats[name] = quantize(weight, number_format)
    workload = entry.pattern.workload(max(ends))
    config = entry.candidate.config or None
    prepared = implementation.prepare(formats[name], workload, config)
    return Packed(entry, implementation, prepared, ())


def _shared(found: Packed, packed: list[Packed]) -> None:
    """Let equal tensors of entries share their memory: several configurations, one packed weight.

    In place, as an implementation may hold the tensors in objects of its own.
    """
    for other in packed:
        if other.implementation.name != found.implementation.name:
            continue
        for mine, theirs in zip(found.prepared.streamed, other.prepared.streamed, strict=False):
            if _equal(mine, theirs):
                mine.set_(theirs)


def _equal(one: Tensor, other: Tensor) -> bool:
    """Whether two plain tensors have the same layout and the same bytes."""
    torch = torch_library()
    if type(one) is not torch.Tensor or type(other) is not torch.Tensor:
        return False
    layouts = [(t.dtype, t.device, t.shape, t.stride(), t.storage_offset()) for t in (one, other)]
    storages = [t.untyped_storage() for t in (one, other)]
    if layouts[0] != layouts[1] or storages[0].nbytes() != storages[1].nbytes():
        return False
    if storages[0].data_ptr() == storages[1].data_ptr():
        return False
    first, second = (
        torch.empty(0, dtype=torch.uint8, device=one.device).set_(storage) for storage in storages
    )
    return bool(torch.equal(first, second))


def _beside(prepared: Prepared, formats: Mapping[str, QuantizedWeight]) -> int:
    """Bytes that an implementation holds beside what a launch streams: counters, work space."""
    streamed = held_bytes(formats[prepared.format.name], *prepared.streamed)
    return max(0, prepared.added_bytes - streamed)


def _held(packed: list[Packed], weight: Tensor) -> int:
    """Bytes of all that is streamed, each memory once, the original's left out."""
    found = {}
    for one in packed:
        for tensor in one.prepared.streamed:
            storage = tensor.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
    found.pop(weight.untyped_storage().data_ptr(), None)
    return sum(found.values())
