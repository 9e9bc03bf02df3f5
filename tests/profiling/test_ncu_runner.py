"""Whole jobs against an ncu played by a script."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kernel_compass.errors import NotAMetricTable, ProfilingCause, ProfilingError, UsageError
from kernel_compass.profiling.ncu_runner import Progress, run_profile
from kernel_compass.profiling.ncu_saved import read_saved
from kernel_compass.records.profile import Profile, Regime, SourceFormat
from kernel_compass.records.request import ProfileRequest

if TYPE_CHECKING:
    from conftest import FakeMachine

PYTHON = sys.executable
QUICK = (PYTHON, "-c", "print('target speaks')")
ALL = (Regime.WARM, Regime.IN_SITU, Regime.COLD)


def living(marker: Path) -> list[str]:
    """Processes that the job on this machine started and that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if str(marker).encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a test does, no process and no temporary folder stays behind."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    yield
    assert living(tmp_path) == []
    assert list(temporary.iterdir()) == []


def reads(profile: Profile) -> list[float]:
    return [kernel.metrics["dram_bytes_read"] for kernel in profile.kernels]


def test_one_profile_per_regime_in_order(machine: FakeMachine) -> None:
    profiles = run_profile(ProfileRequest(QUICK, ALL, label="demo"))
    assert [p.source.regime for p in profiles] == list(ALL)
    assert [p.label for p in profiles] == ["demo"] * 3
    assert {p.source.format for p in profiles} == {SourceFormat.NCU_RUN}
    modes = [(p.source.cache_control, p.source.replay_mode) for p in profiles]
    assert modes == [("none", "kernel"), ("none", "kernel-one-pass+kernel"), ("all", "kernel")]
    assert {p.source.clock_control for p in profiles} == {"none"}
    assert {p.source.ncu_version for p in profiles} == {"2025.3.1"}
    assert {p.source.path for p in profiles} == {None}
    assert [r["options"]["--cache-control"] for r in machine.runs()] == ["none", "none", "all"]
    assert {call["LC_ALL"] for call in machine.calls()} == {"C"}


def test_in_situ_takes_residency_from_its_own_run(machine: FakeMachine) -> None:
    warm, in_situ, cold = run_profile(ProfileRequest(QUICK, ALL))
    assert reads(warm) == [1.4e6, 1.4e6]
    assert reads(in_situ) == [16.8e6, 16.8e6]
    assert reads(cold) == [20e6, 20e6]
    gemm = in_situ.kernels[0]
    assert gemm.launches == 2
    assert gemm.duration_stats is not None
    assert gemm.duration_stats.mean == 9.0
    assert gemm.metrics["sm_throughput_pct"] == pytest.approx(40 * 6 / 9), "scaled to 9 us"
    assert "l2_hit_rate_pct" not in gemm.metrics, "only several passes would tell"
    assert "l2_hit_rate_pct" in warm.kernels[0].metrics


def test_in_situ_alone_makes_two_runs(machine: FakeMachine) -> None:
    (profile,) = run_profile(ProfileRequest(QUICK, (Regime.IN_SITU,)))
    assert reads(profile) == [16.8e6, 16.8e6]
    assert len(machine.runs()) == 2


def test_in_situ_repeats_the_program_where_one_pass_is_not_enough(machine: FakeMachine) -> None:
    machine.plays("two_passes")
    (profile,) = run_profile(ProfileRequest(QUICK, (Regime.IN_SITU,)))
    assert [r["options"]["--replay-mode"] for r in machine.runs()] == [
        *("kernel", "kernel", "application")
    ]
    assert profile.source.replay_mode == "application+kernel"
    assert reads(profile) == [16.8e6, 16.8e6]
    assert "l2_hit_rate_pct" in profile.kernels[0].metrics


FAILURES = {
    "permission": (ProfilingCause.NO_PERMISSION, "--cap-add=SYS_ADMIN"),
    "driver": (ProfilingCause.DRIVER_MISMATCH, "nvidia-smi"),
    "connect": (ProfilingCause.DRIVER_MISMATCH, "failed to connect"),
    "busy": (ProfilingCause.COUNTERS_BUSY, "dcgmi profile --pause"),
    "lock": (ProfilingCause.COUNTERS_BUSY, "nsight-compute-lock"),
    "unsupported": (ProfilingCause.UNSUPPORTED_GPU, "7.0"),
    "badmetric": (ProfilingCause.NCU_FAILED, "Failed to find metric"),
    "memory": (ProfilingCause.NCU_FAILED, "bad allocation"),
    "broken": (ProfilingCause.NCU_FAILED, "cannot be read"),
    "none": (ProfilingCause.NOTHING_PROFILED, "/usr/bin/python3.12"),
    "no_cuda": (ProfilingCause.NOTHING_PROFILED, "neither the program nor a process"),
}


@pytest.mark.parametrize("scenario", FAILURES)
def test_failures_are_told_apart(machine: FakeMachine, scenario: str) -> None:
    machine.plays(scenario)
    cause, says = FAILURES[scenario]
    with pytest.raises(ProfilingError) as caught:
        run_profile(ProfileRequest(QUICK, (Regime.WARM,)))
    assert caught.value.cause is cause
    assert says in str(caught.value)
    assert caught.value.remedy


def test_missing_ncu(machine: FakeMachine) -> None:
    (machine.folder / "ncu").unlink()
    machine.setenv("PATH", str(machine.folder))
    with pytest.raises(ProfilingError, match="no ncu on PATH") as caught:
        run_profile(ProfileRequest(QUICK))
    assert caught.value.cause is ProfilingCause.NCU_MISSING


def test_program_that_fails_before_any_kernel(machine: FakeMachine) -> None:
    machine.plays("none")
    target = (PYTHON, "-c", "import sys; sys.exit('no such model: tiny')")
    with pytest.raises(ProfilingError, match="no such model: tiny") as caught:
        run_profile(ProfileRequest(target))
    assert caught.value.cause is ProfilingCause.TARGET_FAILED
    assert "exit code 1" in caught.value.found


def test_program_that_fails_after_kernels_is_read_with_a_warning(machine: FakeMachine) -> None:
    (profile,) = run_profile(ProfileRequest((PYTHON, "-c", "exit(7)"), (Regime.WARM,)))
    assert len(profile.kernels) == 2
    assert any("exit code 7" in warning for warning in profile.warnings)


def test_program_killed_by_a_signal_is_named(machine: FakeMachine) -> None:
    target = (PYTHON, "-c", "import os; os.kill(os.getpid(), 11)")
    (profile,) = run_profile(ProfileRequest(target, (Regime.WARM,)))
    assert any("SIGSEGV" in warning for warning in profile.warnings)


def test_missing_program(machine: FakeMachine) -> None:
    with pytest.raises(ProfilingError, match="does not exist") as caught:
        run_profile(ProfileRequest(("/nonexistent/program",)))
    assert caught.value.cause is ProfilingCause.TARGET_FAILED


def test_progress_names_kernels_and_keeps_coming(machine: FakeMachine) -> None:
    machine.setenv("FAKE_NCU_KERNEL_S", "0.4")
    seen: list[Progress] = []
    run_profile(ProfileRequest(QUICK, (Regime.WARM,)), seen.append)
    assert {p.regime for p in seen} == {"warm"}
    assert [p.kernels_done for p in seen] == sorted(p.kernels_done for p in seen)
    assert seen[-1].kernels_done == 3
    assert {"gemm", "softmax"} <= {p.kernel_name for p in seen}
    assert any(p.kernels_done == 1 and p.kernel_name == "softmax" for p in seen)
    assert seen[-1].seconds > 1


def test_timeout_with_nothing_profiled(machine: FakeMachine) -> None:
    machine.plays("hang")
    with pytest.raises(ProfilingError, match="time-out struck") as caught:
        run_profile(ProfileRequest(QUICK, timeout_s=0.6))
    assert caught.value.cause is ProfilingCause.TIMEOUT
    assert "--launch-count" in caught.value.remedy


def test_timeout_kills_what_ignores_signals(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "kernel_compass.profiling.ncu_process.run_watched.__defaults__", (None, 0.3)
    )
    machine.plays("hang_hard")
    with pytest.raises(ProfilingError) as caught:
        run_profile(ProfileRequest(QUICK, timeout_s=0.6))
    assert caught.value.cause is ProfilingCause.TIMEOUT


def test_timeout_keeps_what_was_profiled(machine: FakeMachine) -> None:
    machine.plays("partial")
    (profile,) = run_profile(ProfileRequest(QUICK, (Regime.WARM, Regime.COLD), timeout_s=1.0))
    assert [kernel.launches for kernel in profile.kernels] == [1, 1]
    text = " ".join(profile.warnings)
    assert "later launches are missing" in text
    assert "no time for: cold" in text


@pytest.mark.parametrize("scenario", ["hang_nccl", "hang_warned"])
def test_stuck_in_communication(machine: FakeMachine, scenario: str) -> None:
    machine.plays(scenario)
    after = 0.4 if scenario == "hang_nccl" else 30.0
    with pytest.raises(ProfilingError, match="nccl") as caught:
        run_profile(ProfileRequest(QUICK), stuck_after_s=after)
    assert caught.value.cause is ProfilingCause.STUCK_COMMUNICATION
    assert "--kernels '^(?!.*nccl)'" in caught.value.remedy
    assert "2026.1 or newer" in caught.value.remedy


def test_output_of_the_target_passes_through(
    machine: FakeMachine, capfd: pytest.CaptureFixture[str]
) -> None:
    target = (PYTHON, "-c", "import sys; print('out\\ttext'); print('err', file=sys.stderr)")
    run_profile(ProfileRequest(target, (Regime.WARM,)))
    captured = capfd.readouterr()
    assert captured.out == "out\ttext\n"
    assert captured.err == "err\n"
    run_profile(ProfileRequest(target, (Regime.WARM,)), None, 2)
    captured = capfd.readouterr()
    assert captured.out == ""
    assert sorted(captured.err) == sorted("err\nout\ttext\n")  # two streams, one place


def test_much_output_does_not_block(machine: FakeMachine, tmp_path: Path) -> None:
    target = (PYTHON, "-c", "import sys; sys.stdout.write('x' * 79 + '\\n' * 3_000_000)")
    with (tmp_path / "out").open("wb") as file:
        run_profile(ProfileRequest(target, (Regime.WARM,)), target_stdout=file.fileno())
    assert (tmp_path / "out").stat().st_size == 3_000_079


def test_reader_that_went_away_does_not_stop_the_program(machine: FakeMachine) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        assert run_profile(ProfileRequest(QUICK, (Regime.WARM,)), target_stdout=write)
    finally:
        os.close(write)


@pytest.mark.parametrize(
    "arguments", [("a b", "it's", '"q"', "$HOME", "--metrics", "", "*"), ("-m", "x", "--csv")]
)
def test_odd_arguments_reach_the_target(
    machine: FakeMachine, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    script = tmp_path / "odd name.py"
    script.write_text("import sys, json, pathlib\npathlib.Path(sys.argv[1]).write_text("
                      "json.dumps(sys.argv[2:]))\n")  # fmt: skip
    out = tmp_path / "args.json"
    command = (PYTHON, str(script), str(out), *arguments)
    run_profile(ProfileRequest(command, (Regime.WARM,)))
    assert out.read_text() == json.dumps(list(arguments))
    assert machine.runs()[0]["target"] == list(command)


def test_module_as_target(machine: FakeMachine, capfd: pytest.CaptureFixture[str]) -> None:
    run_profile(ProfileRequest((PYTHON, "-m", "platform", "--terse"), (Regime.WARM,)))
    assert capfd.readouterr().out.lower().startswith("linux")


def test_saved_captures_read_back_the_same(machine: FakeMachine, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    request = ProfileRequest(QUICK, ALL, label="my run/1", save_dir=folder)
    profiles = run_profile(request)
    names = sorted(path.name for path in folder.iterdir())
    assert names == [
        "captures.json",
        *("my_run_1_cold.csv", "my_run_1_cold.ncu-rep"),
        *("my_run_1_in_situ.csv", "my_run_1_in_situ.ncu-rep"),
        *("my_run_1_warm.csv", "my_run_1_warm.ncu-rep"),
    ]
    again = read_saved(folder)
    assert [p.source for p in again] == [p.source for p in profiles]
    assert [p.kernels for p in again] == [p.kernels for p in profiles]
    assert [p.device for p in again] == [p.device for p in profiles]
    assert profiles[1].source.path == str(folder / "my_run_1_in_situ.csv")


def test_saving_never_overwrites(machine: FakeMachine, tmp_path: Path) -> None:
    request = ProfileRequest(QUICK, (Regime.WARM,), label="x", save_dir=tmp_path / "kept")
    run_profile(request)
    before = (tmp_path / "kept" / "x_warm.csv").stat().st_mtime_ns
    (second,) = run_profile(request)
    assert second.source.path is not None
    assert second.source.path.endswith("x-2_warm.csv")
    assert (tmp_path / "kept" / "x_warm.csv").stat().st_mtime_ns == before
    assert [p.label for p in read_saved(tmp_path / "kept")] == ["x", "x-2"]


def test_folder_that_cannot_be_used_is_refused_before_anything_runs(
    machine: FakeMachine, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "captures.json").write_text('{"schema": "something else"}')
    for folder in (tmp_path / "file", tmp_path / "other"):
        with pytest.raises(UsageError):
            run_profile(ProfileRequest(QUICK, save_dir=folder))
    assert machine.calls() == []
    with pytest.raises(NotAMetricTable, match=r"captures\.json"):
        read_saved(tmp_path)


JOB = """
import sys
from pathlib import Path
from kernel_compass.profiling.ncu_runner import run_profile
from kernel_compass.records.profile import Regime
from kernel_compass.records.request import ProfileRequest
def watch(progress):
    if progress.regime == "cold":
        Path(sys.argv[1], "reached").touch()
regimes = (Regime.WARM, Regime.COLD)
target = (sys.executable, "-c", "print(1)")
try:
    run_profile(ProfileRequest(target, regimes, label="x", save_dir=Path(sys.argv[1])), watch)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interruption_ends_everything_and_keeps_finished_regimes(
    machine: FakeMachine, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    machine.setenv("FAKE_NCU_KERNEL_S", "0.05")
    machine.setenv("FAKE_NCU_HANG_COLD", "1")
    folder = tmp_path / "kept"
    folder.mkdir()
    temporary = {"TMPDIR": str(tmp_path / "tmp")}
    job = subprocess.Popen(
        [PYTHON, "-c", JOB, str(folder)],
        env={**os.environ, **temporary},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not (folder / "reached").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.3)
    job.send_signal(number)
    assert job.wait(60) == code
    (profile,) = read_saved(folder)
    assert profile.source.regime is Regime.WARM


def test_full_disk_costs_the_files_not_the_result(
    machine: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfile", full)
    (profile,) = run_profile(ProfileRequest(QUICK, (Regime.WARM,), save_dir=tmp_path / "kept"))
    assert profile.kernels
    assert profile.source.path is None
    assert any("No space left" in warning for warning in profile.warnings)
