"""Tasks in processes of their own: whatever one does costs that task alone."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kernel_compass.errors import (
    CalibrationError,
    MeasurementCause,
    MeasurementError,
    MissingDependency,
    UsageError,
)
from kernel_compass.execution.tasks import TaskSession, run_task

TASKS = "execution.fake_tasks"
ROOT = Path(__file__).parents[2]


def run(name, on_progress=None, timeout_s=60.0, environment=None, **arguments):
    return run_task(f"{TASKS}:{name}", arguments, on_progress, timeout_s, environment, grace_s=0.3)


def failure(name, **arguments):
    with pytest.raises(MeasurementError) as caught:
        run(name, **arguments)
    assert caught.value.remedy
    return caught.value


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pid, within_s=5.0):
    end = time.monotonic() + within_s
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    return not alive(pid)


def test_a_task_returns_and_tells_in_order_from_another_process():
    told = []
    result = run("double", told.append, number=21)
    assert result["twice"] == 42
    assert result["pid"] != os.getpid()
    assert told == [{"done": 0}, {"done": 1}, {"done": 2}]


def test_variables_reach_it_and_stay_out_of_ours():
    assert run("environment", environment={"KC_TEST": "7"}, variable="KC_TEST") == {"value": "7"}
    assert "KC_TEST" not in os.environ


def test_answers_and_requests_larger_than_a_pipe():
    assert len(run("large", size=3_000_000)["text"]) == 3_000_000
    assert run("echo_size", text="y" * 3_000_000) == {"size": 3_000_000}


def test_what_it_prints_is_no_answer_and_standard_input_is_empty():
    assert run("prints_junk") == {"forged": False}


def test_arguments_that_are_no_json_never_start():
    with pytest.raises(ValueError, match="JSON"):
        run("double", number=float("nan"))


def test_an_exception_says_what_and_where():
    error = failure("raises")
    assert error.cause is MeasurementCause.CALLABLE_FAILED
    assert "ZeroDivisionError: in the middle" in error.found
    assert "fake_tasks.py:" in error.found


def test_debugging_shows_the_traceback(capfd, monkeypatch):
    failure("raises")
    assert capfd.readouterr().err == ""
    monkeypatch.setenv("KERNEL_COMPASS_DEBUG", "1")
    failure("raises")
    assert "Traceback" in capfd.readouterr().err


def test_many_messages_before_a_crash_that_leaves_a_child(monkeypatch):
    """Each was written before the end; the child that holds the pipe must not slow them down."""
    told = []
    start = time.monotonic()
    with pytest.raises(MeasurementError):
        run("tells_much_and_leaves", told.append, count=200)
    assert [message["i"] for message in told] == list(range(200))
    assert time.monotonic() - start < 60


def test_our_exceptions_come_back_as_they_were():
    with pytest.raises(MeasurementError) as caught:
        run("raises_ours", kind="measurement")
    assert caught.value.cause is MeasurementCause.NO_GPU
    assert (caught.value.found, caught.value.remedy) == ("No GPU here.", "Plug one in.")
    with pytest.raises(MissingDependency, match=r"No ncu\. Install it\."):
        run("raises_ours", kind="missing")
    with pytest.raises(CalibrationError, match="Broken"):
        run("raises_ours", kind="other")


def test_a_missing_torch_names_the_command(tmp_path):
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('no torch', name='torch')")
    with pytest.raises(MissingDependency, match="pip install torch triton nvidia-ml-py"):
        run("no_torch", environment={"PYTHONPATH": f"{ROOT / 'src'}:{tmp_path}"})


def test_out_of_memory_is_told_apart():
    assert failure("out_of_memory").cause is MeasurementCause.OUT_OF_MEMORY


@pytest.mark.parametrize("name", ["not_json", "no_dictionary", "system_exit"])
def test_no_proper_result_is_a_failure(name):
    assert failure(name).cause is MeasurementCause.CALLABLE_FAILED


@pytest.mark.parametrize(
    ("name", "arguments", "word"),
    [
        ("leaves", {"code": 0}, "exit code 0"),
        ("leaves", {"code": 77}, "exit code 77"),
        ("segfault", {}, "SIGSEGV"),
        ("dies_by_signal", {}, "SIGKILL"),
    ],
)
def test_a_process_that_dies(name, arguments, word):
    error = failure(name, **arguments)
    assert error.cause is MeasurementCause.WORKER_DIED
    assert word in error.found


def test_a_fault_names_the_line():
    assert "fake_tasks.py" in failure("segfault").found


def test_a_crash_after_the_answer_changes_nothing():
    assert run("crash_after_answer") == {"ok": True}


@pytest.mark.parametrize("deaf", [False, True])
def test_a_hang_ends_at_the_time_out(deaf):
    told = []
    start = time.monotonic()
    error = failure("hangs", on_progress=told.append, timeout_s=2.0, deaf=deaf)
    assert error.cause is MeasurementCause.TIMEOUT
    assert "2 s" in error.found
    assert time.monotonic() - start < 15
    assert gone(told[0]["pid"])


@pytest.mark.parametrize("crash", [False, True])
def test_no_child_is_left(crash):
    told = []
    start = time.monotonic()
    try:
        run("leaves_children", told.append, crash=crash)
    except MeasurementError as error:
        assert crash
        assert error.cause is MeasurementCause.WORKER_DIED
    assert time.monotonic() - start < 20
    pids = told[0]["pids"]
    assert all(gone(pid) for pid in pids)


@pytest.mark.parametrize("crash", [False, True])
def test_no_daemon_is_left(crash):
    told = []
    with contextlib.suppress(MeasurementError):
        run("leaves_daemons", told.append, crash=crash)
    assert gone(told[0]["pid"])


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("base", "BaseException: bare"),
        ("generator", "GeneratorExit: closing"),
        ("group", "BaseExceptionGroup: many"),
        ("unspeakable", "__str__ raised RuntimeError"),
        ("long", "10,000,000 characters"),
    ],
)
def test_whatever_is_raised_is_told(kind, word):
    error = failure("fails", kind=kind)
    assert error.cause is MeasurementCause.CALLABLE_FAILED
    assert word in error.found
    assert "fake_tasks.py:" in error.found
    assert len(error.found) < 5000


@pytest.mark.parametrize("kind", ["returns", "raises", "tells"])
def test_a_forked_child_does_not_answer_for_the_task(kind):
    told = []
    assert run("forks_through", told.append, kind=kind)["forked"] is False
    assert told == []


def test_nothing_that_is_written_to_the_private_pipe_is_an_answer():
    assert run("forges") == {"forged": False}
    assert run("closes_all") == {"ok": True}


def test_answers_have_a_largest_size_and_take_time_in_proportion():
    start = time.monotonic()
    assert len(run("large", size=30_000_000)["text"]) == 30_000_000
    assert time.monotonic() - start < 10
    assert "at most" in failure("large", size=70_000_000).found
    error = failure("writes_without_end")
    assert error.cause is MeasurementCause.CALLABLE_FAILED
    assert "more than 64 MiB" in error.found


@pytest.mark.parametrize(
    "name",
    ["nowhere.module:task", f"{TASKS}:missing", TASKS, ":", "", ".x:y", "a..b:c", "x" * 10**6],
)
def test_unknown_tasks(name):
    with pytest.raises(UsageError, match="There is no task"):
        run_task(name, {}, timeout_s=60)


def test_ctrl_c_ends_the_process_first():
    told = []

    def interrupt(message):
        told.append(message)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run("hangs", interrupt)
    assert gone(told[0]["pid"])


def test_an_exception_of_the_caller_ends_the_process_too():
    told = []

    def fail(message):
        told.append(message)
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        run("hangs", fail)
    assert gone(told[0]["pid"])


def test_tasks_run_from_other_threads():
    results = []
    threads = [
        threading.Thread(target=lambda i=i: results.append(run("double", number=i)["twice"]))
        for i in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [0, 2, 4]


def test_a_killed_parent_leaves_nothing_running(tmp_path):
    note = tmp_path / "pid"
    code = (
        "from kernel_compass.execution.tasks import run_task; "
        f"run_task('{TASKS}:outlives', {{'file': {str(note)!r}}})"
    )
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    parent = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path})
    end = time.monotonic() + 30
    while not (note.exists() and note.read_text()) and time.monotonic() < end:
        time.sleep(0.02)
    parent.kill()
    parent.wait()
    assert gone(json.loads(note.read_text()))


def test_a_session_runs_one_task_after_the_other_in_one_process():
    with TaskSession(grace_s=0.3) as session:
        pids = [session.run(f"{TASKS}:double", {"number": n})["pid"] for n in (1, 2)]
        with pytest.raises(MeasurementError, match="what it said"):  # raised, and still there
            session.run("execution.plain_tasks:fail", {"text": "what it said"})
        pids.append(session.run(f"{TASKS}:double", {"number": 3}, timeout_s=60)["pid"])
        assert len(set(pids)) == 1
        assert session.answered == 4
        with pytest.raises(MeasurementError) as died:
            session.run("execution.faulty_tasks:exits", {"code": 7})
        assert died.value.cause is MeasurementCause.WORKER_DIED
        assert gone(pids[0])
        fresh = session.run(f"{TASKS}:double", {"number": 4})["pid"]
        assert fresh != pids[0]
        assert session.answered == 1
    assert gone(fresh)
