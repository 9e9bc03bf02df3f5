"""The columns of the terminal output, and the rows that compare regimes."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import set_cell_size
from rich.table import Table as RichTable
from rich.text import Text

from kernel_compass.records.diagnosis import Limiter
from kernel_compass.records.profile import DurationStats, Regime
from kernel_compass.records.report import RegimeView, Report, ReportKernel
from kernel_compass.report import phrases
from kernel_compass.report.names import short_names
from kernel_compass.report.summary import has_headroom
from kernel_compass.units import MISSING, duration_text

LIMITER_STYLE = {
    Limiter.DRAM_BOUND: "cyan",
    Limiter.L2_BOUND: "blue",
    Limiter.L1_BOUND: "magenta",
    Limiter.COMPUTE_BOUND: "green",
    Limiter.LATENCY_BOUND: "yellow",
    Limiter.LAUNCH_BOUND: "red",
    Limiter.UNCLASSIFIED: "dim",
}
_GAP = 2
_COMPACT_BELOW = 100


class Table:
    """One line a kernel, laid out for a width.

    Args:
        report: whose kernels are shown.
        width: columns there are; under 100 the confidence, the pipe and the headroom go elsewhere.
    """

    def __init__(self, report: Report, width: int) -> None:
        self.compact = width < _COMPACT_BELOW
        self._items = report.kernels
        self._with_headroom = not self.compact and has_headroom(report)
        self.indent = len(str(len(report.kernels))) + _GAP
        cells = [self._cells(rank, item) for rank, item in enumerate(report.kernels, start=1)]
        heads = ["#", "launches", "mean", "share", "limiter"]
        heads += [] if self.compact else ["conf."]
        heads += ["headroom"] if self._with_headroom else []
        self._sizes = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
        room = max(width - sum(self._sizes) - _GAP * len(self._sizes), 12)
        names = [*map(phrases.plain, short_names([i.kernel for i in report.kernels], room))]
        self._name_size = min(room, max(len("kernel"), *map(len, names))) if names else room
        self._rows = [self._line(row, name) for row, name in zip(cells, names, strict=True)]
        self._head = self._line(heads, "kernel")

    def header(self) -> Text:
        """The columns' titles."""
        return Text(self._head, style="bold", no_wrap=True, overflow="crop")

    def rule(self) -> Text:
        """The line under them."""
        size = sum(self._sizes) + _GAP * len(self._sizes) + self._name_size
        return Text("─" * size, style="dim", no_wrap=True, overflow="crop")

    def row(self, rank: int) -> Text:
        """The line of the kernel with this rank, from 1."""
        text = Text(self._rows[rank - 1], no_wrap=True, overflow="crop")
        diagnosis = self._items[rank - 1].kernel.diagnosis
        start = self._sizes[0] + _GAP
        text.stylize("bold", start, start + self._name_size)
        if diagnosis is not None:
            at = text.plain.find(diagnosis.limiter.value, start + self._name_size)
            text.stylize(LIMITER_STYLE[diagnosis.limiter], at, at + self._sizes[4])
        return text

    def _cells(self, rank: int, item: ReportKernel) -> list[str]:
        kernel, diagnosis = item.kernel, item.kernel.diagnosis
        cells = [
            str(rank),
            f"{kernel.launches:,}",
            duration_text(kernel.avg_duration_us),
            phrases.share_text(item.share_of_time),
        ]
        room = [phrases.headroom_cell(diagnosis)] if self._with_headroom else []
        if diagnosis is None:
            return [*cells, MISSING, *([] if self.compact else [MISSING]), *room]
        if self.compact:
            return [*cells, diagnosis.limiter.value]
        return [*cells, phrases.limiter_text(diagnosis), f"{diagnosis.confidence:.2f}", *room]

    def _line(self, cells: Sequence[str], name: str) -> str:
        rank, launches, mean, share, limiter, *rest = cells
        sizes = self._sizes
        parts = [
            rank.rjust(sizes[0]),
            set_cell_size(name, self._name_size),
            launches.rjust(sizes[1]),
            mean.rjust(sizes[2]),
            share.rjust(sizes[3]),
            limiter.ljust(sizes[4]),
            *(cell.rjust(size) for cell, size in zip(rest, sizes[5:], strict=True)),
        ]
        return (" " * _GAP).join(parts)


def regime_rows(item: ReportKernel, regimes: Sequence[Regime], compact: bool) -> RichTable:
    """A small table: the kernel in each regime, its time against the leading one's."""
    grid = RichTable.grid(padding=(0, _GAP, 0, 0))
    for to_the_right in (False, True, True, False, *(() if compact else (True,))):
        grid.add_column(justify="right" if to_the_right else "left", no_wrap=True)
    grid.add_column(overflow="fold")
    views = item.regimes or {}
    lead = next((view for r in regimes if (view := views.get(r))), None)
    shared = _common_flags([view for r in regimes if (view := views.get(r))])
    for regime in regimes:
        view = views.get(regime)
        if view is None:
            blanks = [""] * (2 if compact else 3)
            grid.add_row(regime.value, MISSING, *blanks, Text("not in this capture", style="dim"))
            continue
        confidence = () if compact else (f"{view.diagnosis.confidence:.2f}",)
        limiter = Text(view.diagnosis.limiter.value, style=LIMITER_STYLE[view.diagnosis.limiter])
        mean, ratio = _times(view.duration_stats, lead.duration_stats if lead else None)
        grid.add_row(
            regime.value, mean, ratio, limiter, *confidence, _traffic(view, shared, compact)
        )
    return grid


def _times(stats: DurationStats | None, lead: DurationStats | None) -> tuple[str, str]:
    if stats is None:
        return MISSING, ""
    ratio = f"{stats.mean / lead.mean:.2f}x" if lead and lead.mean > 0 else ""
    return duration_text(stats.mean), ratio


def _common_flags(views: Sequence[RegimeView]) -> set[str]:
    """Flags that every regime has: they stand with the kernel."""
    sets = [set(view.diagnosis.flags) for view in views]
    return {flag.value for flag in set.intersection(*sets)} if sets else set()


def _traffic(view: RegimeView, shared: set[str], compact: bool) -> Text:
    """DRAM and L2 bytes a launch reads, and the flags of this regime alone."""
    text = Text(phrases.reads_text(view.metrics, short=compact))
    flags = [flag.value for flag in view.diagnosis.flags if flag.value not in shared]
    if flags:
        text.append((", " if text.plain else "") + ", ".join(flags), style="yellow")
    return text
