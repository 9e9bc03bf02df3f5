"""A step's kernels, or its operators where there are none, put together to the places that could be
worked on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kernel_compass.analysis.step_runs import OpRun, op_bytes, op_runs
from kernel_compass.optimizer.step_doors import Group
from kernel_compass.optimizer.step_kinds import kind_of, knows_constants
from kernel_compass.records.step_capture import SourceLine, StepCapture, StepKernel, StepOp
from kernel_compass.records.step_loop import PlaceKind
from kernel_compass.records.workload import Workload

LONGEST_NAME = 48
MIN_PASSES = 2
"""Kernels that make a run worth fusing."""
EIGHT_BIT_PCT = 0.6
"""From this budget on weights of 8 bits are within it, and their bytes are the floor."""


@dataclass
class Gathered:
    """What belongs to one place."""

    kind: PlaceKind
    name: str
    time_us: float = 0.0
    floor_us: float | None = 0.0
    launches: float = 0.0
    ops: list[int] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)
    lines: list[SourceLine] = field(default_factory=list)
    workload: Workload | None = None
    dtype: str | None = None
    launch: int | None = None
    saves_at_most_us: float | None = None
    parts: list[float | None] = field(default_factory=list)
    """Floors of a product's kernels."""
    columns: tuple[int, ...] = ()
    """Of products with the same input."""

    def add(self, time_us: float, floor_us: float | None, launches: float) -> None:
        """A kernel, or a run of them."""
        self.time_us += time_us
        self.launches += launches
        if self.kind in (
            PlaceKind.PRODUCT,
            PlaceKind.SHARED,
        ):  # the parts of a split product have one floor together
            self.parts.append(floor_us)
            found = [one for one in self.parts if one is not None]
            self.floor_us = sum(found) if found else None
            return
        known = self.floor_us is not None and floor_us is not None
        self.floor_us = (self.floor_us or 0.0) + (floor_us or 0.0) if known else None

    def at(self, op: StepOp) -> None:
        """An operator of it."""
        self.ops.append(op.index)
        if op.module is not None and op.module not in self.modules:
            self.modules.append(op.module)
        if op.line is not None and op.line not in self.lines:
            self.lines.append(op.line)


def of_kernels(
    capture: StepCapture, budget_pct: float, grouped: Collection[int]
) -> Iterable[Gathered]:
    """Kernels by what they are; what is in a group and nothing by itself belongs to the group."""
    found: dict[tuple[object, ...], Gathered] = {}
    ops = {op.index: op for op in capture.ops}
    assumed = not knows_constants(capture)
    for index, kernel in enumerate(capture.kernels):
        op = None if kernel.op is None else ops.get(kernel.op)
        key, made = _place_of(capture, kernel, op, assumed)
        if made.kind is PlaceKind.OTHER and index in grouped:
            continue
        place = found.setdefault(key, made)
        # what it moved is no least: the loop is there to have it move less
        floor = None if kernel.floor_basis == "traffic" else kernel.floor_us
        floor = at_budget(floor, place.workload, budget_pct)
        place.add(kernel.time_us, floor, kernel.launches)
        if op is not None:
            place.at(op)
        elif kernel.line is not None and kernel.line not in place.lines:
            place.lines.append(kernel.line)
    return found.values()


def _place_of(
    capture: StepCapture, kernel: StepKernel, op: StepOp | None, assumed: bool
) -> tuple[tuple[object, ...], Gathered]:
    """What a kernel belongs to, and a new place for it."""
    if kernel.launch is not None:
        launch = next(one for one in capture.launches if one.index == kernel.launch)
        made = Gathered(PlaceKind.TRITON, f"Triton kernel {launch.kernel}", launch=launch.index)
        return (PlaceKind.TRITON, launch.kernel, launch.source_sha256), made
    kind, name, workload = PlaceKind.OTHER, kernel.name, None
    if op is not None:
        kind, name, workload = kind_of(op, assumed)
    dtype = op.inputs[0].dtype if workload is not None and op is not None else None
    key = (kind, name, dtype) if kind is not PlaceKind.OTHER else (kind, kernel.name, name)
    short = kernel.name if len(kernel.name) <= LONGEST_NAME else f"{kernel.name[:LONGEST_NAME]}..."
    said = f"{name} ({short})" if kind is PlaceKind.OTHER and op is not None else name
    said = short if op is None else said
    return key, Gathered(kind, said, workload=workload, dtype=dtype)


def of_groups(capture: StepCapture, groups: Sequence[Group]) -> Iterable[Gathered]:
    """Groups; the same lines in another layer are the same group."""
    found: dict[tuple[object, ...], Gathered] = {}
    ops = {op.index: op for op in capture.ops}
    for group in groups:
        kernels = [capture.kernels[i] for i in group.kernels]
        words = [ops[one.op].name if one.op in ops else one.name for one in kernels]
        name = _group_name(group.first_line, group.last_line, words)
        place = found.setdefault((name,), Gathered(PlaceKind.GROUP, name, saves_at_most_us=0.0))
        time_us = group.time_us + group.gap_us
        place.add(
            time_us,
            max(time_us - group.saves_at_most_us, 0.0),
            sum(one.launches for one in kernels),
        )
        place.saves_at_most_us = (place.saves_at_most_us or 0.0) + group.saves_at_most_us
        for one in kernels:
            if one.op is not None and one.op in ops:
                place.at(ops[one.op])
        place.lines = [line for line in (group.first_line, group.last_line) if line is not None]
        if group.module is not None:
            place.modules = list(dict.fromkeys([*place.modules, group.module]))
    return found.values()


def of_wide_runs(capture: StepCapture, grouped: Collection[int]) -> list[Gathered]:
    """Runs of kernels that are no launch-bound ones: each streams what the one before wrote.

    Of their time, what remains in one pass is the part of the bytes that come from outside of the
    run or are used after it.
    """
    if not any(op.line or op.module is not None for op in capture.ops):
        return []  # a trace: which operands share memory is not known
    times: dict[int, list[StepKernel]] = {}
    for at, kernel in enumerate(capture.kernels):
        if kernel.op is not None and at not in grouped:
            times.setdefault(kernel.op, []).append(kernel)
    found: dict[str, Gathered] = {}
    ops = {op.index: op for op in capture.ops}
    for run in op_runs(capture):
        members = [index for index in run.ops if index in times]
        kernels = [one for index in members for one in times[index]]
        if len(kernels) < MIN_PASSES or not run.bytes:
            continue
        words = [ops[index].name for index in members]
        name = _group_name(ops[members[0]].line, ops[members[-1]].line, words, "passes")
        place = found.setdefault(name, Gathered(PlaceKind.GROUP, name, saves_at_most_us=0.0))
        time_us = sum(one.time_us for one in kernels)
        stays = time_us * min(run.outer_bytes / run.bytes, 1.0)
        place.add(time_us, stays, sum(one.launches for one in kernels))
        place.saves_at_most_us = (place.saves_at_most_us or 0.0) + time_us - stays
        for index in members:
            place.at(ops[index])
    return list(found.values())


def idle_of(capture: StepCapture) -> Iterator[Gathered]:
    """The time in which the GPU waits for the CPU."""
    if capture.idle_us and not capture.in_graph:
        place = Gathered(PlaceKind.IDLE, "the GPU waits for the CPU", launches=0.0)
        place.add(capture.idle_us, 0.0, 0.0)
        place.saves_at_most_us = capture.idle_us
        yield place


def of_operators(capture: StepCapture) -> Iterable[Gathered]:
    """Products and attention, by what they move."""
    found: dict[str, Gathered] = {}
    unit = us_a_byte(capture)
    for op in capture.ops:
        kind, name, workload = kind_of(op)
        if kind not in (PlaceKind.PRODUCT, PlaceKind.ATTENTION):
            continue
        dtype = op.inputs[0].dtype if op.inputs else None
        place = found.setdefault(name, Gathered(kind, name, workload=workload, dtype=dtype))
        place.add(op_bytes(op) * unit, None, 1.0)
        place.at(op)
    for launch in capture.launches:
        name = f"Triton kernel {launch.kernel}"
        place = found.setdefault(name, Gathered(PlaceKind.TRITON, name, launch=launch.index))
        place.add(0.0, None, 1.0)
    return found.values()


def of_runs(capture: StepCapture) -> Iterable[Gathered]:
    """Runs of operators that could be one pass, by what they move."""
    found: dict[str, Gathered] = {}
    ops = {op.index: op for op in capture.ops}
    unit = us_a_byte(capture)
    for run in op_runs(capture):
        words = [ops[index].name for index in run.ops]
        name = _group_name(run.first_line, run.last_line, words)
        place = found.setdefault(name, Gathered(PlaceKind.GROUP, name, saves_at_most_us=0.0))
        place.add(run.bytes * unit, run.outer_bytes * unit, float(len(run.ops)))
        place.saves_at_most_us = (place.saves_at_most_us or 0.0) + _saves(run) * unit
        for index in run.ops:
            place.at(ops[index])
        place.lines = [line for line in (run.first_line, run.last_line) if line is not None]
    return found.values()


def _saves(run: OpRun) -> int:
    return max(run.bytes - run.outer_bytes, 0)


def us_a_byte(capture: StepCapture) -> float:
    """What the step takes for a byte, all in all; 1 where it has no time."""
    total = sum(map(op_bytes, capture.ops))
    return capture.step_us / total if capture.step_us is not None and total else 1.0


def _group_name(
    first: SourceLine | None,
    last: SourceLine | None,
    words: Sequence[str],
    kind: str = "short ones",
) -> str:
    count = len(words)
    if first is None:
        return f"{count} {kind}, {words[0]} to {words[-1]}"
    end = f" to {last.file}:{last.line}" if last is not None and last != first else ""
    return f"{count} {kind} from {first.text}{end}"


def at_budget(floor_us: float | None, workload: Workload | None, budget_pct: float) -> float | None:
    """A kernel's floor; of a product that of 8-bit weights, where the budget allows them."""
    if floor_us is None or workload is None or budget_pct < EIGHT_BIT_PCT:
        return floor_us
    return floor_us * _less_bytes(workload)


def _less_bytes(workload: Workload) -> float:
    """What 8-bit weights leave of a product's 16-bit floor."""
    others = workload.heads * workload.tokens * (workload.reduction + workload.columns)
    return (0.5 * workload.weights + others) / (workload.weights + others)
