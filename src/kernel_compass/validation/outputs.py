"""Outputs as a flat list of tensors, and how two of them differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernel_compass.records.trial import Reason
from kernel_compass.validation.found import Found


def flat(torch: Any, outputs: Any) -> list[Any] | Found:
    """The tensors of an output, in order; or why it is none.

    A subclass of `torch.Tensor` may compute when it is looked at, so it is refused.
    """
    if isinstance(outputs, Mapping):
        outputs = list(outputs.values())
    if not isinstance(outputs, tuple | list):
        outputs = [outputs]
    for one in outputs:
        if type(one) is torch.Tensor or type(one) is torch.nn.Parameter:
            continue
        if isinstance(one, torch.Tensor) or callable(
            getattr(type(one), "__torch_function__", None)
        ):
            return Found(
                Reason.LAZY_RESULT,
                f"It returned a {type(one).__name__}, which may compute when it is looked at.",
            )
        return Found(Reason.WRONG_SHAPE, f"It returned a {type(one).__name__}, not a tensor.")
    return [one.detach() for one in outputs]


def same_bits(torch: Any, one: Any, other: Any) -> bool:
    """Whether two tensors hold the same bits in the same shape, NaN included."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.numel() == 0:
        return True
    left, right = (t.contiguous().reshape(-1).view(torch.uint8) for t in (one, other))
    return bool(torch.equal(left, right))


def all_same(torch: Any, ones: Sequence[Any], others: Sequence[Any]) -> bool:
    """The same for lists of them."""
    pairs = zip(ones, others, strict=False)
    return len(ones) == len(others) and all(same_bits(torch, a, b) for a, b in pairs)
