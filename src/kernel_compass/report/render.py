"""Reports as text in any of the formats."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from kernel_compass.report.formats import Format, Style

if TYPE_CHECKING:
    from kernel_compass.records.report import Report

DEFAULT_WIDTH = 100


class _Writer(Protocol):
    """What every module named by a `Format` offers."""

    def write(self, reports: Sequence[Report], style: Style) -> str:
        """The reports as one text that ends in a newline."""


def render(report: Report, format: Format, width: int | None = None, color: bool = False) -> str:
    """One report as text.

    Args:
        report: what to show.
        format: the output wanted.
        width: columns of the terminal output; `None` means 100.
        color: whether the terminal output may use ANSI colours.

    Returns:
        The text, ending in a newline.
    """
    return render_many((report,), format, width, color)


def render_many(
    reports: Sequence[Report],
    format: Format,
    width: int | None = None,
    color: bool = False,
    as_list: bool = False,
) -> str:
    """Several reports as one text; JSON becomes an array, CSV one table.

    Args:
        reports: what to show, in order.
        format: the output wanted.
        width: columns of the terminal output; `None` means 100.
        color: whether the terminal output may use ANSI colours.
        as_list: JSON as an array even when there is only one report.

    Returns:
        The text, ending in a newline.
    """
    style = Style(width or DEFAULT_WIDTH, color, as_list or len(reports) != 1)
    writer = cast(_Writer, import_module(f"kernel_compass.report.{format.value}"))
    return writer.write(reports, style)
