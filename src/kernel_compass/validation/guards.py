"""Operands with something around them: what is read or written outside shows."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

GUARD_BYTES = 4096
"""On either side; a multiple of every alignment that kernels ask for."""


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


def guarded(torch: Any, tensor: Any, byte: int = 0xFF) -> Guarded | None:
    """A copy of the same strides; `None` for what is no block of memory of its own.

    `0xFF` bytes are NaN in every floating-point format but e4m3fnuz, and -1 as integers. Of a
    broadcast tensor the part that exists is copied, and broadcast again.
    """
    if type(tensor) is not torch.Tensor or tensor.numel() == 0 or tensor.is_sparse:
        return None
    if tensor.layout is not torch.strided or tensor.requires_grad:
        return None
    real = base_of(tensor)
    if overlaps(real):
        return None
    extent = 1 + sum((n - 1) * s for n, s in zip(real.shape, real.stride(), strict=True))
    size = extent * tensor.element_size()
    block = torch.full((GUARD_BYTES * 2 + size,), byte, dtype=torch.uint8, device=tensor.device)
    flat = block[GUARD_BYTES : GUARD_BYTES + size].view(tensor.dtype)
    value = flat.as_strided(real.shape, real.stride(), flat.storage_offset())
    value.copy_(real)
    value = value.as_strided(tensor.shape, tensor.stride())
    return Guarded(value, block, GUARD_BYTES, GUARD_BYTES + size)


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


def guard_all(
    torch: Any, inputs: Mapping[str, Any], byte: int
) -> tuple[dict[str, Any], list[Guarded]]:
    """All tensors of inputs within guards, or copied at least; other values as they are."""
    given, guards = {}, []
    for name, value in inputs.items():
        found = guarded(torch, value, byte)
        if found is not None:
            given[name] = found.value
            guards.append(found)
        elif isinstance(value, torch.Tensor):
            given[name] = copy.deepcopy(value)
        else:
            given[name] = value
    return given, guards
