"""The terminal output: pictures of it, and what must hold at any width."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from report import samples
from report.golden import assert_golden
from rich.cells import cell_len

from kernel_compass.records.diagnosis import Evidence
from kernel_compass.records.report import Report
from kernel_compass.report.formats import Format
from kernel_compass.report.render import render, render_many

WIDTHS = (60, 80, 100, 120, 200)


def text_of(report: Report, width: int | None = 100, color: bool = False) -> str:
    return render(report, Format.TERMINAL, width, color)


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", samples.ALL)
def test_picture(name, width):
    assert_golden(f"terminal_{name}_{width}.txt", text_of(samples.ALL[name](), width))


def test_picture_in_colour():
    assert_golden("terminal_bmm_regimes_color.txt", text_of(samples.bmm_regimes(), 100, True))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", samples.ALL)
def test_no_line_is_wider_than_the_terminal(name, width):
    lines = text_of(samples.ALL[name](), width).split("\n")
    assert max(map(cell_len, lines)) <= width
    assert not any(line.endswith(" ") for line in lines)


@pytest.mark.parametrize("width", WIDTHS)
def test_every_kernel_keeps_a_line_of_its_own_with_its_numbers(width):
    text = text_of(samples.decode(), width)
    rows = re.findall(r"^(\d)  (\S.*?)  +(\d+)  +([\d.]+ [um]s)  +(\S+ %)  (\w+)", text, re.M)
    assert [row[0] for row in rows] == list("123456")
    assert len({row[1] for row in rows}) == 6
    assert rows[0][2:] == ("1", "1.39 ms", "80 %", "compute_bound")


def test_colour_only_when_asked_for():
    assert "\x1b[" not in text_of(samples.bmm_regimes())
    assert "\x1b[" in text_of(samples.bmm_regimes(), color=True)


def test_colour_changes_no_character():
    plain = text_of(samples.decode(), 120)
    colored = re.sub(r"\x1b\[[\d;]*m", "", text_of(samples.decode(), 120, True))
    assert [line.rstrip() for line in colored.split("\n")] == plain.split("\n")


def test_regimes_stand_under_their_kernel_with_time_limiter_and_bytes():
    text = text_of(samples.bmm_regimes(), 120)
    assert re.search(
        r"warm +5.76 us +1.00x +latency_bound +0.72 +DRAM reads 1.34 MiB of L2's", text
    )
    assert re.search(r"cold +9.12 us +1.58x +dram_bound +0.70 +DRAM reads 16.0 MiB of L2's", text)
    assert "cold takes 1.17x the time of warm (2 kernels)." in text
    assert "not in this capture" in text


def test_how_each_source_was_taken_is_said():
    text = text_of(samples.bmm_regimes(), 200)
    assert "cold     captures/cold.csv  ncu-csv-wide, cache control all" in text
    assert "not stated: cache control, clock control, replay, ncu" in text_of(samples.decode(), 200)


def test_what_dominates_is_said_in_a_sentence():
    lines = text_of(samples.decode(), 140).split("\n")
    assert lines[-5].startswith("compute_bound: 1 kernel, 1 launch, 80 % of the time: ")
    assert lines[-3] == "Also launch_bound: 3 kernels, 41 launches, 4.5 %."


def test_what_the_floors_leave_is_said_in_a_sentence():
    lines = text_of(samples.decode(), 140).split("\n")
    assert lines[-2] == (  # 8.4 % and 7.5 % of the time at 1.08 times their floors
        "At their floors (compulsory) the kernels would win 1.2 % of the time: #2 0.6 %, #3 0.6 %; "
        "4 kernels without a floor."
    )


def test_without_a_calibration_nothing_is_said_of_floors():
    small = samples.ranked(samples.kernel("k", samples.LAUNCH, 2.0))
    text = text_of(replace(samples.decode(), kernels=small), 140)
    assert "headroom" not in text
    assert "floor" not in text


def test_many_small_launches_are_a_candidate_for_fusion():
    small = [samples.kernel(f"k{i}", samples.LAUNCH, 2.0, grid=(i, 1, 1)) for i in range(1, 42)]
    report = replace(samples.decode(), kernels=samples.ranked(*small))
    expected = "launch_bound: 41 kernels, 41 launches, 100 % of the time: candidates for fusion"
    assert expected in text_of(report, 200)


def test_the_same_advice_and_meaning_are_told_once():
    text = text_of(samples.decode(), 120)
    assert text.count("Fuse it with its neighbours") == 1
    assert text.count("→ as for #4") == 2
    assert text.count("near the fixed cost of a launch") == 1
    assert text.count("duration 1.90 us (< 4.00 us)") == 3


def test_the_bytes_that_prove_residency_are_always_shown():
    filler = tuple(Evidence(f"issue_{i}_pct", 1.0, "%", "") for i in range(4))
    diagnosis = replace(samples.RESIDENT, evidence=(*filler, samples.RESIDENT.evidence[0]))
    report = replace(samples.decode(), kernels=samples.ranked(samples.kernel("k", diagnosis, 2.0)))
    assert "DRAM bytes read 1.34 MiB" in text_of(report)


def test_text_from_files_cannot_steer_the_terminal():
    kernel = samples.kernel("k[red]\x1b]0;x\x07:smile:", samples.NOTHING)
    report = Report("a\x1b[2Jb\n[bold]c", None, (), samples.ranked(kernel), ("w\r\x1b[1m",))
    text = text_of(report)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)
    assert "a [2Jb [bold]c" in text
    assert "k[red]" in text
    assert ":smile:" in text


def test_several_reports_follow_each_other():
    text = render_many([samples.decode(), samples.sparse()], Format.TERMINAL, 100)
    assert text == text_of(samples.decode()) + "\n" + text_of(samples.sparse())


def test_the_default_width_is_100():
    assert text_of(samples.decode(), None) == text_of(samples.decode(), 100)
