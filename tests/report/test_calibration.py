"""Calibrations for people."""

from __future__ import annotations

import re
from dataclasses import replace

import calibration_samples as samples
import pytest
from report.golden import assert_golden

from kernel_compass.codec.calibration_json import decode
from kernel_compass.measurement.calibration_store import load
from kernel_compass.records.calibration import Basis, Quantity
from kernel_compass.report.calibration import render_calibration
from kernel_compass.report.formats import Format, Style


def shown(calibration, format=Format.TERMINAL, width=100, color=False, place=""):
    return render_calibration(calibration, format, Style(width, color), place)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_pictures_of_the_terminal(width):
    text = shown(samples.complete(), width=width, place="stored in /tmp/h200.json")
    assert_golden(f"calibration_{width}.txt", text)


@pytest.mark.parametrize("width", [60, 75, 100, 160])
@pytest.mark.parametrize("name", ["a100", "b200", "b300", "h100"])
def test_no_line_is_wider_than_the_terminal(name, width):
    longest = max(shown(load(name), width=width).splitlines(), key=len)
    assert len(longest) <= width, longest


def test_colour_adds_nothing_but_colour():
    plain = shown(samples.complete())
    coloured = shown(samples.complete(), color=True)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[\d*m", "", coloured) == plain


def test_every_number_has_its_basis_and_absent_ones_their_reason():
    text = shown(samples.complete())
    assert re.search(r"effective L2 \(c_eff\) +46\.0 MiB +44\.0 MiB to 48\.0 MiB +measured", text)
    assert re.search(r"launch in a CUDA graph +1\.08 us +1\.05 us to 1\.12 us +measured", text)
    assert re.search(r"int8 dense peak +902 TOP/s", text)
    assert re.search(r"fp8 dense peak +1,408 TFLOP/s", text)
    assert re.search(r"fp8 to bf16 +- +absent: not asked for", text)
    assert re.search(r"bound: DRAM bandwidth +4\.80 TB/s +datasheet", text)
    assert re.search(r"noise within a process +0\.40 %", text)


def test_the_curves_in_brief():
    text = shown(samples.complete())
    assert "warm read  1.00 MiB to 128 MiB, best 6.47 TB/s at 44.0 MiB" in text
    assert re.search(r"44\.0 MiB +7\.13 us +6\.47 +12\.7 us +3\.63 +- +-", text)
    assert re.search(r"48\.0 MiB +12\.2 us +4\.11", text)
    assert "cold read + write" in text
    sparks = re.findall(r"^[▁-█]+$", text, re.MULTILINE)
    assert [len(line) for line in sparks] == [8, 8, 2]
    assert sparks[0][4] == "█"


def test_extrapolated_curves_say_so():
    assert shown(load("h100")).count("extrapolated") == 2


def test_markdown_is_a_table_and_escapes():
    calibration = replace(samples.complete(), name="a|b", notes=("x | y *z*",))
    text = shown(calibration, Format.MARKDOWN, place="stored")
    assert text.startswith("## Calibration a\\|b\n")
    assert "> x \\| y \\*z\\*" in text
    widths = {line.count("|") - line.count("\\|") for line in text.splitlines() if line[:2] == "| "}
    assert len(widths) == 2
    assert_golden("calibration.md", shown(samples.complete(), Format.MARKDOWN))


def test_json_is_the_document():
    assert decode(shown(samples.complete(), Format.JSON)) == samples.complete()


def test_csv_is_no_form_of_it():
    with pytest.raises(ValueError, match="csv"):
        shown(samples.complete(), Format.CSV)


def test_an_empty_calibration_and_hostile_words():
    nothing = Quantity(None, Basis.ABSENT, "\x1b[31mred\nred")
    calibration = replace(
        samples.complete(),
        name="\x1b]0;title\x07",
        curves=(),
        c_eff_bytes=nothing,
        peak_tflops={"\x1bfp4": nothing},
        notes=("a\x1b[2Jb",),
    )
    for format in (Format.TERMINAL, Format.MARKDOWN):
        text = shown(calibration, format)
        assert "\x1b" not in text
        assert "\x07" not in text
        assert "absent" in text
