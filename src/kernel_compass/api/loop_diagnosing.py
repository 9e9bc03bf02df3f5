"""What limits baselines and candidates, by counters: one process under ncu for all of them.

The process launches each once inside a range that ncu looks at, and a marker behind it: equal
kernels of two sides would be one group in a capture, so its table is cut at the markers.
"""

from __future__ import annotations

import csv
import gc
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernel_compass.api.diagnosing import diagnose_profiles
from kernel_compass.api.problems import problem_recipe as recipe
from kernel_compass.codec.canonical import reshaped
from kernel_compass.errors import KernelCompassError
from kernel_compass.kernels.library import torch_library
from kernel_compass.measurement.fresh import device_named
from kernel_compass.measurement.recipe import Recipe
from kernel_compass.profiling.capture import read_capture
from kernel_compass.profiling.ncu_runner import run_profile
from kernel_compass.records.diagnosis import Diagnosis, Evidence
from kernel_compass.records.problem import ProblemSource, ProblemWorkload
from kernel_compass.records.profile import Profile, Regime
from kernel_compass.records.report import Report, ReportKernel
from kernel_compass.records.request import ProfileRequest
from kernel_compass.records.trial import Candidate

RANGE = "kernel_compass"
MARKER = "spin_kernel"
"""What `torch.cuda._sleep` launches."""
MARKER_CYCLES = 1000
MOST_EVIDENCE = 3
TOLD = "told.json"
COLUMN = "Kernel Name"

Tell = Callable[[Mapping[str, Any]], None]
Rows = Sequence[Sequence[str]]


def diagnose_task(arguments: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """In a worker: profile one launch of each side, and diagnose it.

    Args:
        arguments: those of all tasks, `sides` (each `workload`, `candidate`, `None` = the
            baseline), `regime` (cold or warm), `timeout_s`.
        tell: told when it begins.

    Returns:
        `found`: of each side `limiter`, `flags`, `evidence`, or `unavailable`, why it is not
        known; or `unavailable` for all.
    """
    tell({"phase": "run"})
    regime = Regime(arguments["regime"])
    with tempfile.TemporaryDirectory(prefix="diagnosing-") as name:
        folder = Path(name)
        try:
            table = _profiled(arguments, regime, folder)
            errors = _errors(folder / TOLD, len(arguments["sides"]))
            parts = sides_of(table, len(errors))
        except (KernelCompassError, OSError, ValueError) as error:
            return {
                "unavailable": error.found if isinstance(error, KernelCompassError) else str(error)
            }
        found = []
        for index, rows in enumerate(parts):
            calibration = arguments["calibration"] or "none"
            found.append(_found(errors[index], rows, folder / f"{index}.csv", regime, calibration))
    return {"found": found}


def _profiled(arguments: Mapping[str, Any], regime: Regime, folder: Path) -> Path:
    """The table of a capture of all sides; beside it `TOLD`, the error of each."""
    source = reshaped(arguments["source"], ProblemSource)
    recipes = []
    for side in arguments["sides"]:
        workload = reshaped(side["workload"], ProblemWorkload)
        given = side["candidate"]
        candidate = None if given is None else reshaped(given, Candidate)
        recipes.append(recipe(source, workload, candidate).document())
    asked = {"recipes": recipes, "device": arguments["device"], "told": str(folder / TOLD)}
    request = ProfileRequest(
        (sys.executable, "-m", __name__, json.dumps(asked)),
        (regime,),
        nvtx=f"{RANGE}/",
        timeout_s=arguments["timeout_s"],
        save_dir=folder / "captures",
    )
    with Path(os.devnull).open("w") as nowhere:
        (profile,) = run_profile(request, target_stdout=nowhere.fileno())
    return _path(profile)


def _errors(path: Path, count: int) -> list[str | None]:
    found: list[str | None] = json.loads(path.read_text())
    return found + ["its turn did not come in time"] * (count - len(found))


def _path(profile: Profile) -> Path:
    if profile.source.path is None:
        raise OSError("; ".join(profile.warnings) or "the capture could not be kept")
    return Path(profile.source.path)


def sides_of(table: Path, count: int) -> list[list[list[str]]]:
    """A capture's rows cut at the markers, each part with the header; without rows where none are.

    Args:
        table: of `--page raw`: a header, the units, and a row a launch.
        count: of sides.

    Raises:
        ValueError: it is no such table.
    """
    with table.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.reader(file) if len(row) > 1]
    first = next((i for i, row in enumerate(rows) if COLUMN in row), None)
    if first is None or len(rows) < first + 2:
        raise ValueError("ncu's table has no header")
    header, units, *launches = rows[first:]
    name = header.index(COLUMN)
    parts: list[list[list[str]]] = [[]]
    for row in launches:
        if MARKER in row[name]:
            parts.append([])
        else:
            parts[-1].append(row)
    parts = (parts + [[]] * count)[:count]
    return [[header, units, *part] for part in parts]


def _found(
    error: str | None, rows: Rows, path: Path, regime: Regime, calibration: str
) -> dict[str, Any]:
    if error is not None:
        return {"unavailable": error}
    if len(rows) < 3:
        return {"unavailable": "ncu saw no launch of it"}
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    try:
        report = diagnose_profiles([read_capture(path, regime)], None, calibration)
    except KernelCompassError as failure:
        return {"unavailable": failure.found}
    return finding_of(report)


def finding_of(report: Report) -> dict[str, Any]:
    """The diagnosis of the kernel that takes most of a launch, as JSON."""
    longest = max(report.kernels, key=_time_us, default=None)
    diagnosis = longest.kernel.diagnosis if longest else None
    if longest is None or diagnosis is None:
        return {"unavailable": "no kernel could be diagnosed"}
    return {
        "limiter": diagnosis.limiter.value,
        "flags": [flag.value for flag in diagnosis.flags],
        "evidence": [_text(one) for one in _decisive(diagnosis)],
    }


def _time_us(one: ReportKernel) -> float:
    return one.kernel.duration_stats.total if one.kernel.duration_stats else 0.0


def _decisive(diagnosis: Diagnosis) -> Sequence[Evidence]:
    return diagnosis.evidence[:MOST_EVIDENCE]


def _text(one: Evidence) -> str:
    value = f"{one.value:.3g} {one.unit}".strip()
    return f"{one.meaning} ({one.metric} {value})"


def main() -> int:
    """Under ncu: launch each recipe once inside the range, a marker behind it."""
    asked = json.loads(sys.argv[1])
    told: list[str | None] = []
    for one in asked["recipes"]:
        told.append(_launched(one, asked["device"]))
        Path(asked["told"]).write_text(json.dumps(told))  # the time may not suffice for all
    return 0


def _launched(document: Mapping[str, Any], name: str) -> str | None:
    """Why it was not; the marker comes in any case."""
    torch = torch_library()
    device = device_named(name)
    error = None
    subject = None
    try:
        subject = Recipe.of(document).build(device)
        device.run(subject.first_call)  # what is built at the first call is none of it
    except Exception as failure:
        error = f"{type(failure).__name__}: {' '.join(str(failure).split())[:300]}"
    torch.cuda.nvtx.range_push(RANGE)
    if subject is not None and error is None:
        device.run(subject.first_call)
    torch.cuda._sleep(MARKER_CYCLES)
    torch.cuda.synchronize()
    torch.cuda.nvtx.range_pop()
    del subject
    gc.collect()
    device.release()
    return error


if __name__ == "__main__":
    sys.exit(main())
