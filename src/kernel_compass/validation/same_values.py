"""Whether two tensors hold the same numbers, and how their elements lie in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

UNITS = 16.0
"""Of a wide type's last place: what is multiplied by nearly one is the same."""
_ROUNDED = ("float32", "float64")
"""Of shorter types a unit is worth looking at."""


def same_values(torch: Any, one: Any, other: Any) -> bool:
    """The same shape, type and numbers: NaN is NaN, either zero is zero, last places may differ."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    differs = one != other
    if one.dtype.is_floating_point or one.dtype.is_complex:
        differs = differs & ~(one.isnan() & other.isnan())
    if not bool(differs.any()):
        return True
    if str(one.dtype).removeprefix("torch.") not in _ROUNDED:
        return False
    slack = UNITS * torch.finfo(one.dtype).eps
    near = (one - other).abs() <= slack * torch.minimum(one.abs(), other.abs())
    return bool((near | ~differs).all())


def layout_of(tensor: Any) -> tuple[tuple[int, int], ...]:
    """Sizes and strides: axes of one element left out, axes that lie in a row joined."""
    found: list[tuple[int, int]] = []
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        if size == 1:
            continue
        if found and found[-1][1] == stride * size:
            found[-1] = (found[-1][0] * size, stride)
        else:
            found.append((size, stride))
    return tuple(found)


def reach_of(tensor: Any) -> int:
    """Elements from the first to the last one in memory."""
    if not tensor.numel():
        return 0
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + int(sum((size - 1) * stride for size, stride in pairs))


def tensors_in(torch: Any, found: Any) -> Iterator[Any]:
    """All tensors in tuples, lists and mappings, in order."""
    if isinstance(found, torch.Tensor):
        yield found
    elif isinstance(found, Mapping):
        for one in found.values():
            yield from tensors_in(torch, one)
    elif isinstance(found, tuple | list):
        for one in found:
            yield from tensors_in(torch, one)
