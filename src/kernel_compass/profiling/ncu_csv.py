"""ncu CSV captures, long and wide, with whatever else went to the same stream."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernel_compass.errors import DamagedCapture, NotAMetricTable
from kernel_compass.profiling.banners import EXPORT, Banners
from kernel_compass.profiling.csv_rows import Header, is_orphan, split_row
from kernel_compass.profiling.launch_table import LaunchTable
from kernel_compass.profiling.ncu_csv_long import LongTable
from kernel_compass.profiling.ncu_csv_wide import WideTable
from kernel_compass.profiling.numerals import Numerals, OtherConvention
from kernel_compass.profiling.text_source import TextSource

_HEADER_START = re.compile(r'"?ID"?,"?Process ID"?,')
_ROW_START = re.compile(r'"\d{1,18}","\d{1,18}","')
_LONGEST_PROGRAM_LINE = 1 << 16


class CsvCapture:
    """One CSV capture, read.

    Args:
        source: the file's text.

    Raises:
        NotAMetricTable, AmbiguousCapture, DamagedCapture: the file is refused.
    """

    def __init__(self, source: TextSource) -> None:
        self._source = source
        try:
            self._read(Numerals())
        except OtherConvention as other:
            self._read(Numerals(other.decimal))

    @property
    def is_long(self) -> bool:
        """Whether the table has one row per metric."""
        return self._header is not None and self._header.is_long

    def _read(self, numerals: Numerals) -> None:
        self.table = LaunchTable()
        self.banners = Banners()
        self._numerals = numerals
        self._header: Header | None = None
        self._long: LongTable | None = None
        self._wide: WideTable | None = None
        lines = self._source.lines()
        line = self._next(lines)
        while line is not None:
            self._line(line)
            line = self._next(lines)
        self.unterminated = self._source.unterminated
        if self._header is None:
            raise self.banners.refusal(self._source.path, _is_binary(self._source.head))
        if not len(self.table):
            raise self._no_launches()
        self._require_one_report()
        numerals.finish()
        if self._long:
            self._long.finish()

    def _next(self, lines: Iterator[str]) -> str | None:
        return self._long.consume(lines) if self._long else next(lines, None)

    def _line(self, line: str) -> None:
        """Place one line that the fast way of the long table did not take."""
        if not line:
            return
        if "Kernel Name" in line and self._header_in(line):
            return
        if self._header is None:
            if is_orphan(line):
                raise DamagedCapture(
                    "there are rows before the header of the table: its beginning is missing.",
                    f"Copy the file again, or export the report again: {EXPORT}",
                )
            self.banners.note(line)
        elif not self._row(self._header, line):
            self.banners.note(line)

    def _header_in(self, line: str) -> bool:
        """Read the line as a header, also behind program output without a line end."""
        match = None
        header = Header.parse(line)
        if header is None and (match := _HEADER_START.search(line)):
            header = Header.parse(line[match.start() :])
        if header is None:
            return False
        if match and match.start() and self._header:
            self._require_no_row(self._header, line[: match.start()])
        if header.missing:
            raise DamagedCapture(
                f"the table has no column {' or '.join(header.missing)}: its header is cut.",
                f"Export it again: {EXPORT}",
            )
        if self._header is None:
            self._header = header
            if header.is_long:
                self._long = LongTable(header, self.table, self._numerals)
            else:
                self._wide = WideTable(header, self.table, self._numerals)
        elif header.names != self._header.names:
            raise DamagedCapture(
                "the file holds two tables with different columns: two reports in one file.",
                "Keep one report in a file.",
            )
        return True

    def _require_one_report(self) -> None:
        """Refuse launch numbers that two processes share.

        ncu numbers the launches of a run through, whatever process they come from.
        """
        process_of: dict[int, str] = {}
        for process, number, _ in self.table.launch_keys():
            if process_of.setdefault(number, process) != process:
                raise DamagedCapture(
                    f"launch {number} comes from process {process_of[number]} and from {process}: "
                    "two reports in one file, whose means would describe neither.",
                    "Keep one report in a file; with several ncu, as under mpirun, give each its "
                    "own: --log-file out_%p.csv",
                )

    def _row(self, header: Header, line: str) -> bool:
        """Read the line as a row; False where it is program output."""
        if line[0] != '"' and header.quoted:
            match = _ROW_START.search(line[:_LONGEST_PROGRAM_LINE])
            if not match:
                self._require_no_row(header, line)
                return False
            line = line[match.start() :]
        cells = split_row(line)
        if self._is_row(header, line, cells):
            if self._long:
                self._long.row(line, cells)
            elif self._wide:
                self._wide_row(self._wide, header, cells)
            return True
        self._require_no_row(header, line)
        return False

    def _is_row(self, header: Header, line: str, cells: list[str]) -> bool:
        if not header.fits(cells) or (header.quoted and line.count('"') % 2):
            return False
        at = header.index["ID"]
        if self._wide and not cells[at].strip():
            identity = ("Process ID", "Kernel Name", "Context")
            places = [header.index[name] for name in identity if name in header.index]
            return self._wide.needs_units or not any(cells[i].strip() for i in places)
        return cells[at].strip().isdigit()

    def _wide_row(self, wide: WideTable, header: Header, cells: list[str]) -> None:
        if not cells[header.index["ID"]].strip():
            wide.units(cells)
        elif wide.needs_units:
            raise DamagedCapture(
                "the row of units under the header is missing.", f"Export it again: {EXPORT}"
            )
        else:
            wide.row(cells)

    def _require_no_row(self, header: Header, line: str) -> None:
        """Refuse a line that was a row before it was cut or overwritten."""
        cut = self._source.unterminated and header.looks_cut(line)
        if cut or header.looks_like_row(line, split_row(line)):
            raise DamagedCapture(
                f"a row is cut or has lost cells: {line[:100]!r}.",
                "Copy the file again, or export the report again.",
            )

    def _no_launches(self) -> NotAMetricTable:
        if self.banners.errors or self.banners.nothing_profiled:
            return self.banners.refusal(self._source.path, binary=False)
        return NotAMetricTable(
            f"{self._source.path} has the header of a metric table but no launch.",
            f"It may be cut, or no kernel was profiled. Export the report again: {EXPORT}",
        )


def _is_binary(head: bytes) -> bool:
    """Whether the first bytes are no text in any 8-bit encoding."""
    odd = sum(byte < 9 or 13 < byte < 27 or 27 < byte < 32 for byte in head[:4096])
    return odd > 0.02 * len(head[:4096])
