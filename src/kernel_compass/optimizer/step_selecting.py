"""Where a step's time goes, and what of it is worth working on: share x headroom, by Amdahl."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernel_compass.analysis.step_inside import opened
from kernel_compass.analysis.step_runs import op_bytes
from kernel_compass.optimizer.step_doors import Group
from kernel_compass.optimizer.step_gathering import (
    Gathered,
    idle_of,
    of_groups,
    of_kernels,
    of_operators,
    of_runs,
    of_wide_runs,
)
from kernel_compass.optimizer.step_shared import of_shared
from kernel_compass.records.selection import PassedOver, Selected
from kernel_compass.records.step_capture import RegionKind, StepCapture, StepKernel
from kernel_compass.records.step_loop import PlaceKind, StepPlace
from kernel_compass.units import percent_text

HIDDEN = (PlaceKind.PRODUCT, PlaceKind.ATTENTION, PlaceKind.SHARED)
"""What a compiled region runs as before, and changes still reach."""
NO_CHANGE = "no change is known for it"


def select_places(
    capture: StepCapture,
    groups: Sequence[Group],
    least_effect: float,
    budget_pct: float,
) -> tuple[StepPlace, ...]:
    """The parts of a step in the order in which they are worth trying; those passed over last.

    Without kernel times (a CPU), shares are of the bytes that operators move, and said to be.

    Args:
        capture: the step.
        groups: its runs of short kernels.
        least_effect: what the whole has to gain at least, 0.02 = 1.02 times.
        budget_pct: of errors of weights; where it allows 8 bits, theirs are a product's floor.
    """
    capture = opened(capture)
    if capture.kernels:
        grouped = {index for group in groups for index in group.kernels}
        wide = of_wide_runs(capture, grouped)
        inside = {index for place in wide for index in place.ops}
        passes = {at for at, one in enumerate(capture.kernels) if one.op in inside}
        alone = of_kernels(capture, budget_pct, grouped | passes)
        gathered = [*alone, *of_groups(capture, groups), *wide]
        total = capture.step_us or sum(one.time_us for one in capture.kernels)
        gathered += [*idle_of(capture), *of_shared(capture, budget_pct)]
        said = "of the time"
    else:
        gathered = [*of_operators(capture), *of_runs(capture), *of_shared(capture, budget_pct)]
        total = capture.step_us or float(sum(map(op_bytes, capture.ops)) or 1)
        said = "of the bytes that its operators move (no kernel times here)"
    measured = bool(capture.kernels) or capture.step_us is not None
    places = [_placed(one, total, least_effect, said, measured) for one in gathered]
    return tuple(sorted(places, key=_order))


def select_again(
    first: StepCapture,
    now: StepCapture,
    groups: Sequence[Group],
    least_effect: float,
    budget_pct: float,
) -> tuple[StepPlace, ...]:
    """The same after changes were kept: what they hide is as it was before them.

    A compiled region may compute a product in a kernel that names no operator; then the product is
    still there to be replaced, and how long it took before is what is known of it.

    Args:
        first: the untouched step, in which every operator is seen.
        now: with what was kept.
        groups: of the step as it is now.
        least_effect: and `budget_pct`: as in `select_places`.
    """
    places = select_places(now, groups, least_effect, budget_pct)
    compiled = any(one.kind is RegionKind.COMPILED for one in now.regions)
    if not compiled and not any(_is_nobodys(one) for one in now.kernels):
        return places
    places = tuple(one for one in places if one.kind not in HIDDEN or one.selected.share > 0)
    seen = {(one.kind, one.selected.workload) for one in places}
    before = replace(first, step_us=now.step_us, idle_us=now.idle_us, in_graph=now.in_graph)
    hidden = [
        one
        for one in select_places(before, (), least_effect, budget_pct)
        if one.kind in HIDDEN and (one.kind, one.selected.workload) not in seen
    ]
    return tuple(sorted([*places, *hidden], key=_order))


def _is_nobodys(kernel: StepKernel) -> bool:
    """Whether nothing is known to have launched a kernel."""
    return kernel.op is None and kernel.launch is None and kernel.region is None


def worked_on(place: StepPlace) -> bool:
    """Whether something is proposed for it."""
    return place.selected.passed_over in (None, PassedOver.NO_FLOOR)


def _placed(one: Gathered, total: float, least: float, said: str, measured: bool) -> StepPlace:
    selected = _selected(one, total, least, said)
    return StepPlace(
        one.kind,
        selected,
        one.time_us if measured else None,
        one.floor_us if measured else None,
        one.launches,
        one.workload,
        one.dtype,
        tuple(one.modules),
        tuple(one.ops),
        one.launch,
        one.saves_at_most_us if measured else None,
        tuple(one.lines),
        one.columns,
    )


def _selected(one: Gathered, total: float, least: float, said: str) -> Selected:
    time_us, floor_us = one.time_us, one.floor_us
    share = time_us / total if total else 0.0
    free = _gain(total, time_us, 0.0)
    part = percent_text(100 * share)
    if floor_us is None:
        if free < 1 + least and one.kind is not PlaceKind.TRITON:
            why = f"{part} {said}: were it free, {free:.3f} times faster in all."
            return Selected(one.name, share, None, 1.0, PassedOver.SMALL_SHARE, why)
        why = f"{part} {said}; what it could take is not known here"
        why += (
            f", and {NO_CHANGE}." if one.kind is PlaceKind.OTHER else ": it is tried all the same."
        )
        return Selected(one.name, share, None, 1.0, PassedOver.NO_FLOOR, why)
    headroom = time_us / floor_us if floor_us > 0 else None
    gain = _gain(total, time_us, min(floor_us, time_us))
    if free < 1 + least:
        why = f"{part} {said}: were it free, {free:.3f} times faster in all."
        return Selected(one.name, share, headroom, gain, PassedOver.SMALL_SHARE, why)
    far = "could be nothing" if headroom is None else f"{headroom:.2f} times its floor"
    if gain < 1 + least:
        why = f"{part} {said}, {far}: at its floor {gain:.3f} times faster in all."
        return Selected(one.name, share, headroom, gain, PassedOver.AT_ITS_FLOOR, why)
    why = f"{part} {said}, {far}: up to {gain:.2f} times faster in all"
    why += f", but {NO_CHANGE}." if one.kind is PlaceKind.OTHER else "."
    return Selected(one.name, share, headroom, gain, None, why)


def _order(place: StepPlace) -> tuple[bool, float, float, str]:
    found = place.selected
    return not worked_on(place), -found.gain, -found.share, found.workload


def _gain(total: float, time_us: float, becomes_us: float) -> float:
    left = total - time_us + becomes_us
    return total / left if left > 0 else float(total / max(becomes_us, 1e-3 * total, 1e-9))
