"""Numbers as a line of blocks."""

from __future__ import annotations

from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
GAP = " "


def spark(values: Sequence[float | None], top: float | None = None) -> str:
    """A block a value, from nothing to `top` (default: the largest); a gap where one is missing."""
    known = [value for value in values if value is not None]
    best = max(known, default=0.0) if top is None else top
    if best <= 0:
        return ""
    last = len(BLOCKS) - 1
    return "".join(
        GAP if v is None else BLOCKS[min(max(int(v / best * len(BLOCKS)), 0), last)] for v in values
    )
