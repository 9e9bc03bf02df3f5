"""Every check answers, whatever is installed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kernel_compass.errors import INSTALL_TORCH
from kernel_compass.profiling import doctor
from kernel_compass.records.request import Check, CheckStatus

if TYPE_CHECKING:
    from conftest import FakeMachine

NAMES = [
    *("GPU", "driver", "ncu", "counter permission", "torch", "triton"),
    *("CUDA toolkit", "clocks", "L2"),
]
H200 = {"name": "NVIDIA H200", "compute_capability": "9.0", "sm_count": 132, "l2_bytes": 62914560}


@pytest.fixture
def gpu_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The empty kernel runs."""
    probe = tmp_path / "probe.py"
    probe.write_text(f"print({json.dumps(json.dumps(H200))})\n")
    monkeypatch.setattr(doctor, "_probe_command", lambda: (sys.executable, str(probe)))


def by_name() -> dict[str, Check]:
    found = doctor.checks()
    assert [check.name for check in found] == NAMES
    return {check.name: check for check in found}


def test_nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("KERNEL_COMPASS_NCU", raising=False)
    monkeypatch.setattr("kernel_compass.profiling.ncu_tool._PLACES", (("/none", "x"),) * 2)
    monkeypatch.setattr(doctor, "_NVCC", ())
    monkeypatch.setattr(doctor, "_package", lambda name, _: Check(name, CheckStatus.OK, "1"))
    monkeypatch.setattr(doctor, "_run_probe", lambda: {"error": "no driver"})
    found = by_name()
    for name in ("GPU", "driver", "ncu", "counter permission"):
        assert found[name].status is CheckStatus.MISSING
        assert found[name].cost
        assert found[name].remedy
    assert found["CUDA toolkit"].status is CheckStatus.WARNING
    remedies = [check.remedy for check in found.values() if check.status is CheckStatus.MISSING]
    assert sum("Install Nsight Compute" in remedy for remedy in remedies) == 1
    assert "not tested" in found["counter permission"].found


def test_packages_that_lack_name_the_one_way_to_get_them() -> None:
    check = doctor._package("no-such-distribution-of-mine", "nothing runs")
    assert (check.status, check.remedy) == (CheckStatus.MISSING, INSTALL_TORCH)
    assert INSTALL_TORCH == "pip install torch triton nvidia-ml-py"


def test_everything_works(machine: FakeMachine, gpu_works: None, capfd: object) -> None:
    found = by_name()
    assert found["GPU"].found == "NVIDIA H200 (compute capability 9.0)"
    assert found["driver"].found == "580.159.04"
    assert found["ncu"].found.startswith("2025.3.1 (")
    assert found["counter permission"].status is CheckStatus.OK
    assert "metrics read" in found["counter permission"].found
    assert found["clocks"].status is CheckStatus.OK
    assert found["clocks"].found == "SM at 1980 of 1980 MHz"
    assert found["L2"].found == "60.0 MiB (nominal)"
    assert machine.runs()[0]["options"]["--cache-control"] == "all"


def test_no_permission_is_found_by_profiling(machine: FakeMachine, gpu_works: None) -> None:
    machine.plays("permission")
    check = by_name()["counter permission"]
    assert check.status is CheckStatus.MISSING
    assert "no_permission" in check.found
    assert "SYS_ADMIN" in check.remedy


def test_throttled_clocks(machine: FakeMachine, gpu_works: None) -> None:
    machine.setenv("FAKE_SMI_CLOCKS", "1200, 1980, 0x0000000000000044")
    check = by_name()["clocks"]
    assert check.status is CheckStatus.WARNING
    assert "hardware thermal slowdown, power cap" in check.found


def test_unsupported_gpu(machine: FakeMachine, gpu_works: None) -> None:
    machine.has_gpus("Quadro GP100, 6.0, 535")
    found = by_name()
    assert found["GPU"].status is CheckStatus.WARNING
    assert found["counter permission"].status is CheckStatus.MISSING


def test_probe_answers_without_a_driver() -> None:
    facts = doctor._run_probe()
    assert "error" in facts or facts["compute_capability"]
