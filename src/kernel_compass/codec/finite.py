"""Numbers that are not finite never leave in a document."""

from __future__ import annotations

from math import isfinite


def finite(value: float | None) -> float | None:
    """The value as a float; `None` where it is missing or not finite."""
    return None if value is None or not isfinite(value) else float(value)
