"""Rows of one process -> its trace: kernels with the calls that launched them and their ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernel_compass.errors import AmbiguousCapture
from kernel_compass.profiling.kineto_collect import (
    ITERATIONS,
    STEP,
    CallRow,
    GpuRow,
    OpRow,
    ProcessRows,
)
from kernel_compass.profiling.kineto_marks import marks_around
from kernel_compass.profiling.kineto_structs import Word
from kernel_compass.records.trace import ApiCall, GpuEvent, OpCall, StepMark

JOINED_SHARE = 0.1
"""From this share of launches on, launch numbers that clash mean several traces in one."""
ONE_A_RANK = "Hand in one file a rank: kernel-compass diagnose FOLDER reports each by itself."


@dataclass(frozen=True)
class Linked:
    """One process."""

    events: tuple[GpuEvent, ...]
    calls: Mapping[str, tuple[float, ...]]
    steps: tuple[StepMark, ...]
    iterations: tuple[StepMark, ...]
    overhead_us: float
    cpu_events: int
    unlinked: int
    """Kernels without a call, although the trace has calls."""


def link(rows: ProcessRows, calls: Mapping[int, CallRow]) -> Linked:
    """Join GPU events with calls by correlation, and with ops by id or else by nesting in time.

    Args:
        rows: a process's events; at least one of a GPU.
        calls: its calls by correlation.
    """
    origin = min(row.start for row in rows.gpu)
    api = {
        number: ApiCall(call.name, (call.start - origin) / 1e3, call.duration / 1e3)
        for number, call in calls.items()
    }
    ops = {row.external: row.op for row in rows.ops if row.external}
    nested = _nesting(rows, calls, ops)
    marks = marks_around(rows.marks, calls)
    used: dict[int, None] = {}
    events, unlinked = [], 0
    for row in sorted(rows.gpu, key=lambda row: (row.start, row.start + row.duration)):
        call = api.get(row.correlation)
        if call is not None:
            used[row.correlation] = None
        unlinked += call is None and bool(calls)
        op, op_id = _op_of(row, call, calls, ops, nested)
        events.append(
            GpuEvent(
                work=row.work,
                name=row.name,
                device=row.device,
                stream=row.stream,
                start_us=(row.start - origin) / 1e3,
                duration_us=row.duration / 1e3,
                shape=row.shape,
                call=call,
                op=op,
                op_id=op_id,
                bytes=row.bytes,
                mark=marks.get(row.correlation) if marks else None,
            )
        )
    durations: dict[str, list[float]] = {}
    for number in used:
        durations.setdefault(api[number].name, []).append(api[number].duration_us)
    return Linked(
        events=tuple(events),
        calls={name: tuple(times) for name, times in durations.items()},
        steps=_marks(rows, origin, STEP),
        iterations=_marks(rows, origin, *ITERATIONS),
        overhead_us=rows.overhead / 1e3,
        cpu_events=len(rows.ops) + len(calls),
        unlinked=unlinked,
    )


def _marks(rows: ProcessRows, origin: int, *names: str) -> tuple[StepMark, ...]:
    found = sorted((one.start, one.duration, one.name) for one in rows.steps
                   if one.name.startswith(names))  # fmt: skip
    return tuple(
        StepMark(name, (start - origin) / 1e3, duration / 1e3) for start, duration, name in found
    )


def _op_of(
    row: GpuRow,
    call: ApiCall | None,
    calls: Mapping[int, CallRow],
    ops: Mapping[int, OpCall],
    nested: Mapping[int, tuple[OpCall, int]],
) -> tuple[OpCall | None, int | None]:
    """The op of a GPU event and the number of that call of it; a graph's kernels have none."""
    if call is not None and call.launches_graph:
        return None, None
    launched = calls.get(row.correlation)
    for external in (row.external, launched.external if launched else 0):
        if external in ops:
            return ops[external], external
    return nested.get(row.correlation, (None, None))


def _nesting(
    rows: ProcessRows, calls: Mapping[int, CallRow], ops: Mapping[int, OpCall]
) -> dict[int, tuple[OpCall, int]]:
    """The innermost op around each call whose id names none, by thread and time."""
    orphans = [
        (call.start, number)
        for number, call in calls.items()
        if call.external not in ops or not call.external
    ]
    if not orphans or not rows.ops:
        return {}
    threads: dict[Word, list[tuple[int, int, int, int]]] = {}
    for at, op in enumerate(rows.ops):
        threads.setdefault(op.thread, []).append((op.start, 0, -op.duration, at))
    for start, number in orphans:
        if calls[number].thread in threads:
            threads[calls[number].thread].append((start, 1, 0, number))
    found: dict[int, tuple[OpCall, int]] = {}
    for marks in threads.values():
        _sweep(sorted(marks), rows.ops, found)
    return found


def _sweep(
    marks: Sequence[tuple[int, int, int, int]],
    ops: Sequence[OpRow],
    found: dict[int, tuple[OpCall, int]],
) -> None:
    """Walk one thread in time with the ops that are open; outer ones come first."""
    open_ops: list[int] = []
    for start, is_call, _, at in marks:
        while open_ops and ops[open_ops[-1]].start + ops[open_ops[-1]].duration < start:
            open_ops.pop()
        if not is_call:
            open_ops.append(at)
        elif open_ops:
            # Negative numbers cannot be taken for the trace's own ids.
            found[at] = (ops[open_ops[-1]].op, -1 - open_ops[-1])


def split_processes(
    label: str, rows: ProcessRows, path: str
) -> list[tuple[str, ProcessRows, dict[int, CallRow]]]:
    """The processes under one label, each with its calls: more than one where traces were joined.

    Raises:
        AmbiguousCapture: it cannot be told which GPU event is whose.
    """
    _refuse_joined(label, rows, path)
    launching = {
        pid: calls
        for pid, calls in rows.calls.items()
        if any(row.correlation in calls for row in rows.gpu)
    }
    if len(launching) < 2:
        return [(label, rows, next(iter(launching.values()), {}))]
    owners = _owners(launching, rows.gpu)
    if owners is None or len(set(owners.values())) < len(owners):
        pids = ", ".join(map(str, list(launching)[:8]))
        raise AmbiguousCapture(
            f"{path} holds {len(launching)} processes ({pids}) in one, and launch numbers do not "
            "tell which GPU event is whose.",
            ONE_A_RANK,
        )
    parts = []
    for device, pid in owners.items():
        own = ProcessRows(
            gpu=[row for row in rows.gpu if row.device == device],
            ops=rows.ops,
            steps=[row for row in rows.steps if row.process == pid],
        )
        parts.append((f"{label} process {pid}".strip(), own, launching[pid]))
    return parts


def _owners(
    launching: Mapping[Word, Mapping[int, CallRow]], gpu: Sequence[GpuRow]
) -> dict[int, Word] | None:
    """The one process that launched everything on each GPU, `None` where there are several."""
    candidates: dict[int, set[Word]] = {}
    for row in gpu:
        fit = {pid for pid, calls in launching.items() if row.correlation in calls}
        candidates[row.device] = candidates.get(row.device, set(launching)) & fit
    if any(len(fit) != 1 for fit in candidates.values()):
        return None
    return {device: next(iter(fit)) for device, fit in candidates.items()}


def _refuse_joined(label: str, rows: ProcessRows, path: str) -> None:
    """Two traces whose events cannot be kept apart any more."""
    marks = {(r.device, r.stream, r.start, r.duration, r.name, r.correlation) for r in rows.gpu}
    twice = len(rows.gpu) - len(marks)
    where = f"{path}, {label}," if label else path
    if twice:
        raise AmbiguousCapture(
            f"{where} holds {twice:,} GPU events twice: the same stream, start and name. Two "
            "traces were joined.",
            ONE_A_RANK,
        )
    launches = sum(
        "Launch" in call.name for calls in rows.calls.values() for call in calls.values()
    )
    if rows.clashes > JOINED_SHARE * max(launches, 1):
        raise AmbiguousCapture(
            f"{where} holds {rows.clashes:,} launches whose number another launch of the same "
            "process has: traces of several ranks were joined, and which GPU event is whose "
            "cannot be told.",
            ONE_A_RANK,
        )
