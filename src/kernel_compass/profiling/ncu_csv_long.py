"""ncu's long CSV form: one row per launch and metric (details page, `--metrics` lists)."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from math import isnan

from kernel_compass.errors import DamagedCapture
from kernel_compass.profiling.csv_rows import Header, LaunchReader
from kernel_compass.profiling.launch_table import Column, LaunchTable
from kernel_compass.profiling.metric_cells import read_metric_cells
from kernel_compass.profiling.numerals import GROUPED_POINT, MISSING_TEXTS, NotANumber, Numerals
from kernel_compass.profiling.rule_cells import RuleBook
from kernel_compass.profiling.unit_names import is_known_unit

_TAILS = ('"', '",', '",""', '","","","","",""')
_NO_PREFIX = "\0"
_RULE_NAME = re.compile(r"[A-Za-z_][\w.]{0,200}")
_RULE_TYPE = re.compile(r"[A-Za-z]{1,20}")
_LONGEST_ID = 19
_KEPT_HEADS = 4096


class LongTable:
    """Reads the rows of a long table into a `LaunchTable`.

    Args:
        header: the header row.
        table: where the values go.
        numerals: the file's number reader.
    """

    def __init__(self, header: Header, table: LaunchTable, numerals: Numerals) -> None:
        self._table = table
        self._numerals = numerals
        self._header = header
        at = header.index
        self._name, self._unit, self._value = (
            at["Metric Name"],
            at["Metric Unit"],
            at["Metric Value"],
        )
        self._section = at.get("Section Name")
        self._sections: set[str] = set()
        self._body = at.get("Body Item Label")
        self._rule = [at.get(n) for n in ("Rule Name", "Rule Type", "Rule Description")]
        absent = len(header.names)
        self._estimate = [
            at.get(n, absent) for n in ("Estimated Speedup", "Estimated Speedup Type")
        ]
        self._reader = LaunchReader(header, table)
        self._fast_form = header.quoted and (self._unit, self._value) == (
            self._name + 1,
            self._name + 2,
        )
        # state of the last metric row, for rows that repeat its beginning
        self._prefix = _NO_PREFIX
        self._tail = '"'
        self._launch = 0
        self._heads: dict[str, tuple[str, int | None, int]] = {}
        self._labels = True
        self._known: dict[str, tuple[array[float] | None, int, float, Column]] = {}

    def consume(self, lines: Iterator[str]) -> str | None:
        """Read metric rows until a line that is none, or one of a new kind; return that line."""
        line = self._consume_launch(lines)
        while line is not None and self._turn(line):
            line = self._consume_launch(chain((line,), lines))
        return line

    def _consume_launch(self, lines: Iterator[str]) -> str | None:
        """`consume` within a launch and section, whose rows share all before the metric's name.

        Such a row costs a comparison, two splits and a look-up; this is the loop that the time
        of reading a large file is spent in.
        """
        prefix, tail, launch, known = self._prefix, self._tail, self._launch, self._known
        start, end, mask = len(prefix), -len(tail), 0
        point, is_grouped = self._numerals.decimal == ".", GROUPED_POINT.fullmatch
        line: str | None
        for line in lines:
            names, _, cell = line[start:end].rpartition('","')
            entry = known.get(names)
            if entry is None or not (line.startswith(prefix) and line.endswith(tail)):
                break
            values, bit, factor, column = entry
            mask |= bit
            if values is None:
                self._unread(cell, column)
                continue
            try:
                if point:
                    value = float(cell.replace(",", "") if is_grouped(cell) else cell)
                else:
                    value = self._number(cell, column)
            except ValueError:
                value = self._number(cell, column)
            if value - value == 0.0:
                if values[launch] != values[launch]:
                    values[launch] = value * factor
                else:
                    self._table.put(column, launch, value)
        else:
            line = None
        self._table.mark(launch, mask)
        return line

    def finish(self) -> None:
        """Check what only the whole table shows: no metric is called as a section is."""
        for name in self._sections.intersection(self._table.labels):
            raise _shifted(f"{name!r} is a section in some rows and a metric in others")

    def _turn(self, line: str) -> bool:
        """Go on to the launch of a row whose beginning, but for the launch id, is known."""
        parts = line.rsplit('","', 3)
        at = line.find('","')
        launch_id = line[1:at]
        if len(parts) < 4 or not line.endswith(self._tail) or not launch_id.isdecimal():
            return False
        head = self._heads.get(parts[0][at:])
        if (
            head is None
            or line.startswith(self._prefix)
            or line[0] != '"'
            or at > _LONGEST_ID
            or not launch_id.isascii()
        ):
            return False
        process, device, group = head
        self._launch, _ = self._table.launch_in((process, int(launch_id), device), group)
        self._prefix = f'{parts[0]}","'
        return True

    def row(self, line: str, cells: list[str]) -> None:
        """Read one row of any kind.

        Raises:
            DamagedCapture: cells that cannot be what their columns say.
        """
        launch, _ = self._reader.launch(cells)
        name, unit, value = cells[self._name].strip(), cells[self._unit], cells[self._value]
        rule = [cells[i].strip() if i is not None and i < len(cells) else "" for i in self._rule]
        if not name:
            self._rule_row(launch, cells, rule, unit + value)
            return
        section = cells[self._section].strip() if self._section is not None else "-"
        if any(rule) or not section or section.isdecimal():
            raise _shifted(f"the row of metric {name!r} has a rule or no section")
        self._sections.add(section)
        labels = self._body is None or not cells[self._body].strip()
        column = self._column(name, unit.strip(), labels)
        self._table.mark(launch, column.bit)
        self._store(column, launch, value)
        self._remember(line, cells, launch, labels, column)

    def _column(self, name: str, unit: str, labels: bool) -> Column:
        key = (name if labels else f"\0{name}", unit)
        column = self._table.columns.get(key)
        if column is None:
            cell = read_metric_cells(name, unit, labels)
            column = self._table.column(*key, cell)
        return column

    def _store(self, column: Column, launch: int, text: str) -> None:
        if column.cell.key is None:
            if is_known_unit(text):
                raise _shifted(f"{column.label} has the value {text!r}")
            self._unread(text, column)
            if column.cell.device_field:
                self._table.device_field(launch, column.cell.device_field, text, self._numerals)
            return
        value = self._number(text, column)
        if not isnan(value):
            self._table.put(column, launch, value)

    def _number(self, text: str, column: Column) -> float:
        try:
            return self._numerals.read(text, column.cell.integral, column.cell.time)
        except NotANumber:
            raise DamagedCapture(
                f"{column.label} has the value {text[:80]!r}, which is no number.",
                "Export the file again.",
            ) from None

    def _unread(self, text: str, column: Column) -> None:
        """A value that nothing uses still tells about the file's numbers."""
        if text in MISSING_TEXTS:
            return
        self._table.valued |= column.bit
        if self._numerals.decimal is None and not column.cell.text:
            with suppress(NotANumber):
                self._numerals.read(text, column.cell.integral, column.cell.time)

    def _rule_row(self, launch: int, cells: list[str], rule: list[str], rest: str) -> None:
        name, kind, text = rule
        if rest.strip() or not (_RULE_NAME.fullmatch(name) and _RULE_TYPE.fullmatch(kind)):
            raise _shifted(f"a row has no metric name, and {name[:80]!r} for a rule's name")
        speedup, scope = (cells[i].strip() if i < len(cells) else "" for i in self._estimate)
        if scope not in ("", "local", "global") or (speedup and not speedup[0].isdecimal()):
            raise _shifted(f"rule {name} has the estimate {scope[:80]!r} {speedup[:80]!r}")
        book = self._table.rules.setdefault(self._table.group_of[launch], RuleBook())
        book.add(name, kind, text, speedup)

    def _remember(
        self, line: str, cells: list[str], launch: int, labels: bool, column: Column
    ) -> None:
        """Note how the row begins and ends, so that the rows after it need no parsing."""
        self._prefix = _NO_PREFIX
        if not self._fast_form or any(cells[self._value + 1 :]):
            return
        wanted = cells[self._name : self._value + 1]
        for tail in _TAILS:
            head, _, value = line.removesuffix(tail).rpartition('","')
            head, _, unit = head.rpartition('","')
            head, _, name = head.rpartition('","')
            if line.endswith(tail) and [name, unit, value] == wanted:
                if labels != self._labels:
                    self._known, self._labels = {}, labels
                self._prefix, self._launch = f'{head}","', launch
                self._keep_head(head, tail, launch)
                values = column.values if column.cell.key else None
                entry = (values, column.bit, column.cell.factor, column)
                self._known[f'{name}","{unit}'] = entry
                return

    def _keep_head(self, head: str, tail: str, launch: int) -> None:
        if tail != self._tail or len(self._heads) >= _KEPT_HEADS:
            self._heads = {}
        self._tail = tail
        if self._header.index["ID"] == 0 and self._body is None:
            number = self._table.group_of[launch]
            process, device = self._reader.last_process, self._table.group(launch).device
            self._heads[head[head.find('","') :]] = (process, device, number)


def _shifted(found: str) -> DamagedCapture:
    return DamagedCapture(f"{found}: the cells are shifted.", "Export the file again.")
