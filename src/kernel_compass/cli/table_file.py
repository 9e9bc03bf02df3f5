"""The file that a kernel table grows in: read before, written whole after every row."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kernel_compass.cli.output import STDOUT, emit, prepare
from kernel_compass.codec.json_reading import file_bytes
from kernel_compass.codec.kernel_table import decode, decode_csv, merged
from kernel_compass.errors import UsageError
from kernel_compass.records.kernel_table import KernelRow, KernelTable, RowStatus
from kernel_compass.report.formats import Format, Style
from kernel_compass.report.kernel_table import render_kernel_table

GROWING = (Format.JSON, Format.CSV)
"""Forms that can be read again."""


class TableFile:
    """Where rows go, and the rows that are there but for a plan's.

    Args:
        path: the file; `None` and `-` hold nothing.
        kind: its form.

    Raises:
        UsageError: it cannot be written, or holds something else than a kernel table.
    """

    def __init__(self, path: Path | None, kind: Format) -> None:
        prepare(path)
        self.path = None if path == STDOUT else path
        self.kind = kind
        self.rows = self._read()

    def write(self, table: KernelTable, new: Iterable[KernelRow]) -> None:
        """Replace the file by the earlier rows and these.

        Raises:
            UsageError: it cannot be written any more.
        """
        if self.path is None:
            return
        rows = merged(self.rows, new)
        whole = KernelTable(rows, table.calibration, table.c_eff_bytes, table.notes)
        emit(render_kernel_table(whole, self.kind, Style()), self.path)

    def _read(self) -> tuple[KernelRow, ...]:
        if self.path is None or self.kind not in GROWING or not self.path.is_file():
            return ()
        try:
            data = file_bytes(self.path)
        except (OSError, ValueError) as error:
            raise self._unusable(str(error)) from None
        if not data.strip():
            return ()
        try:
            table = decode(data) if self.kind is Format.JSON else decode_csv(data.decode())
        except (UsageError, UnicodeDecodeError) as error:
            raise self._unusable(
                error.found if isinstance(error, UsageError) else str(error)
            ) from None
        # a plan holds nothing that was measured: it makes room, with the refusals in it
        plan = (RowStatus.PLANNED, RowStatus.UNSUPPORTED)
        return tuple(r for r in table.rows if r.environment or r.status not in plan)

    def _unusable(self, why: str) -> UsageError:
        found = f"--output {self.path} exists and cannot be continued: {why}"
        return UsageError(found, "Name another file, or remove it.")
