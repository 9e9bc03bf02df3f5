"""Where a study's tasks run: their names, their workers, and what is said of them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from optimizer.loop_samples import TARGET, recording

from kernel_compass import api
from kernel_compass.api import loop_place, places
from kernel_compass.codec import loop_recording
from kernel_compass.errors import CalibrationError, UsageError
from kernel_compass.execution.recorded_executor import RecordedExecutor
from kernel_compass.execution.task_channel import task_named
from kernel_compass.execution.worker_mark import Swept
from kernel_compass.optimizer import loop_tasks
from kernel_compass.optimizer.ledger_memory import RejectionMemory
from kernel_compass.records.execution import Task
from kernel_compass.records.loop import LoopOptions
from kernel_compass.records.trial import Candidate, Reason

OF_A_RECORDING = {"baseline_task", "screen_task", "finals_task", "explain_task"}


@pytest.mark.parametrize("name", loop_tasks.TASKS)
def test_workers_find_each_task_by_its_name(name):
    found = task_named(f"{loop_place.EVALUATING}:{name}")
    assert found.__name__ == name


def test_a_recording_answers_tasks_by_the_same_names_and_says_what_it_has_not():
    answers = {n for n in loop_tasks.TASKS if hasattr(RecordedExecutor, f"_{n}")}
    assert answers == OF_A_RECORDING
    executor = RecordedExecutor(recording())
    for name in set(loop_tasks.TASKS) - answers:
        executor.submit(Task(name, f"{loop_place.EVALUATING}:{name}"))
    for end in executor.ended():
        assert end.failure.reason is Reason.RAISED
        assert "no answer" in end.failure.detail


def optimized(tmp_path, monkeypatch, count, capacity, options=None):
    monkeypatch.setenv("KERNEL_COMPASS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(RecordedExecutor, "capacity", property(lambda _: capacity))
    path = tmp_path / "r.json.gz"
    recorded = recording()
    kept = recorded.workloads[:count]
    path.write_bytes(loop_recording.encode(replace(recorded, workloads=kept)))
    request = api.study_request(TARGET, trials=12)
    found = api.optimize(request, f"recorded:{path}", options=options)
    return found.recorded.study.request.options["width"]


@pytest.mark.parametrize(
    ("count", "capacity", "options", "width"),
    [
        (1, 1, None, 1),
        (1, 4, None, 4),
        (2, 4, None, 1),
        (1, 4, LoopOptions(width=2), 2),
    ],
)
def test_one_workload_on_several_gpus_uses_them(
    tmp_path, monkeypatch, count, capacity, options, width
):
    assert optimized(tmp_path, monkeypatch, count, capacity, options) == width


def test_a_damaged_calibration_is_said(monkeypatch):
    def damaged(_):
        raise CalibrationError("it is cut off", "Calibrate again.")

    monkeypatch.setattr(loop_place, "machine_calibration", damaged)
    name, note = loop_place._calibration("no such GPU", "cuda:0")
    assert name is None
    assert note == "this machine's calibration is not used: it is cut off Calibrate again."
    assert loop_place._calibration("NVIDIA H200", "cuda:0")[0] == "h200"
    assert loop_place._calibration("NVIDIA H200", "simulated") == ("h200", None)


def test_what_was_swept_or_lost_is_told():
    executor = SimpleNamespace(
        swept=(Swept(12, "old", 7, "python -c x"),),
        lost={"GPU GPU-bbbb-2": "it fell off the bus"},
    )
    swept, lost = loop_place._of_workers(executor)
    assert "12" in swept
    assert "old" in swept
    assert lost == "GPU GPU-bbbb-2 runs nothing: it fell off the bus"


def test_workers_have_one_folder_and_it_is_gone_at_the_end(tmp_path, monkeypatch):
    made = []
    new = places.new_folder
    monkeypatch.setattr(places, "new_folder", lambda: made.append(new()) or made[-1])
    monkeypatch.setattr(places, "PRELOAD", ())
    with places.local_workers("cpu", "folders"):
        assert list(made[0].iterdir())
    assert not made[0].exists()


def test_everything_and_a_part_of_it_is_a_contradiction(tmp_path):
    memory = RejectionMemory(tmp_path / "rejected.sqlite")
    with pytest.raises(UsageError, match="a part of it is named, too"):
        memory.forget(study="x", everything=True)


def test_true_and_one_are_two_candidates():
    keys = {Candidate("a", {"fused": value}).key for value in (True, 1, "1")}
    assert len(keys) == 3
    assert Candidate("a", {"x": 1, "y": 2}).key == Candidate("a", {"y": 2, "x": 1}).key
