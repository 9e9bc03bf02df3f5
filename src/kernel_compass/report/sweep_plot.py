"""Times of a sweep over the size of its weights as SVG: a panel a regime, both axes logarithmic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, log2
from xml.sax.saxutils import escape

from kernel_compass.errors import UsageError
from kernel_compass.records.kernel_table import KernelTable
from kernel_compass.records.profile import Regime
from kernel_compass.report.phrases import plain
from kernel_compass.units import MIB, bytes_text

_COLORS = ("#1b6ca8", "#c0392b", "#2e8b57", "#8e44ad", "#d68910", "#16a085", "#7f8c8d", "#2c3e50")
_WIDTH, _HEIGHT = 460, 340
_LEFT, _TOP, _RIGHT, _BOTTOM = 56, 34, 12, 44
_LINE = 16
"""Pixels of a line of the legend."""


@dataclass(frozen=True)
class Curve:
    """One kernel's times, or one format's floors, over the weights."""

    label: str
    color: str
    dashed: bool
    points: tuple[tuple[float, float], ...]
    """MiB of the weights in bf16, microseconds."""


@dataclass(frozen=True)
class _Axis:
    low: float
    high: float
    start: float
    length: float
    """Pixels from `start`; negative upwards."""

    def at(self, value: float) -> float:
        """Pixels of a value."""
        span = log2(self.high) - log2(self.low)
        return self.start + self.length * (log2(value) - log2(self.low)) / span


def sweep_svg(table: KernelTable) -> str:
    """The picture.

    Raises:
        UsageError: no row has a time or a floor.
    """
    panels = {}
    for regime in dict.fromkeys(row.regime for row in table.rows):
        curves = curves_of(table, regime)
        if curves:
            panels[regime] = curves
    if not panels:
        raise UsageError("There is no time and no floor to plot.", "Measure first, or name a GPU.")
    points = [p for curves in panels.values() for curve in curves for p in curve.points]
    x = _Axis(*_bounds([p[0] for p in points]), _LEFT, _WIDTH - _LEFT - _RIGHT)
    y = _Axis(*_bounds([p[1] for p in points]), _HEIGHT - _BOTTOM, -(_HEIGHT - _TOP - _BOTTOM))
    labels = {c.label: c for curves in panels.values() for c in curves}
    height = _HEIGHT + _LINE * (len(labels) + 1)
    width = _WIDTH * len(panels)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for index, (regime, curves) in enumerate(panels.items()):
        lines.append(f'<g transform="translate({_WIDTH * index} 0)">')
        lines += _panel(regime, curves, table.c_eff_bytes, x, y)
        lines.append("</g>")
    lines += _legend(list(labels.values()))
    return "\n".join([*lines, "</svg>"]) + "\n"


def curves_of(table: KernelTable, regime: Regime) -> list[Curve]:
    """Times of each kernel and, dashed, the floors of each format."""
    rows = [row for row in table.rows if row.regime is regime]
    formats = list(dict.fromkeys(row.format.name for row in rows))
    times: dict[str, dict[float, tuple[str, float]]] = {}
    floors: dict[str, dict[float, tuple[str, float]]] = {}
    for row in rows:
        name, size = row.format.name, 2 * row.workload.weights / MIB
        batch = f"M={row.workload.tokens} {name}"
        if row.time_us is not None:
            label = f"{batch} {row.implementation}"
            times.setdefault(label, {})[size] = (name, row.time_us)
        if row.floor_us is not None:
            floors.setdefault(f"{batch} floor", {})[size] = (name, row.floor_us)
    made = []
    for found, dashed in ((times, False), (floors, True)):
        for label, points in found.items():
            name = next(iter(points.values()))[0]
            color = _COLORS[formats.index(name) % len(_COLORS)]
            path = tuple((size, us) for size, (_, us) in sorted(points.items()))
            made.append(Curve(plain(label), color, dashed, path))
    return made


def _panel(
    regime: Regime, curves: Sequence[Curve], c_eff: float | None, x: _Axis, y: _Axis
) -> Iterator[str]:
    yield f'<text x="{_LEFT}" y="20" font-weight="bold">{regime.value}: us a launch</text>'
    right, bottom = x.start + x.length, y.start
    for value in _ticks(x):
        at = x.at(value)
        yield _segment(at, _TOP, at, bottom, "#eeeeee")
        yield f'<text x="{at:.1f}" y="{bottom + 14}" text-anchor="middle">{value:g}</text>'
    for value in _ticks(y):
        at = y.at(value)
        yield _segment(_LEFT, at, right, at, "#eeeeee")
        yield f'<text x="{_LEFT - 4}" y="{at + 4:.1f}" text-anchor="end">{value:g}</text>'
    middle = (_LEFT + right) / 2
    yield f'<text x="{middle:.1f}" y="{bottom + 32}" text-anchor="middle">MiB in bf16</text>'
    if c_eff is not None and x.low <= c_eff / MIB <= x.high:
        at = x.at(c_eff / MIB)
        yield _segment(at, _TOP, at, bottom, "#555555", "2 3")
        text = f"effective L2 {bytes_text(c_eff)}"
        yield f'<text x="{at + 3:.1f}" y="{_TOP + 10}" fill="#555555">{text}</text>'
    for curve in curves:
        path = " ".join(f"{x.at(a):.1f},{y.at(b):.1f}" for a, b in curve.points)
        dash = ' stroke-dasharray="4 3"' if curve.dashed else ""
        yield f'<polyline points="{path}" fill="none" stroke="{curve.color}"{dash}/>'
        if not curve.dashed:
            for a, b in curve.points:
                place = f'cx="{x.at(a):.1f}" cy="{y.at(b):.1f}"'
                yield f'<circle {place} r="2.2" fill="{curve.color}"/>'


def _legend(curves: Sequence[Curve]) -> Iterator[str]:
    for index, curve in enumerate(curves):
        at = _HEIGHT + _LINE * (index + 0.5)
        dash = "4 3" if curve.dashed else None
        yield _segment(_LEFT, at, _LEFT + 24, at, curve.color, dash)
        yield f'<text x="{_LEFT + 30}" y="{at + 4:.1f}">{escape(curve.label)}</text>'


def _segment(
    x1: float, y1: float, x2: float, y2: float, color: str, dash: str | None = None
) -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{color}"{dashed}/>'


def _bounds(values: Sequence[float]) -> tuple[float, float]:
    low, high = 2.0 ** floor(log2(min(values))), 2.0 ** ceil(log2(max(values)))
    return (low, high) if high > low else (low, 2 * low)


def _ticks(axis: _Axis) -> list[float]:
    first, last = round(log2(axis.low)), round(log2(axis.high))
    return [2.0**power for power in range(first, last + 1)]
