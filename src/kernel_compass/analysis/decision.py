"""From an interval to a decision, and the words for it."""

from __future__ import annotations

import math

from kernel_compass.records.comparison import Decision, Interval
from kernel_compass.units import percent_text, speedup_text

_LARGEST = 700.0
"""e^709 is the largest double; a hopeless interval ends here."""


def interval(center: float, half_width: float, confidence: float) -> Interval:
    """A speedup from a log ratio and half the width of its interval."""
    ends = (center, center - half_width, center + half_width)
    estimate, low, high = (math.exp(min(max(x, -_LARGEST), _LARGEST)) for x in ends)
    return Interval(estimate, low, high, confidence)


def decide(found: Interval, minimum_effect: float) -> Decision:
    """Where the whole interval lies; `undecided` where it lies on a limit.

    The limits are 1 + e and 1 / (1 + e): alike in the logarithm, so that swapping baseline and
    candidate swaps `faster` and `slower` and nothing else.
    """
    if found.low > 1 + minimum_effect:
        return Decision.FASTER
    if found.high < 1 / (1 + minimum_effect):
        return Decision.SLOWER
    if not_worse_than(found, minimum_effect) and found.high < 1 + minimum_effect:
        return Decision.EQUIVALENT
    return Decision.UNDECIDED


def not_worse_than(found: Interval, margin: float) -> bool:
    """True where a slowdown by `margin` or more is excluded."""
    return found.low > 1 / (1 + margin)


def reason(decision: Decision, found: Interval, minimum_effect: float) -> str:
    """The decision in words, with the figures it rests on."""
    effect = percent_text(100 * minimum_effect)
    meaning = {
        Decision.FASTER: f"faster by more than the minimum effect of {effect}",
        Decision.SLOWER: f"slower by more than the minimum effect of {effect}",
        Decision.EQUIVALENT: f"no difference of {effect} either way{_real(found)}",
        Decision.UNDECIDED: f"a difference of {effect} is neither shown nor excluded{_real(found)}",
        Decision.CONTINUE: f"a difference of {effect} is not yet shown or excluded{_real(found)}",
    }[decision]
    return f"{meaning}: {interval_text(found)}"


def interval_text(found: Interval) -> str:
    """An interval in words: `1.031x (1.024x to 1.038x at 99 % confidence)`."""
    low, high = speedup_text(found.low), speedup_text(found.high)
    confidence = percent_text(100 * found.confidence)
    return f"{speedup_text(found.estimate)} ({low} to {high} at {confidence} confidence)"


def _real(found: Interval) -> str:
    """That there is a difference all the same, where the interval shows one."""
    if found.low > 1:
        return ", though it is faster"
    return ", though it is slower" if found.high < 1 else ""
