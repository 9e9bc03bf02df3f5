"""Other contents at the same address: what a result has to follow."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any

from kernel_compass.validation.guards import base_of, overlaps

NEW_VALUES = "new values"
MOST_CHOICES = 4
"""Distinct values of a mask or a table of constants: scaled, it would be another kind of thing."""
LOOKED_AT = 4096
"""Elements, at a tensor's beginning."""


def silently(torch: Any, tensor: Any, new: Any) -> bool:
    """Overwrite contents through an alias whose version counter is its own; False: it cannot be."""
    if tensor.numel() == 0 or tensor.is_sparse or overlaps(base_of(tensor)):
        return False
    real = base_of(tensor)
    try:
        alias = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(real))
    except (RuntimeError, BufferError, TypeError):
        alias = real.detach()
    if tensor.shape != real.shape:
        new = new.as_strided(new.shape, new.stride())
        for axis, (size, kept) in enumerate(zip(tensor.shape, real.shape, strict=True)):
            new = new if size == kept else new.narrow(axis, 0, 1)
    alias.copy_(new)
    return True


def scaled(tensor: Any, factor: float) -> Any:
    """The same layout with values times a power of two."""
    real = base_of(tensor)
    if tensor.numel() == 0 or tensor.is_sparse or overlaps(real):
        return tensor
    made = real.new_empty_strided(real.shape, real.stride())
    made.copy_(real.float() * factor if real.element_size() < 8 else real * factor)
    return made.expand(tensor.shape) if made.shape != tensor.shape else made


def shifted(tensor: Any, amount: float) -> Any:
    """The same layout with values that lie elsewhere; infinite ones and NaN stay."""
    real = base_of(tensor)
    made = real.new_empty_strided(real.shape, real.stride())
    made.copy_(real.double() + amount)
    return made.expand(tensor.shape) if made.shape != tensor.shape else made


def is_data(torch: Any, tensor: Any) -> bool:
    """Whether it holds numbers that could be others: no index, no mask, no handful of constants."""
    if not isinstance(tensor, torch.Tensor) or not tensor.dtype.is_floating_point:
        return False
    if tensor.layout is not torch.strided or overlaps(base_of(tensor)):
        return False
    some = base_of(tensor).flatten()[:LOOKED_AT].double()
    return int(some[some.isfinite()].unique().numel()) > MOST_CHOICES


def _quarters_swapped(tensor: Any) -> Any | None:
    """Two inner parts in each other's place: the ends, the sum and the extremes stay."""
    real = base_of(tensor)
    if real.numel() < 8 or not real.dtype.is_floating_point:
        return None
    flat = real.clone().reshape(-1)
    quarter = flat.numel() // 4
    first, second = flat[quarter : 2 * quarter].clone(), flat[2 * quarter : 3 * quarter].clone()
    flat[quarter : 2 * quarter], flat[2 * quarter : 3 * quarter] = second, first
    return flat.reshape(real.shape).expand(tensor.shape)


def _two_swapped(tensor: Any) -> Any | None:
    """Two values in each other's place, far apart in size, at places nobody can know."""
    real = base_of(tensor)
    if real.numel() < 8 or real.dtype.is_complex or real.element_size() < 2:
        return None
    flat = real.clone().reshape(-1)
    length = max(4, flat.numel() // 8)
    start = 1 + secrets.randbelow(flat.numel() - length - 1)
    part = flat[start : start + length]
    known = part.isfinite()
    if not bool(known.any()):
        return None
    low = int(part.where(known, part[known].max()).argmin())
    high = int(part.where(known, part[known].min()).argmax())
    if low == high:
        return None
    part[low], part[high] = part[high].clone(), part[low].clone()
    return flat.reshape(real.shape).expand(tensor.shape)


REORDERINGS: Mapping[str, Callable[[Any], Any | None]] = {
    "the same values in another order": _quarters_swapped,
    "two values swapped": _two_swapped,
}
"""They keep what a cache may look at: ends, sums, extremes, samples."""
