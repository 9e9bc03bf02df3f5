"""By how much a set of kernels passes the rules: computed, so that the table cannot drift."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kernel_compass.analysis.rules import (
    FLAG_RULES,
    LIMITER_RULES,
    Condition,
    FlagRule,
    LimiterRule,
)
from kernel_compass.records.diagnosis import Limiter

Quantities = Mapping[str, float]
Margin = tuple[float | None, float | None]


def margins(kernels: Iterable[Quantities]) -> dict[str, dict[str, Margin]]:
    """Rule name -> condition -> (nearest failing value, nearest passing value).

    Only kernels for which the rule's other conditions hold are looked at, and for limiter rules
    only those that no earlier rule has decided: the values that this threshold alone separates.
    """
    known = list(kernels)
    result: dict[str, dict[str, Margin]] = {}
    undecided = known
    limiters: dict[int, Limiter] = {}
    for limiter_rule in LIMITER_RULES:
        result[limiter_rule.name] = _rule_margins(limiter_rule, undecided)
        fired = [q for q in undecided if _holds(limiter_rule, q)]
        limiters.update({id(q): limiter_rule.limiter for q in fired})
        undecided = [q for q in undecided if id(q) not in limiters]
    for flag_rule in FLAG_RULES:
        wanted = flag_rule.limiters
        reached = [
            q
            for q in known
            if wanted is None or limiters.get(id(q), Limiter.UNCLASSIFIED) in wanted
        ]
        result[flag_rule.name] = _rule_margins(flag_rule, reached)
    return result


def _holds(rule: LimiterRule | FlagRule, q: Quantities) -> bool:
    return all(c.holds(q) for c in rule.conditions)


def _rule_margins(rule: LimiterRule | FlagRule, kernels: list[Quantities]) -> dict[str, Margin]:
    found: dict[str, Margin] = {}
    for condition in rule.conditions:
        others = [c for c in rule.conditions if c is not condition]
        values = [
            q[condition.quantity]
            for q in kernels
            if condition.quantity in q and all(c.holds(q) for c in others)
        ]
        found[f"{condition.quantity} {condition.op}"] = _nearest(condition, values)
    return found


def _nearest(condition: Condition, values: list[float]) -> Margin:
    passing = [v for v in values if condition.holds({condition.quantity: v})]
    failing = [v for v in values if not condition.holds({condition.quantity: v})]

    def nearest(side: list[float]) -> float | None:
        return min(side, key=lambda v: abs(v - condition.threshold)) if side else None

    return nearest(failing), nearest(passing)
