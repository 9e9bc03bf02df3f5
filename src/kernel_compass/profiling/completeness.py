"""What a capture lacks, as warnings: launches with fewer metrics, names ncu did not know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import isnan

from kernel_compass.profiling.launch_table import Column, LaunchTable

_NAMED = 5


def completeness_warnings(table: LaunchTable) -> list[str]:
    """Say which launches lack metrics that others have, and what was never available."""
    return [*_fewer_rows(table), *_fewer_values(table), *_never(table), *_unusable(table)]


def _fewer_rows(table: LaunchTable) -> list[str]:
    """Launches with fewer rows than others: ncu gives every launch of a run the same ones."""
    union = 0
    for mask in set(table.present):
        union |= mask
    lacking = Counter(mask for mask in table.present if mask != union)
    if not lacking:
        return []
    names = _names(table, union & ~_intersection(lacking))
    return [
        f"{lacking.total()} of {len(table)} launches have fewer metrics than the others; lacking: "
        f"{names}. The file may be cut; means are over the launches that have the value."
    ]


def _intersection(masks: Iterable[int]) -> int:
    common = -1
    for mask in masks:
        common &= mask
    return common


def _fewer_values(table: LaunchTable) -> list[str]:
    """Launches whose row is there without a value that launches of the same kernel have."""
    columns = [c for c in table.columns.values() if c.cell.key is not None]
    lacking: set[int] = set()
    names: dict[str, None] = {}
    for _, launches in table.members():
        for column in _one_per_array(columns):
            empty = [i for i in launches if isnan(column.values[i])]
            empty = [i for i in empty if table.present[i] & column.bit]
            if 0 < len(empty) < len(launches):
                lacking.update(empty)
                names[column.label] = None
    if not lacking:
        return []
    return [
        f"{len(lacking)} of {len(table)} launches have no value for metrics that other launches "
        f"of the same kernel have: {_listed(names)}. Means are over the launches with a value."
    ]


def _one_per_array(columns: list[Column]) -> list[Column]:
    return list({id(column.values): column for column in columns}.values())


def _never(table: LaunchTable) -> list[str]:
    """Metrics that are in the file and have no value in any launch."""
    present, valued = 0, table.valued
    for mask in set(table.present):
        present |= mask
    for column in table.columns.values():
        cell = column.cell
        if cell.device_field or (cell.key and not all(map(isnan, column.values))):
            valued |= column.bit
    names = _names(table, present & ~valued)
    return [f"not available in any launch (n/a): {names}."] if names else []


def _unusable(table: LaunchTable) -> list[str]:
    columns = [c for c in table.columns.values() if c.cell.dropped and table.valued & c.bit]
    names = {c.label: None for c in columns}
    return [f"not read, because the unit is unknown: {_listed(names)}."] if names else []


def _names(table: LaunchTable, mask: int) -> str:
    names = sorted(name for bit, name in enumerate(table.labels) if mask >> bit & 1)
    return _listed(dict.fromkeys(names))


def _listed(names: dict[str, None]) -> str:
    shown = list(names)[:_NAMED]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
