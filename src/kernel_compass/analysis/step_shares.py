"""What a step's time is made of: shares of kernels, headroom, the products among its operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernel_compass.analysis.op_names import product_of
from kernel_compass.records.step_capture import SourceLine, StepCapture, StepKernel, StepOp
from kernel_compass.records.workload import Workload


@dataclass(frozen=True)
class StepRow:
    """Kernels of one name that one line launches through one operator: a row of the table."""

    name: str
    op: str | None
    """`aten::mm`, `kernel softmax_kernel`, `compiled norm`; `None` = nothing is known."""
    line: SourceLine | None
    modules: tuple[str, ...]
    kernels: tuple[int, ...]
    """Places in `StepCapture.kernels`."""
    launches: float
    time_us: float
    share: float | None
    """Of the kernels' time, 0-1."""
    limiter: str | None
    floor_us: float | None
    """`None` unless it is known for all of them."""

    @property
    def headroom(self) -> float | None:
        """Time over floor."""
        return None if not self.floor_us else self.time_us / self.floor_us


def step_rows(capture: StepCapture) -> tuple[StepRow, ...]:
    """The table's rows, the longest time first."""
    found: dict[tuple[str, str | None, SourceLine | None], list[int]] = {}
    for at, kernel in enumerate(capture.kernels):
        key = (kernel.name, launched_by(capture, kernel), kernel.line)
        found.setdefault(key, []).append(at)
    total = kernel_us(capture)
    rows = [_row(capture, *key, members, total) for key, members in found.items()]
    return tuple(sorted(rows, key=lambda row: -row.time_us))


def kernel_us(capture: StepCapture) -> float:
    """Time of all kernels of a step."""
    return sum(kernel.time_us for kernel in capture.kernels)


def joined_share(capture: StepCapture) -> float | None:
    """Which part of the kernels' time has a line, 0-1; `None` without kernels."""
    total = kernel_us(capture)
    known = sum(kernel.time_us for kernel in capture.kernels if kernel.line is not None)
    return known / total if total > 0 else None


def launched_by(capture: StepCapture, kernel: StepKernel) -> str | None:
    """What launched a kernel, in a word or two."""
    if kernel.op is not None:
        return capture.ops[kernel.op].name
    if kernel.launch is not None:
        return f"kernel {capture.launches[kernel.launch].kernel}"
    if kernel.region is not None:
        region = capture.regions[kernel.region]
        return f"{region.kind.value} {region.name}"
    return None


def workload_of(op: StepOp) -> Workload | None:
    """The product that an operator computes: `[M, K] x [K, N]` or `[H, M, K] x [H, K, N]`.

    Of `aten::addmm` it is the product in it; its bias comes on top. Views fold what torch folds
    before it gets there.
    """
    name = op.name.removeprefix("aten::")
    operands = op.inputs[1:3] if name in ("addmm", "baddbmm") else op.inputs[:2]
    kind = {"addmm": "mm", "baddbmm": "bmm"}.get(name, name)
    if kind not in ("mm", "bmm") or len(operands) < 2:
        return None
    shapes = " x ".join(str(list(one.shape)) for one in operands)
    return product_of(f"aten::{kind} {shapes}")


def workloads_of(capture: StepCapture) -> dict[int, Workload]:
    """The products of a step by their operator's index."""
    found = {op.index: workload_of(op) for op in capture.ops}
    return {index: one for index, one in found.items() if one is not None}


def _row(
    capture: StepCapture,
    name: str,
    op: str | None,
    line: SourceLine | None,
    members: Sequence[int],
    total_us: float,
) -> StepRow:
    kernels = [capture.kernels[at] for at in members]
    time = sum(kernel.time_us for kernel in kernels)
    floors = [kernel.floor_us for kernel in kernels]
    known = [floor for floor in floors if floor is not None]
    places = (capture.ops[k.op].module for k in kernels if k.op is not None)
    limiters = {kernel.limiter for kernel in kernels}
    return StepRow(
        name=name,
        op=op,
        line=line,
        modules=tuple(dict.fromkeys(place for place in places if place is not None)),
        kernels=tuple(members),
        launches=sum(kernel.launches for kernel in kernels),
        time_us=time,
        share=time / total_us if total_us > 0 else None,
        limiter=limiters.pop() if len(limiters) == 1 else None,
        floor_us=sum(known) if len(known) == len(floors) else None,
    )
