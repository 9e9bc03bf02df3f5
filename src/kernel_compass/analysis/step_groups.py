"""Runs of launch-bound kernels between two large ones: one candidate each, with what fusing them
could save at most.

At most means: the run becomes one launch that reads what comes from outside of it once and writes
what is used outside of it once, at this machine's best bandwidth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kernel_compass.analysis.timeline_runs import TYPICAL, FixedCost
from kernel_compass.records.step_capture import (
    SourceLine,
    StepCapture,
    StepKernel,
    StepOp,
    StepTensor,
)

MIN_KERNELS = 2
"""Launches; one alone has nothing to be fused with."""
SMALL_US = 20.0
"""A longer launch is a large kernel, whatever bounds it."""
_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "linear", "matmul", "convolution")
_SIZES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "bfloat16": 2, "float16": 2}

COUNTS_DIFFER = 1.5
"""Neighbours in a loop are launched nearly as often: up to this ratio."""

StreamUs = Callable[[int], float | None]
"""The least time in microseconds to move so many bytes."""


@dataclass(frozen=True)
class StepGroup:
    """One run."""

    kernels: tuple[int, ...]
    """Their places in `StepCapture.kernels`."""
    time_us: float
    gap_us: float
    saves_at_most_us: float
    first_line: SourceLine | None
    last_line: SourceLine | None
    module: str | None
    """That all of them lie in; `None` = there is no such one."""
    outer_bytes: int | None = None
    """Read from outside and written for outside; `None` where an operator is not known."""
    repeats: float = 1.0
    """How often the run occurs in a step; the times are of all of them."""


def groups_of(
    capture: StepCapture, fixed: FixedCost = TYPICAL, stream_us: StreamUs | None = None
) -> tuple[StepGroup, ...]:
    """The runs in a step, what could save most first. Pure.

    Args:
        capture: its kernels in order of their first launch.
        fixed: what a launch costs on its GPU.
        stream_us: the least time to move bytes, launch included; without it one launch is taken for
            the floor.
    """
    found = [_group(capture, run, fixed, stream_us) for run in _runs(capture, fixed)]
    return tuple(sorted(found, key=lambda group: -group.saves_at_most_us))


def _runs(capture: StepCapture, fixed: FixedCost) -> Iterator[list[int]]:
    run: list[int] = []
    folded = is_folded(capture)
    for at, kernel in enumerate(capture.kernels):
        joins = is_small(capture, kernel, fixed)
        before = capture.kernels[run[-1]] if run else None
        if before is not None and (not joins or (folded and not _as_often(kernel, before))):
            yield from _long_enough(capture, run)
            run = []
        if joins:
            run.append(at)
    yield from _long_enough(capture, run)


def is_folded(capture: StepCapture) -> bool:
    """Whether it is of a trace, where a row stands for all passes through a loop: rows of other
    counts are no neighbours."""
    return not capture.launches and all(op.line is None for op in capture.ops)


def _as_often(one: StepKernel, other: StepKernel) -> bool:
    """Nearly: a trace begins and ends within a step."""
    low, high = sorted((one.launches, other.launches))
    return high <= COUNTS_DIFFER * low


def _long_enough(capture: StepCapture, run: list[int]) -> Iterator[list[int]]:
    launches = sum(capture.kernels[at].launches for at in run)
    if run and (len(run) if is_folded(capture) else launches) >= MIN_KERNELS:
        yield run


def is_small(capture: StepCapture, kernel: StepKernel, fixed: FixedCost = TYPICAL) -> bool:
    """Whether a kernel is launch-bound: as short as the fixed cost, or shorter than the gap before
    it; never a product, a graph's or a compiled region's."""
    if kernel.region is not None or kernel.launches <= 0:
        return False
    if kernel.op is not None:
        name = capture.ops[kernel.op].name.removeprefix("aten::")
        if name in _PRODUCTS or "attention" in name:
            return False
    one = kernel.time_us / kernel.launches
    if one <= fixed.near_us:
        return True
    gap = (kernel.gap_us or 0.0) / kernel.launches
    return one <= min(SMALL_US, gap)


def _group(
    capture: StepCapture, run: Sequence[int], fixed: FixedCost, stream_us: StreamUs | None
) -> StepGroup:
    kernels = [capture.kernels[at] for at in run]
    repeats = max(kernel.launches for kernel in kernels) if is_folded(capture) else 1.0
    time = sum(kernel.time_us for kernel in kernels)
    gap = sum(kernel.gap_us or 0.0 for kernel in kernels[1:])
    one = kernels[0]
    if not is_folded(capture) and one.launches > 1:  # one gap is before the run, the rest inside
        gap += (one.gap_us or 0.0) * (1.0 - 1.0 / one.launches)
    moved = _outer_bytes(capture, kernels)
    least = None if moved is None or stream_us is None else stream_us(moved)
    floor = max(least or 0.0, fixed.t0_us) * repeats
    lines = [kernel.line for kernel in kernels if kernel.line is not None]
    return StepGroup(
        kernels=tuple(run),
        time_us=time,
        gap_us=gap,
        saves_at_most_us=max(time + gap - floor, 0.0),
        first_line=lines[0] if lines else None,
        last_line=lines[-1] if lines else None,
        module=_module(capture, kernels),
        outer_bytes=moved,
        repeats=repeats,
    )


def _module(capture: StepCapture, kernels: Sequence[StepKernel]) -> str | None:
    """The innermost module that holds all of them."""
    names = [capture.ops[k.op].module if k.op is not None else None for k in kernels]
    known = [name.split(".") if name else [] for name in names if name is not None]
    if len(known) < len(names) or not known:
        return None
    common = known[0]
    for parts in known[1:]:
        size = next(
            (i for i, (a, b) in enumerate(zip(common, parts, strict=False)) if a != b),
            min(len(common), len(parts)),
        )
        common = common[:size]
    return ".".join(common)


def _outer_bytes(capture: StepCapture, kernels: Sequence[StepKernel]) -> int | None:
    """What a fused run must read and write: inputs made outside, outputs read later or returned."""
    inside = {kernel.op for kernel in kernels}
    if None in inside or is_folded(capture):
        return None
    ops = [op for op in capture.ops if op.index in inside]
    last = max(op.index for op in ops)
    made: set[int] = set()
    reads: dict[int, int] = {}
    for op in capture.ops[min(op.index for op in ops) : last + 1]:
        for tensor in op.inputs if op.index in inside else ():
            if tensor.storage not in made:
                size = _bytes(tensor)
                reads[tensor.storage] = max(reads.get(tensor.storage, 0), size)
        made |= {one.storage for one in op.outputs} if op.index in inside else set()
    return sum(reads.values()) + _written_for_outside(capture, ops, last, inside)


def _written_for_outside(
    capture: StepCapture, ops: Sequence[StepOp], last: int, inside: set[int | None]
) -> int:
    used = {
        tensor.storage
        for op in capture.ops
        if op.index not in inside and op.index > ops[0].index
        for tensor in op.inputs
        if op.index > last or not _is_view(op)
    }
    ever = {tensor.storage for op in capture.ops for tensor in op.inputs}
    sizes: dict[int, int] = {}
    for op in ops:
        for tensor in op.outputs:
            if tensor.storage in used or tensor.storage not in ever:  # read later, or returned
                sizes[tensor.storage] = max(sizes.get(tensor.storage, 0), _bytes(tensor))
    return sum(sizes.values())


def _is_view(op: StepOp) -> bool:
    storages = {tensor.storage for tensor in op.inputs}
    return not op.writes and all(tensor.storage in storages for tensor in op.outputs)


def _bytes(tensor: StepTensor) -> int:
    """Distinct bytes of a tensor: a size with stride 0 is one element repeated."""
    sizes = tensor.shape
    if len(tensor.strides) == len(sizes):
        sizes = tuple(n for n, s in zip(sizes, tensor.strides, strict=True) if s or n < 1)
    return math.prod(sizes) * _SIZES.get(tensor.dtype, 1)
