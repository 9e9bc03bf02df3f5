"""An `einsum` of activations and a weight as a batched product, where it is one."""

from __future__ import annotations

import re
from collections.abc import Callable, Container
from dataclasses import dataclass
from functools import cache

from kernel_compass.records.contracts import Tensor


@dataclass(frozen=True)
class Batched:
    """`a (H, M, K)` times `weight (H, K, N)`, and how the einsum's result lies in theirs."""

    a: Tensor
    weight: Tensor
    finish: Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class _Plan:
    activations: tuple[int, ...]
    """Dimensions of the activations in the order H, M ..., K."""
    weight: tuple[int, ...]
    """Of the weight in the order H, K, N."""
    result: tuple[int, ...]
    """Of (H, M ..., N) in the order of the einsum's result."""


def as_batched(
    equation: str, a: Tensor, weight: Tensor, known: Container[tuple[int, ...]]
) -> Batched | None:
    """Views of the operands as a batched product; `None` = it is none.

    Args:
        equation: `bshd,hdc->bshc`: one letter in all three, one summed, one of the weight alone.
        a: activations; any number of letters of their own are tokens.
        weight: three letters.
        known: sizes (H, K, N) that there is an entry for; other weights are left alone.
    """
    plan = _plan(equation.replace(" ", ""))
    if plan is None or a.dim() != len(plan.activations) or weight.dim() != 3:
        return None
    laid = weight.permute(plan.weight)
    if tuple(laid.shape) not in known:
        return None
    turned = a.permute(plan.activations)
    heads, *tokens, reduction = turned.shape
    rows = turned.reshape(heads, -1, reduction)

    def finish(out: Tensor) -> Tensor:
        return out.reshape(heads, *tokens, out.shape[-1]).permute(plan.result)

    return Batched(rows, laid, finish)


@cache
def _plan(equation: str) -> _Plan | None:
    found = re.fullmatch(r"([a-zA-Z]+),([a-zA-Z]{3})->([a-zA-Z]+)", equation)
    if found is None:
        return None
    one, two, out = found.groups()
    if any(len(set(letters)) < len(letters) for letters in (one, two, out)):
        return None
    heads = set(one) & set(two) & set(out)
    summed = (set(one) & set(two)) - set(out)
    columns = (set(two) & set(out)) - set(one)
    tokens = [c for c in one if c not in two]
    if not (len(heads) == len(summed) == len(columns) == 1) or not set(tokens) <= set(out):
        return None
    h, k, n = heads.pop(), summed.pop(), columns.pop()
    if not tokens or len(out) != len(tokens) + 2:
        return None
    order = [h, *tokens, n]
    return _Plan(
        tuple(one.index(c) for c in (h, *tokens, k)),
        tuple(two.index(c) for c in (h, k, n)),
        tuple(order.index(c) for c in out),
    )
