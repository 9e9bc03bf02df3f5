"""Whatever a task does costs it alone: reason by reason, beside innocent ones."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from execution.executor_conformance import task as plain
from execution.faulty_tasks import LEFT
from execution.test_local_executor import marked_processes, none_left

from kernel_compass.execution.bounds import Bounds
from kernel_compass.execution.local_executor import LocalExecutor
from kernel_compass.execution.process_table import processes
from kernel_compass.records.execution import Task, TaskEnd, TaskFailure
from kernel_compass.records.trial import Reason

STUDY = "faults"
LONG_S = 60.0
BOUNDS = Bounds(
    memory_bytes=400 << 20, processes=40, threads=200, output_bytes=1 << 20, leave_s=0.3
)
LONGEST_S = 20.0
"""No fault may hold a worker for longer than this, its own time-out included."""


@pytest.fixture(scope="module")
def executor(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    with LocalExecutor(folder, workers=2, study=STUDY, bounds=BOUNDS) as made:
        yield made
        assert len(marked_processes(STUDY)) <= 4  # two forkers, two workers
    assert none_left(STUDY, 0.0)


def guilty(executor, function, compile_s=30.0, run_s=30.0, **arguments):
    """A fault beside an innocent task; then innocent ones on both workers."""
    start = time.monotonic()
    fault = Task("fault", f"execution.faulty_tasks:{function}", arguments, compile_s, run_s)
    executor.submit(fault)
    executor.submit(plain("beside", "look"))
    ends = {end.identifier: end for end in executor.ended(LONG_S)}
    assert time.monotonic() - start < LONGEST_S
    assert ends["beside"].failure is None, ends["beside"]
    innocent_after(executor)
    return ends["fault"]


def innocent_after(executor):
    workers = set()
    for _ in range(10):
        for i in range(4):
            executor.submit(plain(f"innocent{i}", "look"))
        for end in executor.ended(LONG_S):
            assert end.failure is None, end
            workers.add(end.worker)
        if len(workers) == 2:
            break
    assert workers == {"local/0", "local/1"}
    assert len(marked_processes(STUDY)) <= 4


@pytest.mark.parametrize(
    ("function", "arguments", "reason", "word"),
    [
        ("raises", {}, Reason.RAISED, "ZeroDivisionError: in the middle"),
        ("raises_base", {}, Reason.RAISED, "bare"),
        ("interrupts", {}, Reason.RAISED, "KeyboardInterrupt"),
        ("exits", {"code": 0}, Reason.EXITED, "exit code 0"),
        ("exits", {"code": 1}, Reason.EXITED, "exit code 1"),
        ("exits_by_python", {"code": 3}, Reason.EXITED, "SystemExit"),
        ("segfault", {}, Reason.CRASHED, "faulty_tasks.py"),
        ("signals_itself", {"number": signal.SIGKILL}, Reason.CRASHED, "SIGKILL"),
        ("signals_itself", {"number": signal.SIGTERM}, Reason.CRASHED, "SIGTERM"),
        ("signals_itself", {"number": signal.SIGABRT}, Reason.CRASHED, "SIGABRT"),
        ("kills_parent", {}, Reason.CRASHED, "behind its worker"),
        ("replaces_itself", {}, Reason.CRASHED, "closed the pipe"),
        ("eats_memory", {}, Reason.OUT_OF_MEMORY, "400 MiB"),
        ("eats_memory_in_children", {}, Reason.OUT_OF_MEMORY, "400 MiB"),
        ("memory_error", {}, Reason.OUT_OF_MEMORY, "MemoryError"),
        ("floods", {"number": 1}, Reason.TOO_MUCH_OUTPUT, "1 MiB"),
        ("floods", {"number": 2}, Reason.TOO_MUCH_OUTPUT, "1 MiB"),
        ("floods_by_print", {}, Reason.TOO_MUCH_OUTPUT, "1 MiB"),
        ("floods_answers", {}, Reason.TOO_MUCH_OUTPUT, "1 MiB"),
        ("fork_bomb", {"away": False}, Reason.KEEPS_RUNNING, "processes"),
        ("fork_bomb", {"away": True}, Reason.KEEPS_RUNNING, "processes"),
        ("thread_bomb", {"count": 1000}, Reason.KEEPS_RUNNING, "threads"),
        ("closes_all", {"first": 3}, Reason.CRASHED, "closed the pipe"),
        ("leaves_it_to_the_child", {}, Reason.EXITED, "exit code 0"),
        ("leaves_child", {}, Reason.KEEPS_RUNNING, "process"),
        ("leaves_daemon", {"dies": False}, Reason.KEEPS_RUNNING, "process"),
        ("leaves_daemon", {"dies": True}, Reason.EXITED, "exit code 0"),
        ("leaves_thread", {"daemon": True}, Reason.KEEPS_RUNNING, "Thread-"),
        ("leaves_thread", {"daemon": False}, Reason.KEEPS_RUNNING, "Thread-"),
        ("nan_answer", {}, Reason.RAISED, "JSON"),
        ("no_json_answer", {}, Reason.RAISED, "JSON"),
        ("no_dictionary", {}, Reason.RAISED, "TypeError"),
        ("deep_answer", {}, Reason.RAISED, "RecursionError"),
        ("huge_answer", {}, Reason.TOO_MUCH_OUTPUT, "at most"),
        ("imports_nothing", {}, Reason.BUILD_FAILED, "no_such_module_of_ours"),
    ],
)
def test_a_fault_has_its_reason(executor, function, arguments, reason, word):
    end = guilty(executor, function, **arguments)
    assert end.answer is None
    assert end.failure.reason is reason, end
    assert word in end.failure.detail


@pytest.mark.parametrize("deaf", [False, True])
def test_a_hang_is_ended_in_the_phase_it_is_in(executor, deaf):
    end = guilty(executor, "busy", compile_s=0.5, deaf=deaf)
    assert end.failure.reason is Reason.COMPILE_TIMEOUT
    end = guilty(executor, "busy", run_s=0.5, run=True, deaf=deaf)
    assert end.failure.reason is Reason.RUN_TIMEOUT
    assert "0.5 s" in end.failure.detail


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        ("AcceleratorError", "CUDA error: an illegal memory access was encountered", "ILLEGAL"),
        ("RuntimeError", "Triton Error [CUDA]: misaligned address", "ILLEGAL"),
        ("AcceleratorError", "CUDA error: unspecified launch failure", "ILLEGAL"),
        ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2 GiB", "MEMORY"),
        ("RuntimeError", "CUDA error: out of memory", "MEMORY"),
        ("OutOfResources", "out of resource: shared memory, Required: 300000", "FIT"),
        ("CompilationError", "at 3:4: unexpected", "BUILD"),
        ("PTXASError", "PTXAS error: Internal Triton PTX codegen error", "BUILD"),
        ("RuntimeError", "shapes do not match", "RAISED"),
    ],
)
def test_errors_of_the_gpu_are_told_apart_by_their_text(executor, kind, text, reason):
    reasons = {
        "ILLEGAL": Reason.ILLEGAL_ACCESS,
        "MEMORY": Reason.OUT_OF_MEMORY,
        "FIT": Reason.DOES_NOT_FIT,
        "BUILD": Reason.BUILD_FAILED,
        "RAISED": Reason.RAISED,
    }
    end = guilty(executor, "raises_text", kind=kind, text=text)
    assert end.failure.reason is reasons[reason]
    assert text in end.failure.detail


def test_its_own_files_are_its_own_loss(executor, tmp_path):
    mine = tmp_path / "candidate.py"
    mine.write_text("")
    assert guilty(executor, "deletes_itself", file=str(mine)).answer == {"gone": True}
    assert not mine.exists()


def test_standard_streams_that_were_closed_are_renewed(executor):
    end = guilty(executor, "closes_all", first=4000)
    assert end.answer == {"closed": True}


def test_a_forked_child_does_not_answer(executor):
    end = guilty(executor, "forks_and_answers")
    assert end.failure is None
    assert end.answer["by"] not in processes() or end.answer["by"] in marked_processes(STUDY)


def test_nothing_that_is_written_to_the_pipes_is_an_answer(executor):
    assert guilty(executor, "forges").answer == {"forged": False}


def test_a_pool_that_waits_for_work_is_left_alone(executor):
    assert guilty(executor, "leaves_idle_pool").answer == {"result": 32}


def test_an_alarm_set_for_later_does_not_reach_the_next(executor):
    assert guilty(executor, "alarm_later").failure is None
    time.sleep(0.1)
    innocent_after(executor)


@pytest.mark.parametrize(
    ("what", "word"),
    [
        ("timer", "time.perf_counter"),
        ("environment", "TRITON_INTERPRET"),
        ("builtins", "builtins.abs"),
        ("affinity", "CPUs"),
        ("limits", "resource limit"),
        ("handler", "handler of signal"),
        ("stdout", "file descriptor 1"),
        ("umask", "umask"),
    ],
)
def test_changed_state_is_told_and_reaches_nobody(executor, what, word):
    if what == "affinity" and len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU: there is nothing to change")
    end = guilty(executor, "changes_state", what=what)
    assert end.answer == {"changed": what}
    assert word in " ".join(end.notes)
    for i in range(4):
        executor.submit(Task(f"see{i}", "execution.faulty_tasks:sees_state"))
    for seen in executor.ended(LONG_S):
        random = seen.answer.pop("random")
        assert 0 <= random < 1
        assert seen.answer == {
            "clock": True,
            "interpret": None,
            "abs": 1,
            "cpus": len(os.sched_getaffinity(0)),
            "files": True,
            "umask": seen.answer["umask"],
        }
        assert seen.answer["umask"] != 0o777


def test_a_switch_that_cannot_be_read_any_more_is_a_change(tmp_path):
    """torch refuses to read TF32 by its old name once it was set by the new one."""
    torch = pytest.importorskip("torch", reason="needs torch")
    if not hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        pytest.skip("this torch has no second switch")
    with LocalExecutor(tmp_path, study="switch", preload=["torch"]) as executor:
        executor.submit(Task("tf32", "execution.faulty_tasks:allows_tf32"))
        (end,) = executor.ended(LONG_S)
    assert end.failure is None
    assert "backends.cuda.matmul.allow_tf32" in end.notes[0]


def test_nobody_else_is_blamed_for_a_worker_that_was_killed_from_outside(executor):
    executor.submit(plain("victim", "sleep", seconds=1.0))
    time.sleep(0.4)
    forkers = {pid for pid, one in processes().items() if one.parent == os.getpid()}
    workers = [
        pid
        for pid, one in processes().items()
        if one.parent in forkers and pid in marked_processes(STUDY)
    ]
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    (end,) = executor.ended(LONG_S)
    assert end.failure is None
    assert "Run again" in end.notes[0]
    innocent_after(executor)


def test_a_child_that_is_left_is_ended(executor):
    assert sleepers() == set()
    guilty(executor, "leaves_daemon", dies=True)
    assert sleepers() == set()


def sleepers():
    """Of `faulty_tasks`, whoever their parents are."""
    found = set()
    for pid in processes():
        with contextlib.suppress(OSError):  # it ended meanwhile
            if Path(f"/proc/{pid}/cmdline").read_bytes() == f"sleep\0{LEFT}\0".encode():
                found.add(pid)
    return found


def test_a_sleeper_would_be_seen():
    with subprocess.Popen(["sleep", LEFT]) as process:
        while not Path(f"/proc/{process.pid}/cmdline").read_bytes().startswith(b"sleep"):
            time.sleep(0.01)
        seen = sleepers()
        process.kill()
    assert process.pid in seen


@pytest.mark.parametrize("depth", [500, 3_000, 100_000])
def test_an_answer_of_any_depth_is_an_answer_or_a_failure(executor, depth):
    end = guilty(executor, "nests", depth=depth)
    assert (end.answer is None) != (end.failure is None)
    if depth == 500:
        assert end.failure is None
    if depth == 100_000:
        assert end.failure.reason is Reason.RAISED


@pytest.mark.parametrize(
    "message",
    [
        {"error": {"found": "deep", "remedy": ""}},
        {"error": 1},
        {"result": None},
        {"result": [1]},
        {"failure": {"reason": "no such reason", "detail": ""}},
        {"failure": "it failed"},
        {"progress": 1},
        {"other": {}},
    ],
)
def test_what_is_no_answer_is_a_failure_of_its_task_alone(executor, message):
    end = guilty(executor, "sends_no_answer", message=message)
    assert end.answer is None
    assert end.failure.reason is Reason.RAISED


def test_an_end_has_an_answer_or_a_failure():
    failure = TaskFailure(Reason.RAISED, "it did")
    for answer, why in ((None, None), ({}, failure)):
        with pytest.raises(ValueError, match="answer or a failure"):
            TaskEnd("t", answer, why, 0.0, "local/0")
