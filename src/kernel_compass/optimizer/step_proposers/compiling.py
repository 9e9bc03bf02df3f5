"""A module or function under `torch.compile`: its runs of short kernels are fused.

A run belongs to the functions that its operators are called in, and to every module around them.
Each of those is one proposal, up to the outermost: the larger one gains more and takes longer to
compile. Modules of one class are compiled together. Where a region holds products, torch can tune
those as well: both modes are timed in the step, and the faster one is tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernel_compass.analysis.whole_baseline import EFFICIENCY
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

COST_S, COST_OF_A_MODULE_S = 20.0, 4.0
LEAST_SAVED = 0.005
"""Of the step."""
PLAIN, TUNED = "default", "max-autotune-no-cudagraphs"
TUNED_COST_S = 30.0
TUNED_PRODUCTS = 0.05
"""Of the time of products, what torch's own tuning of them is taken to save."""


@dataclass(frozen=True)
class _Part:
    """As much of a run as a target holds."""

    place: StepPlace
    fraction: float
    """Of its operators."""


class Compiling:
    """Proposed for every module or function around a run that is worth it."""

    name = "compile_region"

    def propose(self, view: StepView) -> Sequence[Offer]:
        """The larger regions may hold the smaller ones: only what is tried decides."""
        whole = total_us(view)
        by_target: dict[StepTarget, list[_Part]] = {}
        for place in view.of(PlaceKind.GROUP):
            for target, fraction in _targets(view, place).items():
                by_target.setdefault(target, []).append(_Part(place, fraction))
        compiled = [o.target for o in view.accepted if o.kind is StepActionKind.COMPILE_REGION]
        found = []
        for target, parts in by_target.items():
            known = _at_most(parts)
            if target in compiled or (known is not None and whole and known < LEAST_SAVED * whole):
                continue
            found.append(_offer(view, target, parts))
        return found


def _targets(view: StepView, place: StepPlace) -> dict[StepTarget, float]:
    """What could be compiled to fuse a run, and how much of the run each holds."""
    ops = [view.capture.ops[index] for index in place.ops]
    known = any(op.line or op.module is not None for op in view.capture.ops)
    if not ops and known:
        return {}  # kernels of a region that is compiled already
    if not known:
        # a trace names no functions: what would be compiled is what holds the run
        return {StepTarget(f"what holds the {place.selected.workload}"): 1.0}
    found: dict[StepTarget, float] = dict(_functions(view, place))
    counts: Counter[str] = Counter()
    for op in ops:
        parts = op.module.split(".") if op.module else []
        names = {".".join(parts[:n]) for n in range(len(parts) + 1)}
        counts.update(name for name in names if op.module is not None)
    for name, count in counts.items():
        target = _module(view.capture.modules, name)
        if target is not None:
            share = count / len(ops)
            found[target] = min(found.get(target, 0.0) + share, 1.0)
    return found


def _functions(view: StepView, place: StepPlace) -> Iterator[tuple[StepTarget, float]]:
    ops = [view.capture.ops[index] for index in place.ops]
    lines = Counter((o.line.file, o.line.function) for o in ops if o.line is not None)
    for (file, function), count in lines.items():
        is_forward = function == "forward" or function.endswith(".forward")
        plain = all(part.isidentifier() for part in function.split("."))
        if count < 2 or is_forward or not plain:
            continue
        name = f"{file}:{function}"
        yield StepTarget(f"function {name}", function=name), count / len(ops)


def _module(classes: Mapping[str, str], name: str) -> StepTarget | None:
    """A module as a target: all of its class, where there are several."""
    kind = classes.get(name)
    if kind is None:
        known = name in classes or not classes
        text = f"module {name}" if name else "the step's module"
        return StepTarget(text, module=name) if known else None
    alike = [other for other, one in classes.items() if one == kind]
    if len(alike) > 1:
        return StepTarget(f"modules {kind} ({len(alike)})", module_class=kind)
    return StepTarget(f"module {name}" if name else "the step's module", module=name)


def _at_most(parts: Sequence[_Part]) -> float | None:
    """What they could save at most; `None` = no times are known."""
    total = 0.0
    for one in parts:
        if one.place.saves_at_most_us is None:
            return None
        total += one.fraction * one.place.saves_at_most_us
    return total


def _offer(view: StepView, target: StepTarget, parts: Sequence[_Part]) -> Offer:
    whole, at_most = total_us(view), _at_most(parts)
    time_us = sum(one.fraction * (one.place.time_us or 0.0) for one in parts)
    known = at_most is not None and all(one.place.time_us is not None for one in parts)
    saves = EFFICIENCY * at_most if at_most is not None else None
    launches = sum(one.fraction * one.place.launches for one in parts)
    most = "" if at_most is None else f", {duration_text(at_most)} at most"
    evidence = [f"{p.place.selected.workload}: {p.place.selected.why}" for p in parts[:6]]
    evidence.append(f"taken to reach {EFFICIENCY:.0%} of what one kernel a run would save{most}")
    if view.launch_us is not None:
        evidence.append(f"each launch less saves {duration_text(view.launch_us)} at least")
    speedup = time_us / max(time_us - saves, 1e-9) if known and saves and time_us else None
    cost = COST_S + COST_OF_A_MODULE_S * _size(view, target)
    configs = [_action(target, PLAIN)]
    products = _products_us(view, target)
    if view.on_gpu and products is not None:
        configs.append(_action(target, TUNED))
        cost += TUNED_COST_S
        saves = None if saves is None else saves + TUNED_PRODUCTS * products
        evidence.append(f"its products tuned by torch: {TUNED_PRODUCTS:.0%} of their time")
        evidence.append(f"modes {PLAIN} and {TUNED} are timed in the step first")
    share = time_us / whole if known and whole else _share(parts)
    proposal = StepProposal(
        configs[0],
        f"{launches:.3g} short kernels a step become few: each reads and writes what the next one "
        "reads again.",
        tuple(evidence),
        min(share, 1.0),
        speedup,
        saves,
        preconditions=("torch.compile takes it whole: no graph break", "its shapes stay"),
    )
    return Offer(proposal, cost, configs=tuple(configs) if len(configs) > 1 else ())


def _action(target: StepTarget, mode: str) -> StepAction:
    return StepAction(StepActionKind.COMPILE_REGION, target, settings={"mode": mode})


def _products_us(view: StepView, target: StepTarget) -> float | None:
    """Time of the products within a target; `None` = it holds none."""
    roots = _roots(view.capture.modules, target)
    times = [
        one.time_us or 0.0
        for one in view.of(PlaceKind.PRODUCT)
        if any(_inside(name, root) for name in one.modules for root in roots)
    ]
    return sum(times) if times else None


def _inside(name: str, root: str) -> bool:
    return not root or name == root or name.startswith(f"{root}.")


def _roots(classes: Mapping[str, str], target: StepTarget) -> list[str]:
    """The modules that a target names."""
    if target.module is not None:
        return [target.module]
    return [name for name, kind in classes.items() if kind == target.module_class]


def _share(parts: Sequence[_Part]) -> float:
    return sum(one.fraction * one.place.selected.share for one in parts)


def _size(view: StepView, target: StepTarget) -> int:
    """Classes of modules within it: each is compiled once."""
    classes = view.capture.modules
    if target.function is not None:
        return 1
    roots = _roots(classes, target)[:1]
    inside = {kind for root in roots for name, kind in classes.items() if _inside(name, root)}
    return max(len(inside), 1)
