"""One change in a process of its own: whatever happens there costs that change alone."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

from kernel_compass.api import step_bench
from kernel_compass.api.step_bench import ProgramBench
from kernel_compass.api.step_program import program_of
from kernel_compass.errors import MeasurementCause, MeasurementError
from kernel_compass.records.step_action import (
    StepAction,
    StepActionKind,
    StepTarget,
)
from kernel_compass.records.step_loop import StepOptions
from kernel_compass.records.trial import Reason
from kernel_compass.records.workload import Op, Workload

HOSTILE = Path(__file__).parent / "step_programs" / "hostile.py"
MISSING = StepAction(
    StepActionKind.COMPILE_REGION, StepTarget("module mlp", module="mlp"), settings={}
)
GRAPH = StepAction(StepActionKind.STEP_GRAPH, StepTarget("step"))


def bench(function):
    program = program_of(entry=f"{HOSTILE}:{function}")
    return ProgramBench(program, StepOptions(), 1.0, "cpu")


@pytest.mark.parametrize(
    ("function", "action", "reason", "said"),
    [
        ("plain", MISSING, Reason.NOT_SUPPORTED, "module mlp"),
        ("plain", GRAPH, Reason.NOT_SUPPORTED, "GPU"),
        ("dies", MISSING, Reason.CRASHED, "exit code 7"),
        ("wanders", MISSING, Reason.NOT_REPEATABLE, "does not repeat its own results"),
    ],
)
def test_what_cannot_be_kept_is_said_with_the_reason(function, action, reason, said):
    found = bench(function).attempt((), action)
    assert found.reason is reason, found
    assert said in found.detail


def test_products_are_not_studied_on_a_cpu():
    found = bench("plain").study(Workload(Op.LINEAR, 1, 4, 4, 4), "bfloat16")
    assert found.candidate is None and "GPU" in found.detail


def test_a_products_study_is_of_the_formats_that_were_asked_for(monkeypatch):
    asked = []

    def optimize(request, device, tell):
        asked.append((request.source.target, request.formats, request.error_budget_pct))
        raise MeasurementError(MeasurementCause.CALLABLE_FAILED, "no GPU", "")

    monkeypatch.setattr(step_bench, "optimize", optimize)
    program = program_of(entry=f"{HOSTILE}:plain")
    for formats in ((), ("bf16",)):
        made = ProgramBench(program, StepOptions(), 1.0, formats=formats)
        made.study(Workload(Op.LINEAR, 1, 4, 4, 4), "bfloat16")
    assert asked == [("linear:4x4x4", (), 3.0), ("linear:4x4x4", ("bf16",), 3.0)]


@pytest.mark.parametrize(
    ("reasons", "said"),
    [
        ((), "nothing was timed in its study of 0.45 minutes (study s)"),
        ((Reason.OVER_BUDGET,), "nothing was timed in its study of 0.45 minutes (study s)"),
        ((Reason.OVER_BUDGET, Reason.NOT_FASTER), "alone nothing was faster in every regime"),
    ],
)
def test_a_products_study_that_timed_nothing_says_so(monkeypatch, reasons, said):
    trials = tuple(SimpleNamespace(reason=one) for one in reasons)
    study = SimpleNamespace(identifier="s")
    recorded = SimpleNamespace(study=study, accepted=(), trials=trials)
    monkeypatch.setattr(step_bench, "optimize", lambda *_: SimpleNamespace(recorded=recorded))
    program = program_of(entry=f"{HOSTILE}:plain")
    made = ProgramBench(program, StepOptions(), 1.0, product_minutes=0.45)
    found = made.study(Workload(Op.LINEAR, 1, 4, 4, 4), "bfloat16")
    assert found.candidate is None and said in found.detail


def test_a_process_that_dies_leaves_configurations_without_times():
    rows = bench("dies").rank((), (MISSING, GRAPH))
    assert [one.time_us for one in rows] == [None, None]
    assert "exit code 7" in rows[0].detail


OPENED = Path(__file__).parent / "step_programs" / "opened.py"
PRECISION = StepAction(
    StepActionKind.MATMUL_PRECISION, StepTarget("float32 products"), settings={"precision": "high"}
)


class Openings:
    """A bench over a program that writes down its openings."""

    def __init__(self, function, most=16):
        program = program_of(entry=f"{OPENED}:{function}")
        self.bench = ProgramBench(program, StepOptions(pairs=12), 1.0, "cpu", most=most)

    @property
    def count(self):
        return len(Path(os.environ["OPENED"]).read_text().splitlines())


@pytest.fixture
def openings(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENED", str(tmp_path / "opened"))
    return Openings


def test_trials_share_a_process_that_nothing_is_left_in(openings):
    made = openings("plain")
    with made.bench as bench:
        found = [bench.attempt((), PRECISION) for _ in range(2)]
        found.append(bench.attempt((PRECISION,), GRAPH))
        times = bench.rank((), (PRECISION, GRAPH))
        assert made.count == 1
        assert all(one.result is not None for one in found[:2]), found
        assert found[2].reason is Reason.NOT_SUPPORTED
        assert times[0].time_us and times[1].time_us is None
        assert bench.sample(0, (PRECISION,)).samples is not None
        assert made.count == 2  # what is confirmed is confirmed in a process of its own


def test_a_process_is_given_up_after_some_trials(openings):
    made = openings("plain", most=2)
    with made.bench as bench:
        for _ in range(3):
            bench.attempt((), PRECISION)
    assert made.count == 2


def test_what_a_change_leaves_behind_is_not_the_next_ones(openings):
    """The bits of the untouched results are others: the process is not asked again."""
    made = openings("stained")
    with made.bench as bench:
        for _ in range(2):
            found = bench.attempt((), PRECISION)
            assert found.result is not None, found
        assert made.count == 2


def test_a_crash_of_a_used_process_is_not_blamed_on_the_trial(openings):
    made = openings("resentful")
    with made.bench as bench:
        found = []
        while made.count < 2 if found else True:
            found.append(bench.attempt((), PRECISION))
        assert len(found) > 1  # the first process had answered before it died
        assert all(one.result is not None for one in found), found


def test_a_crash_of_a_fresh_process_is_the_trials_own(openings):
    with bench("dies") as hostile:
        for _ in range(2):
            assert hostile.attempt((), MISSING).reason is Reason.CRASHED
