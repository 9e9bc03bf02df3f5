"""Log text, exit code and output become one cause."""

from __future__ import annotations

import dataclasses

import pytest

from kernel_compass.errors import ProfilingCause
from kernel_compass.profiling.ncu_failures import (
    TIMEOUT,
    RunEvidence,
    code_text,
    failure_of,
    warnings_of,
)
from kernel_compass.profiling.ncu_progress import LogFollower
from kernel_compass.profiling.ncu_tool import NcuTool
from kernel_compass.records.request import ProfileRequest

TOOL = NcuTool("/opt/ncu", "2025.3.1", frozenset())
NOTHING = "==WARNING== No kernels were profiled.\n"


def evidence(log: str, returncode: int = 1, **more: object) -> RunEvidence:
    request = ProfileRequest(("python", "x.py"))
    return dataclasses.replace(RunEvidence(request, TOOL, returncode, log), **more)


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU\n"
            "==ERROR== The application returned an error code (9).\n",
            ProfilingCause.NO_PERMISSION,
        ),
        (
            "==ERROR== The application returned an error code (11).\n"
            "==ERROR== Cuda driver is not compatible with Nsight Compute.\n",
            ProfilingCause.DRIVER_MISMATCH,
        ),
        (
            "==ERROR== Failed to prepare kernel for profiling\n"
            "==ERROR== Unknown error on device 0.\n"
            "==ERROR== The application returned an error code (9).\n",
            ProfilingCause.NCU_FAILED,
        ),
        (
            "==ERROR== The application returned an error code (3).\n" + NOTHING,
            ProfilingCause.TARGET_FAILED,
        ),
        (NOTHING, ProfilingCause.NCU_FAILED),
    ],
)
def test_first_known_message_is_the_cause(log: str, cause: ProfilingCause) -> None:
    assert failure_of(evidence(log)).cause is cause


def test_message_on_standard_error_counts() -> None:
    error = failure_of(
        evidence(
            "==ERROR== The application returned an error code (1).\n" + NOTHING,
            stderr_tail=("==ERROR== Nsight Compute failed to connect to the CUDA driver",),
        )
    )
    assert error.cause is ProfilingCause.DRIVER_MISMATCH


def test_text_of_the_program_is_not_taken_for_an_ncu_message() -> None:
    error = failure_of(evidence(NOTHING, 0, stderr_tail=("ERR_NVGPUCTRPERM is discussed here",)))
    assert error.cause is ProfilingCause.NOTHING_PROFILED


def test_exit_code_zero_is_no_success() -> None:
    assert failure_of(evidence("", 0)).cause is ProfilingCause.NOTHING_PROFILED


def test_nothing_profiled_names_processes_filters_and_hints() -> None:
    log = "==PROF== Connected to process 12 (/usr/bin/python3)\n" + NOTHING
    request = ProfileRequest(("python", "x.py"), kernels="gemm", nvtx="step/", launch_skip=9)
    error = failure_of(evidence(log, 0, request=request))
    assert "/usr/bin/python3 (12)" in error.found
    assert "--kernels gemm, --nvtx step/, --launch-skip 9" in error.found
    assert "one thread" in error.remedy
    assert "function name" in error.remedy
    unseen = failure_of(evidence(NOTHING, 0))
    assert "neither the program nor a process it started used CUDA" in unseen.found
    assert "server that was already running" in unseen.remedy


def test_failed_program_shows_its_last_lines() -> None:
    log = "==ERROR== The application returned an error code (2).\n" + NOTHING
    tail = tuple(f"line {n}" for n in range(30))
    error = failure_of(evidence(log, 2, stderr_tail=tail, stdout_tail=("unrelated",)))
    assert "line 29" in error.found
    assert "line 2\n" not in error.found
    assert "unrelated" not in error.found


def test_signals_are_named_beside_the_code() -> None:
    assert code_text(11) == "exit code 11 (or signal 11, SIGSEGV)"
    assert code_text(7) == "exit code 7 (or signal 7, SIGBUS)"
    assert code_text(3) == "exit code 3"


def test_timeout_in_a_communication_kernel_that_ncu_warned_of() -> None:
    stuck = evidence("", stopped=TIMEOUT, kernel_name="ncclDevKernel_x", warned_slow=True)
    assert failure_of(stuck).cause is ProfilingCause.STUCK_COMMUNICATION
    slow = evidence("", stopped=TIMEOUT, kernel_name="gemm", warned_slow=True)
    assert failure_of(slow).cause is ProfilingCause.TIMEOUT
    assert "more time than expected" in failure_of(slow).found


def test_stuck_names_the_option_where_this_ncu_has_it() -> None:
    able = NcuTool("/opt/ncu", "2026.1.0", frozenset(("--lockstep-kernel-launch",)))
    stuck = evidence("", stopped="stuck", kernel_name="ncclDevKernel_x", tool=able)
    assert "This ncu (2026.1.0) can also profile them" in failure_of(stuck).remedy


def test_warnings_of_a_run_that_gave_launches() -> None:
    log = '==ERROR== The application returned an error code (4).\n==ERROR== Failed to profile "k"\n'
    first, second = warnings_of(evidence(log), "warm")
    assert "exit code 4" in first
    assert 'Failed to profile "k"' in second
    assert warnings_of(evidence(""), "warm") == ()


@pytest.mark.parametrize(
    ("lines", "done", "name"),
    [
        ('==PROF== Profiling "k" - 0: 0%....50%....100% - 19 passes\n', 1, "k"),
        ('==PROF== Profiling "k" - 0: 0%....50%....100% - 1 pass\n', 1, "k"),
        ('==PROF== Profiling "k" - 0 (1/9): 0%....50%....100% - 8 passes\n', 1, "k"),
        ('==PROF== Profiling "k": 0%....50%....100% - 8 passes\n' * 2, 2, "k"),
        ('==PROF== Profiling "k" - 0: 0%....50%', 0, "k"),
        ('x\n==PROF== Profiling "a" - 0: 100% - 1 pass\n==PROF== Profiling "b" - 1: 0%', 1, "b"),
    ],
)
def test_progress_lines(tmp_path, lines: str, done: int, name: str) -> None:
    log = tmp_path / "log"
    log.write_text(lines)
    follower = LogFollower(log, "warm")
    follower.poll()
    assert (follower.kernels_done, follower.kernel_name) == (done, name)


def test_only_an_unfinished_communication_kernel_waits(tmp_path) -> None:
    log = tmp_path / "log"
    follower = LogFollower(log, "warm")
    follower.poll()
    for text, waits in (
        ('==PROF== Profiling "ncclKernel" - 0: 0%..', True),
        ("..100% - 2 passes\n", False),
        ('==PROF== Profiling "gemm" - 1: 0%..', False),
    ):
        with log.open("a") as file:
            file.write(text)
        follower.poll()
        assert follower.waits_in_communication is waits
