"""What an output is compared with, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


@dataclass(frozen=True)
class Deviation:
    """What honest kernels may add to each element by a kind of rounding that is left to them."""

    most: Any
    """All of it in one direction: no kernel adds more."""
    shift: Any
    """Signs and all: what an element gets where every rounding is towards zero, or away from it."""
    squares: Any
    """Sum of the squares of the parts: the variance where they are independent."""


@dataclass(frozen=True)
class Expected:
    """The product of the dequantized operands in float64, and what honest arithmetic may add."""

    value: Any
    """`(H, M, N)` or `(M, N)`, float64."""
    magnitude: Any
    """`|A| |W|`, the same shape: what rounding errors of the sum scale with."""
    squares: Any
    """`A^2 W^2`, the same shape: what sums of products in any order wander about."""
    reduction: int
    """K."""
    ties: Deviation | None = None
    """Where activations are quantized in the kernel: `T |W|`, `t W`, `t^2 W^2`; t is the step, with
    the activation's sign, of those codes that lie so near to a tie that another honest division
    rounds them the other way, and T = |t|; else `None`."""
    nearest: Callable[[Any], Any] | None = None
    """Where activations are quantized in the kernel: `value` as it is with those roundings of ties
    that come nearest to an output; all ties that share a scale follow from one arithmetic."""
    roundings: tuple[Any, ...] = ()
    """`A (W' - W)`, one for each way W' in which kernels round scaled weights to bfloat16."""
    fp8_sums: Deviation | None = None
    """Both operands are fp8: what tensor cores lose that add those in fewer bits; else `None`."""


class FidelityFault(StrEnum):
    """Why an output is not the product of its operands."""

    SHAPE = "shape"
    NOT_FINITE = "not_finite"
    FROBENIUS = "frobenius"
    """Wrong on the whole."""
    ELEMENT = "element"
    """Wrong in an element by more than rounding can explain."""
    NO_BETTER = "no_better"
    """Zeros, or the reference with heads, rows or columns moved by one, are as near."""
    NOTHING_JUDGED = "nothing_judged"
    """No element of the reference is finite and within the output's range."""


@dataclass(frozen=True)
class WorstElement:
    """The element that came nearest to its bound, or passed it by most."""

    index: tuple[int, ...]
    value: float
    reference: float
    bound: float
    """What `|value - reference|` may be."""

    @property
    def ratio(self) -> float:
        """Error over bound; above 1 is wrong."""
        error = abs(self.value - self.reference)
        return error / self.bound if self.bound else (0.0 if error == 0 else float("inf"))


@dataclass(frozen=True)
class Fidelity:
    """Whether an output is what its dequantized operands give."""

    fault: FidelityFault | None
    """`None` = passed."""
    reason: str
    """One sentence; why it failed, or by how much it passed."""
    relative_frobenius: float | None
    """`||Y - R|| / ||R||` over judged elements; `None` where R is zero or nothing was judged."""
    limit: float
    """What it may be."""
    worst: WorstElement | None
    unjudged: int = 0
    """Elements whose reference is not finite or beyond what the output's type can hold."""
    blind_to: tuple[str, ...] = ()
    """Mistakes that would have passed with these inputs: `zeros`, or one of `heads`, `rows`,
    `columns` moved by one. A check of a kernel wants inputs with none of them."""

    @property
    def passed(self) -> bool:
        """Whether every gate was passed."""
        return self.fault is None
