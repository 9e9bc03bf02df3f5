"""Lines around a table: ncu's banners, program output, and what a file is that has no table."""

from __future__ import annotations

import re
from pathlib import Path

from kernel_compass.errors import NotAMetricTable
from kernel_compass.profiling.ncu_failures import known_failure

EXPORT = "ncu --import X.ncu-rep --page raw --csv --print-units base"
"""The command that turns a report into a capture."""

_REMEDY = f"Export the report as a metric table: {EXPORT}"
_KEPT_ERRORS = 3
_TEXT_TABLE = re.compile(r"Metric Name\s{2,}Metric Unit\s+(?:Metric Value|Minimum)")
_SECTION = re.compile(r"\s*Section: \S")


class Banners:
    """Collects what the lines outside a table say."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        """The first `==ERROR==` lines, without the mark."""
        self.cache_control: str | None = None
        self.clock_control: str | None = None
        self.nothing_profiled = False
        self._connected = False
        self._page: str | None = None

    def note(self, line: str) -> None:
        """Look at one line that is neither a header nor a row."""
        if "==" in line:
            self._note_banner(line)
        if self._page is None:
            self._page = _page(line)

    def _note_banner(self, line: str) -> None:
        if "==ERROR==" in line and len(self.errors) < _KEPT_ERRORS:
            self.errors.append(line[line.index("==ERROR==") + 9 :].strip()[:300])
        elif "==WARNING==" in line or "==PROF==" in line:
            self._connected = True
            if "uncontrolled GPU caches" in line:
                self.cache_control = "none"
            if "unmodified GPU clocks" in line:
                self.clock_control = "none"
            if "No kernels were profiled" in line:
                self.nothing_profiled = True

    def refusal(self, path: Path | str, binary: bool) -> NotAMetricTable:
        """The error for a file without a metric table: what it is, and what to do next."""
        if self.errors:
            known = next(filter(None, map(known_failure, self.errors)), None)
            return NotAMetricTable(
                f"{path} is the log of an ncu run without a metric table; ncu said: "
                f"{self.errors[0]}",
                known.remedy if known else "Run the target alone first, then profile it again.",
            )
        if self.nothing_profiled:
            return NotAMetricTable(
                f"{path} is the log of an ncu run that profiled no kernel.",
                "Check the kernel filter, and --target-processes all for child processes.",
            )
        if self._page is not None:
            return NotAMetricTable(f"{path} is {self._page}.", _REMEDY)
        if self._connected:
            return NotAMetricTable(
                f"{path} has ncu's banners but no metric table.",
                f"Run ncu with --csv, or export its report: {EXPORT}",
            )
        what = "a binary file" if binary else "no Nsight Compute file"
        return NotAMetricTable(
            f"{path} is {what}: no row in it begins a metric table (a cell `ID`).", _REMEDY
        )


def _page(line: str) -> str | None:
    """Name the other ncu output that a line gives away."""
    if '"Invocations"' in line and '"Minimum"' in line:
        return (
            "a --print-summary page: it has minima and averages but no launches"
            if '"Section Name"' in line
            else "a --print-summary page of raw metrics, which ncu writes with shifted cells"
        )
    if '"Address","Source"' in line or '"#","Source"' in line or '"#","Address"' in line:
        return "a source page (--page source): instructions, not metrics of launches"
    if '"Launch Attribute","Value"' in line or '"Session Attribute","Value"' in line:
        return "a session page (--page session): settings, not metrics"
    if _TEXT_TABLE.search(line):
        return "a text page of ncu (no --csv), which is for reading only"
    if _SECTION.match(line):
        return "a text page of ncu (no --csv), which is for reading only"
    return None
