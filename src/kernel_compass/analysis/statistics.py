"""Speedup of one run of pairs looked at once, and many comparisons at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernel_compass.analysis.decision import interval, not_worse_than
from kernel_compass.analysis.location import locate
from kernel_compass.analysis.pairing import log_ratios
from kernel_compass.errors import UsageError
from kernel_compass.records.comparison import ComparisonResult, Decision, Interval, Rule
from kernel_compass.records.measurement import PairedSamples


def speedup(pairs: PairedSamples, confidence: float = 0.95) -> Interval:
    """How much faster the candidate is in this process, looked at once.

    Looking again as pairs come in needs `SequentialComparison`; another process may place the
    operands elsewhere, which only `confirm` sees.

    Raises:
        UsageError: too few pairs, or pairs that are none.
        MeasurementError: times that are no times.
    """
    if not 0.5 <= confidence < 1:
        raise UsageError(f"Confidence {confidence} is not in [0.5, 1).", "95 % is written 0.95.")
    found = locate(log_ratios(pairs))
    return interval(found.center, found.half_width((1 - confidence) / 2), confidence)


def noninferior(pairs: PairedSamples, margin: float, confidence: float = 0.95) -> bool:
    """True where a slowdown by `margin` (0.01 = 1 %) or more is excluded in this process.

    One-sided: wrong at most (1 - confidence) / 2 of the time. False says that it is not excluded,
    not that there is one.
    """
    if not 0 < margin < 0.5:
        raise UsageError(f"margin {margin} is not in (0, 0.5).", "1 % is written 0.01.")
    return not_worse_than(speedup(pairs, confidence), margin)


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """p-values adjusted for being many (Holm, Scand. J. Stat. 6, 1979), in the order given.

    Holds under any dependence; keeps the order, so no candidate overtakes a stronger one.

    Raises:
        UsageError: a value outside 0 to 1.
    """
    bad = [p for p in p_values if not 0 <= p <= 1]
    if bad:
        raise UsageError(f"{bad[0]} is no p-value.", "p-values lie between 0 and 1.")
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = largest
    return tuple(adjusted)


def adjust_for_candidates(
    results: Sequence[ComparisonResult], rule: Rule
) -> tuple[ComparisonResult, ...]:
    """Hold-outs of several candidates in one regime: who is still faster, given that many tried.

    A `faster` that does not survive Holm's correction becomes `undecided`, and says so.

    Raises:
        UsageError: a result that is no hold-out.
    """
    p_values = [result.p_value for result in results if result.p_value is not None]
    if len(p_values) != len(results):
        raise UsageError("A comparison in process has no p-value.", "Confirm each on a hold-out.")
    return tuple(
        _demoted(result, p) if result.decision is Decision.FASTER and p > limit else result
        for result, p, limit in zip(
            results, holm(p_values), [rule.hold_out_alpha / 2] * len(results), strict=True
        )
    )


def _demoted(result: ComparisonResult, p: float) -> ComparisonResult:
    why = f"not shown once all candidates are counted: p {result.p_value:.2g}, by Holm {p:.2g}"
    return replace(result, decision=Decision.UNDECIDED, reasons=(why, *result.reasons))
