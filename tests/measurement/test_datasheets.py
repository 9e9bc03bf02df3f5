"""Bounds from datasheets: dense, above everything measured, and absent where nothing is known."""

from __future__ import annotations

import pytest

from kernel_compass.measurement.calibration_store import list_shipped, load
from kernel_compass.measurement.datasheets import KEYS, datasheet
from kernel_compass.records.calibration import Access, Basis
from kernel_compass.records.profile import Regime

NAMES = {
    "NVIDIA A100-SXM4-40GB": (1.555, 312),
    "NVIDIA A100-SXM4-80GB": (2.039, 312),
    "NVIDIA A100 80GB PCIe": (1.935, 312),
    "NVIDIA H100 80GB HBM3": (3.35, 989.5),
    "NVIDIA H200": (4.8, 989.5),
    "NVIDIA B200": (8.0, 2250),
    "NVIDIA B300 SXM6 AC": (8.0, 2250),
}
SPARSE_BF16 = {"A100": 624, "H100": 1979, "H200": 1979, "B200": 4500, "B300": 4500}


@pytest.mark.parametrize("name", NAMES)
def test_known_devices(name):
    sheet = datasheet(name)
    assert tuple(sheet) == KEYS
    assert (sheet["dram_tbs"].value, sheet["bf16_tflops"].value) == NAMES[name]
    assert all(q.basis in (Basis.DATASHEET, Basis.ABSENT) for q in sheet.values())
    assert all("NVIDIA" in q.source and "datasheet" in q.source for q in sheet.values())


@pytest.mark.parametrize("name", NAMES)
def test_no_sparse_peak_is_labelled_dense(name):
    sheet = datasheet(name)
    family = next(word for word in SPARSE_BF16 if word in name)
    assert sheet["bf16_tflops"].value == pytest.approx(SPARSE_BF16[family] / 2, rel=1e-3)
    for key in ("fp8_tflops", "int8_tflops"):
        if sheet[key].value is not None:
            assert sheet[key].value == 2 * sheet["bf16_tflops"].value


@pytest.mark.parametrize(
    "name",
    [
        None,
        "",
        "NVIDIA GeForce RTX 4090",
        "NVIDIA H100 PCIe",
        "NVIDIA H200 NVL",
        "NVIDIA GB200",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "AMD Instinct MI300X",
        "H2000",
    ],
)
def test_what_is_not_listed_is_absent(name):
    sheet = datasheet(name)
    assert tuple(sheet) == KEYS
    assert {(q.value, q.basis) for q in sheet.values()} == {(None, Basis.ABSENT)}


def test_formats_that_are_missing_or_disputed_say_why():
    assert "not supported" in datasheet("NVIDIA A100-SXM4-40GB")["fp8_tflops"].source
    assert "differ" in datasheet("NVIDIA B300 SXM6 AC")["int8_tflops"].source


@pytest.mark.parametrize("name", list_shipped())
def test_nothing_measured_exceeds_its_bound(name):
    calibration = load(name)
    bounds = calibration.datasheet
    for key, peak in calibration.peak_tflops.items():
        bound = bounds[f"{key}_tflops"].value
        if peak.value is not None and bound is not None:
            assert peak.value <= bound
    cold = calibration.curve(Access.READ, Regime.COLD)
    assert max(p.bandwidth_tbs for p in cold.points) <= bounds["dram_tbs"].value
