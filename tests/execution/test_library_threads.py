"""A thread that an installed library keeps costs its worker, and not the task that used it."""

from __future__ import annotations

from execution.executor_conformance import task as plain
from kept_threads import install

from kernel_compass.execution.bounds import Bounds
from kernel_compass.execution.local_executor import LocalExecutor
from kernel_compass.records.execution import Task
from kernel_compass.records.trial import Reason


def test_the_library_is_told_from_whoever_takes_its_name(tmp_path, monkeypatch):
    install(tmp_path / "site")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    with LocalExecutor(
        tmp_path / "work", workers=1, study="threads", bounds=Bounds(leave_s=0.2)
    ) as executor:
        ends = []
        for own in (False, True):
            arguments = {"own": own}
            executor.submit(
                Task("one", "execution.faulty_tasks:leaves_library_thread", arguments, 30.0, 30.0)
            )
            ends += executor.ended(60.0)
            executor.submit(plain("next", "look"))
            assert [end.failure for end in executor.ended(60.0)] == [None]
    kept, rejected = ends
    assert kept.failure is None
    assert kept.answer == {"threads": 2}
    assert kept.notes == ("Libraries it uses keep tqdm_monitor waiting; its worker was renewed.",)
    assert rejected.failure.reason is Reason.KEEPS_RUNNING
    assert "tqdm_monitor" in rejected.failure.detail
