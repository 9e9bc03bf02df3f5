"""Advice as people read it."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest
from report import advice_samples as samples
from report.golden import assert_golden

from kernel_compass.codec.advice_json import decode
from kernel_compass.records.device import Device
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
    assert max(map(len, lines)) <= max(width, 76)  # below it the table keeps its columns


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
