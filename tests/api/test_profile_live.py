"""Stage 1 and 2 on the real thing: ncu, a GPU, a user's script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_compass.api import diagnose_files, doctor
from kernel_compass.records.diagnosis import Flag
from kernel_compass.records.request import CheckStatus

pytestmark = [pytest.mark.gpu, pytest.mark.ncu]

ROOT = Path(__file__).resolve().parents[2]
BMMS = str(ROOT / "examples" / "two_bmms.py")
SMALL, LARGE = 17e6, 134e6


def run(
    *arguments: str, module: str = "kernel_compass.cli.main"
) -> subprocess.CompletedProcess[str]:
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in paths if p)},
        timeout=240,
    )


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, Path]:
    folder = tmp_path_factory.mktemp("profiled")
    done = run(
        "profile", "--regime", "warm", "--regime", "in_situ", "--regime", "cold",
        "--kernels", "nvjet|gemm", "--save", str(folder / "captures"),
        "--output", str(folder / "report.json"), BMMS, "--between", "200",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "report.json").read_text()), folder / "captures"


def bmm(document: dict, l2_bytes: float) -> dict:
    """The kernel that reads about this much from L2."""
    return next(
        k
        for k in document["kernels"]
        if abs(k["metrics"]["l2_bytes_read"] - l2_bytes) < 0.1 * l2_bytes
    )


def test_the_small_bmm_is_resident_warm_and_not_cold(profiled: tuple[dict, Path]) -> None:
    small = bmm(profiled[0], SMALL)
    warm, cold = small["regimes"]["warm"], small["regimes"]["cold"]
    assert "l2_resident" in warm["diagnosis"]["flags"]
    assert warm["diagnosis"]["reuse"] == "between"
    assert any(e["metric"] == "dram_bytes_read" for e in warm["diagnosis"]["evidence"])
    assert "l2_resident" not in cold["diagnosis"]["flags"]
    assert cold["metrics"]["dram_bytes_read"] == pytest.approx(16.8e6, rel=0.02)


def test_in_situ_sees_what_the_program_left(profiled: tuple[dict, Path]) -> None:
    in_situ = bmm(profiled[0], SMALL)["regimes"]["in_situ"]
    assert "l2_resident" not in in_situ["diagnosis"]["flags"]
    assert in_situ["metrics"]["dram_bytes_read"] == pytest.approx(16.8e6, rel=0.02)


def test_the_large_bmm_is_dram_bound_in_every_regime(profiled: tuple[dict, Path]) -> None:
    views = bmm(profiled[0], LARGE)["regimes"]
    assert {name: v["diagnosis"]["limiter"] for name, v in views.items()} == dict.fromkeys(
        ("warm", "in_situ", "cold"), "dram_bound"
    )


def test_saved_reports_are_read_again(profiled: tuple[dict, Path]) -> None:
    reports = sorted(profiled[1].glob("*.ncu-rep"))
    assert len(reports) >= 3
    for report in diagnose_files(reports):
        assert any(
            k.kernel.metrics["l2_bytes_read"] == pytest.approx(SMALL, rel=0.1)
            for k in report.kernels
        )


def test_a_failing_target_keeps_its_exit_code(tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text("import sys\nprint('about to fail', file=sys.stderr)\nsys.exit(7)\n")
    done = run("profile", "--regime", "warm", str(script))
    assert done.returncode == 5
    assert "7" in done.stderr
    assert "about to fail" in done.stderr


def test_nothing_profiled_is_never_success(tmp_path: Path) -> None:
    script = tmp_path / "idle.py"
    script.write_text("print('no kernel here')\n")
    done = run("profile", "--regime", "warm", str(script))
    assert done.returncode == 6
    assert done.stdout == ""


def test_first_spellings_run_unchanged(tmp_path: Path) -> None:
    capture = tmp_path / "out.csv"
    done = run(
        "--script", BMMS, "--args", "--steps 2", "--output", str(capture), "--label", "first",
        module="profiling.ncu_runner",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "dram_bound" in done.stdout
    again = run("--parse-only", str(capture), "--label", "again", module="profiling.ncu_runner")
    assert again.returncode == 0, again.stderr
    assert "dram_bound" in again.stdout


def test_doctor_finds_counters_working() -> None:
    by_name = {check.name: check for check in doctor()}
    assert all(check.status is CheckStatus.OK for name, check in by_name.items() if "ncu" in name)


def test_flags_from_our_own_metric_list(tmp_path: Path) -> None:
    output = tmp_path / "suite.json"
    done = run(
        "profile", "--regime", "warm", "--kernels", "^k_(bank8_load|spill_mid|div8|barrier_512)",
        "--output", str(output), str(ROOT / "benchmarks" / "truth" / "suite.py"),
        "--only", "^k_(bank8_load|spill_mid_64regs|div8|barrier_512)$", "--launches", "1",
        "--warmups", "0",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    flags = {
        k["name"]: set(k["diagnosis"]["flags"]) for k in json.loads(output.read_text())["kernels"]
    }
    assert Flag.BANK_CONFLICTS.value in flags["k_bank8_load"]
    assert Flag.REGISTER_SPILLS.value in flags["k_spill_mid_64regs"]
    assert Flag.DIVERGENCE.value in flags["k_div8"]
    assert Flag.BARRIER_STALLS.value in flags["k_barrier_512"]
