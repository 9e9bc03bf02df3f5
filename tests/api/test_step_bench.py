"""One change in a process of its own: whatever happens there costs that change alone."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from kernel_compass.api.step_bench import ProgramBench
from kernel_compass.api.step_program import program_of
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


def test_a_process_that_dies_leaves_configurations_without_times():
    rows = bench("dies").rank((), (MISSING, GRAPH))
    assert [one.time_us for one in rows] == [None, None]
    assert "exit code 7" in rows[0].detail
