"""Reports of very many kernels: people see those that matter, machines get all of them."""

from __future__ import annotations

import csv
import json
from io import StringIO
from pathlib import Path

import pytest
from kineto_files import TraceBuilder
from report.samples import BMM, H200, RUN, stats

from kernel_compass.analysis.timeline_report import report_timeline
from kernel_compass.profiling.kineto import read_traces
from kernel_compass.records.diagnosis import Diagnosis, Limiter
from kernel_compass.records.profile import KernelProfile
from kernel_compass.records.report import Report, ReportKernel
from kernel_compass.report import names
from kernel_compass.report.formats import Format
from kernel_compass.report.leading import KERNELS_SHOWN
from kernel_compass.report.render import render

PEOPLE = (Format.TERMINAL, Format.MARKDOWN)


def capture_of(count: int, share: bool = True) -> Report:
    """Equally long kernels with names that differ in their number."""
    known = Diagnosis(Limiter.UNCLASSIFIED, 0.2, ())
    kernels = [
        KernelProfile(
            f"{BMM}_{at}", None, None, None, 1,
            duration_stats=stats(1.0) if share else None, metrics={}, diagnosis=known,
        )
        for at in range(count)
    ]  # fmt: skip
    rows = [ReportKernel(kernel, 1 / count if share else None) for kernel in kernels]
    return Report(None, H200, (RUN,), tuple(rows))


@pytest.mark.parametrize("format", PEOPLE)
def test_the_rest_is_counted_with_its_time(format: Format) -> None:
    text = render(capture_of(200), format)
    assert "150 more, together 75 % of the time; --format" in text.replace("\\", "")
    assert text.count(BMM[:8]) < 200
    assert "200 kernels" in text
    assert "150 more; --format" in render(capture_of(200, share=False), format).replace("\\", "")


@pytest.mark.parametrize("format", PEOPLE)
def test_as_many_as_are_shown_have_no_rest(format: Format) -> None:
    assert "--format csv" not in render(capture_of(KERNELS_SHOWN), format)


def test_machines_get_all_of_them() -> None:
    report = capture_of(200)
    assert len(json.loads(render(report, Format.JSON))["kernels"]) == 200
    assert len(list(csv.DictReader(StringIO(render(report, Format.CSV))))) == 200


@pytest.mark.parametrize("format", PEOPLE)
def test_names_are_told_apart_for_what_is_shown_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: Format
) -> None:
    """Else the cost grows with the square of the kernels: the last one is in a gap all the same."""
    trace = TraceBuilder()
    for at in range(2000):
        trace.kernel(10 * at, 1000 - at / 4 if at % 2 else 5, f"kernel_{at}", stream=at)
    trace.kernel(5e5, 1, "the_last_of_all")
    (read,) = read_traces(trace.write(tmp_path / "t.json"))
    parsed: list[str] = []
    parse = names.parse
    monkeypatch.setattr(names, "parse", lambda name: parsed.append(name) or parse(name))
    text = render(report_timeline(read), format, width=200)
    assert "the_last_of_all" in text.replace("\\", "")
    assert len(parsed) < 4 * KERNELS_SHOWN
