"""What a kernel table's rows move, and their floors: known before anything is run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeAlias

from kernel_compass.analysis.cache_fit import cache_fit
from kernel_compass.analysis.floor import Floors
from kernel_compass.analysis.format_traffic import format_traffic
from kernel_compass.api.calibration_choice import advised_calibration
from kernel_compass.api.kernel_requests import Item, TableRequest
from kernel_compass.errors import UsageError
from kernel_compass.kernels.providers import registry
from kernel_compass.kernels.providers.registry import why_none
from kernel_compass.records.advice import CacheFit
from kernel_compass.records.calibration import Basis, Calibration
from kernel_compass.records.contracts import Target
from kernel_compass.records.kernel_table import BASELINE, KernelRow, KernelTable, RowStatus
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import Workload

FloorOf: TypeAlias = Callable[
    [Workload, NumberFormat, Regime, int | None], tuple[float, str] | None
]
"""Floor in microseconds and its basis in words, for a number of launches a replay."""


def plan_kernels(request: TableRequest, gpu: str | None = None) -> KernelTable:
    """Bytes and floors of every workload, format and regime. Needs no GPU and no torch.

    What an implementation that was named cannot compute on such a GPU is a row of its own with the
    reason; so is a format that none can. Libraries count as installed.

    Args:
        request: what would be measured.
        gpu: a shipped calibration's name, a file, or `None` for this machine's.

    Raises:
        CalibrationError: there is no such calibration.
        UsageError: an implementation is not known, or nothing of all this can be computed.
    """
    check_implementations(request.implementations or ())
    calibration = advised_calibration(gpu)
    floor_of = calibrated_floors(calibration)
    target = _planned_target(calibration)
    rows: list[KernelRow] = []
    for item in request.items:
        for number_format in request.formats:
            able, refused = _who(request, item.workload, number_format, target)
            warnings = _study_alone(number_format, able)
            for regime in request.regimes:
                row = planned_row(request, item, number_format, regime, calibration, floor_of)
                rows += [replace(row, warnings=warnings)] if able else []
                rows += [refused_row(row, name, why) for name, why in refused.items()]
    if not any(row.status is RowStatus.PLANNED for row in rows):
        row = rows[0]
        who = f" by {row.implementation}" if row.implementation else ""
        raise UsageError(
            f"Nothing of this can be computed; {row.workload.shape_text} in {row.format.name}{who} "
            f"cannot: {row.reason}.",
            "Name other number formats or implementations, or leave them out.",
        )
    return kernel_table(rows, calibration)


def refused_row(planned: KernelRow, name: str | None, why: str) -> KernelRow:
    """A row of an implementation (`None` = of all) that cannot do what is planned."""
    return replace(
        planned,
        implementation=name,
        status=RowStatus.UNSUPPORTED,
        reason=why,
        floor_us=None,
        floor_basis=None,
    )


def _who(
    request: TableRequest, workload: Workload, number_format: NumberFormat, target: Target
) -> tuple[set[str], dict[str | None, str]]:
    """Who of those asked for can (the baseline always is), and why the others cannot."""
    usable, refused = registry.implementations_for(workload, number_format, target)
    able, named = {one.name for one in usable}, request.implementations
    if named is None:
        return able, {} if able else {None: why_none(refused)}
    reasons: dict[str | None, str] = {name: refused[name] for name in named if name in refused}
    return able & {BASELINE, *named}, reasons


def _study_alone(number_format: NumberFormat, able: set[str]) -> tuple[str, ...]:
    """That a floor is one which only kernels of the first study could be held against."""
    if not all(name.startswith("study_") for name in able):
        return ()
    who = " and ".join(sorted(able))
    return (f"{number_format.name} is computed by {who} alone, which is not made to be fast",)


def _planned_target(calibration: Calibration) -> Target:
    """The GPU of a calibration, with all libraries."""
    device = calibration.environment.device
    numbers = (device.compute_capability or "").split(".")
    known = len(numbers) == 2 and all(part.isdecimal() for part in numbers)
    capability = (int(numbers[0]), int(numbers[1])) if known else None
    return Target("cuda", capability, device.name or "", device.sm_count, planned=True)


def check_implementations(names: Iterable[str]) -> None:
    """Whether there are implementations of these names.

    Raises:
        UsageError: there is none of a name.
    """
    for name in names:
        registry.implementation(name)


def kernel_table(
    rows: list[KernelRow] | tuple[KernelRow, ...], calibration: Calibration | None
) -> KernelTable:
    """Rows with the calibration that they rest on."""
    if calibration is None:
        return KernelTable(tuple(rows))
    return KernelTable(
        tuple(rows), calibration.name, calibration.c_eff_bytes.value, calibration.notes
    )


def planned_row(
    request: TableRequest,
    item: Item,
    number_format: NumberFormat,
    regime: Regime,
    calibration: Calibration | None,
    floor_of: FloorOf | None,
) -> KernelRow:
    """A row before anything is run."""
    traffic = format_traffic(item.workload, number_format)
    found = floor_of(item.workload, number_format, regime, None) if floor_of else None
    floor_us, basis = found or (None, None)
    fits = CacheFit.UNKNOWN if calibration is None else cache_fit(traffic.total_bytes, calibration)
    return KernelRow(
        workload=item.workload,
        format=number_format,
        implementation=None,
        regime=regime,
        status=RowStatus.PLANNED,
        weight_bytes=traffic.weight_bytes,
        moved_bytes=traffic.total_bytes,
        layout=request.layout,
        model=item.model,
        layers=item.layers,
        cache_fit=fits,
        floor_us=floor_us,
        floor_basis=basis,
    )


def calibrated_floors(calibration: Calibration) -> FloorOf:
    """The compulsory floors of a calibration."""
    floors = Floors(calibration)

    def of(
        workload: Workload, number_format: NumberFormat, regime: Regime, _launches: int | None
    ) -> tuple[float, str] | None:
        found = floors.of(format_traffic(workload, number_format), regime)
        if found is None:
            return None
        guessed = " (extrapolated)" if found.basis is not Basis.MEASURED else ""
        return found.time_us, f"calibration {calibration.name}{guessed}"

    return of
