"""The end-to-end gate: what a step gives with changes on, beside what the untouched program gives.

Every tensor that the step returns, and every one that it writes in place, is compared: Frobenius
norm of the difference over that of the reference. What looks like logits is compared as a language
model's answer too: how often the largest is the same, and the mean KL divergence. Sums are taken in
float64, a slice at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernel_compass.records.step_action import OutputError
from kernel_compass.records.trial import Reason
from kernel_compass.units import percent_text

VOCABULARY = 1000
"""From so many columns on, the last dimension of a step that reads integers is a vocabulary."""
FEW_ROWS = 100
"""Under so many, one row whose largest logit is another one is let pass."""
_SLICE = 1 << 22
_DEPTH = 8


@dataclass(frozen=True)
class OutputBudget:
    """What outputs may differ by."""

    relative_pct: float
    top1_pct: float = 99.0
    kl_nats: float = 0.02


@dataclass(frozen=True)
class Kept:
    """An output as it was, on the host."""

    name: str
    tensor: Any


def tensors_of(found: Any, name: str = "output") -> Iterator[tuple[str, Any]]:
    """All floating-point and integer tensors in a step's result, with how they are reached.

    Lists, tuples, mappings, dataclasses and objects with `__dict__` of tensors (model outputs) are
    gone through, to a depth of 8.
    """
    yield from _tensors(found, name, 0)


def kept(found: Any, written: Mapping[str, Any] | None = None) -> tuple[Kept, ...]:
    """Copies of a step's results, and of what it writes in place, on the host."""
    rows = [*tensors_of(found)]
    for name, tensor in (written or {}).items():
        rows.append((name, tensor))
    return tuple(Kept(name, tensor.detach().to("cpu", copy=True)) for name, tensor in rows)


def compare(
    reference: Sequence[Kept], found: Sequence[Kept], integer_inputs: bool
) -> tuple[tuple[OutputError, ...], tuple[Reason, str] | None]:
    """The error of each output, and what is wrong whatever the budget.

    Args:
        reference: of the untouched program.
        found: with changes on.
        integer_inputs: whether the step reads integers (tokens): what has many columns is then
            taken for logits.
    """
    names, others = [one.name for one in reference], [one.name for one in found]
    if names != others:
        detail = f"the step gives {', '.join(others) or 'nothing'} instead of {', '.join(names)}"
        return (), (Reason.WRONG_SHAPE, detail)
    errors: list[OutputError] = []
    for one, other in zip(reference, found, strict=True):
        a, b = one.tensor, other.tensor
        if a.shape != b.shape or a.dtype != b.dtype:
            detail = f"{one.name} is {_kind(b)} instead of {_kind(a)}"
            return tuple(errors), (Reason.WRONG_SHAPE, detail)
        relative, finite = _relative_pct(a, b)
        if not finite:
            detail = f"{one.name} is not finite where it was"
            return tuple(errors), (Reason.NOT_FINITE, detail)
        top1 = kl = None
        if _is_logits(one.name, a, integer_inputs):
            top1, kl = _logits(a, b)
        errors.append(OutputError(one.name, relative, top1, kl))
    return tuple(errors), None


def objection(
    errors: Sequence[OutputError], budget: OutputBudget, rows: Mapping[str, int] | None = None
) -> tuple[Reason, str] | None:
    """Why outputs are not within the budget; `None` = they are.

    Args:
        errors: of each output.
        budget: what they may differ by.
        rows: of each output with logits; with few, one may have another largest.
    """
    for one in errors:
        if one.relative_pct > budget.relative_pct:
            found = percent_text(one.relative_pct)
            detail = f"{one.name} is {found} off; the budget is {percent_text(budget.relative_pct)}"
            return Reason.OVER_BUDGET, detail
        if one.top1_agreement_pct is not None:
            count = (rows or {}).get(one.name, 0)
            spared = 100.0 / count if 0 < count < FEW_ROWS else 0.0
            if one.top1_agreement_pct < min(budget.top1_pct, 100.0 - spared) - 1e-9:
                detail = (
                    f"{one.name}: the largest logit is the same in "
                    f"{percent_text(one.top1_agreement_pct)} of the rows, "
                    f"{percent_text(budget.top1_pct)} is asked for"
                )
                return Reason.OVER_BUDGET, detail
        if one.kl is not None and one.kl > budget.kl_nats:
            detail = f"{one.name}: KL {one.kl:.4f} nats; at most {budget.kl_nats:g} are allowed"
            return Reason.OVER_BUDGET, detail
    return None


def rows_of(found: Sequence[Kept]) -> dict[str, int]:
    """Rows of each output: all but its last dimension."""
    return {one.name: one.tensor.numel() // max(one.tensor.shape[-1], 1) for one in found
            if one.tensor.dim()}  # fmt: skip


def _tensors(found: Any, name: str, depth: int) -> Iterator[tuple[str, Any]]:
    if depth > _DEPTH or found is None:
        return
    if hasattr(found, "detach") and hasattr(found, "numel"):
        yield name, found
    elif isinstance(found, Mapping):
        for key, value in found.items():
            yield from _tensors(value, f"{name}.{key}", depth + 1)
    elif isinstance(found, list | tuple):
        fields = getattr(found, "_fields", None)
        for index, value in enumerate(found):
            part = f"{name}.{fields[index]}" if fields else f"{name}[{index}]"
            yield from _tensors(value, part, depth + 1)
    elif hasattr(found, "__dict__") and not callable(found):
        for key, value in vars(found).items():
            if not key.startswith("_"):
                yield from _tensors(value, f"{name}.{key}", depth + 1)


def _kind(tensor: Any) -> str:
    return f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def _relative_pct(reference: Any, found: Any) -> tuple[float, bool]:
    """The error, and whether all is finite that was."""
    a, b = reference.reshape(-1), found.reshape(-1)
    if not a.numel():
        return 0.0, True
    over = under = 0.0
    for first in range(0, a.numel(), _SLICE):
        one, other = _wide(a[first : first + _SLICE]), _wide(b[first : first + _SLICE])
        known = one.isfinite()
        if not bool((other.isfinite() | ~known).all()):
            return math.inf, False
        # what is infinite or NaN in the reference has to be the same there
        same = (one == other) | (one.isnan() & other.isnan())
        if not bool((same | known).all()):
            return math.inf, False
        one, other = one[known], other[known]
        over += float(((one - other) ** 2).sum())
        under += float((one**2).sum())
    if under == 0.0:
        return (0.0 if over == 0.0 else math.inf), over == 0.0
    return 100.0 * math.sqrt(over / under), True


def _wide(tensor: Any) -> Any:
    return tensor.abs().double() if tensor.is_complex() else tensor.double()


def _is_logits(name: str, tensor: Any, integer_inputs: bool) -> bool:
    if not tensor.is_floating_point() or tensor.dim() < 2 or tensor.shape[-1] < 2:
        return False
    named = name.rpartition(".")[2].startswith("logits")
    return named or (integer_inputs and tensor.shape[-1] >= VOCABULARY)


def _logits(reference: Any, found: Any) -> tuple[float, float]:
    """Top-1 agreement in percent, and KL(reference || found) in nats, mean over rows."""
    columns = reference.shape[-1]
    a, b = reference.reshape(-1, columns), found.reshape(-1, columns)
    step = max(_SLICE // columns, 1)
    same, divergence = 0, 0.0
    for first in range(0, a.shape[0], step):
        one, other = a[first : first + step].double(), b[first : first + step].double()
        same += int((one.argmax(-1) == other.argmax(-1)).sum())
        p, q = one.log_softmax(-1), other.log_softmax(-1)
        gap = p.exp() * (p - q)
        divergence += float(gap.nan_to_num(nan=0.0).sum())  # a logit of -inf weighs nothing
    rows = max(a.shape[0], 1)
    return 100.0 * same / rows, divergence / rows
