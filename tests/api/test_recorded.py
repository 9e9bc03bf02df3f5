"""The captures that the package ships, and what the demo shows of them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_compass.api import diagnose_files, diagnose_profiles
from kernel_compass.profiling.recorded import DESCRIPTIONS, recorded_path, recorded_profiles
from kernel_compass.records.diagnosis import Flag, Limiter, Reuse
from kernel_compass.records.profile import Regime

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "examples" / "01_demo.py"
SMALL, LARGE = "nvjet_sm90_tst_256x8", "nvjet_sm90_tst_512x8"


def test_two_bmms_show_what_a_regime_is() -> None:
    report = diagnose_profiles(recorded_profiles("two_bmms"))
    small = next(k for k in report.kernels if k.kernel.name.startswith(SMALL))
    large = next(k for k in report.kernels if k.kernel.name.startswith(LARGE))
    assert small.regimes is not None
    assert large.regimes is not None
    views = {regime: view for regime, view in small.regimes.items() if view is not None}
    assert list(views) == [Regime.WARM, Regime.IN_SITU, Regime.COLD]
    assert [Flag.L2_RESIDENT in v.diagnosis.flags for v in views.values()] == [True, False, False]
    assert views[Regime.WARM].diagnosis.reuse is Reuse.BETWEEN
    assert all(
        view is not None and view.diagnosis.limiter is Limiter.DRAM_BOUND
        for view in large.regimes.values()
    )


def test_a_saved_folder_is_diagnosed_as_one_program() -> None:
    (report,) = diagnose_files([recorded_path("two_bmms")])
    assert [s.regime for s in report.sources] == [Regime.WARM, Regime.IN_SITU, Regime.COLD]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the demo prints on a machine without a GPU; its folder has a space in its name."""
    done = subprocess.run(
        [sys.executable, str(DEMO), str(tmp_path_factory.mktemp("kept") / "of a demo")],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/nonexistent", "PYTHONPATH": str(ROOT / "src")},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_demo_shows_every_recording_and_says_why_it_runs_nothing_live(demo: str) -> None:
    assert all(description in demo for description in DESCRIPTIONS.values())
    assert "no live run: this machine has no NVIDIA driver" in demo
    assert "l2_resident (between launches)" in demo


def test_the_commands_that_the_demo_prints_work_as_printed(demo: str, tmp_path: Path) -> None:
    (line,) = re.findall(r"^export .*$", demo, re.M)
    commands = re.findall(r"kernel-compass (?:show|run|revert) .*$", demo, re.M)
    assert sorted(one.split()[1] for one in commands) == ["revert", "revert", "run", "show"]
    script = tmp_path / "script.py"
    script.write_text("print('it ran')")
    for command in sorted(commands, key=lambda one: "revert" in one):
        done = subprocess.run(
            ["/bin/sh", "-c", f"{line}\n{command.replace('SCRIPT', str(script))}"],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={"PATH": "/nonexistent", "PYTHONPATH": str(ROOT / "src")},
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        said = {"show": "accepted", "run": "it ran", "revert": "Reverted in"}
        assert said[command.split()[1]] in done.stdout


def test_a_folder_without_saved_captures_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kernel_compass.cli.main", "diagnose", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(ROOT / "src")},
    )
    assert done.returncode == 3
    assert done.stdout == ""
    assert "captures.json cannot be read" in done.stderr
    assert "profile --save" in done.stderr
