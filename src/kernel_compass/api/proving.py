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
from kernel_compass.api.places import named_gpus
from kernel_compass.errors import JudgeError
from kernel_compass.measurement.calibration_store import store_folder
from kernel_compass.profiling.visible_gpus import driver_version
from kernel_compass.records.device import CPU
from kernel_compass.validation.self_test import CheatResult, SelfTest

_PACKAGE = Path(kernel_compass.__file__).parent
_JUDGING = (
    "access.py",
    "dispatch_mode.py",
    "validation/**/*.py",
    "measurement/**/*.py",
    "analysis/**/*.py",
    "records/**/*.py",
    "execution/**/*.py",
    "kernels/quantize.py",
    "kernels/quantized.py",
    "kernels/references.py",
    "api/candidate_calls.py",
    "api/candidate_names.py",
    "api/judging.py",
    "api/loop_judging.py",
    "api/machine_check.py",
    "api/kernel_requests.py",
    "api/kernel_verdicts.py",
    "api/problem*.py",
    "api/product_*.py",
    "api/source_names.py",
    "api/targets.py",
    "api/timed_results.py",
    "api/tuned_kernels.py",
)
"""What the judge is made of."""


def ensure_self_test(
    device: str, on_result: Callable[[CheatResult], None] = lambda _: None
) -> bool:
    """Let the judge prove itself, unless it did in this very environment; whether it had to.

    Args:
        device: `cpu`, `cuda:0`, or `cuda`: on one GPU of each kind that there is.
        on_result: told of each cheat as it is judged.

    Raises:
        JudgeError: it missed a cheat, or rejected the honest candidate: nothing may be judged.
        MissingDependency: torch is not installed.
        MeasurementError: the process died, or this machine shows no such GPU.
        UsageError: there is no such device.
    """
    had_to = [_ensure(one, on_result) for one in _one_of_each_kind(device)]
    return any(had_to)


def _one_of_each_kind(device: str) -> tuple[str, ...]:
    kind, _, index = device.partition(":")
    if device == CPU or index:
        return (device,)
    first: dict[str, str] = {}
    for number, gpu in enumerate(named_gpus(device)):
        first.setdefault(gpu.name, f"{kind}:{number}")
    return tuple(first.values())


def _ensure(device: str, on_result: Callable[[CheatResult], None]) -> bool:
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


def judge_failed(outcome: SelfTest, listed: bool = False) -> JudgeError:
    """What is said of a judge that did not prove itself.

    Args:
        outcome: of the self-test.
        listed: whether the user sees all of it already.
    """
    missed = [one.name for one in outcome.results if not one.caught]
    what = f"missed {len(missed)} of {len(outcome.results)} cheats"
    if outcome.honest_rejected:
        what += f" and rejected the honest candidate ({outcome.honest_rejected})"
    names = f": {', '.join(missed)}" if missed else ""
    return JudgeError(
        f"The judge {what}{names}. Nothing may be judged here.",
        "Report this with the list above."
        if listed
        else "Run `kernel-compass validate --self-test` and report what it lists.",
    )


def environment_key(device: str) -> tuple[str, dict[str, str | None]]:
    """A hash of all that the self-test depends on, and what that is.

    Args:
        device: `cpu`, `cuda:0`.
    """
    found: dict[str, str | None] = {
        "device": device.partition(":")[0],
        "python": platform.python_version(),
        **{name: _version(name) for name in ("torch", "triton", "numpy")},
        "kernel_compass": kernel_compass.__version__,
        "sources": _sources(),
    }
    if device != CPU:
        found["gpu"], found["driver"] = named_gpus(device)[0].name, driver_version()
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


def judging_files() -> tuple[Path, ...]:
    """The sources of the judge."""
    return tuple(sorted({file for name in _JUDGING for file in _PACKAGE.glob(name)}))


def _sources() -> str:
    digest = hashlib.sha256()
    for file in judging_files():
        digest.update(file.relative_to(_PACKAGE).as_posix().encode() + b"\0")
        digest.update(file.read_bytes() + b"\0")
    return digest.hexdigest()
