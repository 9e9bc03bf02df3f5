"""Quantities as text. The only module that formats numbers for people.

Durations are stored in microseconds, traffic in bytes (text in MiB = 2**20), bandwidth in
bytes/s (text in TB/s = 1e12 B/s), percentages as 0-100.
"""

from __future__ import annotations

MIB = 1 << 20
MISSING = "-"
"""How an unknown value is written; never as 0."""


def duration_text(us: float | None) -> str:
    """A duration in microseconds as text: `812 ns`, `5.76 us`, `1.39 ms`, `3.83 s`."""
    if us is None:
        return MISSING
    for factor, unit in ((1e6, "s"), (1e3, "ms"), (1.0, "us")):
        if us >= factor:
            return f"{_three_digits(us / factor)} {unit}"
    return f"{_three_digits(us * 1e3)} ns"


def bytes_text(value: float | None) -> str:
    """Bytes as text: `256 B`, `1.34 MiB`, `2.00 GiB`."""
    if value is None:
        return MISSING
    for factor, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if abs(value) >= factor:
            return f"{_three_digits(value / factor)} {unit}"
    return f"{value:.0f} B"


def bandwidth_text(bytes_per_second: float | None) -> str:
    """Bandwidth as text: `4.05 TB/s`."""
    if bytes_per_second is None:
        return MISSING
    for factor, unit in ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s")):
        if bytes_per_second >= factor:
            return f"{_three_digits(bytes_per_second / factor)} {unit}"
    return f"{bytes_per_second:.0f} B/s"


def percent_text(value: float | None) -> str:
    """A percentage as text: `83 %`, `0.4 %`."""
    if value is None:
        return MISSING
    return f"{value:,.0f} %" if abs(value) >= 10 else f"{value:.1f} %"


def speedup_text(value: float | None) -> str:
    """A ratio of times as text: `1.031x`."""
    return MISSING if value is None else f"{value:.3f}x"


def quantity_text(value: float | None, unit: str) -> str:
    """A value with its unit, by the unit's own rule where there is one."""
    if value is None:
        return MISSING
    if unit == "%":
        return percent_text(value)
    if unit == "bytes":
        return bytes_text(value)
    if unit == "us":
        return duration_text(value)
    if unit == "bytes/s":
        return bandwidth_text(value)
    number = f"{value:,.0f}" if float(value).is_integer() else _three_digits(value)
    return f"{number} {unit}".strip() if unit not in ("", "ratio") else number


def _three_digits(value: float) -> str:
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"
