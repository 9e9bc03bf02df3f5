"""ncu is found where it is, and its version's options are known."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kernel_compass.errors import ProfilingCause, ProfilingError
from kernel_compass.profiling import ncu_tool
from kernel_compass.profiling.ncu_tool import find_ncu

if TYPE_CHECKING:
    from conftest import FakeMachine


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


def test_version_and_options(machine: FakeMachine) -> None:
    tool = find_ncu()
    assert tool.version == "2025.3.1"
    assert tool.path == str(machine.folder / "ncu")
    assert tool.knows("--kernel-name")
    assert tool.knows("--export")
    assert not tool.knows("--csv-like")


def test_environment_variable_comes_first(machine: FakeMachine, tmp_path: Path) -> None:
    other = script(tmp_path / "other" / "ncu", f'exec "{machine.folder}/ncu" "$@"\n')
    machine.setenv("KERNEL_COMPASS_NCU", str(other))
    assert find_ncu().path == str(other)
    machine.setenv("KERNEL_COMPASS_NCU", str(tmp_path / "nowhere"))
    with pytest.raises(ProfilingError, match="KERNEL_COMPASS_NCU names") as caught:
        find_ncu()
    assert caught.value.cause is ProfilingCause.NCU_MISSING


def test_newest_installation_outside_of_path(
    machine: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for release in ("2024.3.2", "2025.10.0", "2025.3.1"):
        script(tmp_path / "opt" / release / "ncu", f'exec "{machine.folder}/ncu" "$@"\n')
    monkeypatch.setattr(ncu_tool, "_PLACES", ((str(tmp_path / "opt"), "*/ncu"),) * 2)
    machine.setenv("PATH", "/usr/bin:/bin")
    assert find_ncu().path == str(tmp_path / "opt" / "2025.10.0" / "ncu")


def test_too_old(machine: FakeMachine) -> None:
    machine.setenv("FAKE_NCU_WITHOUT", "--target-processes --csv")
    with pytest.raises(ProfilingError, match="lacks --csv, --target-processes") as caught:
        find_ncu()
    assert caught.value.cause is ProfilingCause.NCU_TOO_OLD
    assert "2020.1" in caught.value.remedy


def test_broken(machine: FakeMachine, tmp_path: Path) -> None:
    broken = script(tmp_path / "ncu", "echo 'libcrypt.so.1: not found' >&2; exit 127\n")
    machine.setenv("KERNEL_COMPASS_NCU", str(broken))
    with pytest.raises(ProfilingError, match=r"libcrypt\.so\.1") as caught:
        find_ncu()
    assert caught.value.cause is ProfilingCause.NCU_FAILED
