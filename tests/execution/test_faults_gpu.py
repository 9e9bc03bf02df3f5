"""The same as `test_faults`, with faults that only a GPU has."""

from __future__ import annotations

import time

import pytest
from execution.test_local_executor import marked_processes, none_left

from kernel_compass.execution.bounds import Bounds
from kernel_compass.execution.local_executor import LocalExecutor
from kernel_compass.records.execution import Task
from kernel_compass.records.trial import Reason

pytestmark = pytest.mark.gpu

STUDY = "gpu-faults"
LONG_S = 300.0


@pytest.fixture(scope="module")
def executor(tmp_path_factory):
    """Two workers on one GPU: each has a context of its own."""
    with LocalExecutor(
        tmp_path_factory.mktemp("faults"),
        gpus=["0", "0"],
        study=STUDY,
        preload=["torch", "triton"],
        bounds=Bounds(memory_bytes=32 << 30),
    ) as made:
        assert made.missing == {}
        yield made
        assert len(marked_processes(STUDY)) <= 4
    assert none_left(STUDY, 0.0)


def of_gpu(identifier, function, compile_s=120.0, run_s=30.0, **arguments):
    return Task(identifier, f"execution.gpu_faults:{function}", arguments, compile_s, run_s)


def innocent_after(executor):
    workers = set()
    for _ in range(10):
        for i in range(4):
            executor.submit(of_gpu(f"innocent{i}", "innocent"))
        for end in executor.ended(LONG_S):
            assert end.failure is None, end
            assert end.answer["right"]
            workers.add(end.worker)
        if len(workers) == 2:
            break
    assert workers == {"local/0", "local/1"}


def guilty(executor, function, run_s=30.0, beside=True, **arguments):
    executor.submit(of_gpu("fault", function, run_s=run_s, **arguments))
    if beside:
        executor.submit(of_gpu("beside", "innocent", run_s=60.0))
    ends = {end.identifier: end for end in executor.ended(LONG_S)}
    if beside:
        assert ends["beside"].failure is None, ends["beside"]
    innocent_after(executor)
    return ends["fault"]


@pytest.mark.parametrize(
    ("function", "arguments", "reason"),
    [
        ("illegal_access", {"waits": True}, Reason.ILLEGAL_ACCESS),
        ("illegal_access", {"waits": False}, Reason.ILLEGAL_ACCESS),
        ("illegal_access_hidden", {}, Reason.ILLEGAL_ACCESS),
        ("does_not_fit", {}, Reason.DOES_NOT_FIT),
        ("does_not_compile", {}, Reason.BUILD_FAILED),
    ],
)
def test_a_fault_has_its_reason(executor, function, arguments, reason):
    end = guilty(executor, function, **arguments)
    assert end.answer is None
    assert end.failure.reason is reason, end


@pytest.mark.parametrize("waits", [True, False])
def test_an_infinite_kernel_is_ended(executor, waits):
    start = time.monotonic()
    end = guilty(executor, "infinite_kernel", run_s=3.0, waits=waits)
    assert end.failure.reason is Reason.RUN_TIMEOUT, end
    assert "launched" in end.failure.detail  # and not still being compiled
    assert time.monotonic() - start < 120


def test_memory_of_the_gpu_that_runs_out(executor):
    """Alone: it takes the memory of the other worker too."""
    end = guilty(executor, "out_of_memory", beside=False, run_s=60.0)
    assert end.failure.reason is Reason.OUT_OF_MEMORY, end


def test_memory_that_another_left_is_not_the_next_ones_fault(tmp_path):
    with LocalExecutor(tmp_path, gpus=["0"], study=STUDY, preload=["torch", "triton"]) as executor:
        executor.submit(of_gpu("leaves", "leaves_memory"))
        executor.submit(of_gpu("half", "takes_half"))
        ends = {end.identifier: end for end in executor.ended(LONG_S)}
    assert ends["half"].failure is None, ends["half"]
    assert "out_of_memory" in " ".join(ends["half"].notes)


def test_a_worker_keeps_its_context_from_task_to_task(executor):
    """What CUDA and Triton set for themselves is no change that a worker is renewed for."""
    processes = {}
    for i in range(6):
        executor.submit(of_gpu(f"innocent{i}", "innocent"))
        (end,) = executor.ended(LONG_S)
        assert end.failure is None and end.notes == (), end
        processes.setdefault(end.worker, set()).add(end.answer["pid"])
    assert all(len(found) == 1 for found in processes.values())


def test_changed_flags_are_told(executor):
    end = guilty(executor, "changes_flag")
    assert "allow_tf32" in " ".join(end.notes)
    assert "get_default_dtype" in " ".join(end.notes)
