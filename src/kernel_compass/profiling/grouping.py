"""Launches to kernels: preferred spellings, launch means, derived quantities."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from math import isnan
from statistics import median

from kernel_compass.profiling.launch_table import Column, Group, LaunchTable
from kernel_compass.profiling.metric_cells import DURATION
from kernel_compass.profiling.plausibility import check_values
from kernel_compass.records.profile import DurationStats, KernelProfile

Values = Sequence[float]
"""One value per launch of a group, NaN where there is none."""


def kernel_profiles(table: LaunchTable) -> tuple[KernelProfile, ...]:
    """Group launches by (device, name, grid, block), in order of first appearance."""
    spellings = _spellings(table)
    return tuple(
        _profile(table, number, group, launches, spellings)
        for number, (group, launches) in enumerate(table.members())
    )


def launch_profiles(table: LaunchTable) -> tuple[KernelProfile, ...]:
    """Each launch by itself, in the order of launching; what rules say of a kernel is left out."""
    spellings = _spellings(table)
    return tuple(
        _profile(table, None, table.group(launch), [launch], spellings)
        for launch in range(len(table))
    )


def _spellings(table: LaunchTable) -> dict[str, list[Column]]:
    """Per key, its columns from the preferred spelling on."""
    by_key: dict[str, dict[int, Column]] = {}
    for column in table.columns.values():
        if column.cell.key is not None:
            by_key.setdefault(column.cell.key, {}).setdefault(id(column.values), column)
    return {
        key: sorted(columns.values(), key=lambda column: column.cell.rank)
        for key, columns in by_key.items()
    }


def _profile(
    table: LaunchTable,
    number: int | None,
    group: Group,
    launches: list[int],
    spellings: dict[str, list[Column]],
) -> KernelProfile:
    values = {key: _values(columns, launches) for key, columns in spellings.items()}
    check_values(group.name, values)
    duration = values.pop(DURATION, ())
    derive(values, duration)
    metrics = {key: mean for key, v in values.items() if (mean := _mean(v)) is not None}
    _add_hit_rate(metrics, values)
    rules = None if number is None else table.rules.get(number)
    return KernelProfile(
        name=group.name,
        grid=group.grid,
        block=group.block,
        device=group.device,
        launches=len(launches),
        duration_stats=_stats(duration),
        metrics=metrics,
        rules=rules.results() if rules else (),
    )


def _values(columns: list[Column], launches: list[int]) -> Values:
    """A key's values by launch: of the spellings that have one, the preferred."""
    first = [columns[0].values[i] for i in launches]
    for column in columns[1:]:
        for at, launch in enumerate(launches):
            if isnan(first[at]):
                first[at] = column.values[launch]
    return first


def derive(values: dict[str, Values], duration: Values) -> None:
    """Add, launch by launch, the traffic and conflicts that follow from other metrics."""
    _add(values, "dram_bytes", ("dram_bytes_read", "dram_bytes_written"), lambda a, b: a + b)
    rate = values.get("dram_bytes_per_second")
    if rate is not None and duration:
        product = [r * us * 1e-6 for r, us in zip(rate, duration, strict=True)]
        _fill(values, "dram_bytes", product)
    for what in ("shared_wavefronts", "global_sectors"):
        _add(
            values,
            f"{what}_excessive",
            (what, f"{what}_ideal"),
            lambda total, ideal: max(total - ideal, 0.0),
        )


def _add(
    values: dict[str, Values],
    key: str,
    parts: tuple[str, str],
    combine: Callable[[float, float], float],
) -> None:
    left, right = (values.get(part) for part in parts)
    if left is not None and right is not None:
        _fill(values, key, [_both(combine, a, b) for a, b in zip(left, right, strict=True)])


def _both(combine: Callable[[float, float], float], a: float, b: float) -> float:
    return math.nan if isnan(a) or isnan(b) else combine(a, b)


def _fill(values: dict[str, Values], key: str, derived: Values) -> None:
    """Use derived values where the capture has none for any launch of the kernel."""
    if key not in values or _mean(values[key]) is None:
        values[key] = derived


def _add_hit_rate(metrics: dict[str, float], values: dict[str, Values]) -> None:
    hits, misses = values.get("l2_read_sectors_hit"), values.get("l2_read_sectors_missed")
    if "l2_hit_rate_pct" in metrics or hits is None or misses is None:
        return
    pairs = [(h, m) for h, m in zip(hits, misses, strict=True) if not isnan(h + m)]
    total = math.fsum(h + m for h, m in pairs)
    if total > 0:
        metrics["l2_hit_rate_pct"] = 100.0 * math.fsum(h for h, _ in pairs) / total


def _present(values: Values) -> list[float]:
    return [value for value in values if not isnan(value)]


def _mean(values: Values) -> float | None:
    present = _present(values)
    return math.fsum(present) / len(present) if present else None


def _stats(duration: Values) -> DurationStats | None:
    times = _present(duration)
    if not times:
        return None
    total = math.fsum(times)
    return DurationStats(
        mean=total / len(times),
        median=median(times),
        min=min(times),
        max=max(times),
        total=total,
    )
