"""ncu's own rule results, one per rule and message shape for a kernel."""

from __future__ import annotations

import re

from kernel_compass.records.profile import RuleResult

MAX_RULES = 100
"""Per kernel; a full section set has about 25 rules."""

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_MARKUP = re.compile(r"@(?P<kind>section|url|source):(?P<body>[^@]*)@")
_KINDS = {0: "INF", 1: "INF", 2: "OPT", 3: "WRN", 4: "ERR"}


class RuleBook:
    """Rule results of one kernel; of results that differ in numbers alone the first stays."""

    def __init__(self) -> None:
        self._results: dict[tuple[str, str, str], RuleResult] = {}

    def add(self, name: str, kind: str, text: str, speedup: str) -> None:
        """Add one result.

        Args:
            name: rule identifier.
            kind: `OPT`, `INF`, `WRN`, ...
            text: the message.
            speedup: estimated speedup in percent, with a decimal point whatever the locale.
        """
        key = (name, kind, _NUMBER.sub("#", text))
        if key in self._results or len(self._results) >= MAX_RULES:
            return
        self._results[key] = RuleResult(name, kind, text, _percent(speedup))

    def results(self) -> tuple[RuleResult, ...]:
        """The results in the order of their first appearance."""
        return tuple(self._results.values())


def message_kind(number: int) -> str:
    """ncu_report's message type as the CSV pages spell it."""
    return _KINDS.get(number, "INF")


def plain_message(text: str) -> str:
    """A message without ncu's link markup, as the CSV pages print it."""
    return _MARKUP.sub(_replace, text)


def _replace(match: re.Match[str]) -> str:
    kind, body = match["kind"], match["body"]
    label, _, target = body.partition(":")
    if kind == "url":
        return f"{label} ({target})" if target else label
    return target or label


def _percent(text: str) -> float | None:
    text = text.strip().replace(",", ".")
    return float(text) if re.fullmatch(r"\d{1,12}(?:\.\d{1,12})?", text) else None
