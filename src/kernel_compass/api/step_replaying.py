"""`replay` of a study over a step: what it accepted beside the untouched program, anew."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kernel_compass.analysis.hold_out import hold_out
from kernel_compass.api.replaying import RegimeClaim, Replay, ReplayedClaim
from kernel_compass.api.step_bench import ProgramBench
from kernel_compass.api.step_optimizing import recorded_bench
from kernel_compass.api.step_requests import RECORDED, asked_of, checked_program
from kernel_compass.api.step_unchanged import check_same_step
from kernel_compass.api.studies import study as study_named
from kernel_compass.codec import step_recording
from kernel_compass.errors import MeasurementError
from kernel_compass.optimizer.step_doors import StepBench
from kernel_compass.records.comparison import Decision, Rule
from kernel_compass.records.measurement import PairedSamples
from kernel_compass.records.profile import Regime
from kernel_compass.records.study import RecordedStudy
from kernel_compass.records.trial import Reason, Trial


def replay_step(
    name: str, device: str | None = None, tell: Callable[[str], None] = lambda _: None
) -> Replay:
    """Put on what a study accepted, in fresh processes, beside the untouched program.

    Args:
        name: of the study, its beginning, `last`, or its folder.
        device: `cuda`, `cuda:N`, `cpu`, or `recorded:FILE`; default: the study's own.
        tell: told in a line what happens.

    Raises:
        StudyError: there is no such study, or its program is another one by now.
    """
    recorded = study_named(name)
    asked = asked_of(recorded.study.request)
    where = device or asked.device
    asked = replace(asked, device=where)
    if where.startswith(RECORDED):
        bench: StepBench = recorded_bench(step_recording.read(Path(where.removeprefix(RECORDED))))
    else:
        program = checked_program(recorded.study.request)
        bench = ProgramBench(program, asked.options, asked.budget_pct, where)
        if recorded.accepted:
            # whether it replays a graph of its own decides how it is timed
            check_same_step(recorded.step, bench.capture(()))
    claims = tuple(_claim(recorded, one, bench, tell) for one in recorded.accepted)
    now = None
    study = recorded.study
    return Replay(study.identifier, where, study.environment, now, claims, secrets.randbits(31))


def _claim(
    recorded: RecordedStudy, trial: Trial, bench: StepBench, tell: Callable[[str], None]
) -> ReplayedClaim:
    step = recorded.step
    assert step is not None, "a study over a step"
    options = asked_of(recorded.study.request).options
    actions = tuple(one.proposal.action for one in step.kept)
    samples: list[PairedSamples] = []
    for process in range(options.processes):
        found = bench.sample(process, actions)
        tell(f"fresh process {process + 1} of {options.processes}")
        if found.reason is not None or found.samples is None:
            return ReplayedClaim(trial, False, found.reason, found.detail)
        samples.append(found.samples)
    rule = Rule(minimum_effect=options.final_effect, hold_out_processes=options.processes)
    try:
        result = hold_out(samples, rule)
    except MeasurementError as error:
        return ReplayedClaim(trial, False, Reason.CANNOT_BE_TIMED, error.found)
    claimed = trial.results[0].speedup if trial.results else None
    holds = result.decision is Decision.FASTER
    return ReplayedClaim(
        trial,
        holds,
        None if holds else Reason.HOLD_OUT,
        "; ".join(result.reasons),
        (RegimeClaim(Regime.IN_SITU, True, claimed, result),),
    )
