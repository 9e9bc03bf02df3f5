"""A machine with ncu and nvidia-smi, played by scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

FAKE_NCU = Path(__file__).with_name("fake_ncu.py")


@dataclass
class FakeMachine:
    """What the scripts play is set through the environment of the test."""

    folder: Path
    setenv: Callable[[str, str], None]

    def plays(self, scenario: str) -> None:
        self.setenv("FAKE_NCU_SCENARIO", scenario)

    def has_gpus(self, *rows: str) -> None:
        """Rows are `name, compute capability, driver version`."""
        self.setenv("FAKE_SMI_GPUS", "\n".join(rows))

    def calls(self) -> list[dict[str, Any]]:
        path = self.folder / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def runs(self) -> list[dict[str, Any]]:
        return [call for call in self.calls() if "--import" not in call["options"]]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    """One with an H200 and ncu 2025.3.1."""
    folder = tmp_path / "machine"
    folder.mkdir()
    scripts = {
        "ncu": f'#!/bin/sh\nexec "{sys.executable}" "{FAKE_NCU}" "$@"\n',
        "nvidia-smi": (
            "#!/bin/sh\n"
            'case "$1" in\n'
            '--query-gpu=name,compute_cap*) printf "%s\\n" "$FAKE_SMI_GPUS" ;;\n'
            '--query-gpu=clocks.sm*event*) printf "%s\\n" "$FAKE_SMI_CLOCKS" ;;\n'
            "*) exit 6 ;;\n"
            "esac\n"
        ),
    }
    for name, text in scripts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.delenv("KERNEL_COMPASS_NCU", raising=False)
    monkeypatch.setenv("FAKE_NCU_CALLS", str(folder / "calls.jsonl"))
    monkeypatch.setenv("FAKE_SMI_CLOCKS", "1980, 1980, 0x0000000000000001")
    made = FakeMachine(folder, monkeypatch.setenv)
    made.has_gpus("NVIDIA H200, 9.0, 580.159.04")
    return made
