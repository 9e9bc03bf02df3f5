"""Operands with something around them: what is read or written outside shows."""

from __future__ import annotations

import copy
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ALIGNMENT = 512
"""A multiple of every alignment that kernels ask for: what a GPU's allocator keeps to."""
LEAST_BITS, MOST_BITS = 12, 18
"""A guard is 2^12 to 2^18 bytes wide, the width drawn each time: nobody knows where it ends."""
MOST_SLICE_BYTES = 1 << 22
"""Behind, a slice of the first axis is added, up to this: who counts one too many writes there."""


@dataclass
class Guarded:
    """A copy of a tensor within a larger block."""

    value: Any
    block: Any
    """The block as bytes."""
    first: int
    last: int
    """The bytes between that belong to the value."""

    def fill(self, byte: int) -> None:
        """What lies around it from now on."""
        self.block[: self.first] = byte
        self.block[self.last :] = byte

    def intact(self, byte: int) -> bool:
        """Whether that is still so."""
        before, after = self.block[: self.first], self.block[self.last :]
        return bool((before == byte).all()) and bool((after == byte).all())


def guarded(torch: Any, tensor: Any, byte: int = 0xFF, shown: bool = True) -> Guarded | None:
    """A copy of the same strides; `None` for what is no block of memory of its own.

    `0xFF` bytes are NaN in every floating-point format but e4m3fnuz, and -1 as integers. Of a
    broadcast tensor the part that exists is copied, and broadcast again.

    Args:
        torch: the module.
        tensor: what is copied.
        byte: what lies around it.
        shown: whether its storage is the whole block, so that torch's own views reach the guards;
            otherwise it looks as if it were alone.
    """
    if type(tensor) is not torch.Tensor or tensor.numel() == 0 or tensor.is_sparse:
        return None
    if tensor.layout is not torch.strided or tensor.requires_grad:
        return None
    real = base_of(tensor)
    if overlaps(real):
        return None
    found = guarded_block(torch, real, byte, shown)
    found.value.copy_(real)
    found.value = found.value.as_strided(
        tensor.shape, tensor.stride(), found.value.storage_offset()
    )
    return found


def guarded_block(torch: Any, like: Any, byte: int, shown: bool) -> Guarded:
    """Memory for a tensor of some size, strides and type, its contents not written yet."""
    pairs = list(zip(like.shape, like.stride(), strict=True))
    size = (1 + sum((n - 1) * s for n, s in pairs)) * like.element_size()
    first = _width() // ALIGNMENT * ALIGNMENT
    slice_bytes = pairs[0][1] * like.element_size() if pairs else 0
    behind = _width() + min(slice_bytes, MOST_SLICE_BYTES)
    block = torch.full((first + size + behind,), byte, dtype=torch.uint8, device=like.device)
    inner = block[first : first + size]
    if not shown:
        inner = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(inner))
    flat = inner.view(like.dtype)
    value = flat.as_strided(like.shape, like.stride(), flat.storage_offset())
    return Guarded(value, block, first, first + size)


def _width() -> int:
    """Bytes, each order of magnitude as often."""
    least = 1 << (LEAST_BITS + secrets.randbelow(MOST_BITS - LEAST_BITS))
    return least + secrets.randbelow(least)


def base_of(tensor: Any) -> Any:
    """The part of a tensor that exists: one element along every axis it is broadcast over."""
    for axis, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(axis, 0, 1)
    return tensor


def overlaps(tensor: Any) -> bool:
    """Whether two elements may be one place in memory."""
    reach = 1
    axes = [(s, n) for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1]
    for stride, size in sorted(axes):
        if stride < reach:
            return True
        reach = stride * (size - 1) + reach
    return False


def all_intact(guards: Sequence[Guarded], byte: int) -> bool:
    """Whether all that lies around them still holds this byte."""
    return all(one.intact(byte) for one in guards)


def guard_all(
    torch: Any, inputs: Mapping[str, Any], byte: int, shown: bool = True
) -> tuple[dict[str, Any], list[Guarded]]:
    """All tensors of inputs within guards, or copied at least; other values as they are.

    Args:
        torch: the module.
        inputs: by name.
        byte: what lies around each.
        shown: see `guarded`.
    """
    given, guards = {}, []
    for name, value in inputs.items():
        found = guarded(torch, value, byte, shown)
        if found is not None:
            given[name] = found.value
            guards.append(found)
        elif isinstance(value, torch.Tensor):
            given[name] = copy.deepcopy(value)
        else:
            given[name] = value
    return given, guards
