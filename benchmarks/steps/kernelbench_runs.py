"""The files of `benchmarks/kernelbench_style`, each through the command, as it is.

    kernel-compass optimize FILE --yes
    kernel-compass replay last

Sizes stand at the top of each file as whole numbers, as that style has them. A machine that is too
small for them gets a copy in which none is over a limit (`smaller`); the file stays as it is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from steps import predicting
from steps.problem_files import FOLDER, copied, problem_files, smaller
from steps.studying import summed

from kernel_compass.codec.study_document import decode
from kernel_compass.records.step_study import StepStudy

__all__ = ["copied", "optimized", "problem_files", "smaller"]
BUDGET_PCT = 1.0


def optimized(
    path: Path, folder: Path, minutes: float, words: Sequence[str], say: Callable[[str], None]
) -> dict[str, Any]:
    """Run the command on a file, or go on with it; then replay what it accepted.

    Args:
        path: the file.
        folder: of this file's ledger, table and result.
        minutes: of the study.
        words: more of the command line.
        say: told in a line.
    """
    result = folder / "result.json"
    if result.exists():
        known: dict[str, Any] = json.loads(result.read_text())
        return known
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    table = ["--yes", "--table", str(folder / "compass.json")]
    begun = (folder / "home").exists() and any(
        one.get("state") not in (None, "finished") for one in _json(folder, "history", "--json")
    )
    asked = ["--resume", "last"] if begun else [str(path), "--minutes", f"{minutes:g}", *words]
    code = _run(folder, ["optimize", *asked, *table], say)
    if code:
        return _row(path, began, code, StepStudy(), None, None)
    recorded = decode(_output(folder, "export", "last"))
    step = recorded.step or StepStudy()
    replay = {"holds": True, "claims": []}
    if step.entries:
        replay = json.loads(_output(folder, "replay", "last", "--json", "--yes"))
    found = _row(path, began, code, step, replay, recorded.study.environment.device.name)
    result.write_text(json.dumps(found, indent=1) + "\n")
    return found


def _row(
    path: Path,
    began: float,
    code: int,
    step: StepStudy,
    replay: Mapping[str, Any] | None,
    device: str | None,
) -> dict[str, Any]:
    own = path.parent == FOLDER  # of a smaller copy nothing was foretold
    foretold = predicting.read(path.stem, device, ()) if own else None
    found = summed(step, BUDGET_PCT, foretold)
    holds = replay is not None and bool(replay["holds"])
    return {
        "program": path.name,
        "budget_pct": BUDGET_PCT,
        "exit_code": code,
        "seconds": round(time.monotonic() - began, 1),
        **found,
        "replay": replay,
        # where nothing was accepted the program is untouched
        "never_slower": code == 0 and holds and found["obtained"] >= 1.0,
    }


def _run(folder: Path, words: Sequence[str], say: Callable[[str], None]) -> int:
    with subprocess.Popen(
        _command(words),
        env=_environment(folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            say(line.rstrip())
    return process.returncode


def _output(folder: Path, *words: str) -> bytes:
    done = subprocess.run(
        _command(words), env=_environment(folder), stdout=subprocess.PIPE, check=False
    )
    return done.stdout


def _json(folder: Path, *words: str) -> Any:
    return json.loads(_output(folder, *words))


def _command(words: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "kernel_compass", *words]


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "KERNEL_COMPASS_HOME": str(folder / "home")}
