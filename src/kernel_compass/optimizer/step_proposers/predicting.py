"""What all sources of changes share: Amdahl, and the evidence in words."""

from __future__ import annotations

from kernel_compass.optimizer.step_doors import StepView
from kernel_compass.records.step_loop import StepPlace
from kernel_compass.units import duration_text


def saved_us(place: StepPlace, part_speedup: float | None) -> float | None:
    """What a step saves where a part of it becomes so many times faster."""
    if place.time_us is None or part_speedup is None:
        return None
    return place.time_us * (1 - 1 / part_speedup)


def total_us(view: StepView) -> float | None:
    """The step's time."""
    capture = view.capture
    return capture.step_us or sum(one.time_us for one in capture.kernels) or None


def evidence_of(place: StepPlace) -> tuple[str, ...]:
    """Share, floor, and where it is."""
    rows = [f"{place.selected.workload}: {place.selected.why}"]
    if place.time_us is not None and place.floor_us:
        rows.append(f"{duration_text(place.time_us)} a step; floor {duration_text(place.floor_us)}")
    if place.lines:
        rows.append("at " + ", ".join(line.text for line in place.lines[:4]))
    return tuple(rows)
