"""Traces of a server's own profiler as captured steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_compass.analysis.step_groups import groups_of
from kernel_compass.analysis.step_shares import kernel_us, step_rows, workloads_of
from kernel_compass.api.step_capturing import capture_trace, report_of
from kernel_compass.codec.step_capture_document import decode, packed
from kernel_compass.errors import NotATimeline
from kernel_compass.profiling.kineto import read_traces

KINETO = Path(__file__).parents[1] / "golden" / "kineto"


def test_a_trace_of_an_eager_decoder_block() -> None:
    path = KINETO / "decoder_block_decode_eager.json.gz"
    (found,) = capture_trace(path)
    (trace,) = read_traces(path)
    assert found.environment.device.name == "NVIDIA H200"
    assert (found.steps, found.step) == (5, "ProfilerStep")
    total = sum(event.duration_us for event in trace.events)
    assert kernel_us(found) == pytest.approx(total / 5)
    launches = sum(kernel.launches for kernel in found.kernels)
    assert launches == pytest.approx(len(trace.events) / 5)
    shapes = {one.shape_text for one in workloads_of(found).values()}
    assert shapes == {
        "linear 16x4096x4096",
        "linear 16x1024x4096",
        "linear 16x14336x4096",
        "linear 16x4096x14336",
    }
    assert all(row.headroom is None or row.headroom > 0.98 for row in step_rows(found))
    groups = groups_of(found)
    assert groups
    assert all(group.saves_at_most_us <= group.time_us + group.gap_us for group in groups)
    assert sum(group.saves_at_most_us for group in groups) < (found.step_us or 0.0)
    assert decode(packed(found)) == found
    assert "no source lines" in report_of(found)


def test_a_trace_of_a_graph_names_no_operators() -> None:
    (found,) = capture_trace(KINETO / "decoder_block_decode_graph.json.gz")
    assert found.in_graph
    assert any("of CUDA graphs" in note for note in found.notes)
    assert decode(packed(found)) == found
    assert groups_of(found)


def test_no_trace(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_text("{}")
    with pytest.raises(NotATimeline):
        capture_trace(file)
