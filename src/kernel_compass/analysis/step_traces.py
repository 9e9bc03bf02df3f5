"""A server's trace as a captured step: what its own profiler recorded stands in for a run.

A trace has no source lines and no modules. Its loops are folded: launches of one kernel by one
operator in the same surroundings (the kernels right before and after) are one row, so that rows
stand in the order of the first pass through a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from kernel_compass.analysis.op_traffic import traffic_of
from kernel_compass.analysis.timeline_diagnosis import Floor
from kernel_compass.analysis.timeline_runs import LAUNCH_GAP_US
from kernel_compass.analysis.timeline_spans import device_uses
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
    steps = max(len(trace.steps_us), 1)
    rows = _rows(trace.events)
    ops: dict[OpCall, int] = {}
    for row in rows:
        if row.op is not None:
            ops.setdefault(row.op, len(ops))
    uses, _ = device_uses(trace.events)
    idle = sum(use.idle_us for use in uses)
    span = max(event.end_us for event in trace.events) - trace.events[0].start_us
    graphs = sum(event.in_graph for event in trace.events)
    return StepCapture(
        program=name if trace.name is None else f"{name}, {trace.name}",
        step="ProfilerStep" if trace.steps_us else "the whole trace",
        environment=Environment(device=trace.device or Device()),
        ops=tuple(_op(index, op) for op, index in ops.items()),
        kernels=tuple(_kernel(row, ops, steps, floor, limiter) for row in rows),
        steps=steps,
        step_us=median(trace.steps_us) if trace.steps_us else span,
        idle_us=idle / steps,
        in_graph=graphs > len(trace.events) / 2,
        notes=(*trace.warnings, *_notes(trace, graphs)),
    )


def _notes(trace: Trace, graphs: int) -> list[str]:
    notes = ["a trace names no source lines and no modules"]
    if not trace.steps_us:
        notes.append("the trace has no `ProfilerStep`: all of it is taken for one step")
    if graphs:
        share = 100 * graphs / len(trace.events)
        notes.append(f"{share:.0f} % of the launches are of CUDA graphs: those name no operators")
    return notes


def _rows(events: Sequence[GpuEvent]) -> list[_Row]:
    rows: dict[tuple[object, ...], _Row] = {}
    streams: dict[tuple[int, int], list[GpuEvent]] = {}
    for event in events:
        streams.setdefault((event.device, event.stream), []).append(event)
    places: dict[int, tuple[str, str, float]] = {}
    for stream in streams.values():
        end = stream[0].start_us
        for at, event in enumerate(stream):
            before = stream[at - 1].name if at else ""
            after = stream[at + 1].name if at + 1 < len(stream) else ""
            gap = max(event.start_us - end, 0.0)
            places[id(event)] = (before, after, gap if gap <= LAUNCH_GAP_US else 0.0)
            end = max(end, event.end_us)
    for event in events:
        before, after, gap = places[id(event)]
        key = (event.device, event.stream, event.name, event.shape.grid, event.op, before, after)
        row = rows.setdefault(key, _Row(event.name, event.op))
        row.events.append(event)
        row.gap_us += gap
    return list(rows.values())


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
