"""What workers do for the loop: time the baseline, judge and screen a candidate, sample finalists.

Arguments and answers are JSON. On a simulated device the candidates of a problem's file are judged
on the CPU; a product's kernels are not judged there, and the answer says so.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernel_compass.analysis.floor import Floors
from kernel_compass.analysis.format_traffic import stored_weight
from kernel_compass.analysis.sequential import SequentialComparison
from kernel_compass.api.baseline_survey import survey_task
from kernel_compass.api.calibrations import calibration
from kernel_compass.api.judging import Judged, judgement_fields, spent_by
from kernel_compass.api.loop_compiling import compile_task
from kernel_compass.api.loop_diagnosing import diagnose_task
from kernel_compass.api.loop_judging import judged
from kernel_compass.api.loop_sanitizing import sanitize_task
from kernel_compass.api.measuring import WatchedLaunch, watch
from kernel_compass.api.problems import problem_recipe as recipe
from kernel_compass.codec.canonical import reshaped
from kernel_compass.errors import MeasurementError
from kernel_compass.kernels.providers.registry import implementation
from kernel_compass.measurement.device import TimingDevice
from kernel_compass.measurement.fresh import device_named, pairs
from kernel_compass.measurement.paired import pair
from kernel_compass.records.comparison import ComparisonResult, Decision, Rule
from kernel_compass.records.counters import DRAM_BYTES_READ, L2_SECTORS_READ, SECTOR_BYTES
from kernel_compass.records.device import CPU, SIMULATED
from kernel_compass.records.kernel_table import BASELINE
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.problem import ProblemSource, ProblemWorkload
from kernel_compass.records.profile import Regime
from kernel_compass.records.trial import Candidate, Reason
from kernel_compass.validation.judge_contracts import Effort, Judgement

__all__ = [
    "baseline_task",
    "compile_task",
    "diagnose_task",
    "explain_task",
    "finals_task",
    "sanitize_task",
    "screen_task",
    "survey_task",
]

SCREEN_LOOKS = (24, 60, 150)
"""Pairs of a screen at which it is looked at; the last ends it."""
NOT_JUDGED = "a simulated device computes nothing: the kernel was not judged"
_BYTES_OF_16_BITS = 2

Tell = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class _Asked:
    """What all tasks have in common, read."""

    source: ProblemSource
    device: str
    seed: int
    budget_pct: float

    @classmethod
    def of(cls, a: Mapping[str, Any]) -> _Asked:
        source = reshaped(a["source"], ProblemSource)
        return cls(source, a["device"], a["seed"], a["budget_pct"])


def baseline_task(arguments: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Time what is to be beaten, in each regime, and say what its floor is.

    Args:
        arguments: those of all tasks, `workload`, `regimes`, `calibration`.
        tell: told when what is timed is built.
    """
    asked, workload = _Asked.of(arguments), _workload(arguments["workload"])
    device = device_named(asked.device)
    device.seed(asked.seed)
    subject = recipe(asked.source, workload, None).build(device)
    tell({"phase": "run"})
    rows = []
    for name in arguments["regimes"]:
        # Beside itself: the same machinery as in every comparison to come.
        timer = pair(subject, subject, device, Regime(name))
        found = timer.take(SCREEN_LOOKS[0])
        floor_us = _floor_us(workload, Regime(name), arguments["calibration"])
        rows.append({"regime": name, "time_us": _median(found.baseline_us), "floor_us": floor_us})
    device.release()
    return {"regimes": rows}


def screen_task(arguments: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Judge a candidate (steps 1 to 3), then time it beside the baseline.

    Args:
        arguments: those of all tasks, `workload`, `candidate`, `regimes` (none = it is judged
            alone), `effort` of the judge, `elsewhere`: whether it must be right at other sizes,
            too.
        tell: told when it runs.
    """
    asked, workload = _Asked.of(arguments), _workload(arguments["workload"])
    candidate = reshaped(arguments["candidate"], Candidate)
    found = _judged(asked, workload, candidate, arguments, tell)
    answer: dict[str, Any] = {
        "judgement": judgement_fields(found.judgement),
        "regimes": [],
        "added_bytes": found.added_bytes,
        **spent_by(found.judgement),
    }
    tell({"phase": "run"})
    if found.judgement.reason is None and arguments["regimes"]:
        try:
            answer["regimes"], fault = _screened(asked, arguments, workload, candidate)
            if fault is not None:
                wrong = replace(found.judgement, reason=fault[0], detail=fault[1])
                answer["judgement"] = judgement_fields(wrong)
        except MeasurementError as error:
            answer["timing_failure"] = error.found
    gc.collect()
    return answer


def finals_task(arguments: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Samples of a hold-out, of this process, for all finalists one after the other.

    Args:
        arguments: those of all tasks, `finals` (each `workload` and `candidate`), `regimes`,
            `process`, `pairs`, `launches` (of each final by regime, or `None`).
        tell: told when it begins.
    """
    asked = _Asked.of(arguments)
    tell({"phase": "run"})
    found = []
    for index, final in enumerate(arguments["finals"]):
        workload = _workload(final["workload"])
        candidate = reshaped(final["candidate"], Candidate)
        launches = arguments["launches"]
        request = {
            "baseline": recipe(asked.source, workload, None).document(),
            "candidate": recipe(asked.source, workload, candidate).document(),
            "regimes": arguments["regimes"],
            "pairs": arguments["pairs"],
            "process": arguments["process"],
            "seed": asked.seed + 1000 * index,
            "device": asked.device,
            "launch_mode": "graph",
            "launches": None if launches is None else launches[index],
        }
        found.append({"samples": pairs(request, lambda _: None)["samples"]})
        gc.collect()
        device_named(asked.device).release()
    return {"finals": found}


def explain_task(arguments: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Count what launches of finalists and of their baselines read, by ncu's counters.

    Args:
        arguments: those of all tasks, `finals` (each `workload` and `candidate`), `regimes`.
        tell: told when it begins.

    Returns:
        `counted`: of each final, `baseline` and `candidate` by metric, of a cold launch,
        `warm`: the same of a warm one where that was asked for, and
        `compulsory_bytes`; or `unavailable`.
    """
    asked = _Asked.of(arguments)
    tell({"phase": "run"})
    sides = []
    for final in arguments["finals"]:
        workload = _workload(final["workload"])
        candidate = reshaped(final["candidate"], Candidate)
        sides += [recipe(asked.source, workload, one) for one in (None, candidate)]
    with_warm = Regime.WARM.value in arguments["regimes"]
    order = [Regime.COLD] * len(sides) + [Regime.WARM] * (len(sides) if with_warm else 0)
    seen = watch([*sides, *(sides if with_warm else [])], asked.device, l2=True, regimes=order)
    cold, warm = seen[: len(sides)], seen[len(sides) :]
    counted: list[dict[str, Any]] = []
    for index, final in enumerate(arguments["finals"]):
        candidate = reshaped(final["candidate"], Candidate)
        one = _both(cold[2 * index : 2 * index + 2])
        if "unavailable" not in one:
            one["compulsory_bytes"] = _compulsory_bytes(_workload(final["workload"]), candidate)
            again = _both(warm[2 * index : 2 * index + 2]) if with_warm else {}
            if "baseline" in again:
                one["warm"] = again
        counted.append(one)
    return {"counted": counted}


def _both(seen: Sequence[WatchedLaunch | str]) -> dict[str, Any]:
    """Of the baseline and the candidate, or why one of them has none."""
    missing = next((one for one in seen if isinstance(one, str)), None)
    if missing is not None:
        return {"unavailable": missing}
    return dict(zip(("baseline", "candidate"), map(_counters, seen), strict=True))


def _counters(seen: WatchedLaunch | str) -> dict[str, float]:
    assert isinstance(seen, WatchedLaunch)
    found = {DRAM_BYTES_READ: seen.dram_bytes}
    if seen.l2_bytes is not None:
        found[L2_SECTORS_READ] = seen.l2_bytes / SECTOR_BYTES
    return found


def _compulsory_bytes(workload: ProblemWorkload, candidate: Candidate) -> float | None:
    """Of weights as their format stores them and activations; `None` = it is no product."""
    w = workload.product
    if w is None or candidate.format is None:
        return None
    stored = stored_weight(w, NumberFormat.parse(candidate.format))
    return float(stored.codes + _BYTES_OF_16_BITS * w.heads * w.tokens * w.reduction)


def _judged(
    asked: _Asked,
    workload: ProblemWorkload,
    candidate: Candidate,
    arguments: Mapping[str, Any],
    tell: Tell,
) -> Judged:
    simulated = asked.device == SIMULATED
    if simulated and asked.source.sha256 is None:
        return Judged(Judgement(None, NOT_JUDGED, unseen=(NOT_JUDGED,)), None)
    return judged(
        asked.source,
        workload,
        candidate,
        asked.budget_pct,
        CPU if simulated else asked.device,
        Effort(**arguments["effort"]),
        lambda: tell({"phase": "run"}),
        elsewhere=arguments["elsewhere"],
    )


def _screened(
    asked: _Asked, arguments: Mapping[str, Any], workload: ProblemWorkload, candidate: Candidate
) -> tuple[list[dict[str, Any]], tuple[Reason, str] | None]:
    """Times in each regime, and what is wrong with a result that was timed."""
    device = device_named(asked.device)
    device.seed(asked.seed + arguments["number"])
    # The baseline is what every candidate is timed beside: one yardstick for all trials.
    sides = [recipe(asked.source, workload, one).build(device) for one in (None, candidate)]
    rule = Rule(minimum_effect=arguments["minimum_effect"], alpha=0.05, looks=SCREEN_LOOKS)
    rows, fault = [], None
    for name in arguments["regimes"]:
        timer = pair(sides[0], sides[1], device, Regime(name))
        comparison = SequentialComparison(rule)
        base: list[float] = []
        new: list[float] = []
        while comparison.decision is Decision.CONTINUE:
            taken = timer.take(comparison.pairs_wanted)
            base += taken.baseline_us
            new += taken.candidate_us
            comparison.add(taken)
        row = _row(comparison.result(), base, new)
        least = _datasheet_us(workload, candidate, Regime(name), device)
        rows.append({**row, "datasheet_us": least})
        fault = fault or timer.timed_fault()
    del sides
    device.release()
    return rows, fault


def _datasheet_us(
    workload: ProblemWorkload, candidate: Candidate, regime: Regime, device: TimingDevice
) -> float | None:
    """What the memory's pins allow at the least; what may lie in L2 need not come through them."""
    size, pins = _compulsory_bytes(workload, candidate), device.memory_pin_tbs()
    if size is None or not pins:
        return None
    through = size if regime is Regime.COLD else max(size - device.l2_bytes, 0.0)
    return through / (pins * 1e6)


def _row(result: ComparisonResult, base: list[float], new: list[float]) -> dict[str, Any]:
    s = result.speedup
    return {
        "regime": result.regime.value,
        "incumbent_us": _median(base),
        "candidate_us": _median(new),
        "low": s.low,
        "estimate": s.estimate,
        "high": s.high,
        "confidence": s.confidence,
    }


def _floor_us(workload: ProblemWorkload, regime: Regime, name: str | None) -> float | None:
    if workload.product is None or name is None:
        return None
    traffic = implementation(BASELINE).traffic(workload.product, NumberFormat.parse("bf16"))
    found = Floors(calibration(name)).of(traffic, regime)
    return None if found is None else found.time_us


def _workload(fields: Mapping[str, Any]) -> ProblemWorkload:
    return reshaped(fields, ProblemWorkload)


def _median(values: Any) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return float(ordered[middle])
    return float((ordered[middle - 1] + ordered[middle]) / 2)
