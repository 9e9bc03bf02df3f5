"""The executor of this machine: the suite of all executors, and what is its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from execution.executor_conformance import ExecutorConformance, run, task

from kernel_compass.errors import MeasurementError, UsageError
from kernel_compass.execution import local_executor, worker_mark
from kernel_compass.execution.bounds import Bounds
from kernel_compass.execution.local_executor import LocalExecutor
from kernel_compass.execution.process_table import processes
from kernel_compass.execution.worker_mark import mark_of, new_folder, sweep_folders

ROOT = Path(__file__).parents[2]


def marked_processes(study):
    found = {pid: mark_of(pid) for pid in processes()}
    return {pid: mark for pid, mark in found.items() if mark is not None and mark.study == study}


def none_left(study, within_s=10.0):
    end = time.monotonic() + within_s
    while marked_processes(study) and time.monotonic() < end:
        time.sleep(0.02)
    return not marked_processes(study)


class TestConformance(ExecutorConformance):
    """With two workers."""


@pytest.fixture(scope="module")
def executor(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    with LocalExecutor(folder, workers=2, study="conformance") as made:
        yield made
    assert none_left("conformance")


@pytest.fixture
def closable(tmp_path):
    made = LocalExecutor(tmp_path / "study", workers=2, study="closable")
    yield made
    made.close()
    assert none_left("closable")


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    with LocalExecutor(tmp_path_factory.mktemp("study"), workers=2, study="two") as made:
        yield made
    assert none_left("two")


def test_a_worker_runs_one_task_after_the_other(two):
    ends = run(two, *[task(f"t{i}", "look") for i in range(8)])
    assert len({end.answer["pid"] for end in ends.values()}) <= 2
    assert os.getpid() not in {end.answer["pid"] for end in ends.values()}


def test_each_has_folders_of_its_own(two, tmp_path, tmp_path_factory):
    names = ["TMPDIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"]
    folder = tmp_path / "meet"
    folder.mkdir()
    run(two, *[task(f"m{i}", "meet", folder=str(folder), number=i, count=2) for i in range(2)])
    ends = run(two, *[task(f"t{i}", "look", variables=names) for i in range(12)])
    by_worker = {}
    for end in ends.values():
        places = (end.answer["cwd"], *end.answer["variables"].values())
        assert all(place.startswith(str(tmp_path_factory.getbasetemp())) for place in places)
        by_worker.setdefault(end.worker, set()).add(places)
    assert all(len(places) == 1 for places in by_worker.values())
    assert len(set.union(*by_worker.values())) == len(by_worker)


def test_secrets_stay_here_and_the_rest_goes_along(tmp_path, monkeypatch):
    secrets = {
        "HF_TOKEN": "x",
        "OPENAI_API_KEY": "x",
        "MY_PASSWORD": "x",
        "DbPasswd": "x",
        "AWS_SESSION": "x",
        "SSH_AUTH_SOCK": "/run/x",
        "githubToken": "x",
        "PLAIN": "https://user:word@host/",
        "OTHER": "-----BEGIN OPENSSH PRIVATE KEY-----",
        "THIRD": "ghp_0123456789abcdef",
    }
    kept = {
        "LD_KC": "a",
        "CUDA_KC": "b",
        "TRITON_KC": "c",
        "PYTHON_KC": "d",
        "MONKEY": "e",
        "KEYBOARD": "us",
        "AUTHOR": "f",
        "URL": "https://host/path",
    }
    for name, value in {**secrets, **kept}.items():
        monkeypatch.setenv(name, value)
    with LocalExecutor(tmp_path, study="secrets") as executor:
        names = [*secrets, *kept, "PATH"]
        seen = run(executor, task("t", "look", variables=names))["t"].answer["variables"]
    assert {name: seen[name] for name in kept} == kept
    assert [name for name in secrets if seen[name] is not None] == []
    assert seen["PATH"] == os.environ["PATH"]


def test_gpus_are_given_out_one_a_worker(tmp_path):
    with LocalExecutor(tmp_path, gpus=["3", "GPU-abc"], study="gpus") as executor:
        assert executor.capacity == 2
        folder = tmp_path / "meet"
        folder.mkdir()
        ends = run(
            executor,
            *[task(f"t{i}", "look", variables=["CUDA_VISIBLE_DEVICES"]) for i in range(20)],
        )
    seen = {e.worker: e.answer["variables"]["CUDA_VISIBLE_DEVICES"] for e in ends.values()}
    assert seen.items() <= {"local/0": "3", "local/1": "GPU-abc"}.items()


def test_what_cannot_be_preloaded_is_said(tmp_path):
    with LocalExecutor(tmp_path, preload=["json", "no_such_module"], study="preload") as executor:
        assert list(executor.missing) == ["no_such_module"]
        assert run(executor, task("t", "echo", value=1))["t"].failure is None


def test_no_worker_is_no_executor(tmp_path):
    with pytest.raises(UsageError, match="No worker"):
        LocalExecutor(tmp_path, workers=0)


def test_workers_that_do_not_start_are_said_and_not_left(tmp_path, monkeypatch):
    (tmp_path / "breaks.py").write_text("import os\nos._exit(3)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MeasurementError, match="forked from ended"):
        LocalExecutor(tmp_path / "s", workers=2, preload=["breaks"], study="breaks")
    (tmp_path / "hangs.py").write_text("import time\ntime.sleep(60)\n")
    with pytest.raises(MeasurementError, match="did not answer within 1 s"):
        LocalExecutor(
            tmp_path / "s", preload=["hangs"], study="breaks", bounds=Bounds(start_timeout_s=1.0)
        )
    assert none_left("breaks")


@pytest.mark.parametrize("waits", ["good", "bad"])
def test_one_gpu_that_does_not_start_is_named_and_the_others_go_on(tmp_path, monkeypatch, waits):
    """Whichever of them comes first."""
    (tmp_path / "one_breaks.py").write_text(
        "import os, time\n"
        "gpu = os.environ['CUDA_VISIBLE_DEVICES']\n"
        f"time.sleep(0.6 * (gpu == {waits!r}))\n"
        "if gpu == 'bad':\n"
        "    os._exit(3)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    made = LocalExecutor(
        tmp_path / "s", gpus=["bad", "good"], preload=["one_breaks"], study="one-breaks"
    )
    with made as executor:
        assert executor.capacity == 1
        assert list(executor.lost) == ["GPU bad"]
        assert "ended" in executor.lost["GPU bad"]
        assert run(executor, task("t", "echo", value=1))["t"].worker == "local/1"
    with pytest.raises(MeasurementError, match="GPU bad: "):
        LocalExecutor(tmp_path / "s", gpus=["bad"], preload=["one_breaks"], study="one-breaks")
    assert none_left("one-breaks")


def test_a_worker_that_an_answer_calls_spent_is_renewed(tmp_path):
    with LocalExecutor(tmp_path, study="spent") as executor:
        first = run(executor, task("a", "spends"))["a"]
        second = run(executor, task("b", "look"))["b"]
    assert any("It was caught" in note and "renewed" in note for note in first.notes)
    assert first.answer["pid"] != second.answer["pid"]


OWNER = """
import sys, pathlib
from kernel_compass.execution.local_executor import LocalExecutor
from kernel_compass.records.execution import Task
executor = LocalExecutor(pathlib.Path(sys.argv[1]), workers=2, study="owner")
executor.submit(Task("d", "execution.faulty_tasks:daemons_and_hang", {"file": sys.argv[2]}))
executor.submit(Task("s", "execution.faulty_tasks:busy", {}))
list(executor.ended())
"""


def start_owner(tmp_path):
    note = tmp_path / "note"
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path / "study"), str(note)],
        env={**os.environ, "PYTHONPATH": path},
    )
    end = time.monotonic() + 30
    while not (note.exists() and note.read_text().endswith("\n")) and time.monotonic() < end:
        time.sleep(0.02)
    return owner, json.loads(note.read_text())


def test_workers_of_a_killed_owner_end_by_themselves(tmp_path):
    owner, told = start_owner(tmp_path)
    assert told["pid"] in processes()
    assert told["daemon"] in processes()
    owner.kill()
    owner.wait()
    assert none_left("owner")
    assert told["daemon"] not in processes()


def test_what_a_killed_owner_left_is_swept_and_nothing_else(tmp_path):
    """Owner and forkers are killed at one instant, so that only a daemon is left."""
    with LocalExecutor(tmp_path / "living", study="living") as living:
        end_owner_and_sweep(tmp_path, living)


def end_owner_and_sweep(tmp_path, living):
    owner, told = start_owner(tmp_path)
    forkers = [pid for pid, one in processes().items() if one.parent == owner.pid]
    assert len(forkers) == 2
    for pid in forkers:
        os.kill(pid, signal.SIGSTOP)
    owner.kill()
    owner.wait()
    for pid in forkers:
        os.kill(pid, signal.SIGKILL)
    time.sleep(0.3)
    assert told["daemon"] in processes()
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        with LocalExecutor(tmp_path / "other", study="sweeper") as executor:
            swept = {one.pid: one for one in executor.swept}
            assert told["daemon"] in swept
            assert swept[told["daemon"]].study == "owner"
            assert swept[told["daemon"]].owner == owner.pid
            assert all(one.study == "owner" for one in swept.values())
        assert none_left("owner")
        assert run(living, task("t", "echo", value=1))["t"].failure is None
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def end_for_good(pid, *others, within_s=60.0):
    """Kill a process; return when all are gone: one that is killed may answer until then."""
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + within_s
    while {pid, *others} & processes().keys():
        assert time.monotonic() < deadline, f"{pid} does not end"
        time.sleep(0.01)


def test_a_worker_that_ends_between_tasks_costs_none(tmp_path):
    with LocalExecutor(tmp_path, study="between") as executor:
        first = run(executor, task("a", "look"))["a"].answer["pid"]
        end_for_good(first)
        second = run(executor, task("b", "look"))["b"]
        assert second.failure is None
        assert second.answer["pid"] != first


def test_the_process_behind_a_worker_is_renewed_too(tmp_path):
    with LocalExecutor(tmp_path, study="behind") as executor:
        first = run(executor, task("a", "look"))["a"].answer["pid"]
        end_for_good(processes()[first].parent, first)
        second = run(executor, task("b", "look"))["b"]
        assert second.failure is None
        assert second.answer["pid"] != first
    assert none_left("behind")


def test_a_task_whose_worker_goes_with_the_process_behind_it_is_run_again(tmp_path):
    with LocalExecutor(tmp_path, study="under") as executor:
        first = run(executor, task("a", "look"))["a"].answer["pid"]
        executor.submit(task("b", "sleep", seconds=1.0))
        assert not list(executor.ended(timeout_s=0.2)), "it runs"
        end_for_good(processes()[first].parent, first)
        (second,) = executor.ended()
        assert second.failure is None
        assert "Run again" in " ".join(second.notes)
    assert none_left("under")


def test_folders_of_owners_that_are_gone_are_removed_and_no_others(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    mine = new_folder()
    (mine / "worker-0").mkdir()
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    made = subprocess.run(
        [
            sys.executable,
            "-c",
            "from kernel_compass.execution.worker_mark import new_folder\n"
            "folder = new_folder()\n(folder / 'worker-0').mkdir()\nprint(folder)",
        ],
        env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    )
    dead = Path(made.stdout.strip())
    assert dead.is_dir()
    said = (dead / "owner").read_text()
    others = []
    for i, text in enumerate([said.replace(worker_mark._place(), "0-1"), "", "no mark", None]):
        others.append(tmp_path / f"kernel-compass-{i}")
        others[-1].mkdir()
        if text is not None:
            (others[-1] / "owner").write_text(text)
    kept, link = tmp_path / "kept", tmp_path / "kernel-compass-link"
    kept.mkdir()
    (kept / "owner").write_text(said)
    link.symlink_to(kept)
    assert sweep_folders() == (dead,)
    assert not dead.exists()
    assert all(one.is_dir() for one in (*others, kept, mine, link))
    assert sweep_folders() == ()


def test_a_socket_fits_below_a_workers_folder(monkeypatch):
    """As multiprocessing makes them in TMPDIR; a path of more than 107 bytes cannot be bound."""
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    folder = new_folder()
    try:
        place = folder / "worker-63" / "tmp" / "pymp-12345678" / "listener-12345678"
        place.parent.mkdir(parents=True)
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(place))
    finally:
        shutil.rmtree(folder)


def test_a_worker_that_does_not_end_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(local_executor, "_JOIN_S", 0.2)
    executor = LocalExecutor(tmp_path, study="stuck")
    gate, close = threading.Event(), local_executor.Slot.close

    def closes_late(slot):
        gate.wait(20)
        close(slot)

    monkeypatch.setattr(local_executor.Slot, "close", closes_late)
    with pytest.raises(MeasurementError, match=r"worker 0 did not end within 0\.2 s"):
        executor.close()
    with pytest.raises(ZeroDivisionError) as first, executor:
        raise ZeroDivisionError
    assert "worker 0 did not end" in first.value.__notes__[0]
    gate.set()
    monkeypatch.setattr(local_executor, "_JOIN_S", 20.0)
    executor.close()
    assert none_left("stuck")
