"""`validate`: one candidate by itself, judged in a worker and timed where there is a GPU."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kernel_compass.api.comparing import compare
from kernel_compass.api.judging import bench, judgement_fields, spent_by
from kernel_compass.api.loop_spaces import target_named
from kernel_compass.api.places import chosen_gpus, default_device, local_workers
from kernel_compass.api.problem_candidates import (
    BASELINE_FORMAT,
    MODEL_NEW,
    BaselineRunner,
    judged,
)
from kernel_compass.api.problems import describe_problem, problem_recipe, sha256_of
from kernel_compass.api.proving import ensure_self_test
from kernel_compass.api.sanitizing import find_program, sanitize
from kernel_compass.codec.canonical import plain, reshaped
from kernel_compass.errors import MeasurementError, UsageError, shortened
from kernel_compass.kernels.providers import registry
from kernel_compass.measurement.fresh import device_named
from kernel_compass.records.comparison import Interval
from kernel_compass.records.contracts import Target
from kernel_compass.records.device import CPU
from kernel_compass.records.execution import Task, TaskEnd
from kernel_compass.records.loop_contracts import Executor
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.problem import ProblemSource, ProblemWorkload
from kernel_compass.records.profile import Regime
from kernel_compass.records.trial import Candidate, Reason
from kernel_compass.validation.judging import Effort, Judgement
from kernel_compass.validation.sanitizer_report import SanitizerReport
from kernel_compass.validation.self_test import CheatResult

VALIDATE = f"{__name__}:validate_task"
COMPILE_TIMEOUT_S = 300.0
RUN_TIMEOUT_S = 300.0
BASELINE_NAME = "baseline"
"""Of a problem's file: its own baseline."""


@dataclass(frozen=True)
class NamedCandidate:
    """A candidate as a user named it."""

    candidate: Candidate
    path: Path | None = None
    """Its own file."""
    sha256: str | None = None


@dataclass(frozen=True)
class TimedRegime:
    """Beside the baseline, in one process: a screen, and no proof."""

    regime: Regime
    speedup: Interval
    decision: str


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


def files_of(source: ProblemSource, named: NamedCandidate) -> tuple[tuple[Path, str], ...]:
    """The files whose code would run, with their SHA-256."""
    found = [(Path(source.target), source.sha256), (named.path, named.sha256)]
    return tuple((path, digest) for path, digest in found if path is not None and digest)


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


def candidate_named(
    text: str, source: ProblemSource, config: str | None = None, number_format: str | None = None
) -> NamedCandidate:
    """A candidate by the word for it.

    Args:
        text: an implementation, a name in the problem's file, `baseline`, `FILE.py` (its
            `ModelNew`) or `FILE.py:FUNCTION`.
        source: the problem.
        config: JSON, an object of numbers, texts and truth values.
        number_format: of an implementation; `None` = bf16.

    Raises:
        UsageError: nothing is called that.
    """
    chosen = _config(config)
    place, _, function = text.partition(".py:")
    is_path = text.endswith(".py") or bool(function)
    if source.sha256 is None:
        if is_path:
            found = f"{shortened(text)} is a file, and candidates of products are implementations."
            names = ", ".join(one.name for one in registry.all_implementations())
            raise UsageError(found, f"Name one of {names}.")
        one = registry.implementation(text)
        parsed = NumberFormat.parse(number_format or BASELINE_FORMAT).name
        return NamedCandidate(Candidate(one.name, chosen, parsed, one.provider))
    if number_format is not None:
        raise UsageError("A candidate of a file has no --format.", "Leave it out.")
    if not is_path:
        return NamedCandidate(Candidate(text, chosen, source=source.target))
    path = Path(f"{place}.py" if function else text).absolute()
    candidate = Candidate(function or MODEL_NEW, chosen, source=str(path))
    return NamedCandidate(candidate, path, sha256_of(path))


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


def validate_task(arguments: Mapping[str, Any], tell: Any) -> dict[str, Any]:
    """In a worker: judge a candidate, then time it.

    Args:
        arguments: as `validate_candidate` makes them.
        tell: told when its first call has returned.

    Returns:
        `judgement`, `times`, `untimed`; or `wrong`: what is wrong with the problem.
    """
    a = arguments
    source, workload = (
        reshaped(a["source"], ProblemSource),
        reshaped(a["workload"], ProblemWorkload),
    )
    candidate = reshaped(a["candidate"], Candidate)
    at = bench(a["device"])
    tell({"phase": "compile"})
    refused = _refusal(source, workload, candidate, a["device"])
    if refused is not None:
        return _answer(Judgement(Reason.NOT_SUPPORTED, refused))
    try:
        problem, build, declared = judged(
            at.torch, source, workload, candidate, a["device"], a["budget_pct"], a["sha256"]
        )
    except UsageError as error:
        return {"wrong": [error.found, error.remedy]}
    if _is_baseline(source, candidate):
        build, declared = (lambda: BaselineRunner(problem)), True
    found = at.judged(
        problem, workload, build, lambda: tell({"phase": "run"}), Effort(**a["effort"]), declared
    ).judgement
    tell({"phase": "run"})
    if found.reason is not None or not a["regimes"]:
        return _answer(found)
    try:
        return _answer(found, _times(source, workload, candidate, a))
    except MeasurementError as error:
        return _answer(found, untimed=error.found)


def _is_baseline(source: ProblemSource, candidate: Candidate) -> bool:
    own = source.sha256 is not None and candidate.source == source.target
    return own and candidate.implementation == BASELINE_NAME


def _refusal(
    source: ProblemSource, workload: ProblemWorkload, candidate: Candidate, device: str
) -> str | None:
    if source.sha256 is not None or workload.product is None:
        return None
    one = registry.implementation(candidate.implementation)
    target = Target("cpu") if device == "cpu" else target_named(device)
    number_format = NumberFormat.parse(candidate.format or BASELINE_FORMAT)
    return one.supports(workload.product, number_format, target)


def _times(
    source: ProblemSource,
    workload: ProblemWorkload,
    candidate: Candidate,
    a: Mapping[str, Any],
) -> list[dict[str, Any]]:
    device = device_named(a["device"])
    chosen = None if _is_baseline(source, candidate) else candidate
    recipes = (
        problem_recipe(source, workload, None),
        problem_recipe(source, workload, chosen, a["sha256"]),
    )
    base, other = (one.build(device) for one in recipes)
    found = []
    for name in a["regimes"]:
        result = compare(base, other, device, Regime(name))
        found.append(plain(TimedRegime(result.regime, result.speedup, result.decision.value)))
    return found


def _answer(
    found: Judgement, times: Sequence[Mapping[str, Any]] = (), untimed: str | None = None
) -> dict[str, Any]:
    said = {"judgement": judgement_fields(found), "times": list(times)}
    return {**said, "untimed": untimed, **spent_by(found)}


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


def _config(text: str | None) -> dict[str, int | bool | str]:
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except ValueError as error:
        raise UsageError(
            f"--config {shortened(text)} is no JSON: {error}.", 'Write it as {"block": 64}.'
        ) from None
    if not isinstance(found, dict) or not all(
        isinstance(value, int | str | bool) for value in found.values()
    ):
        raise UsageError(
            f"--config {shortened(text)} is no object of numbers, texts and truth values.",
            'Write it as {"block": 64}.',
        )
    return found
