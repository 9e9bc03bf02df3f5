"""What a kernel table's rows move, and their floors: known before anything is run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from kernel_compass.analysis.cache_fit import cache_fit
from kernel_compass.analysis.floor import Floors
from kernel_compass.analysis.format_traffic import format_traffic
from kernel_compass.api.calibration_choice import advised_calibration
from kernel_compass.api.kernel_requests import Item, TableRequest
from kernel_compass.kernels.providers import registry
from kernel_compass.records.advice import CacheFit
from kernel_compass.records.calibration import Basis, Calibration
from kernel_compass.records.kernel_table import KernelRow, KernelTable, RowStatus
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import Workload

FloorOf: TypeAlias = Callable[
    [Workload, NumberFormat, Regime, int | None], tuple[float, str] | None
]
"""Floor in microseconds and its basis in words, for a number of launches a replay."""


def plan_kernels(request: TableRequest, gpu: str | None = None) -> KernelTable:
    """Bytes and floors of every workload, format and regime. Needs no GPU and no torch.

    Args:
        request: what would be measured.
        gpu: a shipped calibration's name, a file, or `None` for this machine's.

    Raises:
        CalibrationError: there is no such calibration.
    """
    calibration = advised_calibration(gpu)
    floor_of = calibrated_floors(calibration)
    rows = [
        planned_row(request, item, number_format, regime, calibration, floor_of)
        for item in request.items
        for number_format in request.formats
        for regime in request.regimes
    ]
    return kernel_table(rows, calibration)


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
