"""What a profiler's timeline of one process holds: GPU work, the calls that launched it, the ops.

Times are microseconds since the trace's first GPU event, `_us`; events before it are negative.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from kernel_compass.records.device import Device
from kernel_compass.records.profile import Dim3, Source


class GpuWork(StrEnum):
    """What the GPU does in an event."""

    KERNEL = "kernel"
    MEMCPY = "memcpy"
    MEMSET = "memset"


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A call of the CUDA runtime or driver on the CPU that handed over GPU work."""

    name: str
    """`cudaLaunchKernel`, `cuLaunchKernelEx`, `cudaGraphLaunch`, `cudaMemcpyAsync`, ..."""
    start_us: float
    duration_us: float

    @property
    def end_us(self) -> float:
        """When the CPU was free again."""
        return self.start_us + self.duration_us

    @property
    def launches_graph(self) -> bool:
        """Whether it replays a CUDA graph."""
        return "GraphLaunch" in self.name


@dataclass(frozen=True, slots=True)
class OpCall:
    """The innermost operator around a launch, with its inputs where shapes were recorded."""

    name: str
    """`aten::mm`, ..."""
    dims: tuple[tuple[int, ...] | None, ...] = ()
    """Sizes of each input; `()` for a scalar, `None` for what is no single tensor."""
    types: tuple[str, ...] = ()
    """`c10::BFloat16`, `float`, `Scalar`, ...; empty for an input that was not given."""
    strides: tuple[tuple[int, ...] | None, ...] = ()
    concrete: tuple[str, ...] = ()
    """Scalars as text, empty for tensors."""


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """How a kernel was launched; shared by its launches."""

    grid: Dim3 | None = None
    block: Dim3 | None = None
    metrics: tuple[tuple[str, float], ...] = ()
    """Keys of `records.metrics` that the trace states."""


@dataclass(frozen=True, slots=True)
class GpuEvent:
    """One kernel, copy or fill on the GPU."""

    work: GpuWork
    name: str
    device: int
    stream: int
    start_us: float
    duration_us: float
    shape: LaunchShape = LaunchShape()
    call: ApiCall | None = None
    """`None` where the trace does not tell."""
    op: OpCall | None = None
    op_id: int | None = None
    """Events of one call of an operator share it."""
    bytes: int | None = None
    """Of a copy or fill."""
    mark: str | None = None
    """The innermost range of this package's (`kc:...`) around the call that launched it."""

    @property
    def end_us(self) -> float:
        """When the GPU was done with it."""
        return self.start_us + self.duration_us

    @property
    def in_graph(self) -> bool:
        """Whether a CUDA graph's replay launched it."""
        return self.call is not None and self.call.launches_graph


@dataclass(frozen=True, slots=True)
class StepMark:
    """A range of the CPU that a profiler, or a server, puts around a step."""

    name: str
    """`ProfilerStep#7`, `execute_context_0(0)_generation_16(16)`."""
    start_us: float
    duration_us: float

    @property
    def end_us(self) -> float:
        """When the CPU was through with it."""
        return self.start_us + self.duration_us


@dataclass(frozen=True)
class Trace:
    """One process's timeline, its GPU events in order of their start."""

    source: Source
    device: Device | None
    """The model of the GPU; `None` where the trace names none or several."""
    events: tuple[GpuEvent, ...]
    calls: Mapping[str, tuple[float, ...]]
    """Durations of the calls that hand over work, by their name, launches or not."""
    steps: tuple[StepMark, ...] = ()
    """The annotations `ProfilerStep#N`, in order."""
    iterations: tuple[StepMark, ...] = ()
    """A server's own, around each call of its model, in order."""
    overhead_us: float = 0.0
    """CPU time that the profiler says it took itself."""
    cpu_events: int = 0
    rank: int | None = None
    world_size: int | None = None
    name: str | None = None
    """What tells this process from others: `rank 3 of 8`, `[TP01]`."""
    warnings: tuple[str, ...] = ()

    @property
    def steps_us(self) -> tuple[float, ...]:
        """Durations of the annotations `ProfilerStep#N`, in order."""
        return tuple(one.duration_us for one in self.steps)
