"""Damage of every kind is refused or warned about; nothing else than our own errors comes out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ncu_files import Table, assert_same_kernels, golden_bytes, golden_table, read_text

from kernel_compass.errors import AmbiguousCapture, CaptureError, DamagedCapture
from kernel_compass.records.profile import Profile

LONG = golden_table("h200_decode_metrics.csv.xz")
DETAILS = golden_table("h200_truth_details.csv.xz")
WIDE = golden_table("h200_truth_raw.csv.xz")
FILES = {
    "metrics": golden_bytes("h200_decode_metrics.csv.xz"),
    "nvtx": golden_bytes("h200_nvtx.csv"),
    "processes": golden_bytes("h200_two_processes_error.csv"),
    "details": golden_bytes("h200_truth_details.csv.xz")[:60_000],
    "wide": golden_bytes("h200_truth_raw.csv.xz"),
    "log": golden_bytes("no_kernels.log"),
}


def examples(count: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


def outcome(folder: Path, data: bytes | str) -> Profile | None:
    """The profile, or `None` where the file was refused as it should be."""
    try:
        return read_text(folder, data)
    except CaptureError as refusal:
        assert refusal.found
        return None


@examples(60)
@given(data=st.data())
def test_bytes_of_any_kind(data: st.DataObject, tmp_path: Path) -> None:
    outcome(tmp_path, data.draw(st.binary(max_size=2000)))
    text = data.draw(st.text(alphabet='"ID,Kernel Nam\n\r\0=0.5 é%', max_size=500))
    outcome(tmp_path, text)


@examples(80)
@given(data=st.data())
@pytest.mark.parametrize("name", FILES)
def test_overwritten_bytes(name: str, data: st.DataObject, tmp_path: Path) -> None:
    content = bytearray(FILES[name])
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(content)))
        junk = data.draw(st.binary(max_size=30))
        end = start + data.draw(st.sampled_from([0, len(junk), 3000]))
        content[start:end] = junk
    outcome(tmp_path, bytes(content))


@examples(60)
@given(place=st.floats(0, 1))
@pytest.mark.parametrize("table", [LONG, DETAILS, WIDE], ids=["metrics", "details", "wide"])
def test_cut_inside_a_row(table: Table, place: float, tmp_path: Path) -> None:
    text = table.text()
    start = text.index("\n", text.index('"ID"'))
    cut = text[: start + 2 + int(place * (len(text) - start - 3))]
    found = outcome(tmp_path, cut)
    if found is not None:  # a cut at the end of a row
        assert any("fewer metrics" in w or "cut" in w for w in found.warnings) or (
            table is WIDE and cut.endswith("\n")
        )


@pytest.mark.parametrize("kept", range(1, 17))
def test_cut_between_rows_warns(kept: int, tmp_path: Path) -> None:
    lines = LONG.lines()
    end = len(LONG.preamble) + 1 + 3 * 17 + kept
    profile = read_text(tmp_path, "\n".join(lines[:end]) + "\n")
    (warning,) = [w for w in profile.warnings if "fewer metrics" in w]
    assert warning.startswith("1 of 4 launches")
    assert "smsp__cycles_active.avg" in warning or "more" in warning


@examples(60)
@given(data=st.data())
@pytest.mark.parametrize("table", [LONG, DETAILS], ids=["metrics", "details"])
def test_shifted_cells(table: Table, data: st.DataObject, tmp_path: Path) -> None:
    expected = profile_of(table, tmp_path)
    rows = [list(row) for row in table.rows]
    row = rows[data.draw(st.integers(0, len(rows) - 1))]
    before = list(row)
    moved = row.pop(data.draw(st.integers(0, len(row) - 1)))
    row.insert(data.draw(st.integers(0, len(row))), data.draw(st.sampled_from(["", moved])))
    shifted = Table(table.preamble, table.header, tuple(tuple(r) for r in rows))
    found = outcome(tmp_path, shifted.text())
    if found is not None and row != before and not any("fewer" in w for w in found.warnings):
        assert_same_kernels(found, expected)  # cells that mean nothing, such as the stream


@examples(40)
@given(data=st.data())
def test_shifted_cells_of_a_raw_page(data: st.DataObject, tmp_path: Path) -> None:
    rows = [list(row) for row in WIDE.rows]
    row = rows[data.draw(st.integers(1, len(rows) - 1))]
    first = data.draw(st.integers(0, WIDE.column("launch__block_size")))
    del row[first]
    row.insert(data.draw(st.integers(WIDE.column("launch__grid_size"), len(row))), "")
    shifted = Table(WIDE.preamble, WIDE.header, tuple(tuple(r) for r in rows))
    with pytest.raises(CaptureError):
        read_text(tmp_path, shifted.text())


def test_a_lost_or_added_cell_of_a_raw_page(tmp_path: Path) -> None:
    lines = WIDE.lines()
    for broken in (lines[2].replace('","', "", 1), lines[2] + ',"1"', lines[1] + ',"%"'):
        with pytest.raises(DamagedCapture):
            read_text(tmp_path, "\n".join([lines[0], lines[1], broken]))
    with pytest.raises(DamagedCapture, match="row of units"):
        read_text(tmp_path, "\n".join([lines[0], *lines[2:]]))


def test_units_that_contradict_the_names(tmp_path: Path) -> None:
    units = [unit.replace("%", "byte") for unit in LONG.cells("Metric Unit")]
    with pytest.raises(DamagedCapture, match="no unit of %"):
        profile_of(LONG.with_cells("Metric Unit", units), tmp_path)


def test_text_in_place_of_a_number(tmp_path: Path) -> None:
    cells = LONG.cells("Metric Value")
    cells[3] = "PolicySpread"
    with pytest.raises(DamagedCapture, match="no number"):
        profile_of(LONG.with_cells("Metric Value", cells), tmp_path)


def test_contradicting_numbers(tmp_path: Path) -> None:
    cells = LONG.cells("Metric Value")
    cells[LONG.cells("Metric Name").index("lts__t_sector_hit_rate.pct")] = "88,39"
    with pytest.raises(AmbiguousCapture):
        profile_of(LONG.with_cells("Metric Value", cells), tmp_path)


def test_a_launch_without_some_values_is_named(tmp_path: Path) -> None:
    cells = LONG.cells("Metric Value")
    cells[3] = "n/a"  # the first launch's duration
    profile = profile_of(LONG.with_cells("Metric Value", cells), tmp_path)
    whole = profile_of(LONG, tmp_path)
    assert profile.kernels[0].launches == whole.kernels[0].launches == 2
    stats = profile.kernels[0].duration_stats
    assert stats is not None
    assert stats.total < whole.kernels[0].duration_stats.total  # type: ignore[union-attr]
    (warning,) = profile.warnings
    assert warning.startswith("1 of 8 launches have no value")
    assert "gpu__time_duration.sum" in warning


def profile_of(table: Table, folder: Path) -> Profile:
    return read_text(folder, table.text())
