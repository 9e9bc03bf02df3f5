"""The kernel benchmark: its sections, file, time limit and summary, on the simulated GPU."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace

import kernels_bench as bench
import pytest
from api.fake_kernels import FakeChoices, FakeKernel, FakeOperands
from fake_floors import FakeTiles, FloorDevice

from kernel_compass.api import kernel_operands, kernels
from kernel_compass.api.kernel_cells import Bench
from kernel_compass.api.kernel_tables import TableRun
from kernel_compass.api.kernels import OpenTable
from kernel_compass.cli.table_file import TableFile
from kernel_compass.codec.kernel_table import decode
from kernel_compass.errors import MeasurementCause, MeasurementError
from kernel_compass.kernels.providers import registry
from kernel_compass.measurement import floors, torch_device
from kernel_compass.measurement.simulated import SimulatedDevice
from kernel_compass.records.kernel_table import RowStatus
from kernel_compass.report.formats import Format

ARGS = ("--sections", "gate,linear", "--tokens", "1", "--formats", "bf16,w4a16_gk")


@pytest.fixture
def lab(tmp_path):
    plan, _ = bench.parsed([*ARGS, "--output", str(tmp_path / "t.json"), "--samples", "3"])
    device, operands = SimulatedDevice(), FakeOperands()
    kernels = [
        FakeKernel(name, (name_of,), device, operands, extra)
        for name, name_of, extra in (
            ("cublas_bf16", "bf16", 1.0),
            ("fake_w4", "w4a16_gk", 0.5),
        )
    ]

    def opened(section, known):
        floor_of = lambda w, f, r, n: (1.0, "streamed in this run")  # noqa: E731
        choices = FakeChoices(*kernels)
        own = Bench(device, operands, choices, floor_of=floor_of, options=plan.options)
        return OpenTable(TableRun(plan.request(section), own, known), None, ())

    return plan, opened, tmp_path / "t.json"


def measured(lab, left=lambda: 1.0):
    plan, opened, path = lab
    return bench.measure_sections(plan.sections, opened, TableFile(path, Format.JSON), left)


def test_all_cells_are_in_the_file_and_the_summary(lab, capsys):
    rows = measured(lab)
    assert len(rows) == (4 + 7) * 2 * 2
    assert decode(lab[2].read_bytes()).rows == tuple(rows)
    text = "\n".join(bench.summary(rows))
    line = next(x for x in text.splitlines() if x.startswith("linear  cold w4a16_gk"))
    assert "7 cells" in line and "worst" in line
    ratios = [
        r.speedup
        for r in rows
        if r.implementation == "fake_w4" and r.regime.value == "cold" and r.workload.heads == 1
    ]
    product = 1.0
    for ratio in ratios:
        product *= ratio
    assert f"x {product ** (1 / 7):.2f}" in line
    assert "linear 1x28672x4096" in text
    assert "a row)" in capsys.readouterr().out


def test_a_time_limit_keeps_what_there_is_and_the_same_command_goes_on(lab):
    budget = iter([1.0] * 5 + [0.0] * 100)
    first = measured(lab, lambda: next(budget))
    assert len(first) == 6
    assert len(decode(lab[2].read_bytes()).rows) == 6
    rest = measured(lab)
    whole = decode(lab[2].read_bytes()).rows
    assert len(whole) == 44
    assert all(r.status is RowStatus.MEASURED for r in whole)
    assert len(rest) >= 44


def test_an_interrupt_keeps_the_rows(lab):
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measured(lab, interrupted)
    assert len(decode(lab[2].read_bytes()).rows) == 1


def test_jobs_cover_every_shape_and_format_once(lab):
    plan = lab[0]
    jobs = plan.jobs()
    assert len(jobs) == (4 + 7) * 2
    cells = [(i.workload, j.formats) for j in jobs for i in j.items]
    assert len(set(cells)) == len(cells)


def test_failures_are_lines_without_a_time(lab):
    rows = measured(lab)
    failed = replace(rows[0], status=RowStatus.FAILED, time_us=None, reason="no kernel image")
    assert bench.line_of(failed, 0.1).endswith("failed: no kernel image")
    assert "no kernel image" not in "\n".join(bench.summary([failed]))


@pytest.mark.parametrize("more", [(), ("--floor-without-activations",)])
def test_a_part_compiles_floor_and_kernels_and_says_what_failed(monkeypatch, more):
    """On the simulated GPU, through the real floors and tables."""
    plan, _ = bench.parsed([*ARGS, "--output", "t.json", *more])
    device = FloorDevice()
    tiles, operands = FakeTiles(device), FakeOperands()
    base = FakeKernel("cublas_bf16", ("bf16",), device, operands)
    good, bad = (
        FakeKernel(name, ("w4a16_gk",), device, operands, fault=fault)
        for name, fault in (("fake_w4", None), ("fake_broken", "raises"))
    )
    tuned = FakeKernel("tuned_w4", ("w4a16_gk",), device, operands, provider="gemlite")
    choices = FakeChoices(base, good, bad, tuned)
    for name in ("implementation", "implementations_for"):
        monkeypatch.setattr(registry, name, getattr(choices, name))
    monkeypatch.setattr(registry, "all_implementations", lambda: choices.kernels)
    monkeypatch.setattr(torch_device, "TorchDevice", lambda: device)
    monkeypatch.setattr(kernel_operands, "TorchOperands", lambda where: operands)
    monkeypatch.setattr(floors, "stream_kernels", lambda: SimpleNamespace(stream_packed=tiles))
    part = next(job for job in plan.jobs() if job.formats[0].name == "w4a16_gk")
    launched, failed, seconds = bench.compile_part(part, plan.options, plan.floor_activations)
    assert launched == 2 * len(part.items)  # the baseline and the kernel that works
    assert len(failed) == len(part.items) and "no kernel image" in failed[0]
    assert [words for words, _ in tiles.calls] == [c.words for c in floors.PACKED_CONFIGS]
    read = 0 if more else part.items[0].workload.heads * part.items[0].workload.reduction // 2
    assert tiles.resident_words == {read}  # the floor that will be measured, and no other
    assert good.runs and not tuned.runs
    assert seconds > 0


class InThisProcess:
    """A pool that computes at once."""

    def __init__(self, jobs, mp_context):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def submit(self, call, *arguments):
        done = Future()
        done.set_result(call(*arguments))
        return done


@pytest.mark.parametrize("more", [(), ("--floor-without-activations",)])
def test_all_parts_are_compiled_as_the_command_line_says(monkeypatch, capsys, more):
    plan, _ = bench.parsed([*ARGS, "--output", "t.json", *more])
    asked = []

    def compiled(part, options, floor_activations):
        asked.append((part, options, floor_activations))
        return 2, ["w4: no kernel image"], 0.1

    monkeypatch.setattr(bench, "ProcessPoolExecutor", InThisProcess)
    monkeypatch.setattr(bench, "compile_part", compiled)
    bench.compile_all(plan, 1, lambda: 1.0)
    assert asked == [(part, plan.options, not more) for part in plan.jobs()]
    assert capsys.readouterr().out.count("! w4: no kernel image") == len(asked)


@pytest.mark.parametrize(
    "words",
    [
        ("--sections", "x"),
        ("--formats", "w3"),
        ("--tokens", "a"),
        ("--regimes", "hot"),
        ("--output", "t.txt"),
    ],
)
def test_wrong_words_are_usage_errors(words, tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        bench.parsed(["--output", str(tmp_path / "t.json"), *words])
    assert stopped.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_without_a_gpu_it_says_so_once_and_starts_nothing(monkeypatch, tmp_path, capsys):
    def missing(index):
        raise MeasurementError(MeasurementCause.NO_GPU, "PyTorch finds no CUDA GPU.", "See it.")

    monkeypatch.setattr(torch_device, "TorchDevice", missing)
    monkeypatch.setattr(bench, "compile_all", lambda *_: pytest.fail("processes were started"))
    for more in (("--compile",), ("--compile-only",), ()):
        with pytest.raises(MeasurementError, match="finds no CUDA GPU") as caught:
            bench.main([*ARGS, "--output", str(tmp_path / "t.json"), *more])
        assert "--dry-run" not in str(caught.value)
    assert capsys.readouterr().out == ""


def test_doors_in_python_name_no_option_of_the_command_line(monkeypatch):
    def missing(index):
        raise MeasurementError(MeasurementCause.NO_GPU, "PyTorch finds no CUDA GPU.", "See it.")

    monkeypatch.setattr(kernels, "TorchDevice", missing)
    plan, _ = bench.parsed([*ARGS, "--output", "t.json"])
    for opened in (kernels.open_table, kernels.profile_kernels):
        with pytest.raises(MeasurementError, match=r"api\.plan_kernels") as caught:
            opened(plan.request("gate"))
        assert "--" not in str(caught.value)
