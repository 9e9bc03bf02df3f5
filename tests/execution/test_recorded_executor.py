"""The executor that plays a recording back."""

from __future__ import annotations

import pytest
from optimizer.loop_samples import COLD, WARM, recording

from kernel_compass.codec.canonical import plain
from kernel_compass.errors import UsageError
from kernel_compass.execution.recorded_executor import RecordedExecutor
from kernel_compass.optimizer.loop_tasks import TaskMaker
from kernel_compass.records.execution import Task
from kernel_compass.records.loop import LoopOptions
from kernel_compass.records.problem import ProblemSource
from kernel_compass.records.trial import Candidate, Reason

RECORDING = recording()
WORKLOAD = RECORDING.workloads[0].workload
MAKER = TaskMaker("m", ProblemSource("x"), "recorded", 0, 3.0, LoopOptions())
BEST = {"BLOCK_N": 64, "num_warps": 4, "num_stages": 3}
FAST = Candidate("fast", BEST, "w8a16_fp8", "own")


def end_of(task):
    executor = RecordedExecutor(RECORDING)
    executor.submit(task)
    (end,) = executor.ended()
    return end


def test_a_screen_is_near_the_recorded_time_and_the_same_each_time():
    task = MAKER.screen(1, WORKLOAD, FAST, (COLD, WARM))
    first, again = end_of(task), end_of(task)
    assert first == again
    cold, warm = first.answer["regimes"]
    assert cold["estimate"] == pytest.approx(1.6, rel=0.01)
    assert warm["estimate"] == pytest.approx(1.5, rel=0.01)
    assert cold["low"] < cold["estimate"] < cold["high"]


def test_answers_do_not_depend_on_the_order_of_questions():
    tasks = [MAKER.screen(i, WORKLOAD, FAST, (COLD,)) for i in (1, 2)]
    tasks.append(MAKER.finals(0, [(WORKLOAD, FAST)], (COLD,), None))
    executor = RecordedExecutor(RECORDING)
    for task in reversed(tasks):
        executor.submit(task)
    found = {end.identifier: end.answer for end in executor.ended()}
    assert found == {task.identifier: end_of(task).answer for task in tasks}


def test_processes_of_a_hold_out_differ():
    samples = [
        end_of(MAKER.finals(p, [(WORKLOAD, FAST)], (COLD,), None)).answer["finals"][0]["samples"]
        for p in range(2)
    ]
    assert samples[0][0]["candidate_us"] != samples[1][0]["candidate_us"]
    assert [s[0]["process"] for s in samples] == [0, 1]


@pytest.mark.parametrize(
    ("name", "number_format", "reason"),
    [("crash", "w8a8_int8", Reason.CRASHED), ("nobody", "bf16", Reason.NOT_SUPPORTED)],
)
def test_what_failed_fails_and_what_was_not_recorded_is_not_supported(name, number_format, reason):
    end = end_of(MAKER.screen(1, WORKLOAD, Candidate(name, BEST, number_format), (COLD,)))
    assert end.answer is None
    assert end.failure.reason is reason


def test_what_the_judge_rejected_is_rejected_and_not_timed():
    end = end_of(MAKER.screen(1, WORKLOAD, Candidate("wrong", BEST, "w8a8_fp8"), (COLD,)))
    assert end.answer["judgement"]["reason"] == "wrong_result"
    assert end.answer["regimes"] == []


def test_it_keeps_the_contract_of_executors():
    executor = RecordedExecutor(RECORDING)
    task = MAKER.baseline(WORKLOAD, (COLD,))
    executor.submit(task)
    with pytest.raises(UsageError):
        executor.submit(task)
    assert executor.cancel(task.identifier)
    assert not executor.cancel(task.identifier)
    (end,) = executor.ended()
    assert end.failure.reason is Reason.CANCELLED
    assert list(executor.ended()) == []
    executor.close()
    with pytest.raises(UsageError):
        executor.submit(task)


def test_a_task_that_no_recording_answers_fails():
    end = end_of(Task("x", "m:other_task", {"workload": plain(WORKLOAD)}))
    assert end.failure.reason is Reason.RAISED
