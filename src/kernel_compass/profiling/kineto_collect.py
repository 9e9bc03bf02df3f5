"""Events of a trace file -> what one process did on its GPUs, its launching calls and its ops."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import TypeVar

import msgspec
from msgspec import Raw

from kernel_compass.errors import DamagedCapture
from kernel_compass.profiling.kineto_json import RECORD_AGAIN, TOO_DEEP
from kernel_compass.profiling.kineto_structs import CallArgs, Event, GpuArgs, OpArgs, Word
from kernel_compass.profiling.kineto_values import (
    Operators,
    integer,
    nanoseconds,
    number,
    process_label,
)
from kernel_compass.records.trace import GpuWork, LaunchShape, OpCall

GPU_WORK = {
    "kernel": GpuWork.KERNEL,
    "gpu_memcpy": GpuWork.MEMCPY,
    "memcpy": GpuWork.MEMCPY,
    "gpu_memset": GpuWork.MEMSET,
    "memset": GpuWork.MEMSET,
}
"""Categories of GPU events, in lower case; the short ones are of torch 1.8."""
CALLS = frozenset({"cuda_runtime", "cuda_driver", "runtime"})
OPS = frozenset({"cpu_op", "operator"})
STEP = "ProfilerStep"
ITERATIONS = ("execute_new_", "execute_context_")
"""What vLLM calls the ranges around each call of its model."""
MARK = "kc:"
"""What the names of ranges begin with that this package puts around operators."""
MAX_GRID = (1 << 31) - 1
MAX_BLOCK = 1024
"""What CUDA and HIP launch at most: blocks along an axis, threads of a block."""

_METRICS = {
    "registers": "registers_per_thread",
    "shared_memory": "shared_memory_bytes",
    "occupancy": "estimated_occupancy_pct",
    "blocks_per_sm": "blocks_per_sm",
    "warps_per_sm": "warps_per_sm",
}
_stated = attrgetter(*_METRICS)
_Args = TypeVar("_Args", GpuArgs, CallArgs, OpArgs)


@dataclass(slots=True)
class GpuRow:
    """A GPU event before it is linked; times in nanoseconds."""

    work: GpuWork
    name: str
    device: int
    stream: int
    start: int
    duration: int
    shape: LaunchShape
    correlation: int
    external: int
    bytes: int | None


@dataclass(slots=True)
class CallRow:
    """A runtime or driver call."""

    name: str
    start: int
    duration: int
    thread: Word
    external: int


@dataclass(slots=True)
class OpRow:
    """An operator's event."""

    op: OpCall
    start: int
    duration: int
    thread: Word
    external: int


@dataclass(slots=True)
class MarkRow:
    """A range of this package's, or around a step."""

    name: str
    start: int
    duration: int
    thread: Word
    process: Word = None


@dataclass
class ProcessRows:
    """What stands under one label: a process, or several whose trace was joined without labels."""

    gpu: list[GpuRow] = field(default_factory=list)
    calls: dict[Word, dict[int, CallRow]] = field(default_factory=partial(defaultdict, dict))
    """By process id, then by correlation."""
    clashes: int = 0
    """Launching calls of one process that share a correlation."""
    ops: list[OpRow] = field(default_factory=list)
    steps: list[MarkRow] = field(default_factory=list)
    """The profiler's, and a server's own."""
    marks: list[MarkRow] = field(default_factory=list)
    overhead: int = 0


class Collector:
    """Takes events in, sorts them by process.

    Args:
        path: what to call the file.
    """

    def __init__(self, path: str) -> None:
        self.processes: dict[str, ProcessRows] = defaultdict(ProcessRows)
        self.unmatched = 0
        """Begins without an end and ends without a begin."""
        self.dropped: Counter[str] = Counter()
        """What was missing or impossible and is left out, in words."""
        self._path = path
        self._operators = Operators()
        self._shapes: dict[tuple[object, ...], LaunchShape] = {}
        self._handlers: dict[str | None, Callable[[Event], None] | None] = {}
        self._open: dict[tuple[Word, Word], list[Event]] = defaultdict(list)

    def take(self, events: list[Event]) -> None:
        """Sort a batch in.

        Raises:
            DamagedCapture: a GPU event without a credible time.
        """
        handlers = self._handlers
        for event in events:
            if event.ph == "X":
                category = event.cat
                if category not in handlers:
                    handlers[category] = self._handler(category)
                handler = handlers[category]
                if handler is not None:
                    handler(event)
            elif event.ph == "B":
                self._open[event.pid, event.tid].append(event)
            elif event.ph == "E":
                self._close(event)

    def _handler(self, category: str | None) -> Callable[[Event], None] | None:
        """What takes events of a category; `None` for those that are not needed."""
        name = (category or "").lower()
        if name in GPU_WORK:
            return partial(self._gpu, GPU_WORK[name])
        if name in CALLS:
            return self._call
        if name in OPS:
            return self._op
        return {"user_annotation": self._step, "overhead": self._overhead}.get(name)

    def finish(self) -> None:
        """Call when the file is through."""
        self.unmatched += sum(map(len, self._open.values()))

    def _close(self, end: Event) -> None:
        begun = self._open.get((end.pid, end.tid))
        if not begun:
            self.unmatched += 1
            return
        event = begun.pop()
        start, stop = nanoseconds(event.ts), nanoseconds(end.ts)
        if start is not None and stop is not None:
            event.dur = Raw(f"{(stop - start) / 1000:.3f}".encode())
        event.ph = "X"
        self.take([event])

    def _step(self, event: Event) -> None:
        name = str(event.name)
        if name.startswith((STEP, *ITERATIONS)) and (times := self._times(event, "steps")):
            row = MarkRow(name, *times, event.tid, event.pid)
            self._process(event).steps.append(row)
        elif name.startswith(MARK) and (times := self._times(event, "ranges")):
            self._process(event).marks.append(MarkRow(str(event.name), *times, event.tid))

    def _overhead(self, event: Event) -> None:
        if times := self._times(event, "overheads"):
            self._process(event).overhead += times[1]

    def _times(self, event: Event, what: str) -> tuple[int, int] | None:
        """Start and duration; an event of the CPU without them is counted and left out."""
        start, duration = nanoseconds(event.ts), nanoseconds(event.dur)
        if start is None or duration is None or duration < 0:
            self.dropped[f"{what} without a credible time"] += 1
            return None
        return start, duration

    def _process(self, event: Event) -> ProcessRows:
        return self.processes[process_label(event.pid)]

    def _gpu(self, work: GpuWork, event: Event) -> None:
        args = self._args(event, GpuArgs)
        start, duration = nanoseconds(event.ts), nanoseconds(event.dur)
        if start is None or duration is None or duration < 0:
            raise self._no_time(event)
        device = self._device(event, args)
        stream = integer(args.stream)
        size = integer(args.bytes)
        if args.bytes is not None and (size is None or size < 0):
            self.dropped["sizes of copies"] += 1
        self._process(event).gpu.append(
            GpuRow(
                work=work,
                name=str(event.name or ""),
                device=device,
                stream=(integer(event.tid) or 0) if stream is None else stream,
                start=start,
                duration=duration,
                shape=self._shape(args),
                correlation=integer(args.correlation) or 0,
                external=_external(args),
                bytes=size if size is None or size >= 0 else None,
            )
        )

    def _device(self, event: Event, args: GpuArgs) -> int:
        device = integer(args.device)
        device = (integer(event.pid) or 0) if device is None else device
        if device < 0:
            self.dropped["GPU numbers"] += 1
        return max(device, 0)

    def _shape(self, args: GpuArgs) -> LaunchShape:
        key = (args.grid, args.block, _stated(args))
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = _shape_of(args, self.dropped)
        return shape

    def _call(self, event: Event) -> None:
        args = self._args(event, CallArgs)
        correlation = integer(args.correlation)
        if not correlation or not (times := self._times(event, "calls")):
            return
        start, duration = times
        process = self._process(event)
        known = process.calls[event.pid]
        call = CallRow(str(event.name or ""), start, duration, event.tid, _external(args))
        before = known.get(correlation)
        if before is not None and "Launch" in before.name and "Launch" in call.name:
            process.clashes += not _nested(before, call)
        if before is None or "Launch" not in before.name:
            known[correlation] = call

    def _op(self, event: Event) -> None:
        if not (times := self._times(event, "operators")):
            return
        start, duration = times
        args = self._args(event, OpArgs)
        try:
            op = self._operators.of(str(event.name or ""), args)
        except RecursionError:
            raise self._odd(event, TOO_DEEP) from None
        row = OpRow(op, start, duration, event.tid, _external(args))
        self._process(event).ops.append(row)

    def _args(self, event: Event, kind: type[_Args]) -> _Args:
        raw = bytes(event.args)
        if not raw:
            return kind()
        try:
            return msgspec.json.decode(raw, type=kind)
        except msgspec.DecodeError as error:
            raise self._odd(event, str(error)) from None
        except RecursionError:
            raise self._odd(event, TOO_DEEP) from None

    def _odd(self, event: Event, why: str) -> DamagedCapture:
        found = f"{self._path} is damaged: the arguments of {event.name!r:.80} are odd: {why}."
        return DamagedCapture(found, RECORD_AGAIN)

    def _no_time(self, event: Event) -> DamagedCapture:
        ts, dur = (bytes(raw).decode("utf-8", "replace")[:24] for raw in (event.ts, event.dur))
        return DamagedCapture(
            f"{self._path} is damaged: the GPU event {event.name!r:.80} has the start "
            f"{ts or 'missing'} and the duration {dur or 'missing'}.",
            RECORD_AGAIN,
        )


def _shape_of(args: GpuArgs, dropped: Counter[str]) -> LaunchShape:
    """A launch's shape and metrics; counts what no GPU launches."""
    stated = dict(zip(_METRICS.values(), _stated(args), strict=True))
    metrics = [
        (key, value)
        for key, word in stated.items()
        if (value := number(word)) is not None and _possible(key, value)
    ]
    given = sum(word is not None for word in stated.values())
    dropped["launch figures"] += given - len(metrics)
    grid, block = args.grid, args.block
    if grid and not all(0 < size <= MAX_GRID for size in grid):
        grid = None
    if block and not (min(block) > 0 and math.prod(block) <= MAX_BLOCK):
        block = None
    dropped["grids and blocks"] += (grid != args.grid) + (block != args.block)
    if grid:
        metrics.append(("grid_size", float(math.prod(grid))))
    if block:
        metrics.append(("block_size", float(math.prod(block))))
    return LaunchShape(grid, block, tuple(metrics))


def _possible(key: str, value: float) -> bool:
    return value >= 0 and (not key.endswith("_pct") or value <= 100)


def _nested(one: CallRow, other: CallRow) -> bool:
    """Whether one call is inside the other, as a driver's is inside the runtime's."""
    outer, inner = (one, other) if one.duration >= other.duration else (other, one)
    end = outer.start + outer.duration
    return outer.start <= inner.start and inner.start + inner.duration <= end


def _external(args: GpuArgs | CallArgs | OpArgs) -> int:
    """The operator's id, 0 where there is none."""
    return integer(args.external) or integer(args.external_old) or 0
