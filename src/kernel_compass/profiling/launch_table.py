"""Launches of a capture in columns: one array of values per metric spelling.

A capture of forty thousand launches holds its values in a few megabytes; nothing here keeps
the text of a row.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from kernel_compass.errors import DamagedCapture
from kernel_compass.profiling.metric_cells import MetricCell
from kernel_compass.profiling.numerals import NotANumber, Numerals
from kernel_compass.profiling.rule_cells import RuleBook
from kernel_compass.records.profile import Dim3

MAX_METRICS = 50_000
"""Different (name, unit) pairs; a full raw page has about 2,300."""

LaunchKey = tuple[str, int, int | None]
"""Process id, launch id, device index."""


@dataclass(frozen=True)
class Group:
    """What launches of one kernel have in common."""

    device: int | None
    name: str
    grid: Dim3 | None
    block: Dim3 | None


@dataclass
class Column:
    """The values of one metric under one spelling, by launch; NaN where there is none."""

    label: str
    """The name cell, for messages."""
    bit: int
    cell: MetricCell
    values: array[float]
    """Shared by the columns of one name whose units differ; unused without a key."""


@dataclass
class DeviceCells:
    """What a capture says about one device index."""

    compute_capability: str | None = None
    fields: dict[str, str | float] = field(default_factory=dict)


class LaunchTable:
    """Launches, their groups, and their metric values."""

    def __init__(self) -> None:
        self.group_of = array("l")
        self.present: list[int] = []
        """Per launch, the bits of the metrics that have a row or cell, with or without value."""
        self.valued = 0
        """The bits of metrics without a key that have a value in some launch."""
        self.columns: dict[tuple[str, str | None], Column] = {}
        self.labels: list[str] = []
        """Metric names by bit."""
        self.rules: dict[int, RuleBook] = {}
        self.devices: dict[int | None, DeviceCells] = {}
        self._groups: dict[Group, int] = {}
        self._group_list: list[Group] = []
        self._launches: dict[LaunchKey, int] = {}
        self._bits: dict[str, int] = {}
        self._masks: dict[int, int] = {}
        self._values: dict[tuple[str, str], array[float]] = {}

    def __len__(self) -> int:
        return len(self.present)

    def launch(self, key: LaunchKey, group: Group) -> tuple[int, bool]:
        """The index of a launch, and whether it is new.

        Raises:
            DamagedCapture: the same launch was another kernel before.
        """
        return self.launch_in(key, self.group_number(group))

    def launch_keys(self) -> list[LaunchKey]:
        """The launches' keys, in order of first appearance."""
        return list(self._launches)

    def group_number(self, group: Group) -> int:
        """The number of a group, given on first use."""
        number = self._groups.setdefault(group, len(self._groups))
        if number == len(self._group_list):
            self._group_list.append(group)
        return number

    def launch_in(self, key: LaunchKey, number: int) -> tuple[int, bool]:
        """`launch` for a group whose number is known."""
        index = self._launches.setdefault(key, len(self.present))
        if index == len(self.present):
            self.group_of.append(number)
            self.present.append(0)
            for values in self._values.values():
                values.append(math.nan)
            return index, True
        if self.group_of[index] != number:
            group = self._group_list[number]
            raise DamagedCapture(
                f"launch {key[1]} of process {key[0]} is {group.name!r} {group.grid} in one row "
                "and another kernel or grid before: two reports in one file, or shifted cells.",
                "Keep one report in a file.",
            )
        return index, False

    def column(self, name: str, unit: str | None, cell: MetricCell) -> Column:
        """The column of a (name, unit) pair, made on first use."""
        column = self.columns.get((name, unit))
        if column is None:
            bit = self._bits.setdefault(name, len(self._bits))
            if bit == len(self.labels):
                self.labels.append(name.lstrip("\0"))
            if len(self.columns) >= MAX_METRICS:
                raise DamagedCapture(f"more than {MAX_METRICS} different metrics in one file.")
            column = Column(self.labels[bit], 1 << bit, cell, self._values_of(name, cell.key))
            self.columns[name, unit] = column
        return column

    def _values_of(self, name: str, key: str | None) -> array[float]:
        if key is None:
            return array("d")
        if (name, key) not in self._values:
            self._values[name, key] = array("d", [math.nan]) * len(self.present)
        return self._values[name, key]

    def mark(self, launch: int, mask: int) -> None:
        """Note the metrics that a launch has rows for."""
        if not mask:
            return
        mask |= self.present[launch]
        self.present[launch] = self._masks.setdefault(mask, mask)

    def put(self, column: Column, launch: int, value: float) -> None:
        """Store a value that is not missing, scaled by the column's factor.

        Raises:
            DamagedCapture: the launch has another value for this metric.
        """
        value *= column.cell.factor
        old = column.values[launch]
        if not math.isnan(old) and not math.isclose(old, value, rel_tol=1e-9, abs_tol=1e-300):
            raise conflict(column.label, old, value)
        column.values[launch] = value

    def device_field(self, launch: int, field: str, text: str, numerals: Numerals) -> None:
        """Note what a launch's row says about its device: the name, or a number."""
        device = self.group(launch).device
        fields = self.devices.setdefault(device, DeviceCells()).fields
        if field in fields or not text.strip():
            return
        if field == "name":
            fields[field] = text.strip()
            return
        try:
            value = numerals.read(text, integral=True)
        except NotANumber:
            return
        if not math.isnan(value):
            fields[field] = value

    def group(self, launch: int) -> Group:
        """The group of a launch."""
        return self._group_list[self.group_of[launch]]

    def members(self) -> Iterator[tuple[Group, list[int]]]:
        """The groups by first appearance, each with its launches."""
        lists: list[list[int]] = [[] for _ in self._group_list]
        for launch, number in enumerate(self.group_of):
            lists[number].append(launch)
        yield from zip(self._group_list, lists, strict=True)


def conflict(name: str, old: float, new: float) -> DamagedCapture:
    """The error for one launch with two values of one metric."""
    return DamagedCapture(
        f"one launch has two values of {name}, {old:g} and {new:g}: two reports in one file, "
        "or shifted cells.",
        "Keep one report in a file.",
    )
