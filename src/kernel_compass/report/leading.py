"""What people are shown of a report with many kernels; JSON and CSV hold all of them."""

from __future__ import annotations

from dataclasses import replace

from kernel_compass.records.report import Report
from kernel_compass.report.phrases import share_text

KERNELS_SHOWN = 50
"""Nobody reads on; names told apart and lines laid out cost time for each."""


def leading(report: Report) -> Report:
    """The report with the kernels that are shown; totals are of the whole one."""
    if len(report.kernels) <= KERNELS_SHOWN:
        return report
    return replace(report, kernels=report.kernels[:KERNELS_SHOWN])


def rest_text(report: Report) -> str:
    """How many kernels are not shown and what they take; empty where all are."""
    rest = report.kernels[KERNELS_SHOWN:]
    if not rest:
        return ""
    shares = [item.share_of_time for item in rest if item.share_of_time is not None]
    of_time = (
        f", together {share_text(sum(shares))} of the time" if len(shares) == len(rest) else ""
    )
    return f"{len(rest):,} more{of_time}; --format csv or json lists them all."
