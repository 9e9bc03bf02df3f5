"""The judge proves itself once per environment, before anything is judged."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import kernel_compass
from kernel_compass.api.judging import run_self_test, self_test_fields
from kernel_compass.errors import JudgeError
from kernel_compass.measurement.calibration_store import store_folder
from kernel_compass.profiling.visible_gpus import driver_version, visible_gpus
from kernel_compass.validation.self_test import CheatResult, SelfTest

_PACKAGE = Path(kernel_compass.__file__).parent
_JUDGING = ("validation", "measurement", "api/judging.py", "api/product_problem.py")
"""What the judge is made of."""


def ensure_self_test(
    device: str, on_result: Callable[[CheatResult], None] = lambda _: None
) -> bool:
    """Let the judge prove itself, unless it did in this very environment; whether it had to.

    Args:
        device: `cpu`, `cuda:0`.
        on_result: told of each cheat as it is judged.

    Raises:
        JudgeError: it missed a cheat, or rejected the honest candidate: nothing may be judged.
        MissingDependency: torch is not installed.
        MeasurementError: the process died.
    """
    key, environment = environment_key(device)
    path = store_folder().parent / "self-test" / f"{key}.json"
    if _passed(path):
        return False
    outcome = run_self_test(device, on_result)
    if not outcome.passed:
        raise judge_failed(outcome)
    with suppress(OSError):  # it is only asked again
        path.parent.mkdir(parents=True, exist_ok=True)
        fields = {"environment": environment, **self_test_fields(outcome)}
        path.write_text(json.dumps(fields, indent=2) + "\n")
    return True


def judge_failed(outcome: SelfTest) -> JudgeError:
    """What is said of a judge that did not prove itself."""
    missed = [one.name for one in outcome.results if not one.caught]
    what = f"missed {len(missed)} of {len(outcome.results)} cheats"
    if outcome.honest_rejected:
        what += f" and rejected the honest candidate ({outcome.honest_rejected})"
    names = f": {', '.join(missed)}" if missed else ""
    return JudgeError(
        f"The judge {what}{names}. Nothing may be judged here.",
        "Run `kernel-compass validate --self-test` and report what it lists.",
    )


def environment_key(device: str) -> tuple[str, dict[str, str | None]]:
    """A hash of all that the self-test depends on, and what that is."""
    found: dict[str, str | None] = {
        "device": device.partition(":")[0],
        "python": platform.python_version(),
        **{name: _version(name) for name in ("torch", "triton", "numpy")},
        "kernel_compass": kernel_compass.__version__,
        "sources": _sources(),
    }
    if device.startswith("cuda"):
        names = {gpu.name for gpu in visible_gpus()}
        found["gpu"], found["driver"] = ", ".join(sorted(names)), driver_version()
    text = json.dumps(found, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32], found


def _passed(path: Path) -> bool:
    try:
        return json.loads(path.read_text())["passed"] is True
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _sources() -> str:
    digest = hashlib.sha256()
    for name in _JUDGING:
        place = _PACKAGE / name
        files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
        for file in files:
            digest.update(file.relative_to(_PACKAGE).as_posix().encode() + b"\0")
            digest.update(file.read_bytes() + b"\0")
    return digest.hexdigest()
