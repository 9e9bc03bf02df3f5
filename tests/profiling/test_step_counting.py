"""A step once more under ncu, and its launches joined to the step's timeline."""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kineto_files import TraceBuilder

from kernel_compass.analysis.step_counters import counted, paired
from kernel_compass.analysis.step_join import joined, usual_steps
from kernel_compass.api.step_counting import counted_launches, counters_of
from kernel_compass.profiling.capture import read_capture
from kernel_compass.profiling.kineto import read_traces
from kernel_compass.records.device import Device
from kernel_compass.records.environment import Environment
from kernel_compass.records.profile import Profile, Regime
from kernel_compass.records.step_capture import StepCapture
from kernel_compass.records.trace import Trace

if TYPE_CHECKING:
    from conftest import FakeMachine

GOLDEN = Path(__file__).parents[1] / "golden"
CAPTURE = StepCapture("m.py", "M.forward", Environment(Device()), (), step_us=100.0)
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"
MUL = "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float>>(int)"
NCU_ADD = "void native::vectorized_elementwise_kernel<(int)4, native::CUDAFunctor_add<float>>(int)"
NCU_MUL = "void native::vectorized_elementwise_kernel<(int)4, native::MulFunctor<float>>(int)"
Row = tuple[str, int, float]


def timeline(tmp_path: Path, rows: list[Row], copies: int = 0) -> Trace:
    """One step: name, blocks and time of each launch, after some copies."""
    trace = TraceBuilder()
    trace.add("user_annotation", "kc:0:", 0, 10_000)
    for number in range(copies):
        correlation = trace.call(1 + number, 0.5, "cudaMemcpyAsync")
        trace.copy(5 + number, 0.5, 64, correlation=correlation)
    for number, (name, blocks, time) in enumerate(rows):
        at = 20.0 + 100 * number
        trace.launch(at, at + 20, time, name, grid=(blocks, 1, 1), block=(128, 1, 1))
    (found,) = read_traces(trace.write(tmp_path / "times.json"))
    return found


def under_ncu(machine: FakeMachine, rows: list[tuple[str, int, float]]) -> Profile:
    """The launches that ncu counted: name, blocks, DRAM throughput of each."""
    file = machine.folder / "launches.json"
    file.write_text(json.dumps(rows))
    machine.setenv("FAKE_NCU_LAUNCHES", str(file))
    found = counted_launches([sys.executable, "-c", ""])
    assert isinstance(found, Profile), found
    return found


def limiters(times: Trace, launches: Profile) -> list[str | None]:
    return [None if one is None else one.limiter for one in counters_of(times, launches).launches]


def test_launches_are_single_ordered_and_counted_in_the_steps_range(machine: FakeMachine) -> None:
    found = under_ncu(machine, [(NCU_ADD, 8, 80), (NCU_MUL, 8, 10), (NCU_ADD, 8, 30)])
    assert [k.name for k in found.kernels] == [NCU_ADD, NCU_MUL, NCU_ADD]
    assert [k.metrics["dram_throughput_pct"] for k in found.kernels] == [80, 10, 30]
    # where bytes came from is of the run in one pass, launch by launch; the rest of the other one
    assert [k.metrics["dram_bytes_read"] for k in found.kernels] == [16_800_000] * 3
    assert found.source.regime is Regime.IN_SITU
    for run in machine.runs():
        assert run["options"]["--nvtx-include"] == "kernel_compass_step"
        assert run["options"]["--clock-control"] == "none"
        assert run["options"]["--cache-control"] == "none"


def test_one_name_and_grid_twice_in_a_step_has_two_limiters(
    machine: FakeMachine, tmp_path: Path
) -> None:
    """By their order: grouped by name and grid both would have the mean of the two."""
    times = timeline(tmp_path, [("gemm", 8, 50.0), ("gemm", 8, 20.0)], copies=1)
    found = under_ncu(machine, [("gemm", 8, 90), ("gemm", 8, 10)])
    copy, first, second = limiters(times, found)
    assert copy is None
    assert first == "dram_bound"
    assert second not in (None, "dram_bound")
    capture = joined(CAPTURE, times, times, None, None, counters_of(times, found).launches)
    gemm = next(one for one in capture.kernels if one.name == "gemm")
    assert gemm.launches == 2  # one row: joined to no operator
    assert (gemm.limiter, gemm.counted) == ("dram_bound", True)  # of the longer time


def test_other_spellings_are_paired_where_their_words_agree(
    machine: FakeMachine, tmp_path: Path
) -> None:
    times = timeline(tmp_path, [(ADD, 8, 5.0), (MUL, 8, 5.0)])
    assert limiters(times, under_ncu(machine, [(NCU_ADD, 8, 90), (NCU_MUL, 8, 10)]))[0] == (
        "dram_bound"
    )
    # ncu launched them the other way round: names tell which is which
    turned = under_ncu(machine, [(NCU_MUL, 8, 10), (NCU_ADD, 8, 90)])
    first, second = limiters(times, turned)
    assert first == "dram_bound" != second


def test_what_is_not_there_as_often_is_said_and_not_joined(
    machine: FakeMachine, tmp_path: Path
) -> None:
    times = timeline(tmp_path, [("gemm", 8, 50.0), ("gemm", 8, 20.0), ("norm", 4, 5.0)])
    found = under_ncu(machine, [("gemm", 8, 90), ("norm", 4, 10), ("norm", 6, 10)])
    pairs = paired(usual_steps(times)[0], found.kernels)
    assert [one is None for one in pairs.launches] == [True, True, False]
    share, lost, left = pairs.notes
    assert share.startswith("limiters of 1 of 3 launches, 6.7 % of")
    assert "2 x gemm" in lost
    assert "1 x gemm, 1 x norm" in left


def test_without_counters_the_timelines_limiters_stand_and_it_is_said(
    machine: FakeMachine, tmp_path: Path
) -> None:
    machine.plays("permission")
    said = counted_launches([sys.executable, "-c", ""])
    assert isinstance(said, str)
    assert said.startswith("no counters: ")
    times = timeline(tmp_path, [("gemm", 8, 50.0)])
    found = counters_of(times, said)
    assert (found.launches, found.notes) == ((), (said,))
    (gemm,) = joined(CAPTURE, times, times, None, lambda _: "latency_bound").kernels
    assert (gemm.limiter, gemm.counted) == ("latency_bound", False)


def test_headroom_by_traffic_of_a_recorded_capture(tmp_path: Path) -> None:
    """Launches of a real capture, as a step would run them, on the shipped H200 calibration."""
    from kernel_compass.api.calibration_choice import capture_calibration

    raw = lzma.decompress((GOLDEN / "h200_truth" / "profile_warm.csv.xz").read_bytes())
    file = tmp_path / "raw.csv"
    file.write_bytes(raw)
    launches = read_capture(file, Regime.WARM, each_launch=True)
    grouped = read_capture(file, Regime.WARM)
    assert len(launches.kernels) == sum(one.launches for one in grouped.kernels)
    machine = capture_calibration("h200", launches.device)
    rows = []
    for one in launches.kernels:
        assert one.duration_stats is not None
        rows.append((one, one.duration_stats.mean))
    trace = TraceBuilder()
    trace.add("user_annotation", "kc:0:", 0, 1e7)
    at = 10.0
    for one, time in rows:
        trace.launch(at, at + 5, time, one.name, grid=one.grid, block=one.block)
        at += time + 10
    (times,) = read_traces(trace.write(tmp_path / "times.json"))
    events = usual_steps(times)[0]
    pairs = paired(events, launches.kernels)
    assert all(mine is one for mine, (one, _) in zip(pairs.launches, rows, strict=True))
    found = counted(events, pairs.launches, launches, machine)
    capture = joined(CAPTURE, times, times, None, None, found)
    known = [one for one in capture.kernels if one.floor_us]
    assert known
    assert {one.floor_basis for one in known} == {"traffic"}
    streams = [one for one in capture.kernels if one.limiter == "dram_bound" and one.floor_us]
    assert streams
    for one in streams:  # what streams from DRAM is near what the machine streams
        assert one.floor_us is not None
        assert 0.8 < one.time_us / one.floor_us < 2.0, one


@pytest.mark.parametrize("basis", ["traffic", "compulsory"])
def test_only_a_floor_of_the_operator_itself_passes_a_kernel_over(basis: str) -> None:
    """A kernel that moves bytes nobody needs is at its floor by traffic, and worth a change."""
    from dataclasses import replace

    from kernel_compass.optimizer.step_selecting import select_places
    from kernel_compass.records.step_capture import StepKernel, StepOp, StepTensor

    x = StepTensor((4096, 4096), (4096, 1), "float32", "cuda", 0)
    op = StepOp(0, "aten::clone", (x,), (replace(x, storage=1),))
    kernel = StepKernel("copy", 50.0, 1.0, op=0, floor_us=50.0, floor_basis=basis)
    capture = replace(CAPTURE, ops=(op,), kernels=(kernel,), step_us=50.0)
    (place,) = (one for one in select_places(capture, (), 0.005, 1.0) if 0 in one.ops)
    assert (place.floor_us is None) == (basis == "traffic")
