"""A captured step with its machine: what the loop is given, and what it would try."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_compass.access import unreadable
from kernel_compass.analysis.step_groups import groups_of
from kernel_compass.api.advising import advise
from kernel_compass.api.calibration_choice import capture_calibration
from kernel_compass.api.dispatch_weights import gpu_model
from kernel_compass.api.step_capturing import capture_trace, step_costs
from kernel_compass.api.step_requests import BUDGET_PCT, RECORDED, StepAsked
from kernel_compass.codec import step_capture_document
from kernel_compass.errors import CalibrationError, shortened
from kernel_compass.optimizer.product_choices import product_budget_pct
from kernel_compass.optimizer.step_doors import Group, Offer
from kernel_compass.optimizer.step_planning import StepSetup, plan_step
from kernel_compass.optimizer.step_proposers import step_proposers
from kernel_compass.records.advice import FormatAdvice
from kernel_compass.records.calibration import Calibration
from kernel_compass.records.contracts import Target
from kernel_compass.records.device import CPU
from kernel_compass.records.dispatch import GpuModel
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.profile import Regime
from kernel_compass.records.step_action import StepActionKind, StepEntry, StepTrial
from kernel_compass.records.step_capture import StepCapture
from kernel_compass.records.step_loop import StepPlace
from kernel_compass.records.step_study import StepFinal
from kernel_compass.records.workload import Precision


@dataclass(frozen=True)
class StepPlan:
    """A captured step looked at, and nothing measured."""

    capture: StepCapture
    places: tuple[StepPlace, ...]
    offers: tuple[Offer, ...]
    in_graph: StepPlan | None = None
    """The same step without the time in which its GPU waits: what would be left to do once it is
    in a CUDA graph; `None` = that is not proposed."""


def plan_capture(
    capture: StepCapture,
    budget_pct: float = BUDGET_PCT,
    calibration: str | None = None,
    formats: Sequence[str] = (),
) -> StepPlan:
    """Select, group, explain and propose on a captured step; nothing is measured.

    Args:
        capture: the step.
        budget_pct: of errors.
        calibration: what floors rest on; `None` = that of the capture's device.
        formats: that products may be computed in; none = all that fit the budget.

    Raises:
        UsageError: one of them is no number format.
    """
    asked = StepAsked(budget_pct, calibration=calibration, formats=tuple(formats))
    places, offers = plan_step(setup_of(capture, asked, ""), capture)
    graph = [o for o in offers if o.proposal.action.kind is StepActionKind.STEP_GRAPH]
    if not graph or capture.step_us is None or capture.idle_us is None:
        return StepPlan(capture, places, offers)
    kernels = tuple(replace(one, gap_us=0.0) for one in capture.kernels)
    busy = capture.step_us - capture.idle_us
    later = replace(capture, kernels=kernels, step_us=busy, idle_us=0.0, in_graph=True)
    inside = plan_step(setup_of(later, asked, ""), later, (graph[0].proposal.action,))
    return StepPlan(capture, places, offers, StepPlan(later, *inside))


def read_capture(path: Path) -> StepCapture:
    """A capture that was written to a file.

    Raises:
        UsageError: it cannot be read.
        CaptureError: it is none.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        written = "name a file that `kernel-compass capture -o` wrote"
        raise unreadable(path, error, written) from None
    return step_capture_document.decode(data, shortened(str(path)))


def captures_of_trace(path: Path, calibration: str | None = None) -> tuple[StepCapture, ...]:
    """What a server's own profiler recorded, one capture a rank."""
    return capture_trace(path, calibration)


def setup_of(capture: StepCapture, asked: StepAsked, study: str) -> StepSetup:
    """What the loop is given, by the capture and what was asked for alone."""
    machine = _machine(capture, asked.calibration)
    model = _model(capture, asked.device)
    fixed, stream_us = step_costs(capture, asked.calibration)

    def groups(found: StepCapture) -> Sequence[Group]:
        return groups_of(found, fixed, stream_us)

    def speedups(places: Sequence[StepPlace]) -> Mapping[str, float]:
        allowed_pct = product_budget_pct(asked.budget_pct)
        if machine is None:
            return {}
        return _speedups(machine, places, allowed_pct, asked.formats)

    return StepSetup(
        asked.options,
        asked.budget_pct,
        asked.limits,
        step_proposers(asked.options.configs),
        groups,
        lambda trial, final: _entry(capture, model, study, trial, final),
        None if machine is None else machine.t0_graph_us.value,
        speedups,
        "" if machine is None else _basis(machine, asked.formats),
        asked.formats,
    )


def _basis(machine: Calibration, formats: Sequence[str]) -> str:
    said = f"the model, calibration {machine.environment.device.name}"
    return f"{said}, of {', '.join(formats)} alone" if formats else said


def _machine(capture: StepCapture, word: str | None) -> Calibration | None:
    try:
        return capture_calibration(word, capture.environment.device)
    except CalibrationError:
        if word is not None:
            raise
        return None


def _speedups(
    machine: Calibration, places: Sequence[StepPlace], budget_pct: float, formats: Sequence[str]
) -> dict[str, float]:
    """What the model says the best format within the budget wins on each product, in situ.

    Of formats that were named, those of their families.
    """
    families = {NumberFormat.parse(one).precision for one in formats}
    works = [one.workload for one in places if one.workload is not None]
    if not works:
        return {}
    found = advise(list(dict.fromkeys(works)), machine, (Regime.COLD,), budget_pct)
    speedups = {}
    for one in found.workloads:
        bf16, *others = one.regimes[0].formats
        allowed = [other for other in others if not families or other.precision in families]
        best = max((_speedup(bf16, other) for other in allowed), default=1.0)
        speedups[one.workload.shape_text] = max(best, 1.0)
    return speedups


def _speedup(bf16: FormatAdvice, other: FormatAdvice) -> float:
    if other.within_budget is False or other.precision is Precision.BF16:
        return 1.0
    if bf16.estimate is None or other.estimate is None:
        return 1.0
    return bf16.estimate.time_us / other.estimate.time_us


def _model(capture: StepCapture, device: str) -> GpuModel:
    """What the step ran on, as the table's entries name it where they are put on.

    A capture knows no CPU's name: of one that ran here it is this machine's.
    """
    found = capture.environment.device
    if found.compute_capability is None and not device.startswith(RECORDED):
        return gpu_model(Target(CPU))
    return GpuModel(found.name or "CPU", found.compute_capability or "0.0", found.sm_count or 1)


def _entry(
    capture: StepCapture, model: GpuModel, study: str, trial: StepTrial, final: StepFinal
) -> StepEntry:
    action = trial.proposal.action
    # a product is known by its sizes wherever it is; all else is a change to these very files
    product = action.kind is StepActionKind.PRODUCT
    files, packages = ({}, {}) if product else (dict(capture.files), dict(capture.packages))
    speedup = trial.speedup or final.speedup
    assert speedup is not None, "kept for its speed"
    return StepEntry(
        action,
        model,
        capture.program,
        files,
        study,
        trial.number,
        speedup,
        trial.outputs,
        trial.added_bytes,
        packages,
    )
