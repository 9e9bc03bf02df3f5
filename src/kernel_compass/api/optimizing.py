"""`optimize`: wires a problem, an executor, a ledger and the proposers to the loop."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_compass.api.calibrations import calibration
from kernel_compass.api.loop_entries import entry_of, idea_of
from kernel_compass.api.loop_place import EVALUATING, RECORDED, Place, of_device, placed
from kernel_compass.api.loop_requests import BOTH, kept_options, loop_options
from kernel_compass.api.places import chosen_gpus
from kernel_compass.api.proving import ensure_self_test
from kernel_compass.errors import (
    MeasurementCause,
    MeasurementError,
    StudyError,
)
from kernel_compass.optimizer.ledger import Ledger, read_study
from kernel_compass.optimizer.ledger_home import find_study, new_identifier
from kernel_compass.optimizer.ledger_memory import RejectionMemory
from kernel_compass.optimizer.loop import BaselineFailed, run_loop
from kernel_compass.optimizer.loop_setup import LoopSetup, Spaces, Tell
from kernel_compass.optimizer.loop_tasks import TaskMaker
from kernel_compass.optimizer.proposers.findings import Findings
from kernel_compass.optimizer.proposers.providers import Providers
from kernel_compass.optimizer.proposers.rules import Rules
from kernel_compass.optimizer.proposers.search import Search
from kernel_compass.optimizer.proposers.whole_baseline import WholeBaseline
from kernel_compass.records.device import CPU, SIMULATED
from kernel_compass.records.environment import Environment
from kernel_compass.records.loop import Baseline, LoopEnd, LoopEvent, LoopOptions, Stage, Why
from kernel_compass.records.loop_contracts import Proposer
from kernel_compass.records.study import RecordedStudy, Study, StudyRequest
from kernel_compass.validation.self_test import CheatResult

_BYTES_OF_16_BITS = 2
STOPPED = 130
"""Exit code of a run that the user stopped."""


@dataclass(frozen=True)
class Optimized:
    """What a run of a study came to."""

    recorded: RecordedStudy
    """Everything in its ledger."""
    folder: Path
    end: LoopEnd

    @property
    def exit_code(self) -> int:
        """0; of a run that the user stopped, as of any other that was interrupted."""
        return STOPPED if self.end.why is Why.STOPPED else 0


def optimize(
    request: StudyRequest,
    device: str = "cuda",
    tell: Tell = lambda _: None,
    options: LoopOptions | None = None,
    identifier: str | None = None,
    folder: Path | None = None,
) -> Optimized:
    """Run a new study.

    Args:
        request: the problem, regimes, budget, limits.
        device: `cuda` (all GPUs), `cuda:N`, `simulated`, or `recorded:FILE`.
        tell: told of everything as it happens.
        options: how the loop works; `None` = as `loop_options` says.
        identifier: of the study; default: from the time and the target.
        folder: of its ledger; default: the study's place in the user's data folder.

    Raises:
        UsageError: there is no such problem or device.
        JudgeError: the judge did not prove itself on this machine.
        MeasurementError: the baseline cannot be timed, or no worker can be started.
        StudyError: the study cannot be recorded.
    """
    options = options or loop_options(device)
    name = identifier or new_identifier(request.source.target)
    request = replace(request, options={**kept_options(options), **of_device(device)})
    _prove(request, tell)
    began = time.monotonic()
    with placed(request, name) as place:
        request = replace(request, options={**request.options, **_widened(options, place)})
        study = Study(name, request, place.environment)
        with Ledger.create(study, folder) as ledger:
            return _run(place, request, ledger, tell, began)


def resume_study(name: str, tell: Tell = lambda _: None) -> Optimized:
    """Go on with a study where an earlier run was ended; one that is finished is told again.

    Args:
        name: of the study, its beginning, `last`, or its folder.
        tell: told of everything, what earlier runs found too.

    Raises:
        StudyError: there is none, another process writes it, or the machine is another one.
    """
    folder = find_study(name)
    before = read_study(folder).study
    _prove(before.request, tell)
    began = time.monotonic()
    with placed(before.request, before.identifier) as place:
        _check_same(before.environment, place.environment)
        with Ledger.resume(folder) as ledger:
            return _run(place, before.request, ledger, tell, began)


def _run(
    place: Place, request: StudyRequest, ledger: Ledger, tell: Tell, began: float
) -> Optimized:
    study = ledger.recorded.study.identifier
    for note in place.notes:
        tell(LoopEvent(Stage.BASELINE, note))
    options = LoopOptions.of(request)
    budget = request.error_budget_pct
    maker = TaskMaker(
        EVALUATING,
        request.source,
        place.device,
        request.seed,
        place.problem.error_budget_pct if budget is None else budget,
        options,
        place.calibration,
    )
    setup = LoopSetup(
        place.problem,
        request,
        maker,
        place.spaces,
        lambda spaces, baselines, findings: _proposers(
            place, request, options, spaces, baselines, findings
        ),
        lambda workload, trial, environment: entry_of(
            study, request.regimes, workload, trial, environment or place.environment
        ),
        tuple(regime for regime in BOTH if regime not in request.regimes),
        lambda workload, candidate: idea_of(place, request, workload, candidate),
        RejectionMemory() if place.keeps_memory else None,
        calibration(place.calibration).c_eff_bytes.value if place.calibration else None,
    )
    try:
        end = run_loop(setup, place.executor, ledger, time.monotonic, tell, began)
    except BaselineFailed as error:
        raise MeasurementError(
            MeasurementCause.CALLABLE_FAILED,
            f"The baseline of {error.workload} cannot be timed: {error.failure.detail}",
            f"Mend it, then `kernel-compass optimize --resume {study}`; a new study may leave a "
            "regime out (--regime warm).",
        ) from None
    except MeasurementError as error:
        if error.cause is not MeasurementCause.MACHINE_LOST:
            raise
        then = f"Then `kernel-compass optimize --resume {study}`: nothing is held against what was"
        raise MeasurementError(error.cause, error.found, f"{error.remedy} {then} tried.") from error
    for note in place.lost:
        if note not in place.notes:  # it was lost on the way; the others went on
            tell(LoopEvent(Stage.ENDED, note))
    return Optimized(ledger.recorded, ledger.folder, end)


def _prove(request: StudyRequest, tell: Tell) -> None:
    """No run starts where the judge would judge and has not proved itself.

    Raises:
        JudgeError: it missed a cheat.
        UsageError: there is no such device.
        MeasurementError: this machine shows no such GPU.
    """
    device = str(request.options["device"])
    if device.startswith(RECORDED) or device == CPU:
        return
    if device == SIMULATED and request.source.sha256 is None:
        return

    if device != SIMULATED:
        chosen_gpus(device)  # a GPU that is not there is said at once

    def told(result: CheatResult) -> None:
        found = result.found.value if result.found else "NOT CAUGHT"
        tell(LoopEvent(Stage.PROOF, f"the judge proves itself: {result.name}: {found}"))

    ensure_self_test(CPU if device == SIMULATED else device, told)


def _proposers(
    place: Place,
    request: StudyRequest,
    options: LoopOptions,
    spaces: Spaces,
    baselines: Mapping[str, Baseline],
    findings: Findings,
) -> list[Proposer]:
    weights = {
        one.name: _BYTES_OF_16_BITS * one.product.weights
        for one in place.problem.workloads
        if one.product is not None
    }
    return [
        Providers(spaces, baselines, weights),
        Rules(spaces, baselines, weights, findings),
        WholeBaseline(baselines, findings),
        Search(spaces, baselines, weights, request.strategy, request.seed, options.width),
    ]


def _widened(options: LoopOptions, place: Place) -> dict[str, int]:
    """Of a single workload as many candidates at once as there are GPUs, which would wait else."""
    capacity = place.executor.capacity
    alone = len(place.problem.workloads) == 1 and options.width == LoopOptions.width
    return {"width": capacity} if alone and capacity > options.width else {}


def _check_same(before: Environment, now: Environment) -> None:
    """Times of two machines or versions do not belong into one study.

    Raises:
        StudyError: they differ.
    """
    was = {"GPU": before.device.name, "torch": before.torch, "triton": before.triton}
    has = {"GPU": now.device.name, "torch": now.torch, "triton": now.triton}
    was |= {"driver": before.driver, "kernel-compass": before.kernel_compass}
    has |= {"driver": now.driver, "kernel-compass": now.kernel_compass}
    other = [f"{name} was {was[name]} and is {has[name]}" for name in was if was[name] != has[name]]
    if other:
        found = f"The study was begun elsewhere: {'; '.join(other)}."
        raise StudyError(found, "Start a new one: what was measured there says nothing here.")
