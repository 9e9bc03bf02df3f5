"""A server's trace as a captured step: what its own profiler recorded stands in for a run.

A trace has no source lines and no modules. Its loops are folded: launches of one kernel by one
operator in the same surroundings (the kernels right before and after) are one row, so that rows
stand in the order of the first pass through a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from kernel_compass.analysis.op_traffic import traffic_of
from kernel_compass.analysis.step_borders import steps_of
from kernel_compass.analysis.timeline_diagnosis import Floor
from kernel_compass.analysis.timeline_groups import OWN_SHARE
from kernel_compass.analysis.timeline_runs import LAUNCH_GAP_US
from kernel_compass.analysis.timeline_spans import gaps_before
from kernel_compass.records.device import Device
from kernel_compass.records.environment import Environment
from kernel_compass.records.profile import Regime
from kernel_compass.records.step_capture import (
    StepCapture,
    StepKernel,
    StepOp,
    StepTensor,
)
from kernel_compass.records.trace import GpuEvent, OpCall, Trace

DTYPES = {
    "float": "float32",
    "double": "float64",
    "int": "int32",
    "long int": "int64",
    "long": "int64",
    "bool": "bool",
    "unsigned char": "uint8",
    "signed char": "int8",
    "c10::BFloat16": "bfloat16",
    "c10::Half": "float16",
    "c10::Float8_e4m3fn": "float8_e4m3fn",
    "c10::Float8_e5m2": "float8_e5m2",
}
"""What a trace calls a type, as torch calls it."""


@dataclass
class _Row:
    name: str
    op: OpCall | None
    events: list[GpuEvent] = field(default_factory=list)
    gap_us: float = 0.0


def capture_of(
    trace: Trace,
    name: str,
    floor: Floor | None = None,
    limiter: Callable[[GpuEvent], str | None] | None = None,
) -> StepCapture:
    """The steps of one rank as a capture. Pure.

    Args:
        trace: at least one GPU event.
        name: what the trace is called.
        floor: the least time of an operator.
        limiter: what bounds a kernel.
    """
    found = steps_of(trace)
    events = [trace.events[at] for at in found.kept]
    rows = _rows(trace.events, found.kept)
    whole = _operator_us(events)
    ops: dict[OpCall, int] = {}
    for row in rows:
        if row.op is not None:
            ops.setdefault(row.op, len(ops))
    graphs = sum(event.in_graph for event in events)
    return StepCapture(
        program=name if trace.name is None else f"{name}, {trace.name}",
        step=found.what,
        environment=Environment(device=trace.device or Device()),
        ops=tuple(_op(index, op) for op, index in ops.items()),
        kernels=tuple(
            _kernel(row, ops, found.count, floor if _stands(row, whole) else None, limiter)
            for row in rows
        ),
        steps=found.count,
        step_us=found.step_us,
        idle_us=found.idle_us,
        in_graph=graphs > len(events) / 2,
        notes=(*trace.warnings, *_notes(graphs, len(events)), *found.notes),
    )


def _notes(graphs: int, events: int) -> list[str]:
    notes = ["a trace names no source lines and no modules"]
    if graphs:
        share = 100 * graphs / events
        notes.append(f"{share:.0f} % of the launches are of CUDA graphs: those name no operators")
    return notes


def _rows(events: Sequence[GpuEvent], kept: Sequence[int]) -> list[_Row]:
    """Launches folded by what surrounds them in their stream; a graph's replay ends at its ends.

    Args:
        events: of the trace.
        kept: places of those that are looked at; the others are what surrounds them.
    """
    before = gaps_before(events)
    streams: dict[tuple[int, int], list[int]] = {}
    for at, event in enumerate(events):
        streams.setdefault((event.device, event.stream), []).append(at)
    around: dict[int, tuple[str, str]] = {}
    for stream in streams.values():
        for first, second in pairwise((None, *stream, None)):
            apart = first is None or second is None or before[second].opens_replay
            if second is not None:
                around[second] = ("" if apart or first is None else events[first].name, "")
            if first is not None:
                after = "" if apart or second is None else events[second].name
                around[first] = (around[first][0], after)
    rows: dict[tuple[object, ...], _Row] = {}
    for at in kept:
        event = events[at]
        place = (event.device, event.stream, event.name, event.shape.grid, event.op)
        row = rows.setdefault((*place, *around[at]), _Row(event.name, event.op))
        row.events.append(event)
        gap = before[at].own_gap_us or 0.0
        row.gap_us += gap if gap <= LAUNCH_GAP_US else 0.0
    return list(rows.values())


def _operator_us(events: Sequence[GpuEvent]) -> dict[int, float]:
    """GPU time of each call of an operator."""
    found: dict[int, float] = {}
    for event in events:
        if event.op_id is not None:
            found[event.op_id] = found.get(event.op_id, 0.0) + event.duration_us
    return found


def _stands(row: _Row, whole: Mapping[int, float]) -> bool:
    """Whether a kernel takes nearly all of its operator's time."""
    calls = {event.op_id for event in row.events if event.op_id is not None}
    total = sum(whole[call] for call in calls)
    return sum(event.duration_us for event in row.events) >= OWN_SHARE * total


def _kernel(
    row: _Row,
    ops: dict[OpCall, int],
    steps: int,
    floor: Floor | None,
    limiter: Callable[[GpuEvent], str | None] | None,
) -> StepKernel:
    traffic = traffic_of(row.op) if row.op is not None else None
    least = floor(traffic, Regime.IN_SITU) if floor and traffic else None
    count = len(row.events) / steps
    return StepKernel(
        name=row.name,
        time_us=sum(event.duration_us for event in row.events) / steps,
        launches=count,
        op=None if row.op is None else ops[row.op],
        limiter=limiter(row.events[0]) if limiter else None,
        floor_us=None if least is None else least * count,
        gap_us=row.gap_us / steps,
    )


def _op(index: int, op: OpCall) -> StepOp:
    """An operator as far as a trace tells; its results are not in it."""
    inputs = []
    for at, dims in enumerate(op.dims):
        kind = DTYPES.get(op.types[at] if at < len(op.types) else "")
        if dims is None or kind is None:
            continue
        strides = op.strides[at] if at < len(op.strides) else None
        inputs.append(StepTensor(dims, strides or (), kind, "cuda", storage=-1))
    return StepOp(
        index=index,
        name=op.name,
        inputs=tuple(inputs),
        outputs=(),
        arguments=tuple(word for word in op.concrete if word),
    )
