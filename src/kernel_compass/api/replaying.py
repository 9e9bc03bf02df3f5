"""`replay`: the accepted claims of a study, judged and held out anew on this machine."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_compass.analysis.hold_out import confirm
from kernel_compass.api.loop_place import EVALUATING, RECORDED
from kernel_compass.api.loop_recordings import recorded_problem
from kernel_compass.api.places import local_workers
from kernel_compass.api.problems import describe_problem
from kernel_compass.api.proving import ensure_self_test
from kernel_compass.api.studies import study as study_named
from kernel_compass.codec import loop_recording
from kernel_compass.errors import MeasurementError, StudyError, UsageError
from kernel_compass.execution.recorded_executor import RecordedExecutor
from kernel_compass.optimizer.hold_out_samples import hold_out_samples
from kernel_compass.optimizer.loop_setup import ends_of
from kernel_compass.optimizer.loop_tasks import TaskMaker
from kernel_compass.records.comparison import ComparisonResult, Interval, Rejection, Rule
from kernel_compass.records.device import CPU, SIMULATED
from kernel_compass.records.environment import Environment
from kernel_compass.records.execution import TaskEnd
from kernel_compass.records.loop import LoopOptions
from kernel_compass.records.loop_contracts import Executor
from kernel_compass.records.measurement import PairedSamples
from kernel_compass.records.problem import ProblemDescription, ProblemWorkload
from kernel_compass.records.profile import Regime
from kernel_compass.records.study import RecordedStudy, StudyRequest
from kernel_compass.records.trial import Reason, Trial

REGIMES = (Regime.COLD, Regime.WARM)
ALPHA = 0.05
"""Chance of a wrong interval among those of all claims together."""


@dataclass(frozen=True)
class RegimeClaim:
    """What a study claims in one regime, and what was found now."""

    regime: Regime
    asked: bool
    """Whether it had to win there; else only not to be inferior."""
    claimed: Interval | None
    """The interval of the study's hold-out; `None` = it has none of this regime."""
    found: ComparisonResult


@dataclass(frozen=True)
class ReplayedClaim:
    """One accepted trial, tried anew."""

    trial: Trial
    holds: bool
    reason: Reason | None
    """Why it does not."""
    detail: str
    regimes: tuple[RegimeClaim, ...] = ()


@dataclass(frozen=True)
class Replay:
    """All claims of a study, on this machine."""

    study: str
    device: str
    before: Environment
    """Where the study ran."""
    now: Environment | None
    """Where the claims were tried; `None` where none got to be timed."""
    claims: tuple[ReplayedClaim, ...]
    seed: int
    timed: int = 0
    """Claims that were timed; `alpha` is shared by them."""
    alpha: float = 0.05
    """Chance that a hold-out is wrong about any of them."""

    @property
    def holds(self) -> bool:
        """Whether all of them do."""
        return all(one.holds for one in self.claims)


@dataclass(frozen=True)
class _Setting:
    executor: Executor
    maker: TaskMaker
    workloads: Mapping[str, ProblemWorkload]
    regimes: tuple[Regime, ...]
    asked: tuple[Regime, ...]


def replay_study(
    name: str,
    device: str | None = None,
    seed: int | None = None,
    tell: Callable[[str], None] = lambda _: None,
    prove: bool = True,
) -> Replay:
    """Judge and time what a study accepted, in fresh processes with fresh operands.

    Args:
        name: of the study, its beginning, `last`, or its folder.
        device: `cuda`, `cuda:N`, `simulated`, `recorded:FILE`; default: the study's own.
        seed: of operands and placement; default: another one each time.
        tell: told in a line what happens.
        prove: let the judge prove itself first, where it judges.

    Raises:
        StudyError: there is no such study.
        UsageError: its problem's file is another one by now, or there is no such device.
        JudgeError: the judge did not prove itself.
    """
    recorded = study_named(name)
    if recorded.step is not None:
        from kernel_compass.api.step_replaying import replay_step

        return replay_step(name, device, tell)
    request, trials = recorded.study.request, recorded.accepted
    where = device or str(request.options.get("device", "cuda"))
    number = secrets.randbits(31) if seed is None else seed
    if not trials:
        return _made(recorded, where, (), None, number)
    if prove and where != SIMULATED and not where.startswith(RECORDED):
        ensure_self_test(where)
    with _place(request, recorded.study.identifier, where) as (executor, problem, inside):
        budget = request.error_budget_pct
        budget_pct = problem.error_budget_pct if budget is None else budget
        options = LoopOptions.of(request)
        maker = TaskMaker(EVALUATING, request.source, inside, number, budget_pct, options)
        workloads = {one.name: one for one in problem.workloads}
        setting = _Setting(executor, maker, workloads, REGIMES, request.regimes)
        claims, now = _replayed(setting, trials, tell)
    return _made(recorded, where, claims, now, number)


def study_files(name: str) -> tuple[tuple[Path, str], ...]:
    """The files whose code a replay runs, with their SHA-256.

    Raises:
        StudyError: there is no such study.
    """
    request = study_named(name).study.request
    if request.options.get("study") == "step":
        from kernel_compass.api.step_optimizing import step_files

        return tuple(step_files(name))
    return request.source.files


def _made(
    recorded: RecordedStudy,
    device: str,
    claims: tuple[ReplayedClaim, ...],
    now: Environment | None,
    seed: int,
) -> Replay:
    study = recorded.study
    timed = sum(bool(one.regimes) for one in claims)
    return Replay(study.identifier, device, study.environment, now, claims, seed, timed, ALPHA)


@contextmanager
def _place(
    request: StudyRequest, study: str, device: str
) -> Iterator[tuple[Executor, ProblemDescription, str]]:
    if device.startswith(RECORDED):
        recording = loop_recording.read(Path(device.removeprefix(RECORDED)))
        if recording.target != request.source.target:
            found = f"The recording is of {recording.target}, the study of {request.source.target}."
            raise UsageError(found, "Name the recording that the study was begun on.")
        yield RecordedExecutor(recording), recorded_problem(recording), "recorded"
        return
    with local_workers(device, study) as (executor, inside):
        tried_on = CPU if inside == SIMULATED else inside
        yield executor, describe_problem(request.source, executor, tried_on), inside


def _replayed(
    setting: _Setting, trials: Sequence[Trial], tell: Callable[[str], None]
) -> tuple[tuple[ReplayedClaim, ...], Environment | None]:
    ended = {one.number: _judged(setting, one, tell) for one in trials}
    right = [one for one in trials if ended[one.number] is None]
    samples = _samples(setting, right, tell) if right else {}
    failed = {number: one for number, one in ended.items() if one is not None}
    failed |= {number: one for number, one in samples.items() if isinstance(one, ReplayedClaim)}
    timed = {number: one for number, one in samples.items() if not isinstance(one, ReplayedClaim)}
    now = next((s.environment for one in timed.values() for s in one if s.environment), None)
    tried = _corrected(setting, [one for one in trials if one.number in timed], timed)
    return tuple({**failed, **tried}[one.number] for one in trials), now


def _corrected(
    setting: _Setting, trials: Sequence[Trial], samples: Mapping[int, list[PairedSamples]]
) -> dict[int, ReplayedClaim]:
    """All claims that were timed, by Holm's procedure: any of them wrong, at most `ALPHA`.

    Those that hold at the level shared by all make room for the others, until none does. Samples of
    no times count as a claim all the same.
    """
    found: dict[int, ReplayedClaim] = {}
    waiting = list(trials)
    while waiting:
        level = ALPHA / len(waiting)
        now = {one.number: _claim(setting, one, samples[one.number], level) for one in waiting}
        holding = {number for number, one in now.items() if one.holds}
        if not holding:
            return found | now
        found |= {number: now[number] for number in holding}
        waiting = [one for one in waiting if one.number not in holding]
    return found


def _judged(setting: _Setting, trial: Trial, tell: Callable[[str], None]) -> ReplayedClaim | None:
    """Why the judge rejects it now; `None` = it does not."""
    workload = setting.workloads.get(trial.workload)
    if workload is None:
        known = ", ".join(setting.workloads)
        found = f"The problem has no workload {trial.workload!r}."
        raise StudyError(found, f"It has {known}: another version of it was studied.")
    candidate = trial.proposal.candidate
    tell(f"trial {trial.number} {trial.workload}: judging {candidate.implementation}")
    (end,) = ends_of(setting.executor, [setting.maker.judge(trial.number, workload, candidate)])
    if end.answer is None:
        return _failed(trial, end)
    said = end.answer["judgement"]
    if said["reason"] is None:
        return None
    return ReplayedClaim(trial, False, Reason(said["reason"]), said["detail"])


def _failed(trial: Trial, end: TaskEnd) -> ReplayedClaim:
    assert end.failure is not None
    return ReplayedClaim(trial, False, end.failure.reason, end.failure.detail)


_Samples = dict[int, list[PairedSamples] | ReplayedClaim]


def _samples(setting: _Setting, trials: Sequence[Trial], tell: Callable[[str], None]) -> _Samples:
    """Of all together; where a process fails, of each alone: the right one is blamed."""
    taken = _taken(setting, trials, tell)
    if not isinstance(taken, TaskEnd):
        return taken
    if len(trials) == 1:
        return {trials[0].number: _failed(trials[0], taken)}
    tell("A process of the hold-out failed: each claim alone.")
    return {number: one for t in trials for number, one in _samples(setting, [t], tell).items()}


def _taken(
    setting: _Setting, trials: Sequence[Trial], tell: Callable[[str], None]
) -> _Samples | TaskEnd:
    finals = [(setting.workloads[one.workload], one.proposal.candidate) for one in trials]
    name = f"replay {trials[0].number}" if len(trials) == 1 else "replay"
    found = hold_out_samples(
        setting.executor,
        setting.maker,
        finals,
        setting.regimes,
        name,
        lambda ended, of: tell(f"hold-out: process {ended} of {of}"),
    )
    if isinstance(found, TaskEnd):
        return found
    return {trial.number: samples for trial, samples in zip(trials, found, strict=True)}


def _claim(
    setting: _Setting, trial: Trial, taken: Sequence[PairedSamples], level: float
) -> ReplayedClaim:
    options = setting.maker.options
    rule = Rule(
        minimum_effect=options.minimum_effect,
        hold_out_processes=options.processes,
        hold_out_alpha=level,
    )
    try:
        verdict = confirm(taken, rule, setting.asked)
    except MeasurementError as error:
        return ReplayedClaim(trial, False, Reason.CANNOT_BE_TIMED, error.found)
    claimed = {one.regime: one.speedup for one in trial.results}
    regimes = tuple(
        RegimeClaim(one.regime, one.regime in setting.asked, claimed.get(one.regime), one)
        for one in verdict.results
    )
    reason = None if verdict.accepted else Reason.HOLD_OUT
    claim = ReplayedClaim(trial, verdict.accepted, reason, "; ".join(verdict.reasons), regimes)
    inferior = verdict.rejection is Rejection.INFERIOR_ELSEWHERE
    return replace(claim, reason=Reason.INFERIOR_ELSEWHERE) if inferior else claim
