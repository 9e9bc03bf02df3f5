"""One capture written in many ways reads as one profile."""

from __future__ import annotations

import csv
import gzip
import lzma
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ncu_files import Table, assert_same_kernels, golden_table, read_text

from kernel_compass.errors import DamagedCapture
from kernel_compass.profiling.capture import read_capture
from kernel_compass.records.profile import Profile

LONG = golden_table("h200_decode_metrics.csv.xz")
DETAILS = golden_table("h200_truth_details.csv.xz")
WIDE = golden_table("h200_truth_raw.csv.xz")

few = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

PROGRAM_LINES = (
    "step 3, loss 0.125",
    '"quoted", line with a quote',
    '"5","ms"',
    '==PROF== Profiling "scale" - 0: 0%....50%....100% - 9 passes',
    "==WARNING== Launch configuration unusual",
    "    continuation of a warning, without a mark",
    "1,2,3",
    '{"loss": 0.1, "ids": [1, 2]}',
    "  [flashinfer] decode ... ==PROF== Connected to process 7911 (/usr/bin/python3.10)",
    "",
    "ünïcode \u202f text",
    "ID,name,value",
)
LOCALES = {
    "C": ("", "."),
    "en_US": (",", "."),
    "de_DE": (".", ","),
    "fr_FR": (" ", ","),
    "fr_FR.nbsp": ("\u00a0", ","),
    "fr_FR.utf8": ("\u202f", ","),
    "de_CH": ("\u2019", "."),
    "pt_PT.old": ("", ","),
}
SCALES = {
    "ns": [("us", 1e3), ("ms", 1e6), ("usecond", 1e3), ("nsecond", 1.0)],
    "byte": [("Kbyte", 1e3), ("Mbyte", 1e6), ("byte", 1.0)],
    "byte/block": [("Kbyte/block", 1e3)],
}


def localized(text: str, group: str, decimal: str) -> str:
    """An en_US number as another locale writes it; other text as it is."""
    if not text or not all(c.isdigit() or c in ",.-" for c in text):
        return text
    return text.replace(".", "\0").replace(",", group).replace("\0", decimal)


def in_locale(table: Table, name: str) -> Table:
    group, decimal = LOCALES[name]
    cells = [localized(c, group, decimal) for c in table.cells("Metric Value")]
    return table.with_cells("Metric Value", cells)


def profile_of(table: Table, folder: Path) -> Profile:
    return read_text(folder, table.text())


@pytest.mark.parametrize("locale", LOCALES)
@pytest.mark.parametrize("table", [LONG, DETAILS], ids=["metrics", "details"])
def test_locale(table: Table, locale: str, tmp_path: Path) -> None:
    expected = profile_of(table, tmp_path)
    assert_same_kernels(profile_of(in_locale(table, locale), tmp_path), expected)


@pytest.mark.parametrize("locale", ["C", "de_DE", "fr_FR"])
def test_locale_of_a_raw_page(locale: str, tmp_path: Path) -> None:
    group, decimal = LOCALES[locale]
    start = WIDE.column("CC") + 1
    rows = tuple(
        (*row[:start], *(localized(cell, group, decimal) for cell in row[start:]))
        for row in WIDE.rows
    )
    expected = profile_of(WIDE, tmp_path)
    assert_same_kernels(profile_of(replace(WIDE, rows=rows), tmp_path), expected)


@few
@given(data=st.data())
def test_scaled_units_row_by_row(data: st.DataObject, tmp_path: Path) -> None:
    values, units = [], []
    for unit, text in zip(LONG.cells("Metric Unit"), LONG.cells("Metric Value"), strict=True):
        scaled_unit, divisor = data.draw(st.sampled_from(SCALES.get(unit, [(unit, 0.0)])))
        value = f"{float(text.replace(',', '')) / divisor:.9f}" if divisor else text
        values.append(value)
        units.append(scaled_unit)
    scaled = LONG.with_cells("Metric Value", values).with_cells("Metric Unit", units)
    assert_same_kernels(profile_of(scaled, tmp_path), profile_of(LONG, tmp_path), rel=1e-6)


def _encodings(text: str) -> dict[str, bytes]:
    plain = text.encode()
    return {
        "bom": b"\xef\xbb\xbf" + plain,
        "crlf": text.replace("\n", "\r\n").encode(),
        "bom and crlf": b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode(),
        "powershell": text.replace("\n", "\r\n").encode("utf-16"),
        "utf-16 big endian": b"\xfe\xff" + text.encode("utf-16-be"),
        "utf-16 without bom": text.encode("utf-16-le"),
        "gzip": gzip.compress(plain),
        "xz": lzma.compress(plain),
        "latin-1 output": "größe\n".encode("latin-1") + plain,
        "no last line end": plain.rstrip(b"\n"),
    }


@pytest.mark.parametrize("encoding", _encodings(""))
@pytest.mark.parametrize("table", [LONG, WIDE], ids=["long", "wide"])
def test_encoding(table: Table, encoding: str, tmp_path: Path) -> None:
    found = read_text(tmp_path, _encodings(table.text())[encoding])
    assert_same_kernels(found, profile_of(table, tmp_path))
    assert any("line end" in w for w in found.warnings) == (encoding == "no last line end")


@few
@given(data=st.data())
@pytest.mark.parametrize("table", [LONG, WIDE, DETAILS], ids=["long", "wide", "details"])
def test_interleaved_program_output(table: Table, data: st.DataObject, tmp_path: Path) -> None:
    lines = table.lines()
    for text in data.draw(st.lists(st.sampled_from(PROGRAM_LINES), min_size=1, max_size=30)):
        lines.insert(data.draw(st.integers(0, len(lines))), text)
    found = read_text(tmp_path, "\n".join(lines) + "\n")
    assert_same_kernels(found, profile_of(table, tmp_path))


def test_program_output_without_a_line_end(tmp_path: Path) -> None:
    lines = LONG.lines()
    header = len(LONG.preamble)
    lines[header] = f"50 %...{lines[header]}"
    lines[header + 3] = f"done, 7{lines[header + 3]}"
    found = read_text(tmp_path, "\n".join(lines))
    assert_same_kernels(found, profile_of(LONG, tmp_path))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("table", [LONG, WIDE, DETAILS], ids=["long", "wide", "details"])
def test_column_order_and_extra_columns(table: Table, seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    nvtx = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
    rules = table.header.index("Rule Name") if "Rule Name" in table.header else len(table.header)
    order: list[int | None] = [*draw.sample(range(rules), rules), None]
    draw.shuffle(order)
    rows = [
        (*(_cell(row, i, '7  "default:step"') for i in order), *row[rules:]) for row in table.rows
    ]
    header = (*(_cell(table.header, i, nvtx) for i in order), *table.header[rules:])
    moved = Table(table.preamble, header, tuple(rows))
    assert_same_kernels(profile_of(moved, tmp_path), profile_of(table, tmp_path))


@pytest.mark.parametrize("first", ["Kernel Name", None], ids=["a known column", "an extra one"])
@pytest.mark.parametrize("table", [LONG, WIDE, DETAILS], ids=["long", "wide", "details"])
def test_a_column_before_the_id(table: Table, first: str | None, tmp_path: Path) -> None:
    at = None if first is None else table.header.index(first)
    rest = [i for i in range(len(table.header)) if i != at]

    def moved(row: tuple[str, ...], extra: str) -> tuple[str, ...]:
        return (_cell(row, at, extra), *(row[i] for i in rest if i < len(row)))

    rows = tuple(moved(row, "") for row in table.rows)
    found = profile_of(Table(table.preamble, moved(table.header, "Mine"), rows), tmp_path)
    assert_same_kernels(found, profile_of(table, tmp_path))


def _cell(row: tuple[str, ...], at: int | None, extra: str) -> str:
    return extra if at is None else row[at]


@few
@given(places=st.lists(st.integers(0, 100), min_size=1, max_size=4))
@pytest.mark.parametrize("table", [LONG, DETAILS], ids=["metrics", "details"])
def test_repeated_header(table: Table, places: list[int], tmp_path: Path) -> None:
    lines = table.lines()
    header = lines[len(table.preamble)]
    for place in places:
        lines.insert(len(table.preamble) + 1 + place, header)
    found = read_text(tmp_path, "\n".join(lines) + "\n")
    assert_same_kernels(found, profile_of(table, tmp_path))


def test_repeated_header_of_a_raw_page(tmp_path: Path) -> None:
    lines = WIDE.lines()
    lines[5:5] = lines[:2]
    found = read_text(tmp_path, "\n".join(lines) + "\n")
    assert_same_kernels(found, profile_of(WIDE, tmp_path))


@few
@given(order=st.permutations(range(17)))
def test_launches_split_over_the_file(order: list[int], tmp_path: Path) -> None:
    rank = {metric: order[i] for i, metric in enumerate(dict.fromkeys(LONG.cells("Metric Name")))}
    name = LONG.column("Metric Name")
    split = replace(LONG, rows=tuple(sorted(LONG.rows, key=lambda row: rank[row[name]])))
    assert_same_kernels(profile_of(split, tmp_path), profile_of(LONG, tmp_path))


@pytest.mark.parametrize("table", [LONG, WIDE, DETAILS], ids=["long", "wide", "details"])
def test_saved_again_without_needless_quotes(table: Table, tmp_path: Path) -> None:
    text = "\n".join(table.lines(csv.QUOTE_MINIMAL)) + "\n"
    assert_same_kernels(read_text(tmp_path, text), profile_of(table, tmp_path))


def test_labels_names_and_both(tmp_path: Path) -> None:
    names = LONG.cells("Metric Name")
    both = LONG.with_cells("Metric Name", [f"Some Label ({name})" for name in names])
    assert_same_kernels(profile_of(both, tmp_path), profile_of(LONG, tmp_path))


def test_two_runs_in_one_file_are_refused(tmp_path: Path) -> None:
    pids = LONG.with_cells("Process ID", ["99"] * len(LONG.rows))
    with pytest.raises(DamagedCapture, match="two reports"):
        read_text(tmp_path, LONG.text() + pids.text())


def test_reading_twice_gives_equal_profiles(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(LONG.text())
    assert read_capture(path) == read_capture(path)
