"""What predictions are made of: floors by bytes, arithmetic, launches, and what each change saves.

Rates come from the shipped calibration of the H200; the other constants are below, each with what
it rests on: measured on such a card before any of these programs ran there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from kernel_compass.analysis.floor import Floors
from kernel_compass.api.calibrations import calibration
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import Traffic

MACHINE = calibration("h200")
FLOORS = Floors(MACHINE)
BUDGETS = (1.0, 5.0)
EIGHT_BIT_PCT = 3.0
"""From this budget on weights may have 8 bits: they cost 2.6 % in fp8 (docs/optimize.md)."""
EAGER_US = 17.7
"""Of a step that waits for the CPU, a launch: a decoder block's 49 took 867 us."""
SMALL_US = 2.5
"""A short kernel in a graph: 40 of that block's took about 100 us."""
OVER_FLOOR_US = 3.0
"""What a product with few rows takes beyond its floor: cuBLAS in bf16, 17 to 235 MB of weights."""
REPLAY_US = 10.0
"""Launching a graph."""
PEAK_REACHED = 0.8
"""Of the peak, by products with many rows."""
ATTENTION_REACHED = 0.85
"""Of its floor, by attention that streams a cache."""
FLASH_TFLOPS = 350.0
"""Of attention over whole sequences with heads of 64."""
ELEMENT = 2
"""Bytes of bf16."""


@dataclass(frozen=True)
class Part:
    """Kernels of a step that are alike."""

    name: str
    count: int
    """Launches a step."""
    each_us: float
    floor_us: float
    """Of one, or of what remains of it in the best program."""
    fused: int | None = None
    """Launches that one compiled region leaves of them; `None` = it changes nothing."""
    fused_us: float = SMALL_US
    eight_bit_us: float | None = None
    """Of one with weights (many rows: with both operands) of 8 bits."""
    tf32_us: float | None = None
    """Of one in float32, were it in TF32."""

    @property
    def now_us(self) -> float:
        return self.count * self.each_us


@dataclass(frozen=True)
class Change:
    """What one kind of change should save of a step."""

    kind: str
    where: str
    saves_us: float


@dataclass(frozen=True)
class Prediction:
    """A program's."""

    program: str
    sizes: dict[str, int]
    launches: int
    begins_as: str
    """`eager` or `graph`."""
    now_us: float
    bound_us: float
    """Every part at its floor, and nothing waits."""
    by_budget: dict[str, dict[str, Any]] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    reason: str = ""
    """Where nothing much is to be expected: why."""


def cold_us(weights: float, others: float = 0.0, flops: float = 0.0) -> float:
    """A streaming kernel that reads so many bytes from DRAM, and moves others through L2."""
    found = FLOORS.of(Traffic(int(weights), int(others), 0, int(flops)), Regime.COLD)
    assert found is not None, "the shipped calibration has both curves and bf16's peak"
    return found.time_us


def small(name: str, count: int, fused: int) -> Part:
    """Short kernels that one region makes fewer."""
    return Part(name, count, SMALL_US, fused * SMALL_US / count, fused)


def product(name: str, rows: int, k: int, n: int, heads: int = 1, count: int = 1) -> Part:
    """A product with a weight."""
    weights, others = heads * k * n * ELEMENT, heads * rows * (k + n) * ELEMENT
    flops = 2 * heads * rows * k * n
    floor = cold_us(weights, others, flops)
    if rows <= 64:
        half = cold_us(weights / 2, others, flops)
        return Part(name, count, floor + OVER_FLOOR_US, half, eight_bit_us=half + OVER_FLOOR_US)
    peak, fast = (MACHINE.peak_tflops[one].value for one in ("bf16", "fp8"))
    assert peak and fast
    quantized = cold_us(rows * k * (ELEMENT + 1))
    eight = flops / (PEAK_REACHED * fast * 1e6) + quantized
    now = max(floor, flops / (PEAK_REACHED * peak * 1e6))
    return Part(name, count, now, flops / (fast * 1e6), eight_bit_us=eight)


def wide(name: str, moved: float, fused_moved: float = 0.0, count: int = 1) -> Part:
    """Passes over so many bytes each; a region leaves so many of all of them."""
    left = cold_us(fused_moved) if fused_moved else 0.0
    return Part(name, count, cold_us(moved), left / count, int(left > 0), left)


def predicted(
    program: str,
    sizes: Any,
    parts: tuple[Part, ...],
    graph: bool,
    *others: Change,
    reason: str = "",
) -> Prediction:
    """Put together: what each kind of change saves, and what is left of the step with all of them.

    Args:
        program: its name.
        sizes: its arguments.
        parts: its kernels.
        graph: whether it begins in a CUDA graph, compiled.
        others: changes to single kernels.
        reason: why little is to be expected.
    """
    launches = sum(one.count for one in parts)
    busy = sum(one.now_us for one in parts)
    now = busy if graph else max(busy, launches * EAGER_US)
    bound = sum(one.count * one.floor_us for one in parts)
    numbers = {k: v for k, v in vars(sizes).items() if type(v) is int and k != "steps"}
    found = Prediction(program, numbers, launches, "graph" if graph else "eager", now, bound)
    by_budget = {}
    for budget in BUDGETS:
        changes = [] if reason else list(_changes(parts, graph, now, busy, budget))
        changes += others
        left = now - sum(one.saves_us for one in changes)
        by_budget[f"{budget:g}"] = {
            "changes": [asdict(one) for one in changes],
            "after_us": left,
            "ratio": now / left,
        }
    return Prediction(**{**vars(found), "by_budget": by_budget, "parts": parts, "reason": reason})


def _changes(
    parts: tuple[Part, ...], graph: bool, now: float, busy: float, budget: float
) -> Iterator[Change]:
    if not graph and now > busy + REPLAY_US:
        yield Change("step_graph", "step", now - busy - REPLAY_US)
    fused = [one for one in parts if one.fused is not None]
    if fused and not graph:
        saves = sum(one.now_us - (one.fused or 0) * one.fused_us for one in fused)
        yield Change("compile_region", "; ".join(one.name for one in fused), saves)
    if budget >= EIGHT_BIT_PCT:
        for one in parts:
            if one.eight_bit_us is not None and one.eight_bit_us < one.each_us:
                saves = one.count * (one.each_us - one.eight_bit_us)
                yield Change("product", one.name, saves)
