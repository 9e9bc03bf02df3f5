"""A kernel table with one of everything."""

from __future__ import annotations

from dataclasses import replace

from kernel_compass.records.advice import CacheFit
from kernel_compass.records.device import Device
from kernel_compass.records.environment import Environment
from kernel_compass.records.kernel_table import KernelRow, KernelTable, RowStatus
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import Op, Workload

MACHINE = Environment(
    Device("NVIDIA H200", "9.0", 132, 62914560),
    driver="580.1",
    torch="2.11.0",
    triton="3.6.0",
    python="3.12",
    kernel_compass="0.1",
    date="2026-12-01T00:00:00Z",
)


def row(**changes) -> KernelRow:
    """A measured 4-bit kernel."""
    one = KernelRow(
        workload=Workload(Op.BMM, 128, 16, 128, 512, "q_absorb"),
        format=NumberFormat.parse("w4a16_gk"),
        implementation="own_decode",
        regime=Regime.COLD,
        status=RowStatus.MEASURED,
        weight_bytes=4325376,
        moved_bytes=6946816,
        model="deepseek-v3",
        layers=61,
        cache_fit=CacheFit.FITS,
        floor_us=2.5,
        floor_basis="calibration h200",
        time_us=4.0,
        spread_pct=0.5,
        launches=256,
        fidelity_error_pct=0.17,
        format_error_pct=12.25,
        baseline_us=7.0,
        warnings=("the clock moved", "half of the samples lie far off"),
        environment=MACHINE,
    )
    return replace(one, **changes)


def planned(**changes) -> KernelRow:
    """The same before anything was run."""
    nothing = {
        "implementation": None,
        "status": RowStatus.PLANNED,
        "time_us": None,
        "spread_pct": None,
        "launches": None,
        "fidelity_error_pct": None,
        "format_error_pct": None,
        "baseline_us": None,
        "warnings": (),
        "environment": None,
    }
    return row(**nothing | changes)


BF16 = {
    "format": NumberFormat.parse("bf16"),
    "implementation": "cublas_bf16",
    "time_us": 7.0,
    "format_error_pct": 0.17,
    "weight_bytes": 16777216,
    "warnings": (),
}
V_UP = Workload(Op.BMM, 128, 16, 512, 128, "v_up")
TABLE = KernelTable(
    rows=(
        row(),
        row(**BF16),
        row(workload=V_UP, time_us=3.0, baseline_us=6.0),
        row(workload=V_UP, **BF16 | {"time_us": 6.0, "baseline_us": 6.0}),
        row(
            implementation="other_w4",
            status=RowStatus.FAILED,
            time_us=None,
            reason="frobenius: 12 % off | \x1b[31mred",
            launches=None,
            warnings=(),
        ),
        row(
            implementation="int_mm",
            status=RowStatus.UNSUPPORTED,
            time_us=None,
            reason="multiplies one matrix a launch",
            launches=None,
            warnings=(),
        ),
    ),
    calibration="h200",
    c_eff_bytes=4.5e7,
    notes=("the driver held the clocks back",),
)
