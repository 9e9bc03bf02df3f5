"""CSV and markdown."""

from __future__ import annotations

import csv
import re
from io import StringIO

import pytest
from report import samples
from report.golden import assert_golden

from kernel_compass.codec.diagnosis_document import REQUIRED_METRICS
from kernel_compass.report.csv import COLUMNS
from kernel_compass.report.formats import Format
from kernel_compass.report.render import render, render_many


def rows_of(*reports):
    text = render_many(reports, Format.CSV)
    return list(csv.DictReader(StringIO(text), strict=True))


def test_csv_picture():
    assert_golden("bmm_regimes.csv", render(samples.bmm_regimes(), Format.CSV))


def test_csv_columns_are_stable():
    assert COLUMNS[:5] == ("source", "label", "regime", "rank", "kernel")
    assert set(REQUIRED_METRICS) <= set(COLUMNS)
    assert len(set(COLUMNS)) == len(COLUMNS)
    assert tuple(rows_of(samples.empty())) == ()


def test_csv_has_one_row_for_each_kernel_and_regime():
    rows = rows_of(samples.bmm_regimes())
    assert [(r["rank"], r["regime"]) for r in rows] == [
        (rank, regime) for rank in "12" for regime in ("warm", "in_situ", "cold")
    ] + [("3", "warm")]
    assert rows[5]["source"] == "captures/cold.csv"
    assert float(rows[5]["duration_mean_us"]) == 9.12
    assert float(rows[5]["dram_bytes_read"]) == 16 * samples.MIB
    for regime in ("warm", "in_situ", "cold"):
        shares = [float(r["share_of_time"]) for r in rows if r["regime"] == regime]
        assert sum(shares) == pytest.approx(1.0)


def test_csv_reads_back():
    rows = rows_of(samples.decode(), samples.sparse())
    assert len(rows) == 9
    assert rows[1]["kernel"] == samples.BMM_LARGE
    assert rows[1]["flags"] == ""
    assert (rows[1]["grid_x"], rows[1]["grid_y"], rows[1]["grid_z"]) == ("2", "66", "1")
    assert float(rows[1]["headroom"]) == 1.08
    assert rows[3]["kernel"] == samples.ADD_8 or rows[3]["kernel"] == samples.ADD_4
    assert rows[8]["label"] == "Größe 行列 λ|1 *bold*"


def test_csv_leaves_unknown_cells_empty():
    row = rows_of(samples.sparse())[0]
    empty = ("grid_x", "block_z", "duration_mean_us", "share_of_time", "dram_bytes_read", "pipe")
    assert {row[column] for column in empty} == {""}


def test_markdown_picture():
    assert_golden("bmm_regimes.md", render(samples.bmm_regimes(), Format.MARKDOWN))


@pytest.mark.parametrize("name", samples.ALL)
def test_markdown_tables_have_as_many_cells_in_every_row(name):
    text = render(samples.ALL[name](), Format.MARKDOWN)
    table = [line for line in text.split("\n") if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) <= 1


def test_markdown_escapes_what_is_not_meant():
    text = render(samples.sparse(), Format.MARKDOWN)
    assert r"## Größe 行列 λ\|1 \*bold\*" in text
    assert r"| `matmul\|naive` |" in text
    assert "\n`matmul|naive<float>`\n" in text
    assert "dram_bound" in text


def test_markdown_names_every_flag_and_advice():
    text = render(samples.decode(), Format.MARKDOWN)
    assert text.count("what would help: Fuse it with its neighbours") == 3
    assert "occupancy_limited_by_shared_memory" in text
