"""Unit and name cells."""

from __future__ import annotations

import pytest

from kernel_compass.errors import DamagedCapture
from kernel_compass.profiling.metric_cells import DURATION, read_metric_cells
from kernel_compass.profiling.metrics import SPELLINGS
from kernel_compass.profiling.unit_names import UnitKind, parse_unit
from kernel_compass.records.metrics import METRICS


@pytest.mark.parametrize(
    ("text", "kind", "factor"),
    [
        ("", UnitKind.NONE, 1),
        ("%", UnitKind.PERCENT, 1),
        ("ns", UnitKind.TIME, 1e-3),
        ("nsecond", UnitKind.TIME, 1e-3),
        ("us", UnitKind.TIME, 1),
        ("usecond", UnitKind.TIME, 1),
        ("ms", UnitKind.TIME, 1e3),
        ("msecond", UnitKind.TIME, 1e3),
        ("s", UnitKind.TIME, 1e6),
        ("second", UnitKind.TIME, 1e6),
        ("byte", UnitKind.BYTES, 1),
        ("Kbyte", UnitKind.BYTES, 1e3),
        ("Mbyte", UnitKind.BYTES, 1e6),
        ("Gbyte", UnitKind.BYTES, 1e9),
        ("Tbyte", UnitKind.BYTES, 1e12),
        ("byte/block", UnitKind.BYTES, 1),
        ("Kbyte/block", UnitKind.BYTES, 1e3),
        ("byte/s", UnitKind.BANDWIDTH, 1),
        ("byte/second", UnitKind.BANDWIDTH, 1),
        ("Gbyte/second", UnitKind.BANDWIDTH, 1e9),
        ("Tbyte/s", UnitKind.BANDWIDTH, 1e12),
        ("hz", UnitKind.FREQUENCY, 1),
        ("Khz", UnitKind.FREQUENCY, 1e3),
        ("Mhz", UnitKind.FREQUENCY, 1e6),
        ("Ghz", UnitKind.FREQUENCY, 1e9),
        ("cycle/second", UnitKind.FREQUENCY, 1),
        ("cycle/usecond", UnitKind.FREQUENCY, 1e6),
        ("cycle/nsecond", UnitKind.FREQUENCY, 1e9),
        ("inst", UnitKind.COUNT, 1),
        ("Kinst", UnitKind.COUNT, 1e3),
        ("Msector", UnitKind.COUNT, 1e6),
        ("register/thread", UnitKind.COUNT, 1),
        ("inst/cycle", UnitKind.COUNT, 1),
        ("sector/ns", UnitKind.RATE, 1),
        ("furlong", UnitKind.UNKNOWN, 1),
    ],
)
def test_units(text: str, kind: UnitKind, factor: float) -> None:
    unit = parse_unit(text)
    assert unit.kind is kind
    assert unit.factor == pytest.approx(factor)


def test_every_spelling_resolves_to_its_key() -> None:
    units = {"%": "%", "bytes": "byte", "bytes/s": "byte/second", "Hz": "hz"}
    for spelling in SPELLINGS:
        unit = units.get(METRICS[spelling.key][0], "")
        for rank, name in enumerate(spelling.names):
            found = read_metric_cells(name, "sector" if spelling.factor != 1 else unit)
            assert (found.key, found.rank, found.factor) == (spelling.key, rank, spelling.factor)
        for label, _ in spelling.labels:
            assert read_metric_cells(label, unit).key == spelling.key, label


def test_one_label_two_meanings() -> None:
    assert read_metric_cells("Memory Throughput", "%").key == "memory_throughput_pct"
    rate = read_metric_cells("Memory Throughput", "Gbyte/second")
    assert (rate.key, rate.factor) == ("dram_bytes_per_second", 1e9)
    with pytest.raises(DamagedCapture):
        read_metric_cells("Memory Throughput", "cycle/nsecond")


def test_labels_with_names_and_body_items() -> None:
    name = "DRAM Frequency (dram__cycles_elapsed.avg.per_second)"
    assert read_metric_cells(name, "cycle/nsecond").key == "dram_frequency_hz"
    assert read_metric_cells("Compute (SM) Throughput", "%").key == "sm_throughput_pct"
    assert read_metric_cells("Memory [%]", "%", labels=False).key is None


def test_durations() -> None:
    assert read_metric_cells("gpu__time_duration.sum", "nsecond").key == DURATION
    assert read_metric_cells("Duration", "msecond").factor == pytest.approx(1e3)
    assert read_metric_cells("Duration", "").dropped


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("%", "88.44"),
        ("88.44", ""),
        ("", "%"),
        ("dram__bytes.sum", "Command line profiler metrics"),
        ("dram__bytes.sum", "dram__bytes.sum"),
        ("dram__bytes.sum", "12"),
        ("Mbyte", "byte"),
        ("gpu__time_duration.sum", "%"),
        ("dram__bytes.sum", "us"),
        ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "byte"),
        ("launch__registers_per_thread", "%"),
    ],
)
def test_shifted_cells(name: str, unit: str) -> None:
    with pytest.raises(DamagedCapture):
        read_metric_cells(name, unit)
