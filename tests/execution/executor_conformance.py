"""What every executor must do, written against the protocol alone.

A suite for another one subclasses `ExecutorConformance`, and gives two fixtures: `executor`, one
with a capacity of two at least whose workers can import `execution.plain_tasks` and see the files
of `tmp_path`, and `closable`, another such one that a test may close.
"""

from __future__ import annotations

import json
import time

import pytest

from kernel_compass.errors import UsageError
from kernel_compass.records.execution import Task
from kernel_compass.records.trial import Reason

TASKS = "execution.plain_tasks"
LONG_S = 60.0


def task(identifier, function, compile_s=30.0, run_s=30.0, **arguments):
    return Task(identifier, f"{TASKS}:{function}", arguments, compile_s, run_s)


def run(executor, *tasks):
    """Ends by identifier."""
    for one in tasks:
        executor.submit(one)
    return {end.identifier: end for end in executor.ended(LONG_S)}


class ExecutorConformance:
    def test_answers_are_what_was_returned(self, executor):
        value = {"text": "ü\n\0", "number": 1.5, "list": [1, None, True], "object": {"a": {}}}
        end = run(executor, task("one", "echo", value=value))["one"]
        assert end.answer == {"value": value}
        assert end.failure is None
        assert end.worker
        assert 0 < end.wall_s < LONG_S
        json.dumps(end.answer)

    def test_each_of_many_ends_once(self, executor):
        names = [f"t{i}" for i in range(4 * executor.capacity)]
        for name in names:
            executor.submit(task(name, "echo", value=name))
        ends = list(executor.ended(LONG_S))
        assert sorted(end.identifier for end in ends) == sorted(names)
        assert all(end.answer == {"value": end.identifier} for end in ends)
        assert list(executor.ended(LONG_S)) == []

    def test_as_many_run_at_once_as_it_says(self, executor, tmp_path):
        """Each waits for the other to have begun: one after the other, they would never end."""
        count = executor.capacity
        assert count >= 2
        tasks = [
            task(f"m{i}", "meet", folder=str(tmp_path), number=i, count=count) for i in range(count)
        ]
        ends = run(executor, *tasks)
        assert all(end.failure is None for end in ends.values()), ends
        assert len({end.worker for end in ends.values()}) == count

    def test_results_come_in_the_order_of_their_ends(self, executor):
        executor.submit(task("slow", "sleep", seconds=1.0))
        executor.submit(task("quick", "sleep", seconds=0.0))
        assert [end.identifier for end in executor.ended(LONG_S)] == ["quick", "slow"]

    def test_waiting_ends_in_time_and_loses_nothing(self, executor):
        executor.submit(task("slow", "sleep", seconds=4.0))
        start = time.monotonic()
        assert list(executor.ended(0.1)) == []
        assert time.monotonic() - start < 3.5
        assert [end.identifier for end in executor.ended(LONG_S)] == ["slow"]

    def test_what_is_submitted_meanwhile_is_waited_for(self, executor):
        executor.submit(task("first", "echo", value=1))
        seen = []
        for end in executor.ended(LONG_S):
            seen.append(end.identifier)
            if end.identifier == "first":
                executor.submit(task("second", "echo", value=2))
        assert seen == ["first", "second"]

    def test_an_identifier_is_unique_until_it_has_ended(self, executor):
        executor.submit(task("same", "sleep", seconds=0.3))
        with pytest.raises(UsageError, match="same"):
            executor.submit(task("same", "echo", value=1))
        assert len(list(executor.ended(LONG_S))) == 1
        assert run(executor, task("same", "echo", value=2))["same"].answer == {"value": 2}

    def test_a_failure_is_its_own(self, executor):
        ends = run(
            executor,
            task("bad", "fail", text="no luck"),
            *[task(f"good{i}", "echo", value=i) for i in range(4)],
        )
        bad = ends.pop("bad")
        assert bad.answer is None
        assert bad.failure.reason is Reason.RAISED
        assert "no luck" in bad.failure.detail
        assert all(end.failure is None for end in ends.values())

    def test_compile_and_run_have_times_of_their_own(self, executor):
        ends = run(
            executor,
            task("compiles", "phases", compile_s=0.5, run_s=30.0, compiling=20.0, running=0.0),
            task("runs", "phases", compile_s=30.0, run_s=0.5, compiling=0.0, running=20.0),
            task("both", "phases", compile_s=5.0, run_s=5.0, compiling=0.6, running=0.6),
        )
        assert ends["compiles"].failure.reason is Reason.COMPILE_TIMEOUT
        assert ends["runs"].failure.reason is Reason.RUN_TIMEOUT
        assert ends["both"].answer == {"ran": True}

    def test_a_waiting_task_can_be_cancelled(self, executor):
        for i in range(executor.capacity):
            executor.submit(task(f"busy{i}", "sleep", seconds=0.8))
        executor.submit(task("waits", "sleep", seconds=60.0))
        assert executor.cancel("waits") is True
        ends = {end.identifier: end for end in executor.ended(LONG_S)}
        assert ends["waits"].failure.reason is Reason.CANCELLED
        assert ends["waits"].answer is None
        assert all(ends[f"busy{i}"].failure is None for i in range(executor.capacity))

    def test_a_running_task_can_be_cancelled(self, executor, tmp_path):
        begun = tmp_path / "begun"
        executor.submit(task("long", "begin_and_sleep", file=str(begun), seconds=60.0))
        deadline = time.monotonic() + 20
        while not begun.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        start = time.monotonic()
        assert executor.cancel("long") is True
        ends = {end.identifier: end for end in executor.ended(LONG_S)}
        assert time.monotonic() - start < 20
        assert ends["long"].failure.reason is Reason.CANCELLED
        assert run(executor, task("next", "echo", value=1))["next"].answer == {"value": 1}

    def test_what_has_ended_or_never_was_cannot_be_cancelled(self, executor):
        run(executor, task("done", "echo", value=1))
        assert executor.cancel("done") is False
        assert executor.cancel("never") is False

    def test_a_task_that_is_not_there_fails_alone(self, executor):
        executor.submit(Task("none", "execution.plain_tasks:missing"))
        executor.submit(Task("nowhere", "no.such.module:task"))
        ends = {end.identifier: end for end in executor.ended(LONG_S)}
        assert all(end.failure is not None for end in ends.values())
        assert "missing" in ends["none"].failure.detail

    def test_closing_ends_what_runs_and_refuses_more(self, closable):
        executor = closable
        executor.submit(task("long", "sleep", seconds=60.0))
        for i in range(executor.capacity + 1):
            executor.submit(task(f"more{i}", "sleep", seconds=60.0))
        start = time.monotonic()
        executor.close()
        executor.close()
        assert time.monotonic() - start < 20
        with pytest.raises(UsageError, match="closed"):
            executor.submit(task("late", "echo", value=1))
        ends = list(executor.ended(1.0))
        assert len(ends) == executor.capacity + 2
        assert all(end.failure.reason is Reason.CANCELLED for end in ends)
