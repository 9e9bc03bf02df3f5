"""The door for timelines: what torch.profiler exported becomes a trace per process, or is refused.

vLLM and SGLang write the same files. Traces that a tool joined are taken apart again where each
event says whose it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from kernel_compass.errors import NotATimeline
from kernel_compass.profiling.kineto_collect import Collector
from kernel_compass.profiling.kineto_json import TraceFile
from kernel_compass.profiling.kineto_link import Linked, link, split_processes
from kernel_compass.profiling.kineto_structs import Distributed, GpuProperties, Header
from kernel_compass.profiling.text_source import TextSource
from kernel_compass.records.device import Device
from kernel_compass.records.profile import Regime, Source, SourceFormat
from kernel_compass.records.trace import Trace

_JSON_HEAD = re.compile(rb'(?:\xef\xbb\xbf)?\s*(?:\{\s*(?:"|\}|$)|\[\s*(?:\{\s*"|\]|$))')

MAX_RANKS = 1 << 24
MAX_CAPABILITY = 99
MAX_SMS = 1 << 16
"""Headers that say more are wrong, and what they say is not taken over."""


def looks_like_json(source: TextSource) -> bool:
    """Whether the content begins as a JSON document does; ncu's tables never do."""
    return _JSON_HEAD.match(source.head) is not None


def read_traces(
    path: str | Path, format: SourceFormat = SourceFormat.KINETO_TRACE
) -> tuple[Trace, ...]:
    """Read a trace of torch.profiler (Chrome trace JSON, plain or compressed).

    Args:
        path: the file.
        format: how the file came about.

    Returns:
        One trace a process, those of several ranks in the order of their labels.

    Raises:
        NotATimeline: no JSON, other JSON, or a trace without GPU events.
        AmbiguousCapture: several ranks in one file that cannot be taken apart.
        DamagedCapture: it is cut off or malformed, or times are impossible.
    """
    path = Path(path)
    source = TextSource(path)
    if not looks_like_json(source):
        start = source.head[:40]
        found = f"{path} is no JSON: it begins with {start!r}."
        raise NotATimeline(found, "Hand in what torch.profiler's export_chrome_trace wrote.")
    file, rows = TraceFile(source), Collector(str(path))
    for batch in file.batches():
        rows.take(batch)
    rows.finish()
    notes = _notes(file, rows)
    parts = [
        part
        for label, process in sorted(rows.processes.items())
        if process.gpu
        for part in split_processes(label, process, str(path))
    ]
    if not parts:
        raise no_gpu_events(path, file.events, rows)
    source_record = Source(path=str(path), format=format, regime=Regime.IN_SITU)
    return tuple(
        _trace(label, link(process, calls), file.header, source_record, notes, len(parts) > 1)
        for label, process, calls in parts
    )


def no_gpu_events(path: Path, events: int, rows: Collector) -> NotATimeline:
    """The refusal of a trace of the CPU alone."""
    ops = sum(len(process.ops) for process in rows.processes.values())
    calls = sum(len(c) for process in rows.processes.values() for c in process.calls.values())
    return NotATimeline(
        f"{path} is a trace without GPU events: {events:,} events, of them {ops:,} operators and "
        f"{calls:,} CUDA calls. Either the program did no work on a GPU while it was recorded, or "
        "the profiler was not asked for it or could not see it (another profiler or DCGM held "
        "CUPTI, or torch is a CPU build).",
        "Record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], or let "
        "kernel-compass do it: kernel-compass profile --no-counters SCRIPT.",
    )


def _notes(file: TraceFile, rows: Collector) -> list[str]:
    notes = []
    if file.repaired:
        notes.append(
            "the file holds what JSON does not allow (nan, lone backslashes or control characters);"
            " numbers that are none were read as missing."
        )
    if rows.unmatched:
        notes.append(f"{rows.unmatched:,} begin or end events have no partner and are left out.")
    dropped = [f"{count:,} {what}" for what, count in rows.dropped.items() if count]
    if dropped:
        notes.append(f"missing or impossible in the trace, and left out: {', '.join(dropped)}.")
    return notes


def _trace(
    label: str, linked: Linked, header: Header, source: Source, notes: list[str], joined: bool
) -> Trace:
    distributed = None if joined else header.distributed
    rank, world = _place(distributed)
    name = label or None
    if name is None and rank is not None and (world or 0) > 1:
        name = f"rank {rank} of {world}"
    unlinked = []
    if linked.unlinked:
        unlinked = [
            f"{linked.unlinked:,} of {len(linked.events):,} GPU events have no call that launched "
            "them: recording began in between, or calls were lost."
        ]
    return Trace(
        source=source,
        device=_device(header.gpus or (), {event.device for event in linked.events}),
        events=linked.events,
        calls=linked.calls,
        steps=linked.steps,
        iterations=linked.iterations,
        overhead_us=linked.overhead_us,
        cpu_events=linked.cpu_events,
        rank=rank,
        world_size=world,
        name=name,
        warnings=(*notes, *unlinked),
    )


def _place(distributed: Distributed | None) -> tuple[int | None, int | None]:
    """Rank and number of ranks; `None` for what cannot be."""
    rank = _within(distributed.rank, MAX_RANKS) if distributed else None
    world = _within(distributed.world_size, MAX_RANKS) if distributed else None
    if rank is not None and world is not None and rank >= world:
        return None, None
    return rank, world


def _within(value: int | None, most: int) -> int | None:
    return value if value is not None and 0 <= value <= most else None


def _device(gpus: Sequence[GpuProperties], used: set[int]) -> Device | None:
    """The one model of the GPUs in use; `None` where it is not stated or they differ."""
    models = {_model(gpu) for gpu in gpus if gpu.id in used}
    return models.pop() if len(models) == 1 else None


def _model(gpu: GpuProperties) -> Device:
    major, minor = _within(gpu.major, MAX_CAPABILITY), _within(gpu.minor, MAX_CAPABILITY)
    return Device(
        name=gpu.name,
        compute_capability=None if major is None or minor is None else f"{major}.{minor}",
        sm_count=_within(gpu.sm_count, MAX_SMS) or None,
    )
