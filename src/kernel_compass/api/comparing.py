"""Is one faster than the other: compare in one process, confirm in fresh ones."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from kernel_compass.analysis.hold_out import confirm
from kernel_compass.analysis.sequential import SequentialComparison
from kernel_compass.api.calibrations import machine_calibration
from kernel_compass.api.measuring import verify_cold
from kernel_compass.errors import (
    CalibrationError,
    MeasurementCause,
    MeasurementError,
)
from kernel_compass.execution.tasks import run_task
from kernel_compass.measurement import fresh
from kernel_compass.measurement.device import Call, TimingDevice
from kernel_compass.measurement.paired import pair
from kernel_compass.measurement.recipe import Recipe
from kernel_compass.measurement.subject import Subject
from kernel_compass.measurement.timing import TimingOptions, regime_of
from kernel_compass.records.comparison import ComparisonResult, Decision, Rule, Verdict
from kernel_compass.records.device import SIMULATED
from kernel_compass.records.measurement import LaunchMode, PairedSamples
from kernel_compass.records.profile import Regime

HOLD_OUT_PAIRS = 60
HOLD_OUT_TIMEOUT_S = 600.0

Timed = Subject | Callable[[], object]


def compare(
    baseline: Timed,
    candidate: Timed,
    device: TimingDevice,
    regime: Regime = Regime.WARM,
    launch_mode: LaunchMode = LaunchMode.GRAPH,
    between: Sequence[Call] = (),
    rule: Rule | None = None,
    options: TimingOptions | None = None,
) -> ComparisonResult:
    """Time two in turns until the rule decides. One process: screens, and confirms nothing.

    Args:
        baseline: the A of the comparison.
        candidate: the B.
        device: the GPU.
        regime: of both.
        launch_mode: of both.
        between: what runs before each launch, in situ.
        rule: minimum effect, error rate, looks; default: with this machine's noise between
            processes, where it is calibrated.
        options: effort and checks of the timing.

    Raises:
        MeasurementError: one of them cannot be timed, or is wrong when it is (`TimedWrong`).
    """
    timer = pair(baseline, candidate, device, regime, launch_mode, between, options)
    comparison = SequentialComparison(rule or Rule(noise_floor_pct=_noise_floor_pct(device)))
    try:
        while comparison.decision is Decision.CONTINUE:
            comparison.add(timer.take(comparison.pairs_wanted))
        timer.refuse_if_wrong()
    finally:
        device.release()
    return comparison.result()


def hold_out(
    baseline: Recipe,
    candidate: Recipe,
    regimes: Sequence[Regime] = (Regime.COLD, Regime.WARM),
    asked: Collection[Regime] | None = None,
    rule: Rule | None = None,
    pairs: int = HOLD_OUT_PAIRS,
    launch_mode: LaunchMode = LaunchMode.GRAPH,
    device: str = "cuda:0",
    on_progress: Callable[[int, int], None] | None = None,
    seed: int | None = None,
    verify: bool = True,
) -> Verdict:
    """Time two recipes in fresh processes, operands placed and drawn anew, and judge once.

    Args:
        baseline: builds the A.
        candidate: builds the B.
        regimes: measured in each process.
        asked: the regimes in which the candidate must win; `None` = all of them.
        rule: minimum effect, margin, number of processes.
        pairs: ABBA blocks a process and regime.
        launch_mode: of both.
        device: `cuda:0` and the like, or `simulated`.
        on_progress: told the process that starts, and how many there are.
        seed: of placement and random values; default: another one each time.
        verify: count DRAM bytes first, where cold is among the regimes and counters may be read.

    Raises:
        MeasurementError: a process could not time them, or what is called cold is not.
        UsageError: a recipe names no function.
    """
    rule, regimes = rule or Rule(), [regime_of(regime) for regime in regimes]
    unverified = _verified([baseline, candidate], regimes, device) if verify else ()
    request: dict[str, Any] = {
        "baseline": baseline.document(),
        "candidate": candidate.document(),
        "regimes": [regime.value for regime in regimes],
        "pairs": pairs,
        "launch_mode": LaunchMode(launch_mode).value,
        "launches": None,
        "device": device,
        "seed": secrets.randbits(31) if seed is None else seed,
    }
    samples: list[PairedSamples] = []
    for process in range(rule.hold_out_processes):
        if on_progress:
            on_progress(process, rule.hold_out_processes)
        answer = run_task(fresh.PAIRS, {**request, "process": process}, None, HOLD_OUT_TIMEOUT_S)
        found = [fresh.paired_samples(fields) for fields in answer["samples"]]
        # All processes replay as many launches as the first chose.
        request["launches"] = {s.regime.value: s.launches_per_replay for s in found}
        samples += found
    samples[0] = replace(samples[0], warnings=(*samples[0].warnings, *unverified))
    return confirm(samples, rule, asked)


def _verified(recipes: Sequence[Recipe], regimes: Sequence[Regime], device: str) -> tuple[str, ...]:
    """What could not be verified; a cold that is none is refused."""
    if Regime.COLD not in regimes or device == SIMULATED:
        return ()
    said = []
    for recipe in recipes:
        check = verify_cold(recipe, device)
        if check.cold is False:
            raise MeasurementError(
                MeasurementCause.NOT_COLD,
                f"{recipe.name} is not cold when its operands rotate: {check.reason}.",
                "Name all that is streamed in Subject(streamed=...).",
            )
        if check.cold is None:
            said.append(f"cold is not verified by DRAM bytes: {check.reason}")
    return tuple(dict.fromkeys(said))


def _noise_floor_pct(device: TimingDevice) -> float | None:
    """The calibrated noise between processes of this machine's GPU, where there is one."""
    try:
        found = machine_calibration(device.environment().device.name)
    except CalibrationError:
        return None
    return found.noise.between_processes_pct.value if found else None
