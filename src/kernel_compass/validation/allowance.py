"""How far an output may be off as a whole, and where that number comes from: rounding alone.

A problem's error budget is no part of it: that is what a coarser number format may cost, and holds
for a candidate that declares one.
"""

from __future__ import annotations

from dataclasses import dataclass

ROUNDING = {"bfloat16": 4e-3, "float16": 1e-3, "float32": 5e-5, "float64": 1e-9}
"""Relative Frobenius error that a type explains: 16 bits by the rounding of inputs and outputs
(2^-9 and 2^-12 an element, a few of them), float32 by fast exponentials and long sums."""
ROUNDING_OF_PRODUCTS = {"float32": 6e-4}
"""TF32 cuts either operand to 2^-11, which torch's and Triton's own products may do."""
BASELINE_FACTOR = 4.0
"""Another order of sums, another exponential: an honest candidate's error beside the baseline's."""
MOST = 0.3
"""No budget makes an output right that is as far off as this."""
_OF_AN_UNNAMED_TYPE = 4e-3


@dataclass(frozen=True)
class Allowance:
    """The relative Frobenius error of an output that is as precise as was declared."""

    limit: float
    source: str
    """What the limit is, as a part of a sentence: `what rounding in float32 explains`."""

    def times(self, factor: float) -> Allowance:
        """That of a part of it."""
        return Allowance(factor * self.limit, f"{factor:g} times {self.source}")


WHOLE_NUMBERS = Allowance(0.0, "whole numbers are equal")


def allowance(kind: str, off: float, moved: float, products: bool) -> Allowance:
    """What rounding explains of an output: by its type, by the baseline, by its inputs' rounding.

    Args:
        kind: the output's type: `bfloat16`.
        off: relative error of the baseline itself.
        moved: relative error that rounding the inputs once more makes.
        products: float32 may be multiplied in TF32.
    """
    by_type = Allowance(
        ROUNDING.get(kind, _OF_AN_UNNAMED_TYPE), f"what rounding in {kind} explains"
    )
    if products and kind in ROUNDING_OF_PRODUCTS:
        by_type = Allowance(ROUNDING_OF_PRODUCTS[kind], f"what {kind} products in TF32 explain")
    by_baseline = Allowance(
        BASELINE_FACTOR * off,
        f"{BASELINE_FACTOR:g} times the error of the baseline itself ({off:.3%})",
    )
    by_inputs = Allowance(
        BASELINE_FACTOR * moved,
        f"{BASELINE_FACTOR:g} times what rounding the inputs moves it ({moved:.3%})",
    )
    found = max(by_type, by_baseline, by_inputs, key=lambda one: one.limit)
    return found if found.limit <= MOST else Allowance(MOST, "the most that any output may be off")


def explained(allowed: Allowance, off: float, budget: float) -> str:
    """The end of a rejection: its limit, where that comes from, and why no budget is.

    Args:
        allowed: what was passed.
        off: relative error that was found.
        budget: relative error that a coarser number format may cost.
    """
    limit = f"more than {allowed.limit:.3%}: {allowed.source}."
    if off > budget:
        return limit
    return (
        f"{limit} The problem's error budget ({100 * budget:.3g} %) is for candidates that declare "
        "a coarser number format; this one declares none."
    )
