"""A calibration as rows of words: what the terminal and markdown say alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernel_compass.records.calibration import (
    Access,
    Basis,
    Calibration,
    CurvePoint,
    Quantity,
    StreamCurve,
)
from kernel_compass.report.phrases import device_text, plain
from kernel_compass.report.sparks import spark
from kernel_compass.units import MIB, MISSING, bytes_text, duration_text, quantity_text

_FORMATS = {"bf16": "TFLOP/s", "fp8": "TFLOP/s", "int8": "TOP/s", "fp32": "TFLOP/s"}
_LEVELS = {"dram": "DRAM", "l2": "L2"}
_SHOWN_MIB = (1, 4, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True)
class Row:
    """One number."""

    name: str
    value: str
    """`-` where it is absent."""
    interval: str
    """Empty without one."""
    basis: str
    source: str
    absent: bool = False


@dataclass(frozen=True)
class CurveTable:
    """The curves in brief: some working sets, each curve's time and bandwidth there."""

    heads: tuple[str, ...]
    """Two for each curve, after the working set's."""
    rows: tuple[tuple[str, ...], ...]


def heading_texts(calibration: Calibration) -> tuple[str, str, str]:
    """Its name, its device, and under what it was measured."""
    e = calibration.environment
    known = (("driver", e.driver), ("torch", e.torch), ("triton", e.triton))
    parts = [f"{name} {plain(value)}" for name, value in known if value]
    parts += [plain(e.date)] if e.date else []
    how = ", ".join(parts) or "driver and software not recorded"
    return f"Calibration {plain(calibration.name)}", device_text(e.device), how


def rows(calibration: Calibration) -> Iterator[Row]:
    """All single numbers, in the order they matter."""
    c = calibration
    yield _row("effective L2 (c_eff)", c.c_eff_bytes, "bytes")
    yield _row("launch in a CUDA graph", c.t0_graph_us, "us")
    yield _row("eager launch", c.t0_eager_us, "us")
    for name, quantity in c.peak_tflops.items():
        yield _row(f"{plain(name)} dense peak", quantity, _FORMATS.get(name, "TFLOP/s"))
    for name, quantity in c.dequantization_tweights_s.items():
        yield _row(f"{plain(name)} to bf16", quantity, "Tweights/s")
    for name, quantity in c.bytes_in_flight.items():
        level = _LEVELS.get(name, plain(name))
        yield _row(f"bytes in flight for {level}", quantity, "bytes")
    yield _row("noise within a process", c.noise.within_process_pct, "%")
    yield _row("noise between processes", c.noise.between_processes_pct, "%")
    for name, quantity in c.datasheet.items():
        yield _row(f"bound: {_bound_name(name)}", quantity, _bound_unit(name))


def curve_table(calibration: Calibration) -> CurveTable | None:
    """Some sizes of all curves, the two on either side of `c_eff` among them."""
    curves = [curve for curve in calibration.curves if curve.points]
    if not curves:
        return None
    heads = ["working set"]
    for curve in curves:
        heads += [curve_name(curve), "TB/s"]
    lines = []
    for size in _shown_sizes(curves, calibration.c_eff_bytes):
        cells = [bytes_text(size)]
        for curve in curves:
            point = next((p for p in curve.points if p.bytes == size), None)
            cells += _point_cells(point)
        lines.append(tuple(cells))
    return CurveTable(tuple(heads), tuple(lines))


def curve_name(curve: StreamCurve) -> str:
    """`warm read`, `cold read + write`."""
    access = "read" if curve.access is Access.READ else "read + write"
    return f"{curve.regime.value} {access}"


def spark_text(curve: StreamCurve) -> str:
    """Bandwidth over the sizes as a line of blocks, from nothing to the curve's best."""
    return spark([point.bandwidth_tbs for point in curve.points])


def spark_caption(curve: StreamCurve) -> str:
    """`0.50 MiB to 512 MiB, best 6.47 TB/s at 44.0 MiB, 32 of 40 points extrapolated`."""
    points = curve.points
    best = max(points, key=lambda p: p.bandwidth_tbs)
    text = f"{bytes_text(points[0].bytes)} to {bytes_text(points[-1].bytes)}, "
    text += f"best {best.bandwidth_tbs:.2f} TB/s at {bytes_text(best.bytes)}"
    derived = sum(p.basis is not Basis.MEASURED for p in points)
    if derived == len(points):
        return f"{text}, extrapolated"
    return f"{text}, {derived} of {len(points)} points extrapolated" if derived else text


def _row(name: str, quantity: Quantity, unit: str) -> Row:
    absent = quantity.value is None
    low, high = quantity.low, quantity.high
    interval = ""
    if low is not None and high is not None:
        interval = f"{_number(low, unit)} to {_number(high, unit)}"
    return Row(
        name=name,
        value=MISSING if quantity.value is None else _number(quantity.value, unit),
        interval=interval,
        basis=quantity.basis.value,
        source=plain(quantity.source),
        absent=absent,
    )


def _number(value: float, unit: str) -> str:
    if unit == "us":
        return duration_text(value)
    # Noise is a fraction of a percent: a digit more than percentages have elsewhere.
    return f"{value:.2f} %" if unit == "%" else quantity_text(value, unit)


def _bound_name(key: str) -> str:
    word = key.rpartition("_")[0]
    return "DRAM bandwidth" if word == "dram" else f"{plain(word)} dense peak"


def _bound_unit(key: str) -> str:
    word, _, unit = key.rpartition("_")
    if unit == "tbs":
        return "TB/s"
    return _FORMATS.get(word, "TFLOP/s")


def _point_cells(point: CurvePoint | None) -> list[str]:
    if point is None:
        return [MISSING, MISSING]
    return [duration_text(point.duration_us), f"{point.bandwidth_tbs:.2f}"]


def _shown_sizes(curves: Sequence[StreamCurve], c_eff: Quantity) -> list[int]:
    """Powers of two, and of the first curve the last size before `c_eff` and the one behind it."""
    there = {point.bytes for curve in curves for point in curve.points}
    shown = {mib * MIB for mib in _SHOWN_MIB} & there
    if c_eff.value is not None:
        first = [point.bytes for point in curves[0].points]
        shown |= set([s for s in first if s <= c_eff.value][-1:])
        shown |= set([s for s in first if s > c_eff.value][:1])
    return sorted(shown or there)
