"""Build the shipped calibrations of A100, H100, B200 and B300 from published measurements.

    python benchmarks/build_published_calibrations.py --data FOLDER [--output FOLDER]

FOLDER holds `calibration_params.csv` and `residency_cliff.csv`: the constants and the warm re-read
bandwidths of github.com/zhan4808/cache-barrier, commit fe53b87, as tables.

The read curves are `extrapolated`: the fixed cost of a launch plus the bytes over the published
bandwidth, L2's up to `c_eff`, DRAM's from the foot of the cliff on, a straight line between. The
times behind residency_cliff.csv would be no floor: torch's sum reduction carries a fixed cost of
its own (6 us more than a launch on H100, 12 on B200), so that its warm re-read of 20 MiB would
take longer than a cold read by these constants. They serve `c_eff` alone.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kernel_compass.analysis.capacity import Capacity, capacity
from kernel_compass.analysis.capacity_grid import working_sets
from kernel_compass.codec.calibration_json import encode
from kernel_compass.measurement.datasheets import datasheet
from kernel_compass.records.calibration import (
    Access,
    Basis,
    Calibration,
    CurvePoint,
    NoiseFloor,
    Quantity,
    StreamCurve,
)
from kernel_compass.records.device import Device
from kernel_compass.records.environment import Environment
from kernel_compass.records.measurement import LaunchMode
from kernel_compass.records.profile import Regime
from kernel_compass.units import MIB

ORIGIN = "github.com/zhan4808/cache-barrier fe53b87"
DATE = "2026-08-03"
OUTPUT = Path(__file__).parents[1] / "src/kernel_compass/calibrations"
PARAMS = "calibration_params.csv"
CLIFF = "residency_cliff.csv"

DEVICES = {
    "a100": ("A100-40GB", "NVIDIA A100-SXM4-40GB"),
    "h100": ("H100-80GB", "NVIDIA H100 80GB HBM3"),
    "b200": ("B200", "NVIDIA B200"),
    "b300": ("B300", "NVIDIA B300 SXM6 AC"),
}
"""Short name: the GPU's name in the tables, and as the driver calls it (in `source_file`)."""


@dataclass(frozen=True)
class Published:
    """What the tables say about one GPU."""

    params: dict[str, str]
    dequantization: dict[str, str]
    grid: str
    sizes: np.ndarray
    """Bytes, `(sizes,)`."""
    times: np.ndarray
    """Microseconds, `(runs, sizes)`."""

    def number(self, column: str) -> float:
        """A constant of the harness."""
        return float(self.params[column])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    for name, data in build(args.data).items():
        (args.output / f"{name}.json").write_bytes(data)
        print(f"{args.output / f'{name}.json'}: {capacity_text(args.data, name)}")


def capacity_text(folder: Path, name: str) -> str:
    """`c_eff 40.25 MiB (40.00 to 41.00), run by run 40.25 40.25 40.75; published 39.75`."""
    data = read(DEVICES[name][0], rows(folder / PARAMS), rows(folder / CLIFF))
    found = capacity(data.sizes, data.times)
    each = [capacity(data.sizes, run) for run in data.times]
    assert found is not None
    runs = " ".join(f"{c.c_eff_bytes / MIB:.2f}" for c in each if c is not None)
    published = data.params["c_eff_fine_mib"] or data.params["c_eff_mib"]
    low, high = found.low_bytes / MIB, found.high_bytes / MIB
    text = f"c_eff {found.c_eff_bytes / MIB:.2f} MiB ({low:.2f} to {high:.2f})"
    return f"{text}, run by run {runs}; published {published}"


def build(data: Path) -> dict[str, bytes]:
    """The documents by short name."""
    params, cliffs = rows(data / PARAMS), rows(data / CLIFF)
    return {
        name: encode(calibration(name, driver_name, read(gpu, params, cliffs)))
        for name, (gpu, driver_name) in DEVICES.items()
    }


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def read(gpu: str, params: list[dict[str, str]], cliffs: list[dict[str, str]]) -> Published:
    mine = [row for row in params if row["gpu"] == gpu]
    harness = next(row for row in mine if row["params_set"] == "portable_harness")
    with_rate = next(row for row in mine if row["r_dequant_tbs"])
    grids = {row["grid"] for row in cliffs if row["gpu"] == gpu}
    grid = "fine_0.5mib" if "fine_0.5mib" in grids else "coarse_14pt"
    runs = defaultdict(list)
    for row in cliffs:
        if (row["gpu"], row["grid"]) == (gpu, grid):
            size = float(row["buffer_mib"]) * MIB
            runs[row["run"]].append((size, size / float(row["read_bw_tbs"]) / 1e6))
    tables = np.array([sorted(points) for _, points in sorted(runs.items())])
    return Published(harness, with_rate, grid, tables[0, :, 0], tables[:, :, 1])


def calibration(name: str, driver_name: str, data: Published) -> Calibration:
    found = capacity(data.sizes, data.times)
    assert found is not None, f"the published curve of {name} has no cliff"
    absent = Quantity(None, Basis.ABSENT, "not published")
    latency = Quantity(
        None, Basis.ABSENT, "Little's law needs the memory's latency, which was not published"
    )
    return Calibration(
        name=name,
        environment=Environment(
            Device(
                name=driver_name,
                sm_count=int(data.params["sm_count"]),
                l2_bytes=round(data.number("l2_nominal_mib") * MIB),
            ),
            date=DATE,
        ),
        launch_mode=LaunchMode.GRAPH,
        curves=(warm(data, found), cold(data)),
        c_eff_bytes=c_eff(data, found),
        peak_tflops={
            "bf16": measured(data.number("peak_tflops"), PARAMS, "peak_tflops", data.params),
            "fp8": absent,
            "int8": absent,
            "fp32": absent,
        },
        dequantization_tweights_s={"int4": int4_rate(data), "int8": absent, "fp8": absent},
        t0_graph_us=measured(data.number("t0_graph_us"), PARAMS, "t0_graph_us", data.params),
        t0_eager_us=measured(data.number("t0_eager_us"), PARAMS, "t0_eager_us", data.params),
        bytes_in_flight={"dram": latency, "l2": latency},
        noise=NoiseFloor(absent, absent),
        datasheet=datasheet(driver_name),
        notes=notes(data),
    )


def notes(data: Published) -> tuple[str, ...]:
    return (
        f"built by benchmarks/build_published_calibrations.py from {ORIGIN}; "
        "driver and software were not recorded with these constants",
        "one card; times are graph replays divided by their 10 launches, so that a share of the "
        "replay's own launch is in t0",
        f"the bf16 peak is fp16 storage: {data.params['peak_is']}",
        "activations and outputs were not streamed: there is no read_write curve",
    )


def measured(value: float, file: str, column: str, row: dict[str, str]) -> Quantity:
    source = f"{ORIGIN}: {file} {column} ({row['source_file']})"
    return Quantity(value, Basis.MEASURED, source)


def int4_rate(data: Published) -> Quantity:
    row = data.dequantization
    rate = measured(2 * float(row["r_dequant_tbs"]), PARAMS, "r_dequant_tbs", row)
    return Quantity(rate.value, rate.basis, f"{rate.source}, 2 weights a packed byte")


def c_eff(data: Published, found: Capacity) -> Quantity:
    runs = len(data.times)
    published = data.params["c_eff_fine_mib"] or data.params["c_eff_mib"]
    return Quantity(
        value=found.c_eff_bytes,
        basis=Basis.MEASURED,
        source=f"{ORIGIN}: {CLIFF} read_bw_tbs, grid {data.grid}, {runs} "
        f"run{'s' if runs > 1 else ''}: end of the L2 branch (published there as the midpoint of "
        f"the best and the first point 5 % below it: {published} MiB)",
        low=found.low_bytes,
        high=found.high_bytes,
    )


def warm(data: Published, found: Capacity) -> StreamCurve:
    """L2 up to the last resident size, DRAM from the foot of the cliff on."""
    t0, l2, dram = (data.number(c) for c in ("t0_graph_us", "bw_l2_tbs", "bw_hbm_tbs"))
    last, foot = round(found.last_resident_bytes), round(found.foot_bytes)
    sizes = sorted({last, foot, *(s for s in working_sets(False) if s < last or s > foot)})
    points = tuple(_point(s, t0, l2 if s <= last else dram) for s in sizes)
    source = f"t0_graph_us + bytes / bw_l2_tbs up to {last / MIB:.2f} MiB, + bytes / bw_hbm_tbs "
    source += f"from {foot / MIB:.2f} MiB on ({ORIGIN}: {PARAMS}; sizes: {CLIFF})"
    return StreamCurve(Access.READ, Regime.WARM, points, source)


def cold(data: Published) -> StreamCurve:
    t0, dram = data.number("t0_graph_us"), data.number("bw_hbm_tbs")
    points = tuple(_point(size, t0, dram) for size in working_sets(False))
    source = f"t0_graph_us + bytes / bw_hbm_tbs ({ORIGIN}: {PARAMS}); nothing was rotated"
    return StreamCurve(Access.READ, Regime.COLD, points, source)


def _point(size: int, t0_us: float, bandwidth_tbs: float) -> CurvePoint:
    return CurvePoint(size, round(t0_us + size / bandwidth_tbs / 1e6, 4), Basis.EXTRAPOLATED)


if __name__ == "__main__":
    main()
