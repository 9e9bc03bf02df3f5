"""Advice as people read it."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace

import pytest
from report import advice_samples as samples
from report.golden import assert_golden

from kernel_compass.api.advising import advise_model
from kernel_compass.codec.advice_json import decode
from kernel_compass.records.device import Device
from kernel_compass.records.profile import Regime
from kernel_compass.report.advice import render_advice
from kernel_compass.report.formats import Format


@pytest.mark.parametrize("name", samples.ALL)
@pytest.mark.parametrize("width", [80, 120])
def test_terminal_pictures(name, width):
    text = render_advice(samples.ALL[name](), Format.TERMINAL, width)
    assert_golden(f"advice_{name}_{width}.txt", text)


def test_markdown_picture():
    assert_golden("advice_one.md", render_advice(samples.one(), Format.MARKDOWN))


@pytest.mark.parametrize("name", samples.ALL)
@pytest.mark.parametrize("format", Format)
def test_every_format_ends_in_one_newline(name, format):
    text = render_advice(samples.ALL[name](), format)
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


@pytest.mark.parametrize("width", [20, 60, 80, 133])
@pytest.mark.parametrize("name", samples.ALL)
def test_nothing_is_wider_than_a_wide_enough_terminal(name, width):
    lines = render_advice(samples.ALL[name](), Format.TERMINAL, width).split("\n")
    assert max(map(len, lines)) <= max(width, 76 if name != "model" else 60)


@pytest.mark.parametrize("model", ["deepseek-v3", "llama-3.1-70b", "qwen3-235b-a22b"])
@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_a_models_table_shows_every_format_at_every_width(model, width):
    advice = advise_model(model, (1, 64), 4, "h200")
    text = render_advice(advice, Format.TERMINAL, width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    shown = [float(n) for n in re.findall(r"-(\d+\.\d\d)[?+-](?=\s|$)", text)]
    known = [f.at_most for w in advice.workloads for r in w.regimes for f in r.formats[1:]]
    assert sorted(shown) == sorted(round(value, 2) for value in known)
    for projection in {w.workload.name.removesuffix("_proj") for w in advice.workloads}:
        assert projection[:8] in text


def test_a_models_table_orders_what_to_probe():
    advice = advise_model("deepseek-v3", (1,), 8, "h200", (Regime.COLD,))
    baseline, w8a16, *_ = advice.workloads[0].regimes[0].formats
    ratio = baseline.estimate.time_us / w8a16.estimate.time_us
    line = f"{ratio:.2f}-{w8a16.at_most:.2f}?"
    assert line in render_advice(advice, Format.TERMINAL, 80)
    assert "times bf16 by the estimates, which orders what to probe" in " ".join(
        render_advice(advice, Format.TERMINAL, 80).split()
    )


def test_why_a_floor_is_extrapolated_is_said_where_people_look():
    row = samples.one().workloads[0].regimes[0].formats[-1]
    assert row.floor.notes == ("below the smallest point",)
    for format in (Format.TERMINAL, Format.MARKDOWN):
        text = render_advice(samples.one(), format).replace("\\", "")
        assert "~ floor of w4a16: below the smallest point" in text
    brief = replace(samples.one(), workloads=samples.one().workloads * 4)
    assert render_advice(brief, Format.TERMINAL).count("~ floor of w4a16: below the") == 1


def test_each_error_beyond_the_budget_is_marked():
    advice = replace(samples.one(), budget_pct=2.0)
    for format in (Format.TERMINAL, Format.MARKDOWN):
        text = render_advice(advice, format, 140)
        assert "int8 0.9 %, fp8 2.6 % (over)" in text
        assert "0.9 % (over)" not in text
        assert "error budget 2 %; over it: w8a16 in fp8, w8a8 in fp8, w4a16 in fp8" in text
    everything = render_advice(replace(advice, budget_pct=0.5), Format.TERMINAL, 160)
    assert "int8 0.9 % (over), fp8 2.6 % (over)" in everything
    assert "nothing is over it" in render_advice(replace(advice, budget_pct=6.0), Format.TERMINAL)
    at_once = render_advice(replace(samples.model(), budget_pct=5.0), Format.TERMINAL)
    assert "error budget 5 %; over it: w8a8 in fp8\n" in at_once
    assert "(over)" not in render_advice(samples.one(), Format.TERMINAL)


def test_colour_only_where_asked_for():
    assert "\x1b[" not in render_advice(samples.one(), Format.TERMINAL, 120)
    coloured = render_advice(samples.one(), Format.TERMINAL, 140, color=True)
    assert "\x1b[32mpays\x1b[0m" in coloured
    assert "\x1b[31mcannot pay\x1b[0m" in coloured


def test_json_is_the_document():
    assert decode(render_advice(samples.one(), Format.JSON)) == samples.one()


def test_csv_has_a_row_for_each_precision():
    rows = list(csv.DictReader(io.StringIO(render_advice(samples.model(), Format.CSV))))
    assert len(rows) == 6 * 1 * 4
    assert rows[0]["model"] == "deepseek-v3"
    assert rows[0]["estimate_us"] == str(3.9 * 1.3)
    assert rows[2]["within_budget"] == "false"
    assert rows[3]["floor_basis"] == "extrapolated"
    assert [r["verdict"] for r in rows[:4]] == ["", "cannot_tell", "cannot_pay", "pays"]
    (bare,) = csv.DictReader(io.StringIO(render_advice(samples.unknown(), Format.CSV)))
    assert bare["floor_us"] == bare["at_most"] == bare["estimate_us"] == ""


def test_hostile_names_cannot_steer_the_terminal():
    advice = replace(samples.one(), device=Device("GPU\x1b[2J\nrow"), calibration="x\x07y")
    assert "\x1b" not in render_advice(advice, Format.TERMINAL)
    assert "\x07" not in render_advice(advice, Format.MARKDOWN)
