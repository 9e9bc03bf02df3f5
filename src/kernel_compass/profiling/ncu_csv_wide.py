"""ncu's wide CSV form (`--page raw`): a row of units, then one row per launch."""

from __future__ import annotations

from contextlib import suppress
from math import isnan

from kernel_compass.errors import DamagedCapture
from kernel_compass.profiling.csv_rows import Header, LaunchReader
from kernel_compass.profiling.launch_table import Column, LaunchTable
from kernel_compass.profiling.metric_cells import read_metric_cells
from kernel_compass.profiling.numerals import MISSING_TEXTS, NotANumber, Numerals
from kernel_compass.profiling.row_checks import RowChecks


class WideTable:
    """Reads the rows of a wide table into a `LaunchTable`.

    Args:
        header: the header row.
        table: where the values go.
        numerals: the file's number reader.
    """

    def __init__(self, header: Header, table: LaunchTable, numerals: Numerals) -> None:
        self._header = header
        self._table = table
        self._numerals = numerals
        self._reader = LaunchReader(header, table)
        self._metrics = header.metric_columns()
        self._columns: list[tuple[int, Column]] | None = None
        self._checks: RowChecks | None = None
        self._rows: dict[int, int] = {}
        self._evidence: list[tuple[int, bool, bool]] = []

    @property
    def needs_units(self) -> bool:
        """Whether the row of units has not come yet."""
        return self._columns is None

    def units(self, cells: list[str]) -> None:
        """Read the row of units; a repeated header brings the same one again.

        Raises:
            DamagedCapture: it is no row of units, or one that does not fit the names.
        """
        if len(cells) != len(self._header.names):
            raise DamagedCapture("the row of units has not as many cells as the header.")
        columns = []
        for at, name in self._metrics:
            unit = cells[at].strip()
            cell = read_metric_cells(name, unit)
            if not cell.text:
                self._evidence.append((at, cell.integral, cell.time))
            if cell.key or cell.device_field or cell.dropped:
                columns.append((at, self._table.column(name, unit, cell)))
        if self._columns is not None and columns != self._columns:
            raise DamagedCapture(
                "the same table comes twice with different units: two reports in one file.",
                "Keep one report in a file.",
            )
        self._columns = columns
        self._checks = RowChecks(self._metrics, cells)

    def row(self, cells: list[str]) -> None:
        """Read one launch.

        Raises:
            DamagedCapture: cells that cannot be what their columns say.
        """
        launch, new = self._reader.launch(cells)
        fingerprint = hash(tuple(cells))
        if not new:
            if self._rows.get(launch) != fingerprint:
                raise DamagedCapture(
                    f"launch {cells[self._header.index['ID']]} occurs twice with different "
                    "values: two reports in one file.",
                    "Keep one report in a file.",
                )
            return
        self._rows[launch] = fingerprint
        if self._numerals.decimal is None:
            self._learn(cells)
        if self._checks:
            self._checks.check(cells, self._table.group(launch), self._numerals)
        for at, column in self._columns or ():
            self._store(launch, column, cells[at])

    def _learn(self, cells: list[str]) -> None:
        """Let all cells of a row tell about the file's numbers."""
        for at, integral, time in self._evidence:
            with suppress(NotANumber):
                self._numerals.read(cells[at], integral, time)

    def _store(self, launch: int, column: Column, text: str) -> None:
        cell = column.cell
        if text:
            self._table.mark(launch, column.bit)
        if cell.device_field:
            self._table.device_field(launch, cell.device_field, text, self._numerals)
        elif cell.key:
            try:
                value = self._numerals.read(text, cell.integral, cell.time)
            except NotANumber:
                raise DamagedCapture(
                    f"{column.label} has the value {text[:80]!r}, which is no number: the cells "
                    "are shifted.",
                    "Export the file again.",
                ) from None
            if not isnan(value):
                self._table.put(column, launch, value)
        elif text not in MISSING_TEXTS:
            self._table.valued |= column.bit
