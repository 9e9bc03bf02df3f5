"""Outputs as a flat list of tensors, and how two of them differ."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from kernel_compass.records.trial import Reason
from kernel_compass.validation.found import Found
from kernel_compass.validation.same_values import reach_of

_PROMISES = ("__torch_function__", "__getitem__", "result")


def flat(torch: Any, outputs: Any) -> list[Any] | Found:
    """The tensors of an output, in order; or why it is none.

    A subclass of `torch.Tensor` may compute when it is looked at, so it is refused; so is a
    container that makes its contents then, and a tensor that has no values in memory.
    """
    for one in listed(outputs):
        if type(one) is torch.Tensor or type(one) is torch.nn.Parameter:
            missing = _without_values(torch, one)
            if missing is not None:
                return missing
            continue
        if isinstance(one, torch.Tensor) or _may_compute(one):
            return Found(
                Reason.LAZY_RESULT,
                f"It returned a {type(one).__name__}, which may compute when it is looked at.",
            )
        return Found(Reason.WRONG_SHAPE, f"It returned a {type(one).__name__}, not a tensor.")
    return [one.detach() for one in listed(outputs)]


def listed(outputs: Any) -> list[Any]:
    """What a container holds, whatever its class makes of being asked; anything else alone."""
    if isinstance(outputs, dict):
        return list(dict.values(outputs))
    if isinstance(outputs, tuple):
        return list(tuple.__iter__(outputs))
    if isinstance(outputs, list):
        return list(list.__iter__(outputs))
    return [outputs]


def _may_compute(one: Any) -> bool:
    """Whether it is a promise of a result."""
    if isinstance(one, Iterator | Awaitable | Callable):
        return True
    if type(one).__module__ in ("numpy", "builtins"):
        return False
    return any(callable(getattr(type(one), name, None)) for name in _PROMISES)


def _without_values(torch: Any, one: Any) -> Found | None:
    """A tensor that is none yet, or that has no numbers of its type in memory."""
    lazy = torch._is_functional_tensor(one) or torch._C._functorch.is_functorch_wrapped_tensor(one)
    if lazy or one.is_neg() or one.device.type in ("lazy", "xla"):
        return Found(Reason.LAZY_RESULT, "It returned a tensor that computes when it is looked at.")
    what = None
    if one.device.type == "meta":
        what = "a tensor of the device meta, which has no values"
    elif one.layout is not torch.strided or one.is_nested:
        what = f"a tensor of the layout {str(one.layout).removeprefix('torch.')}"
    elif one.is_quantized:
        what = f"a quantized tensor ({one.dtype})"
    elif (one.storage_offset() + reach_of(one)) * one.element_size() > _bytes_of(one):
        what = "a tensor whose memory was given back"
    return None if what is None else Found(Reason.WRONG_SHAPE, f"It returned {what}.")


def _bytes_of(one: Any) -> int:
    return int(one.untyped_storage().nbytes())


def overlap(one: Any, other: Any) -> bool:
    """Whether two tensors reach into the same memory."""
    plain = all(str(t.layout) == "torch.strided" and t.numel() for t in (one, other))
    if not plain or one.device != other.device:
        return False
    first, second = ((t.data_ptr(), reach_of(t) * t.element_size()) for t in (one, other))
    return bool(first[0] < sum(second) and second[0] < sum(first))


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
