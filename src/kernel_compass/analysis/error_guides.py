"""What number formats cost in accuracy: guides on Gaussian data, not gates.

Relative Frobenius error of the product against float64, computed with numpy (seed 0, K = 4096,
N = 1024, weights symmetric: one scale per output column for 8 bits, one per 128 for int4, absmax
/ 7.5). The error hardly depends on K, except int8's, which grows with it (0.65 % at K = 128).
Heavy tails cost more: int4 g128 18 % on t4-distributed weights. What counts is the quantizer
applied to the tensor at hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernel_compass.analysis.peaks import supports
from kernel_compass.records.advice import ErrorGuide
from kernel_compass.records.calibration import Calibration
from kernel_compass.records.workload import Precision

ERROR_GUIDES: Mapping[Precision, tuple[ErrorGuide, ...]] = {
    Precision.BF16: (ErrorGuide("bf16", 0.17),),
    Precision.W8A16: (ErrorGuide("int8", 0.86), ErrorGuide("fp8", 2.6)),
    Precision.W8A8: (ErrorGuide("int8", 1.2), ErrorGuide("fp8", 3.7)),
    Precision.W4A16: (ErrorGuide("int4 g128", 11.0),),
}
"""By precision, the smallest error first."""


def error_guides(precision: Precision, calibration: Calibration) -> tuple[ErrorGuide, ...]:
    """The guides of the formats that the machine can use: fp8 is none where it is not supported."""
    guides = ERROR_GUIDES[precision]
    return tuple(g for g in guides if g.format != "fp8" or supports("fp8", calibration))


def within_budget(guides: Sequence[ErrorGuide], budget_pct: float | None) -> bool | None:
    """Whether one of these formats keeps the budget; `None` without one."""
    if budget_pct is None:
        return None
    return min(guide.relative_pct for guide in guides) <= budget_pct
