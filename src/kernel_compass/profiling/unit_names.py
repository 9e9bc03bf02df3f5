"""Unit cells: what kind of quantity, and the factor to the unit that records use.

ncu up to 2024 writes `usecond`, `cycle/nsecond`, `byte/second`; later ones `us`, `Ghz`,
`byte/s`. Prefixes scale by 1000.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache


class UnitKind(StrEnum):
    """Kinds of quantity that must not be taken for each other."""

    PERCENT = "%"
    BYTES = "bytes"
    BANDWIDTH = "bytes/s"
    TIME = "us"
    FREQUENCY = "Hz"
    COUNT = "count"
    RATE = "count/s"
    NONE = "none"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Unit:
    """A unit cell read: value times `factor` is in the records' unit of that kind."""

    kind: UnitKind
    factor: float = 1.0


_SECONDS = {
    **{"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9},
    **{"second": 1.0, "msecond": 1e-3, "usecond": 1e-6, "nsecond": 1e-9},
}
_PREFIXES = {"K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BYTES = frozenset(("byte", "bytes"))
_HERTZ = frozenset(("hz", "Hz"))
_COUNTS = frozenset(
    [
        "cycle",
        "cycles",
        "inst",
        "instruction",
        "instructions",
        "sector",
        "sectors",
        "request",
        "requests",
        "thread",
        "threads",
        "block",
        "blocks",
        "warp",
        "warps",
        "register",
        "registers",
        "pass",
        "passes",
        "sample",
        "samples",
        "branch",
        "branches",
        "SM",
        "cluster",
        "clusters",
        "wavefront",
        "wavefronts",
    ]
)
_WORDS = _BYTES | _HERTZ | _COUNTS
_DENOMINATOR = re.compile(r"[A-Za-z]{0,30}")


@lru_cache(maxsize=4096)
def parse_unit(text: str) -> Unit:
    """Read a unit cell; an unknown unit has kind `UNKNOWN`, an empty cell `NONE`."""
    top, slash, bottom = text.strip().partition("/")
    if not slash:
        return _plain(top)
    if top == "%" or not _DENOMINATOR.fullmatch(bottom):
        return Unit(UnitKind.UNKNOWN)
    if bottom in _SECONDS:
        return _per_second(top, _SECONDS[bottom])
    return _plain(top)  # per block, cycle, thread, ...: the numerator says what it is


def is_known_unit(text: str) -> bool:
    """Whether the cell is certainly a unit, and so neither a value nor a metric name."""
    top = text.partition("/")[0]
    return top == "%" or top in _SECONDS or _stem(top)[0] in _WORDS


def _plain(word: str) -> Unit:
    if word == "%":
        return Unit(UnitKind.PERCENT)
    if word in _SECONDS:
        return Unit(UnitKind.TIME, _SECONDS[word] * 1e6)
    stem, factor = _stem(word)
    if stem in _BYTES:
        return Unit(UnitKind.BYTES, factor)
    if stem in _HERTZ:
        return Unit(UnitKind.FREQUENCY, factor)
    if stem in _COUNTS:
        return Unit(UnitKind.COUNT, factor)
    return Unit(UnitKind.UNKNOWN if word else UnitKind.NONE)


def _per_second(word: str, seconds: float) -> Unit:
    stem, factor = _stem(word)
    if stem in _BYTES:
        return Unit(UnitKind.BANDWIDTH, factor / seconds)
    if stem in ("cycle", "cycles"):
        return Unit(UnitKind.FREQUENCY, factor / seconds)
    return Unit(UnitKind.RATE if stem in _COUNTS or not word else UnitKind.UNKNOWN)


def _stem(word: str) -> tuple[str, float]:
    """Take an SI prefix off a known word."""
    if word not in _WORDS and word[:1] in _PREFIXES and word[1:] in _WORDS:
        return word[1:], _PREFIXES[word[0]]
    return word, 1.0
