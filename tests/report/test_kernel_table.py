"""Kernel tables for people: what stands in them, in any width."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from report.kernel_samples import TABLE, planned, row

from kernel_compass.codec.kernel_table import decode, decode_csv
from kernel_compass.errors import UsageError
from kernel_compass.records.kernel_table import KernelTable
from kernel_compass.records.profile import Regime
from kernel_compass.report.formats import Format, Style
from kernel_compass.report.kernel_table import render_kernel_table
from kernel_compass.report.sparks import spark
from kernel_compass.report.sweep_plot import curves_of, sweep_svg


def text(table=TABLE, kind=Format.TERMINAL, width=140, color=False):
    return render_kernel_table(table, kind, Style(width, color))


def test_a_row_says_time_floor_ratios_rates_and_both_errors():
    line = next(x for x in text().splitlines() if "own_decode" in x)
    flops = 2 * 128 * 16 * 128 * 512
    for word in (
        "w4a16_gk",
        "4.00 us",
        "2.50 us",
        "1.60",
        "1.75",
        f"{flops / 4.0 / 1e6:.1f}",
        f"{6946816 / 4.0 / 1e3:,.0f}",
        "12.2 %",
        "0.17 %",
        "244 us",
    ):
        assert word in line, word


def test_both_products_are_added_up_where_one_kernel_did_both():
    totals = text().split("both products")[1]
    line = next(x for x in totals.splitlines() if "own_decode" in x)
    assert "7.00 us" in line and f"{61 * 7.0:.0f} us" in line and f"{13 / 7:.2f}" in line
    one = KernelTable(tuple(r for r in TABLE.rows if r.workload.name == "q_absorb"))
    assert "both products" not in text(one)


@pytest.mark.parametrize("width", [20, 60, 80, 100, 120, 200])
def test_no_line_is_wider_than_the_terminal_and_the_error_always_stays(width):
    lines = text(width=width).splitlines()
    assert max(map(len, lines)) <= max(width, 80)
    head = next(x for x in lines if x.lstrip().startswith("M "))
    for word in ("format", "kernel", "time", "floor", "headroom", "x bf16", "error"):
        assert word in head


@pytest.mark.parametrize("kind", [Format.TERMINAL, Format.MARKDOWN])
def test_who_has_no_time_has_a_reason_that_cannot_steer_a_terminal(kind):
    found = text(kind=kind)
    assert "other_w4" in found and "frobenius" in found
    assert "multiplies one matrix a launch" in found
    assert "\x1b" not in found


def test_doubts_and_notes_are_said_once():
    found = text()
    assert found.count("the clock moved") == 1
    assert "2 times: the clock moved" in found
    assert "calibration h200: the driver held the clocks back" in found


def test_markdown_tables_are_well_formed():
    lines = [x for x in text(kind=Format.MARKDOWN).splitlines() if x.startswith("|")]
    for first, second in pairwise(lines):
        if set(second) <= set("|- "):
            assert first.count("|") == second.count("|")
    assert any("own\\_decode" in x or "own_decode" in x for x in lines)


def test_json_and_csv_are_the_documents():
    assert decode(text(kind=Format.JSON)) == TABLE
    assert decode_csv(text(kind=Format.CSV)).rows == TABLE.rows


def test_a_plan_has_no_columns_of_times():
    found = text(KernelTable((planned(),), "h200", 4.5e7))
    assert "nothing was measured" in found
    for word in ("time", "headroom", "GB/s", "kernel"):
        assert f" {word} " not in found.splitlines()[3]
    assert "x layers" not in found


def test_an_empty_table_is_no_crash():
    assert "nothing was measured" in text(KernelTable(()))


def test_colour_changes_no_character():
    import re

    assert re.sub(r"\x1b\[\d+m", "", text(color=True)) == text()


def sweep(times):
    rows = []
    for n, time_us in times.items():
        workload = replace(row().workload, columns=n, name=None)
        rows.append(row(workload=workload, time_us=time_us, layers=None, model=None))
    return KernelTable(tuple(rows), "h200", 45e6)


def test_a_plot_has_a_curve_a_kernel_and_a_dashed_floor():
    table = sweep({512: 4.0, 1024: 6.0, 2048: 11.0})
    solid, dashed = curves_of(table, Regime.COLD)
    assert [p[0] for p in solid.points] == [16.0, 32.0, 64.0]
    assert [p[1] for p in solid.points] == [4.0, 6.0, 11.0]
    assert (solid.dashed, dashed.dashed) == (False, True)
    assert solid.color == dashed.color
    root = ET.fromstring(sweep_svg(table))
    paths = [e.get("points") for e in root.iter() if e.tag.endswith("polyline")]
    heights = [float(p.split(",")[1]) for p in paths[0].split()]
    assert heights == sorted(heights, reverse=True)  # a longer time is higher up
    assert max(heights) <= float(root.get("height"))


def test_a_plot_of_one_point_works_and_of_none_is_refused():
    ET.fromstring(sweep_svg(sweep({512: 4.0})))
    with pytest.raises(UsageError, match="no time and no floor"):
        sweep_svg(KernelTable((planned(floor_us=None),)))


def test_labels_of_a_plot_are_escaped():
    table = sweep({512: 4.0, 1024: 5.0})
    odd = replace(table, rows=tuple(replace(r, implementation="<b>&") for r in table.rows))
    assert any("<b>&" in (e.text or "") for e in ET.fromstring(sweep_svg(odd)).iter())


def test_blocks_grow_with_values_and_gaps_stay():
    assert spark([0.0, 0.5, 1.0]) == "▁▅█"
    assert spark([1.0, None, 2.0], top=4.0) == "▃ ▅"
    assert spark([]) == spark([None]) == spark([0.0]) == ""
