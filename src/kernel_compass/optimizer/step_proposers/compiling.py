"""A module or function under `torch.compile`: its runs of short kernels are fused.

A run belongs to the innermost module that holds all of it, and to every module around that. Each of
those is one proposal, up to the outermost: the larger one gains more and takes longer to compile.
Modules of one class are compiled together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernel_compass.analysis.step_runs import common_module
from kernel_compass.optimizer.step_doors import Offer, StepView
from kernel_compass.optimizer.step_proposers.predicting import total_us
from kernel_compass.records.step_action import (
    StepAction,
    StepActionKind,
    StepProposal,
    StepTarget,
)
from kernel_compass.records.step_loop import PlaceKind, StepPlace
from kernel_compass.units import duration_text

EFFICIENCY = 0.6
"""Of what one kernel instead of a run would save at most, what a generated one is taken to save."""
COST_S, COST_OF_A_MODULE_S = 20.0, 4.0
LEAST_SAVED = 0.005
"""Of the step."""


class Compiling:
    """Proposed for every module or function around a run that is worth it."""

    name = "compile_region"

    def propose(self, view: StepView) -> Sequence[Offer]:
        """The larger regions may hold the smaller ones: only what is tried decides."""
        whole = total_us(view)
        by_target: dict[StepTarget, list[StepPlace]] = {}
        for place in view.of(PlaceKind.GROUP):
            for target in _targets(view, place):
                by_target.setdefault(target, []).append(place)
        compiled = [o.target for o in view.accepted if o.kind is StepActionKind.COMPILE_REGION]
        found = []
        for target, places in by_target.items():
            saves = [one.saves_at_most_us for one in places]
            known = None if any(one is None for one in saves) else sum(filter(None, saves))
            if target in compiled or (known is not None and whole and known < LEAST_SAVED * whole):
                continue
            found.append(_offer(view, target, places, known))
        return found


def _targets(view: StepView, place: StepPlace) -> Iterator[StepTarget]:
    """What could be compiled to fuse a run, the innermost first."""
    modules = view.capture.modules
    inner = list(place.modules)
    if not inner:
        for file, function in dict.fromkeys((x.file, x.function) for x in place.lines):
            if function.isidentifier():
                name = f"{file}:{function}"
                yield StepTarget(f"function {name}", function=name)
        return
    seen = set()
    around: list[str] = []
    for one in inner:
        parts = one.split(".") if one else []
        around += [".".join(parts[:n]) for n in range(len(parts), -1, -1)]
    for name in sorted(set(around), key=lambda one: -len(one.split(".")) if one else 0):
        kind = modules.get(name)
        if name == "" or kind is None:
            if name in inner or name == common_module(inner) or name == "":
                text = f"module {name}" if name else "the step's module"
                target = StepTarget(text, module=name)
            else:
                continue
        else:
            alike = [other for other, c in modules.items() if c == kind]
            if len(alike) == 1:
                target = StepTarget(f"module {name}", module=name, module_class=kind)
            else:
                target = StepTarget(f"modules {kind} ({len(alike)})", module_class=kind)
        if target not in seen:
            seen.add(target)
            yield target


def _offer(
    view: StepView, target: StepTarget, places: Sequence[StepPlace], at_most_us: float | None
) -> Offer:
    whole = total_us(view)
    times = [one.time_us for one in places]
    time_us = None if any(one is None for one in times) else sum(filter(None, times))
    saves = None if at_most_us is None else EFFICIENCY * at_most_us
    speedup = None
    if time_us and saves is not None:
        speedup = time_us / max(time_us - saves, 1e-9)
    launches = sum(one.launches for one in places)
    most = "" if at_most_us is None else f", {duration_text(at_most_us)} at most"
    evidence = [f"{one.selected.workload}: {one.selected.why}" for one in places[:6]]
    evidence.append(f"taken to reach {EFFICIENCY:.0%} of what one kernel a run would save{most}")
    if view.launch_us is not None:
        evidence.append(f"each launch less saves {duration_text(view.launch_us)} at least")
    proposal = StepProposal(
        StepAction(StepActionKind.COMPILE_REGION, target, settings={"mode": "default"}),
        f"{launches:g} short kernels a step become few: each reads and writes what the next one "
        "reads again.",
        tuple(evidence),
        min(time_us / whole, 1.0) if time_us and whole else sum(o.selected.share for o in places),
        speedup,
        saves,
        preconditions=("torch.compile takes it whole: no graph break", "its shapes stay"),
    )
    inside = _size(view, target)
    return Offer(proposal, COST_S + COST_OF_A_MODULE_S * inside)


def _size(view: StepView, target: StepTarget) -> int:
    """Modules within it, instances of one class counted once."""
    if target.function is not None:
        return 1
    classes = view.capture.modules
    roots = [target.module] if target.module is not None else [
        name for name, kind in classes.items() if kind == target.module_class
    ][:1]  # fmt: skip
    inside = {
        kind
        for root in roots
        for name, kind in classes.items()
        if not root or name == root or name.startswith(f"{root}.")
    }
    return max(len(inside), 1)
