"""Kernel tables on this machine: opens the GPU, finds the calibration, measures or profiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from kernel_compass.analysis.format_traffic import format_traffic, stored_weight
from kernel_compass.api.calibration_choice import capture_calibration
from kernel_compass.api.kernel_cells import OPTIONS, Bench
from kernel_compass.api.kernel_operands import TorchOperands
from kernel_compass.api.kernel_plans import FloorOf, calibrated_floors, kernel_table
from kernel_compass.api.kernel_requests import TableRequest
from kernel_compass.api.kernel_tables import OnProgress, TableRun
from kernel_compass.errors import MeasurementCause, MeasurementError, MissingDependency
from kernel_compass.kernels.decode_table import behind_cublas
from kernel_compass.kernels.providers import registry
from kernel_compass.measurement.floors import PackedShape, StreamingFloors
from kernel_compass.measurement.timing import TimingOptions
from kernel_compass.measurement.torch_device import TorchDevice
from kernel_compass.records.calibration import Calibration
from kernel_compass.records.kernel_table import KernelRow, KernelTable
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import Workload

STREAMED = "streamed in this run"
PROFILED_LAUNCHES = 3
WITHOUT_GPU = "without a GPU, api.plan_kernels(request, 'h200') gives shapes, bytes and floors"

Range = Callable[[str], AbstractContextManager[object]]


@dataclass(frozen=True)
class OpenTable:
    """A table that is about to be measured."""

    run: TableRun
    calibration: Calibration | None
    notes: tuple[str, ...]

    def rows(self) -> Iterator[KernelRow]:
        """The rows, each as soon as it is there."""
        return self.run.rows()

    def table(self, rows: Iterable[KernelRow]) -> KernelTable:
        """Rows with what holds for all of them."""
        made = kernel_table(tuple(rows), self.calibration)
        return replace(made, notes=(*made.notes, *self.notes))


def open_table(
    request: TableRequest,
    gpu: str | None = None,
    device: int = 0,
    known: Iterable[KernelRow] = (),
    on_progress: OnProgress | None = None,
    options: TimingOptions = OPTIONS,
    streamed_floors: bool = False,
    floor_activations: bool = True,
    seed: int = 0,
) -> OpenTable:
    """Make ready to measure.

    Args:
        request: what is measured.
        gpu: the calibration that floors rest on; `None` = this GPU's own or the shipped one of its
            name. Where there is none, floors are streamed in the run.
        device: index of the GPU, as CUDA counts.
        known: rows of an earlier run that need not be measured again.
        on_progress: told before each kernel.
        options: effort.
        streamed_floors: stream the floors in the run, whatever calibration there is.
        floor_activations: whether streamed floors read the activations too.
        seed: of weights and activations.

    Raises:
        MissingDependency: torch or triton is not installed.
        MeasurementError: there is no GPU.
        CalibrationError: there is no calibration of this name.
        UsageError: an implementation is not known.
    """
    opened = opened_device(device)
    calibration = capture_calibration(gpu, opened.environment().device)
    notes: tuple[str, ...] = ()
    if calibration is None or streamed_floors:
        floor_of = run_floors(opened, options, floor_activations)
        what = "the same bytes" if floor_activations else "the same bytes less the activations"
        notes = (f"floors are {STREAMED}: {what} by a streaming kernel",)
    else:
        floor_of = calibrated_floors(calibration)
    operands = TorchOperands(f"cuda:{device}", seed)
    bench = Bench(opened, operands, registry, calibration, floor_of, options)
    notes = (*notes, *better_left(request))
    return OpenTable(TableRun(request, bench, known, on_progress), calibration, notes)


def better_left(request: TableRequest) -> list[str]:
    """Where cuBLAS in 16 bits was faster than the decode kernels, a line a format."""
    if request.implementations is not None and "own_decode" not in request.implementations:
        return []
    lines = []
    for one in request.formats:
        found = [
            item.workload.shape_text
            for item in request.items
            if one.activation.bits == 16 and behind_cublas(item.workload, one)
        ]
        if found:
            shapes = ", ".join(dict.fromkeys(found))
            lines.append(
                f"cublas_bf16 was faster than own_decode with {one.name} on an H200: {shapes}"
            )
    return lines


def profile_kernels(
    request: TableRequest,
    device: int = 0,
    launches: int = PROFILED_LAUNCHES,
    on_progress: OnProgress | None = None,
) -> tuple[Sequence[str], Sequence[str]]:
    """Launch every kernel a few times in an NVTX range of its own, for ncu to count; times nothing.

    Each is launched once before its range, so that compiling and tuning stay outside.

    Args:
        request: which kernels; the regime is what ncu's `--cache-control` makes it.
        device: index of the GPU.
        launches: in each range.
        on_progress: told before each kernel.

    Returns:
        The names of the ranges, and what could not be launched with the reason.

    Raises:
        MissingDependency: torch is not installed.
        MeasurementError: there is no GPU.
    """
    opened = opened_device(device)
    bench = Bench(opened, TorchOperands(f"cuda:{device}"), registry)
    run = TableRun(request, bench, tell=on_progress)
    refused = {f"{r.implementation or 'all'} in {r.format.name}: {r.reason}" for r in run.refused}
    named, failed = run.marked(nvtx_range(opened.torch), launches)
    return named, (*sorted(refused), *failed)


def opened_device(index: int) -> TorchDevice:
    """The GPU.

    Raises:
        MissingDependency: torch is not installed; says what works without.
        MeasurementError: there is no GPU; likewise.
    """
    try:
        return TorchDevice(index)
    except MissingDependency as error:
        raise MissingDependency(error.found, f"{error.remedy} Or, {WITHOUT_GPU}.") from None
    except MeasurementError as error:
        if error.cause is not MeasurementCause.NO_GPU:
            raise
        remedy = f"A CUDA GPU is needed to measure; {WITHOUT_GPU}."
        raise MeasurementError(error.cause, error.found, remedy) from None


def packed_shape(
    workload: Workload, number_format: NumberFormat, activations: bool = True
) -> PackedShape:
    """What a launch moves; without its activations where they are not asked for."""
    stored, moved = stored_weight(workload, number_format), format_traffic(workload, number_format)
    read = moved.activation_bytes if activations else 0
    return PackedShape(stored.codes, stored.scales, moved.output_bytes, read)


def run_floors(
    device: TorchDevice, options: TimingOptions = OPTIONS, activations: bool = True
) -> FloorOf:
    """Floors streamed beside the kernels: the same bytes, rotation and number of launches."""
    floors = StreamingFloors(device, options)

    def of(
        workload: Workload, number_format: NumberFormat, regime: Regime, launches: int | None
    ) -> tuple[float, str] | None:
        shape = packed_shape(workload, number_format, activations)
        return floors.of(shape, regime, launches).time_us, STREAMED

    return of


def nvtx_range(torch: Any) -> Range:
    """Push/pop ranges as `ncu --nvtx` sees them."""

    @contextmanager
    def marked(name: str) -> Iterator[None]:
        torch.cuda.nvtx.range_push(name)
        try:
            yield
        finally:
            torch.cuda.nvtx.range_pop()

    return marked
