"""`validate`: one candidate by itself, judged in a worker and timed where there is a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kernel_compass.api.named_candidates import NamedCandidate, candidate_named
from kernel_compass.api.places import chosen_gpus, default_device, local_workers
from kernel_compass.api.problems import describe_problem
from kernel_compass.api.proving import ensure_self_test
from kernel_compass.api.sanitizing import find_program, sanitize
from kernel_compass.api.validate_tasks import VALIDATE, TimedRegime
from kernel_compass.codec.canonical import plain, reshaped
from kernel_compass.errors import UsageError
from kernel_compass.records.device import CPU
from kernel_compass.records.execution import Task, TaskEnd
from kernel_compass.records.loop_contracts import Executor
from kernel_compass.records.problem import ProblemSource, ProblemWorkload
from kernel_compass.records.profile import Regime
from kernel_compass.records.trial import Candidate, Reason
from kernel_compass.validation.sanitizer_report import SanitizerReport
from kernel_compass.validation.self_test import CheatResult

__all__ = [
    "NamedCandidate",
    "ValidateRequest",
    "Validated",
    "Validation",
    "candidate_named",
    "regimes_named",
    "validate",
    "validate_candidate",
]

COMPILE_TIMEOUT_S = 300.0
RUN_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Validated:
    """What was found of a candidate at one workload."""

    workload: str
    reason: Reason | None
    """`None` = nothing was found against it."""
    detail: str
    fidelity_error_pct: float | None = None
    format_error_pct: float | None = None
    times: tuple[TimedRegime, ...] = ()
    untimed: str | None = None
    """Why there is no time."""
    unseen: tuple[str, ...] = ()
    """What could not be looked at here."""
    notes: tuple[str, ...] = ()
    sanitized: tuple[SanitizerReport, ...] = ()
    """What compute-sanitizer said; empty = it was not asked."""

    @property
    def passed(self) -> bool:
        """Whether nothing was found against it."""
        return self.reason is None and all(one.is_clean for one in self.sanitized)


@dataclass(frozen=True)
class ValidateRequest:
    """What is to be judged, and how."""

    source: ProblemSource
    named: NamedCandidate
    device: str | None = None
    """`None` = the GPU where there is one."""
    regimes: tuple[Regime, ...] = ()
    budget_pct: float | None = None
    workload: int | None = None
    """Only this one, from 1; `None` = all."""
    sanitize: bool = False
    effort: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Validation:
    """What was found, over all workloads."""

    problem: str
    candidate: Candidate
    device: str
    results: tuple[Validated, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing was found against it anywhere."""
        return all(one.passed for one in self.results)


def validate(
    request: ValidateRequest,
    on_result: Callable[[Validated], None] = lambda _: None,
    on_proof: Callable[[CheatResult], None] = lambda _: None,
) -> Validation:
    """Judge a candidate in workers of this machine, after the judge has proved itself.

    Args:
        request: what, and how.
        on_result: told of each workload as it ends.
        on_proof: told of each built-in cheat, where the judge has to prove itself first.

    Raises:
        UsageError: the problem's file is none, or there is no such workload or device.
        JudgeError: the judge did not prove itself.
        MissingDependency: torch or compute-sanitizer is not installed.
    """
    device = request.device or default_device()
    if device != CPU:
        chosen_gpus(device)
    if request.sanitize:
        _check_sanitizer(device)
    ensure_self_test(device, on_proof)
    with local_workers(device) as (executor, inside):
        problem = describe_problem(request.source, executor, inside)
        workloads = _chosen(problem.workloads, request.workload)

        def ended(found: Validated) -> None:
            if not request.sanitize:
                on_result(found)

        results = validate_candidate(
            executor,
            request.source,
            workloads,
            request.named,
            inside,
            request.regimes,
            request.budget_pct,
            request.effort,
            ended,
        )
    if request.sanitize:
        results = _sanitized(request, workloads, results, chosen_gpus(device)[0], on_result)
    return Validation(problem.name, request.named.candidate, device, results)


def regimes_named(words: Sequence[str]) -> tuple[Regime, ...]:
    """`cold`, `warm`.

    Raises:
        UsageError: another word.
    """
    known = {one.value: one for one in (Regime.COLD, Regime.WARM)}
    for word in words:
        if word not in known:
            raise UsageError(f"There is no regime {word!r} to time in.", "Name cold, warm or both.")
    return tuple(dict.fromkeys(known[word] for word in words))


def _check_sanitizer(device: str) -> None:
    if not device.startswith("cuda"):
        raise UsageError("--sanitize looks at a GPU's memory.", "Name --device cuda:0.")
    find_program()


def _chosen(workloads: Sequence[ProblemWorkload], number: int | None) -> Sequence[ProblemWorkload]:
    if number is None:
        return workloads
    if not 1 <= number <= len(workloads):
        listed = "; ".join(f"{i} {one.name}" for i, one in enumerate(workloads, 1))
        raise UsageError(f"There is no workload {number}.", f"They are: {listed}.")
    return [workloads[number - 1]]


def _sanitized(
    request: ValidateRequest,
    workloads: Sequence[ProblemWorkload],
    results: Sequence[Validated],
    gpu: str,
    on_result: Callable[[Validated], None],
) -> tuple[Validated, ...]:
    """Under compute-sanitizer what the judge found nothing against."""
    found = []
    for workload, one in zip(workloads, results, strict=True):
        if one.reason is None:
            named = request.named
            reports = sanitize(request.source, workload, named.candidate, gpu, named.sha256)
            found.append(replace(one, sanitized=reports))
        else:
            found.append(one)
        on_result(found[-1])
    return tuple(found)


def validate_candidate(
    executor: Executor,
    source: ProblemSource,
    workloads: Sequence[ProblemWorkload],
    named: NamedCandidate,
    device: str,
    regimes: Sequence[Regime] = (),
    budget_pct: float | None = None,
    effort: Mapping[str, float] | None = None,
    on_result: Callable[[Validated], None] = lambda _: None,
) -> tuple[Validated, ...]:
    """Judge a candidate at each workload, in workers.

    Args:
        executor: where its code may run.
        source: the problem.
        workloads: of the problem.
        named: from `candidate_named`.
        device: as workers call it: `cpu`, `cuda:0`.
        regimes: to time it in, beside the baseline, where the device is a GPU.
        budget_pct: largest relative error against full precision; `None` = the problem's own.
        effort: of the judge, fields of `Effort`.
        on_result: told of each workload as it ends.

    Raises:
        UsageError: the problem's file is none.
    """
    tasks = [
        Task(
            one.name,
            VALIDATE,
            {
                "source": plain(source),
                "workload": plain(one),
                "candidate": plain(named.candidate),
                "sha256": named.sha256,
                "device": device,
                "budget_pct": budget_pct,
                "effort": dict(effort or {}),
                "regimes": [r.value for r in regimes] if device.startswith("cuda") else [],
            },
            COMPILE_TIMEOUT_S,
            RUN_TIMEOUT_S,
        )
        for one in workloads
    ]
    for task in tasks:
        executor.submit(task)
    found = {}
    for end in executor.ended():
        found[end.identifier] = _validated(end)
        on_result(found[end.identifier])
    return tuple(found[task.identifier] for task in tasks)


def _validated(end: TaskEnd) -> Validated:
    if end.answer is None:
        failure = end.failure
        assert failure is not None
        return Validated(end.identifier, failure.reason, failure.detail, notes=end.notes)
    if "wrong" in end.answer:
        raise UsageError(*end.answer["wrong"])
    times = tuple(reshaped(one, TimedRegime) for one in end.answer["times"])
    said = end.answer["judgement"]
    found = reshaped({"workload": end.identifier, **said}, Validated)
    return replace(found, times=times, untimed=end.answer["untimed"], notes=end.notes)
