"""Header and rows of ncu's CSV pages: cells, columns by name, who launched what."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from math import prod

from kernel_compass.errors import DamagedCapture
from kernel_compass.profiling.launch_table import DeviceCells, Group, LaunchKey, LaunchTable
from kernel_compass.records.profile import Dim3

RULE_COLUMNS = (
    "Rule Name",
    "Rule Type",
    "Rule Description",
    "Estimated Speedup Type",
    "Estimated Speedup",
)
LONG_COLUMNS = ("Metric Name", "Metric Unit", "Metric Value")

_BASE = frozenset(
    [
        "ID",
        "Process ID",
        "Process Name",
        "Host Name",
        "Kernel Name",
        "Kernel Time",
        "Context",
        "Stream",
        "Block Size",
        "Grid Size",
        "Device",
        "CC",
        "Section Name",
    ]
)
_NVTX = "Domain:"  # in the names of the columns that --nvtx adds
_INTEGER = re.compile(r"\d{1,18}")
_DIMS = re.compile(r"\((\d{1,12}), ?(\d{1,12}), ?(\d{1,12})\)")
_CC = re.compile(r"\d{1,3}\.\d{1,3}")
_ROW_START = re.compile(r'"\d{1,18}","\d')
_ORPHAN = re.compile(r'"\d{1,18}","\d{1,18}","')
_PARTIAL = re.compile(r'"(?:\d{0,18}(?:"(?:,(?:"\d{0,18}(?:".*)?)?)?)?)?')
_DIMS_CELL = re.compile(r'"\(\d+, ?\d+, ?\d+\)"')


LARGEST_BLOCK = 1024
"""Threads a block may have on any GPU since Fermi."""


def split_row(line: str) -> list[str]:
    """The cells of one line, quoted or not; an empty list where the line is no CSV."""
    try:
        return next(csv.reader((line,)), [])
    except csv.Error:
        return []


def is_orphan(line: str) -> bool:
    """Whether a line before any header is a row of a table whose header is missing."""
    return bool(_ORPHAN.match(line)) and line.count('","') >= 10


@dataclass(frozen=True)
class Header:
    """The column names of a table, and where they stand."""

    names: tuple[str, ...]
    quoted: bool
    index: dict[str, int]

    @classmethod
    def parse(cls, line: str) -> Header | None:
        """Read a line as a header row, `None` where it is none.

        Raises:
            DamagedCapture: a column that must be unique is named twice.
        """
        names = tuple(cell.strip() for cell in split_row(line.lstrip("\ufeff")))
        if "ID" not in names or "Kernel Name" not in names:
            return None
        index = {name: i for i, name in enumerate(names)}
        for name in _BASE.union(LONG_COLUMNS, RULE_COLUMNS):
            if names.count(name) > 1:
                raise DamagedCapture(f"the header names the column {name!r} twice.")
        return cls(names, line.lstrip("\ufeff").startswith('"'), index)

    @property
    def is_long(self) -> bool:
        """One row per metric, rather than one per launch."""
        return "Metric Name" in self.index

    @property
    def missing(self) -> tuple[str, ...]:
        """Columns without which the table cannot be read."""
        needed = ("Process ID",) + (LONG_COLUMNS if self.is_long else ())
        return tuple(name for name in needed if name not in self.index)

    @property
    def shortest(self) -> int:
        """Cells of the shortest row: ncu leaves the rule columns of a metric row out."""
        return 1 + max(i for i, name in enumerate(self.names) if name not in RULE_COLUMNS)

    def metric_columns(self) -> list[tuple[int, str]]:
        """Columns of a wide table that hold metrics."""
        return [
            (i, name)
            for i, name in enumerate(self.names)
            if name and name not in _BASE and _NVTX not in name
        ]

    def fits(self, cells: list[str]) -> bool:
        """Whether the number of cells is one that ncu writes under this header."""
        extra = len(cells) - len(self.names)
        return len(cells) >= self.shortest and (extra <= 0 or (extra == 1 and not cells[-1]))

    def looks_like_row(self, line: str, cells: list[str]) -> bool:
        """Whether a line that is no row was one before it was damaged."""
        if _ROW_START.match(line) and self.index["Process ID"] == 1:
            return True
        gaps = line.count('","')
        many = gaps >= min(6, len(self.names) // 2) and bool(_DIMS_CELL.search(line))
        return (many or gaps >= min(self.shortest, 15) - 4) or (
            not self.quoted and len(cells) > len(self.names) // 2 and cells[0].isdigit()
        )

    def looks_cut(self, line: str) -> bool:
        """Whether the file's last line, which has no line end, is the beginning of a row."""
        return self.quoted and bool(_PARTIAL.fullmatch(line))


class LaunchReader:
    """Turns the identity cells of rows into launches of a table; refuses shifted cells."""

    def __init__(self, header: Header, table: LaunchTable) -> None:
        self._table = table
        self._at = header.index
        self._processes: dict[str, tuple[str, str]] = {}
        self.last_process = ""
        """Process id of the row that was read last."""

    def launch(self, cells: list[str]) -> tuple[int, bool]:
        """The launch that a row belongs to, and whether it is new.

        Raises:
            DamagedCapture: an identity cell cannot be what its column says.
        """
        process = self._integer(cells, "Process ID")
        number = int(self._integer(cells, "ID"))
        device = self._optional_integer(cells, "Device")
        for name in ("Context", "Stream"):
            self._optional_integer(cells, name)
        kernel = self._cell(cells, "Kernel Name")
        if not kernel:
            raise self._shifted("Kernel Name", kernel)
        group = Group(
            device, kernel, self._dims(cells, "Grid Size"), self._dims(cells, "Block Size")
        )
        self._check_process(process, cells)
        self._check_device(device, cells)
        self.last_process = process
        key: LaunchKey = (process, number, device)
        return self._table.launch(key, group)

    def _cell(self, cells: list[str], name: str) -> str:
        at = self._at.get(name)
        return cells[at].strip() if at is not None and at < len(cells) else ""

    def _integer(self, cells: list[str], name: str) -> str:
        text = self._cell(cells, name)
        if not (_INTEGER.fullmatch(text) and text.isascii()):
            raise self._shifted(name, text)
        return text

    def _optional_integer(self, cells: list[str], name: str) -> int | None:
        text = self._cell(cells, name)
        return int(self._integer(cells, name)) if text else None

    def _dims(self, cells: list[str], name: str) -> Dim3 | None:
        text = self._cell(cells, name)
        if not text:
            return None
        match = _DIMS.fullmatch(text)
        if not match or not text.isascii():
            raise self._shifted(name, text)
        dims = (int(match[1]), int(match[2]), int(match[3]))
        if name == "Block Size" and prod(dims) > LARGEST_BLOCK:
            raise self._shifted(name, text)
        return dims if all(dims) else None

    def _check_process(self, process: str, cells: list[str]) -> None:
        names = (self._cell(cells, "Process Name"), self._cell(cells, "Host Name"))
        if self._processes.setdefault(process, names) != names:
            raise self._shifted("Process Name", names[0])

    def _check_device(self, device: int | None, cells: list[str]) -> None:
        capability = self._cell(cells, "CC") or None
        if capability and not _CC.fullmatch(capability):
            raise self._shifted("CC", capability)
        known = self._table.devices.setdefault(device, DeviceCells(capability))
        if known.compute_capability != capability:
            raise DamagedCapture(
                f"device {device} has compute capability {known.compute_capability} in some rows "
                f"and {capability} in others: two reports in one file, or shifted cells.",
                "Keep one report in a file.",
            )

    @staticmethod
    def _shifted(column: str, text: str) -> DamagedCapture:
        return DamagedCapture(
            f"the column {column!r} holds {text[:80]!r}: the cells are shifted or two reports "
            "are mixed.",
            "Export the file again.",
        )
