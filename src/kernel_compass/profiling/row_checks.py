"""What must hold within one launch's row of a raw page, whatever the kernel.

A cell lost and another one added leave the row's length as it was and put values under wrong
names; these checks see most of that.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan, prod

from kernel_compass.errors import DamagedCapture
from kernel_compass.profiling.launch_table import Group
from kernel_compass.profiling.numerals import MISSING, NotANumber, Numerals
from kernel_compass.profiling.unit_names import parse_unit

_TEXT_COLUMNS = (
    "device__attribute_display_name",
    "device__attribute_confidential_computing_mode",
    "launch__cluster_scheduling_policy",
    "launch__func_cache_config",
)
_CONSTANTS = {"device__attribute_warp_size": 32.0}
_NUMBER_ENDINGS = (".sum", ".avg", ".min", ".max", ".pct", ".ratio", ".per_second")
_SLACK = 1e-3  # numbers are rounded to two decimals, in units that differ by column


class RowChecks:
    """Checks the rows of one wide table.

    Args:
        metrics: column number and name of every metric.
        units: the row of units, all columns.
    """

    def __init__(self, metrics: list[tuple[int, str]], units: list[str]) -> None:
        at = {name: i for i, name in metrics}
        self._texts = [(at[n], n) for n in _TEXT_COLUMNS if n in at]
        self._attributes = [(i, n) for i, n in metrics if n.startswith("device__attribute_")]
        self._numbers = [(i, n) for i, n in metrics if n.endswith(_NUMBER_ENDINGS)]
        self._rollups = list(_rollups(at))
        self._factors = {i: parse_unit(units[i]).factor for i, _ in metrics}
        self._at = at
        self._seen: dict[int | None, list[str]] = {}

    def check(self, cells: list[str], group: Group, numerals: Numerals) -> None:
        """Raise `DamagedCapture` where the cells of a row contradict each other."""
        for at, name in self._texts:
            if cells[at] and cells[at].replace(",", "").replace(".", "").isdigit():
                raise _shifted(name, cells[at])
        attributes = [cells[at] for at, _ in self._attributes]
        if self._seen.setdefault(group.device, attributes) != attributes:
            known = self._seen[group.device]
            pairs = zip(self._attributes, attributes, known, strict=True)
            name, cell = next((a[1], x) for a, x, y in pairs if x != y)
            raise _shifted(name, cell)
        self._check_sizes(cells, group, numerals)
        self._check_numbers(cells, numerals)

    def _check_sizes(self, cells: list[str], group: Group, numerals: Numerals) -> None:
        expected: dict[str, float] = dict(_CONSTANTS)
        if group.block:
            expected["launch__block_size"] = prod(group.block)
            sizes = zip("xyz", group.block, strict=True)
            expected |= {f"launch__block_dim_{d}": float(n) for d, n in sizes}
        if group.grid:
            expected["launch__grid_size"] = prod(group.grid)
            sizes = zip("xyz", group.grid, strict=True)
            expected |= {f"launch__grid_dim_{d}": float(n) for d, n in sizes}
        for name, size in expected.items():
            at = self._at.get(name)
            value = MISSING if at is None else _number(cells[at], name, numerals)
            if not isnan(value) and value != size:
                raise _shifted(name, cells[at or 0])

    def _check_numbers(self, cells: list[str], numerals: Numerals) -> None:
        for at, name in self._numbers:
            if cells[at] and not cells[at][-1].isdigit():
                _number(cells[at], name, numerals)
        for *columns, name in self._rollups:
            least, mean, most = (
                _number(cells[i], name, numerals) * self._factors[i] for i in columns
            )
            slack = _SLACK * max(abs(least), abs(most)) + 0.01 * self._factors[columns[1]]
            if least - slack > mean or mean > most + slack:
                raise _shifted(name, cells[columns[1]])


def _rollups(at: dict[str, int]) -> Iterator[tuple[int, int, int, str]]:
    """Columns of minimum, mean and maximum of one quantity, and the mean's name.

    Percentages of a peak are left out: their rollups are weighted in ways of their own.
    """
    for name, middle in at.items():
        base = name.removesuffix(".avg")
        low, high = at.get(f"{base}.min"), at.get(f"{base}.max")
        if base != name and low is not None and high is not None:
            yield low, middle, high, name


def _number(text: str, name: str, numerals: Numerals) -> float:
    try:
        return numerals.read(text)
    except NotANumber:
        raise _shifted(name, text) from None


def _shifted(name: str, text: str) -> DamagedCapture:
    return DamagedCapture(
        f"{name} has the value {text[:80]!r}, which contradicts the rest of its row: the cells "
        "are shifted, or two reports are mixed.",
        "Export the file again.",
    )
