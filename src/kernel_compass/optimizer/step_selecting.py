"""Where a step's time goes, and what of it is worth working on: share x headroom, by Amdahl."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from kernel_compass.analysis.step_inside import opened
from kernel_compass.analysis.step_runs import OpRun, op_bytes, op_runs
from kernel_compass.optimizer.step_doors import Group
from kernel_compass.records.selection import PassedOver, Selected
from kernel_compass.records.step_capture import (
    RegionKind,
    SourceLine,
    StepCapture,
    StepKernel,
    StepOp,
)
from kernel_compass.records.step_loop import PlaceKind, StepPlace
from kernel_compass.records.workload import Op, Workload
from kernel_compass.units import percent_text

ATTENTION = ("scaled_dot_product", "attention")
HIDDEN = (PlaceKind.PRODUCT, PlaceKind.ATTENTION)
"""What a compiled region runs as before, and changes still reach."""
COPIES = frozenset(["copy", "clone", "contiguous", "_to_copy", "cat"])
NO_CHANGE = "no change is known for it"
LONGEST_NAME = 48
MIN_PASSES = 2
"""Kernels that make a run worth fusing."""
EIGHT_BIT_PCT = 0.6
"""From this budget on weights of 8 bits are within it, and their bytes are the floor."""


@dataclass
class _Gathered:
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

    def add(self, time_us: float, floor_us: float | None, launches: float) -> None:
        """A kernel, or a run of them."""
        self.time_us += time_us
        self.launches += launches
        if self.kind is PlaceKind.PRODUCT:  # the parts of a split product have one floor together
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
        budget_pct: of errors; where it allows other weights, theirs are a product's floor.
    """
    capture = opened(capture)
    if capture.kernels:
        grouped = {index for group in groups for index in group.kernels}
        wide = _of_wide_runs(capture, grouped)
        inside = {index for place in wide for index in place.ops}
        passes = {at for at, one in enumerate(capture.kernels) if one.op in inside}
        alone = _of_kernels(capture, budget_pct, grouped | passes)
        gathered = [*alone, *_of_groups(capture, groups), *wide]
        total = capture.step_us or sum(one.time_us for one in capture.kernels)
        gathered += _idle(capture)
        said = "of the time"
    else:
        gathered = [*_of_operators(capture), *_of_runs(capture)]
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
    """The same after changes were kept: what a compiled region hides is as it was before it.

    Args:
        first: the untouched step, in which every operator is seen.
        now: with what was kept.
        groups: of the step as it is now.
        least_effect: and `budget_pct`: as in `select_places`.
    """
    places = select_places(now, groups, least_effect, budget_pct)
    if not any(one.kind is RegionKind.COMPILED for one in now.regions):
        return places
    seen = {(one.kind, one.selected.workload) for one in places}
    before = replace(first, step_us=now.step_us, idle_us=now.idle_us, in_graph=now.in_graph)
    hidden = [
        one
        for one in select_places(before, (), least_effect, budget_pct)
        if one.kind in HIDDEN and (one.kind, one.selected.workload) not in seen
    ]
    return tuple(sorted([*places, *hidden], key=_order))


def worked_on(place: StepPlace) -> bool:
    """Whether something is proposed for it."""
    return place.selected.passed_over in (None, PassedOver.NO_FLOOR)


def step_product(op: StepOp, assumed: bool = False) -> Workload | None:
    """The product with a constant weight that an operator computes; `None` = it is none.

    Args:
        op: of the step.
        assumed: take the second operand for a weight, as layers have it: what a trace was made of
            says nothing of contents.
    """
    name = op.name.rpartition("::")[2]
    tensors = op.inputs[1:] if name in ("addmm", "baddbmm") else op.inputs
    if name not in ("mm", "addmm", "bmm", "baddbmm", "matmul", "linear") or len(tensors) < 2:
        return None
    x, weight = tensors[0], tensors[1]
    if not assumed and (not weight.constant or weight.unversioned or x.constant):
        return None
    if len(weight.shape) == 3 and len(x.shape) == 3 and name in ("bmm", "baddbmm", "matmul"):
        h, m, k = x.shape
        fits = weight.shape[:2] == (h, k)
        return Workload(Op.BMM, h, m, k, weight.shape[2]) if fits else None
    if len(weight.shape) != 2 or not x.shape or name in ("bmm", "baddbmm"):
        return None
    rows = 1
    for size in x.shape[:-1]:
        rows *= size
    k, n = reversed(weight.shape) if name == "linear" else weight.shape
    return Workload(Op.LINEAR, 1, rows, k, n) if x.shape[-1] == k and rows else None


def knows_constants(capture: StepCapture) -> bool:
    """Whether it says of any operand that it is constant; a trace says it of none."""
    return any(tensor.constant for op in capture.ops for tensor in op.inputs)


def _of_kernels(
    capture: StepCapture, budget_pct: float, grouped: Collection[int]
) -> Iterable[_Gathered]:
    """Kernels by what they are; what is in a group and nothing by itself belongs to the group."""
    found: dict[tuple[object, ...], _Gathered] = {}
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
        if floor is not None and place.workload is not None and budget_pct >= EIGHT_BIT_PCT:
            floor *= _less_bytes(place.workload)
        place.add(kernel.time_us, floor, kernel.launches)
        if op is not None:
            place.at(op)
        elif kernel.line is not None and kernel.line not in place.lines:
            place.lines.append(kernel.line)
    return found.values()


def _place_of(
    capture: StepCapture, kernel: StepKernel, op: StepOp | None, assumed: bool
) -> tuple[tuple[object, ...], _Gathered]:
    """What a kernel belongs to, and a new place for it."""
    if kernel.launch is not None:
        launch = next(one for one in capture.launches if one.index == kernel.launch)
        made = _Gathered(PlaceKind.TRITON, f"Triton kernel {launch.kernel}", launch=launch.index)
        return (PlaceKind.TRITON, launch.kernel, launch.source_sha256), made
    kind, name, workload = PlaceKind.OTHER, kernel.name, None
    if op is not None:
        kind, name, workload = _kind_of(op, assumed)
    dtype = op.inputs[0].dtype if workload is not None and op is not None else None
    key = (kind, name, dtype) if kind is not PlaceKind.OTHER else (kind, kernel.name, name)
    short = kernel.name if len(kernel.name) <= LONGEST_NAME else f"{kernel.name[:LONGEST_NAME]}..."
    said = f"{name} ({short})" if kind is PlaceKind.OTHER and op is not None else name
    said = short if op is None else said
    return key, _Gathered(kind, said, workload=workload, dtype=dtype)


def _kind_of(op: StepOp, assumed: bool = False) -> tuple[PlaceKind, str, Workload | None]:
    workload = step_product(op, assumed)
    if workload is not None:
        return PlaceKind.PRODUCT, workload.shape_text, workload
    bare = op.name.rpartition("::")[2]
    if any(word in bare for word in ATTENTION):
        shape = "x".join(map(str, op.inputs[0].shape)) if op.inputs else ""
        return PlaceKind.ATTENTION, f"attention {shape}".strip(), None
    if bare.rstrip("_") in COPIES or bare in COPIES:
        where = op.line.text if op.line else "an unknown line"
        return PlaceKind.COPY, f"{op.name} at {where}", None
    return PlaceKind.OTHER, op.name, None


def _of_groups(capture: StepCapture, groups: Sequence[Group]) -> Iterable[_Gathered]:
    """Groups; the same lines in another layer are the same group."""
    found: dict[tuple[object, ...], _Gathered] = {}
    ops = {op.index: op for op in capture.ops}
    for group in groups:
        kernels = [capture.kernels[i] for i in group.kernels]
        words = [ops[one.op].name if one.op in ops else one.name for one in kernels]
        name = _group_name(group.first_line, group.last_line, words)
        place = found.setdefault((name,), _Gathered(PlaceKind.GROUP, name, saves_at_most_us=0.0))
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


def _of_wide_runs(capture: StepCapture, grouped: Collection[int]) -> list[_Gathered]:
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
    found: dict[str, _Gathered] = {}
    ops = {op.index: op for op in capture.ops}
    for run in op_runs(capture):
        members = [index for index in run.ops if index in times]
        kernels = [one for index in members for one in times[index]]
        if len(kernels) < MIN_PASSES or not run.bytes:
            continue
        words = [ops[index].name for index in members]
        name = _group_name(ops[members[0]].line, ops[members[-1]].line, words, "passes")
        place = found.setdefault(name, _Gathered(PlaceKind.GROUP, name, saves_at_most_us=0.0))
        time_us = sum(one.time_us for one in kernels)
        stays = time_us * min(run.outer_bytes / run.bytes, 1.0)
        place.add(time_us, stays, sum(one.launches for one in kernels))
        place.saves_at_most_us = (place.saves_at_most_us or 0.0) + time_us - stays
        for index in members:
            place.at(ops[index])
    return list(found.values())


def _idle(capture: StepCapture) -> Iterator[_Gathered]:
    if capture.idle_us and not capture.in_graph:
        place = _Gathered(PlaceKind.IDLE, "the GPU waits for the CPU", launches=0.0)
        place.add(capture.idle_us, 0.0, 0.0)
        place.saves_at_most_us = capture.idle_us
        yield place


def _of_operators(capture: StepCapture) -> Iterable[_Gathered]:
    """Products and attention, by what they move."""
    found: dict[str, _Gathered] = {}
    unit = _us_a_byte(capture)
    for op in capture.ops:
        kind, name, workload = _kind_of(op)
        if kind not in (PlaceKind.PRODUCT, PlaceKind.ATTENTION):
            continue
        dtype = op.inputs[0].dtype if op.inputs else None
        place = found.setdefault(name, _Gathered(kind, name, workload=workload, dtype=dtype))
        place.add(op_bytes(op) * unit, None, 1.0)
        place.at(op)
    for launch in capture.launches:
        name = f"Triton kernel {launch.kernel}"
        place = found.setdefault(name, _Gathered(PlaceKind.TRITON, name, launch=launch.index))
        place.add(0.0, None, 1.0)
    return found.values()


def _of_runs(capture: StepCapture) -> Iterable[_Gathered]:
    found: dict[str, _Gathered] = {}
    ops = {op.index: op for op in capture.ops}
    unit = _us_a_byte(capture)
    for run in op_runs(capture):
        words = [ops[index].name for index in run.ops]
        name = _group_name(run.first_line, run.last_line, words)
        place = found.setdefault(name, _Gathered(PlaceKind.GROUP, name, saves_at_most_us=0.0))
        place.add(run.bytes * unit, run.outer_bytes * unit, float(len(run.ops)))
        place.saves_at_most_us = (place.saves_at_most_us or 0.0) + _saves(run) * unit
        for index in run.ops:
            place.at(ops[index])
        place.lines = [line for line in (run.first_line, run.last_line) if line is not None]
    return found.values()


def _saves(run: OpRun) -> int:
    return max(run.bytes - run.outer_bytes, 0)


def _us_a_byte(capture: StepCapture) -> float:
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


def _placed(one: _Gathered, total: float, least: float, said: str, measured: bool) -> StepPlace:
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
    )


def _selected(one: _Gathered, total: float, least: float, said: str) -> Selected:
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


def _less_bytes(workload: Workload) -> float:
    """What 8-bit weights leave of a product's 16-bit floor."""
    others = workload.heads * workload.tokens * (workload.reduction + workload.columns)
    return (0.5 * workload.weights + others) / (workload.weights + others)
