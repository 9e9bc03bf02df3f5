"""A machine that is lost in mid-run is told apart from a candidate that fails. Staged on a CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_compass import api
from kernel_compass.api import machine_check, places
from kernel_compass.api.machine_check import CHECK, check_on
from kernel_compass.api.proving import environment_key
from kernel_compass.errors import MeasurementCause, MeasurementError
from kernel_compass.execution import slot
from kernel_compass.execution.local_executor import LocalExecutor
from kernel_compass.optimizer.ledger import read_study
from kernel_compass.records.execution import Task
from kernel_compass.records.study import StudyState
from kernel_compass.records.trial import Reason

TASKS = "execution.lost_machine"
LOST = MeasurementCause.MACHINE_LOST
FAILURES = [
    "dies",
    "hangs",
    "CUDA error: unspecified launch failure",
    "CUDA error: all CUDA-capable devices are busy or unavailable (cudaErrorDevicesUnavailable)",
    "CUDA error: no CUDA-capable device is detected",
]


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(slot, "PAUSE_S", 0.1)


@pytest.fixture
def made(tmp_path):
    def executor(*gpus, **beside):
        check = Task("check", f"{TASKS}:check", {"folder": str(tmp_path)}, 20.0, 5.0, fresh=True)
        return LocalExecutor(tmp_path / "w", gpus=gpus, study="lost", check=check, **beside)

    return executor


def task(name, function, folder, **arguments):
    return Task(name, f"{TASKS}:{function}", {"folder": str(folder), **arguments}, 20.0, 1.0)


def checks(folder):
    path = folder / "checked"
    return path.read_text().split() if path.exists() else []


@pytest.mark.parametrize("how", FAILURES)
def test_where_the_check_fails_too_the_machine_is_lost_and_no_task_is_blamed(made, tmp_path, how):
    ends = []
    with made() as executor:
        executor.submit(task("first", "loses", tmp_path, where=["elsewhere"]))
        ends += executor.ended()
        executor.submit(task("guilty?", "loses", tmp_path, where=[""], how=how))
        executor.submit(task("waits", "loses", tmp_path, where=[]))
        with pytest.raises(MeasurementError) as error:
            ends += executor.ended()
    assert error.value.cause is LOST
    assert "'guilty?' failed there" in error.value.found
    assert "no CUDA-capable device is detected" in error.value.found  # what the check said
    assert "nvidia-smi" in error.value.remedy
    assert [end.identifier for end in ends] == ["first"]


@pytest.mark.parametrize("how", FAILURES)
def test_where_the_check_passes_the_task_is_to_blame_as_ever(made, tmp_path, how):
    with made() as executor:
        executor.submit(task("faults", "faults", tmp_path, how=how))
        executor.submit(task("next", "loses", tmp_path, where=[]))
        ends = {end.identifier: end for end in executor.ended()}
        assert executor.lost == {}
    assert ends["faults"].failure is not None
    assert ends["next"].failure is None
    assert len(checks(tmp_path)) == 1


def test_what_is_a_tasks_own_is_not_checked(made, tmp_path):
    with made() as executor:
        executor.submit(task("one", "loses", tmp_path, where=[]))
        executor.submit(task("two", "faults", tmp_path, how="PassManager::run failed"))
        ends = {end.identifier: end for end in executor.ended()}
    assert ends["two"].failure.reason is Reason.BUILD_FAILED
    assert checks(tmp_path) == []


def test_a_driver_that_clears_up_gets_a_moment(made, tmp_path):
    (tmp_path / "fails").touch()
    with made() as executor:
        executor.submit(task("faults", "faults", tmp_path, how="dies"))
        (end,) = executor.ended()
    assert end.failure.reason is Reason.CRASHED
    tried = checks(tmp_path)
    assert len(tried) == 2
    assert len(set(tried)) == 2  # each in a process of its own


def test_one_gpu_of_two_is_lost_and_what_was_in_flight_there_is_run_on_the_other(made, tmp_path):
    with made("bad", "good") as executor:
        for i in range(4):
            name = f"t{i}"
            executor.submit(task(name, "loses", tmp_path, where=["bad"], how=FAILURES[2]))
        ends = {end.identifier: end for end in executor.ended()}
        assert list(executor.lost) == ["GPU bad"]
        assert "GPU bad does not work any more" in executor.lost["GPU bad"]
        assert executor.capacity == 1
    assert {end.answer["ran"] for end in ends.values()} == {"good"}
    assert len(ends) == 4


def test_a_task_that_two_gpus_were_lost_with_gets_no_third(made, tmp_path):
    gpus = ("a", "b", "c")
    with made(*gpus) as executor:
        executor.submit(task("poison", "loses", tmp_path, where=gpus, how="dies"))
        with pytest.raises(MeasurementError, match=r"lost with 'poison'; no third") as error:
            list(executor.ended())
        assert error.value.cause is LOST
        assert len(executor.lost) == 2
        assert executor.cancel("poison") is True
        (end,) = executor.ended()
    assert end.failure.reason is Reason.CANCELLED


def test_a_worker_that_cannot_be_started_again_is_the_machines_fault(made, tmp_path, monkeypatch):
    (tmp_path / "breaks_later.py").write_text(
        f"import os, pathlib\nif pathlib.Path({str(tmp_path / 'lost ')!r}).exists():\n"
        "    os._exit(3)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with made(preload=["breaks_later"]) as executor:
        how = "ends the process behind it"
        executor.submit(task("last", "loses", tmp_path, where=[""], how=how))
        with pytest.raises(MeasurementError, match="forked from ended") as error:
            list(executor.ended())
    assert error.value.cause is LOST
    assert checks(tmp_path) == []


@pytest.mark.parametrize("device", ["cpu", "simulated"])
def test_a_machine_that_works_passes_the_check(device):
    pytest.importorskip("torch", reason="needs torch")
    asked = check_on(device)
    assert asked.function == CHECK
    count = machine_check.COUNT
    found = machine_check.check_task(asked.arguments, lambda _: None)
    assert found == {"sum": sum(range(count))}


def test_a_device_that_is_not_there_fails_it():
    torch = pytest.importorskip("torch", reason="needs torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises((RuntimeError, AssertionError)):
        machine_check.check_task(check_on("cuda:0").arguments, lambda _: None)


PROBLEM = """
import os, signal
from pathlib import Path
import torch
ARMED, LOST = Path({armed!r}), Path({lost!r})
WORKLOADS = [{{"rows": 33, "width": 64}}]
ERROR_BUDGET = 0.03

def inputs(workload, generator):
    draw = lambda *s: torch.randn(s, generator=generator, device=generator.device)
    return {{"x": draw(workload["rows"], workload["width"]), "w": draw(workload["width"], 48)}}

def reference(x, w):
    return x @ w

def baseline(x, w):
    return x @ w

def by_parts(x, w):
    if ARMED.exists():
        ARMED.rename(LOST)
    if LOST.exists():
        os.kill(os.getpid(), signal.SIGSEGV)
    return sum(a @ b for a, b in zip(x.chunk(2, 1), w.chunk(2, 0)))

def by_rows(x, w):
    return torch.cat([part @ w for part in x.split(11)])

CANDIDATES = {{"by_parts": by_parts, "by_rows": by_rows}}
"""


@pytest.mark.slow
def test_a_study_whose_machine_is_lost_stops_and_goes_on_when_it_is_back(tmp_path, monkeypatch):
    pytest.importorskip("torch", reason="needs torch")
    for name in ("HOME", "CACHE"):
        monkeypatch.setenv(f"KERNEL_COMPASS_{name}", str(tmp_path / name.lower()))
    proved = tmp_path / "cache" / "self-test"
    proved.mkdir(parents=True)
    (proved / f"{environment_key('cpu')[0]}.json").write_text('{"passed": true}')
    asked = Task("check", f"{TASKS}:check", {"folder": str(tmp_path)}, 20.0, 5.0, fresh=True)
    monkeypatch.setattr(places, "check_on", lambda _device: asked)
    armed, lost = tmp_path / "armed", tmp_path / "lost "
    problem = tmp_path / "problem.py"
    problem.write_text(PROBLEM.format(armed=str(armed), lost=str(lost)))
    armed.touch()
    request = api.study_request(str(problem), regimes=("warm",), trials=4)
    with pytest.raises(MeasurementError) as error:
        api.optimize(request, "simulated", identifier="lost-study")
    assert error.value.cause is LOST
    assert "kernel-compass optimize --resume lost-study" in error.value.remedy
    stopped = read_study(Path(tmp_path / "home" / "studies" / "lost-study"))
    assert stopped.study.state is StudyState.STOPPED
    assert stopped.trials == ()
    assert not any(one.blamed for one in stopped.interruptions)

    lost.unlink()  # the machine is back
    found = api.resume_study("lost-study").recorded
    reasons = {t.proposal.candidate.implementation: t.reason for t in found.trials}
    assert reasons == {"by_parts": Reason.NOT_FASTER, "by_rows": Reason.NOT_FASTER}
