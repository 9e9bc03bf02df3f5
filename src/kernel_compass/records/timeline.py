"""What a timeline says beyond its kernels: how busy the GPU was, and what it waited for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Behind(StrEnum):
    """Who waits for whom at the launches."""

    CPU = "cpu"
    """The GPU idles because the next launch comes late."""
    GPU = "gpu"
    """Launches wait in the queue: the GPU is the slower one."""
    NEITHER = "neither"
    """The GPU idles, but what comes next was handed over in time: dependencies, or what it costs
    the GPU to start a kernel."""
    UNKNOWN = "unknown"
    """The trace does not link launches with the calls that made them."""


@dataclass(frozen=True)
class Gap:
    """A time in which a GPU had nothing to do."""

    device: int
    start_us: float
    """Since the first GPU event of the trace."""
    duration_us: float
    before: str
    """What ended before it."""
    after: str
    """What started after it."""
    late_us: float | None
    """How much of it passed before the CPU had handed over what came next."""


@dataclass(frozen=True)
class StreamUse:
    """One stream between its first and its last event; busy + gaps = span."""

    device: int
    stream: int
    events: int
    span_us: float
    busy_us: float
    """Union of the events' times."""
    gaps_us: float
    gaps: int
    overlap_us: float
    """Time counted more than once where events of the stream overlap."""


@dataclass(frozen=True)
class DeviceUse:
    """One GPU between its first and its last event; busy + idle = span."""

    device: int
    span_us: float
    busy_us: float
    """Union over all streams."""
    idle_us: float
    gaps: int
    late_us: float | None
    """Idle time that passed before the CPU had handed over what came next."""
    kernel_us: float
    """Sum of the kernels' durations; more than the busy time where streams overlap."""
    copy_us: float
    """Sum of the durations of copies and fills."""

    @property
    def busy_share(self) -> float | None:
        """Busy time over span, 0-1."""
        return self.busy_us / self.span_us if self.span_us > 0 else None


@dataclass(frozen=True)
class LaunchRun:
    """Consecutive kernels of one stream whose launches cost more than their work."""

    kernels: int
    first: str
    last: str
    repeats: int
    """How often a run of the same kernels occurs; the times are sums over all of them."""
    span_us: float
    busy_us: float
    in_graph: bool
    device: int
    stream: int


@dataclass(frozen=True)
class CallUse:
    """All calls of one API function that hand over work."""

    name: str
    calls: int
    median_us: float
    """CPU time of a call."""
    total_us: float


@dataclass(frozen=True)
class OtherWork:
    """Copies or fills of one kind."""

    name: str
    """`Memcpy HtoD (Pageable -> Device)`, `Memset (Device)`, ..."""
    count: int
    total_us: float
    bytes: int | None


@dataclass(frozen=True)
class KernelTimeline:
    """What the timeline says of one kernel, beside its durations."""

    share_of_span: float | None
    """Its GPU time over the span of its GPU, 0-1."""
    gap_before_us: float | None
    """Median idle time of its stream right before it; `None` where it always comes first, in its
    stream or in a CUDA graph (there the gap is that of the graph's launch)."""
    late_us: float | None
    """Median of the part of that gap that passed before its launch was handed over."""
    launch_delay_us: float | None
    """Median time from the end of the launching call to the start on the GPU; negative where the
    kernel started before the call returned."""
    launches_in_graph: int
    launches_in_runs: int
    """Launches that belong to launch-bound runs."""
    op: str | None = None
    """The operator that launches it most, with its input shapes where recorded."""
    compulsory_bytes: int | None = None
    """What a launch must move at least by its operator's shapes, mean over the launches."""
    flops: int | None = None


@dataclass(frozen=True)
class TimelineSummary:
    """The program as its timeline shows it."""

    span_us: float
    """From the first GPU event's start to the last one's end, over all GPUs."""
    devices: tuple[DeviceUse, ...]
    streams: tuple[StreamUse, ...]
    behind: Behind
    launch_delay_us: float | None
    """Median over all launches outside graphs."""
    calls: tuple[CallUse, ...]
    graph_launches: int
    """Replays of CUDA graphs that ran kernels."""
    graph_kernels: int
    runs: tuple[LaunchRun, ...]
    """Launch-bound runs, the longest span first; the rest of many is left out."""
    runs_span_us: float
    """Span of all of them together, those left out included."""
    runs_busy_us: float
    largest_gaps: tuple[Gap, ...]
    other_work: tuple[OtherWork, ...]
    steps: int = 0
    step_us: float | None = None
    """Median duration of a `ProfilerStep`."""
