"""Operands with something around them: what is read or written outside shows."""

from __future__ import annotations

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
    """A copy of the same strides; `None` for what is no dense block of memory.

    `0xFF` bytes are NaN in every floating-point format but e4m3fnuz, and -1 as integers.
    """
    if type(tensor) is not torch.Tensor or tensor.numel() == 0 or tensor.is_sparse:
        return None
    if tensor.layout is not torch.strided or tensor.requires_grad:
        return None
    if any(
        stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    ):
        return None
    extent = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    size = extent * tensor.element_size()
    block = torch.full((GUARD_BYTES * 2 + size,), byte, dtype=torch.uint8, device=tensor.device)
    flat = block[GUARD_BYTES : GUARD_BYTES + size].view(tensor.dtype)
    value = flat.as_strided(tensor.shape, tensor.stride(), flat.storage_offset())
    value.copy_(tensor)
    return Guarded(value, block, GUARD_BYTES, GUARD_BYTES + size)


def guard_all(
    torch: Any, inputs: Mapping[str, Any], byte: int
) -> tuple[dict[str, Any], list[Guarded]]:
    """All tensors of inputs within guards; other values as they are."""
    given, guards = {}, []
    for name, value in inputs.items():
        found = guarded(torch, value, byte)
        given[name] = value if found is None else found.value
        if found is not None:
            guards.append(found)
    return given, guards
