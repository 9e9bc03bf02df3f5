"""What is read of a Kineto trace, field by field as torch.profiler writes it; the rest is skipped.

Written down from traces of torch 1.8 to 2.14: the names of `args` have blanks, times are
microseconds with up to three decimals, `pid` and `tid` of GPU events are device and stream.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw, field

Word = str | int | float | None


class Event(msgspec.Struct, gc=False):
    """One event."""

    ph: str = ""
    cat: str | None = None
    name: Word = None
    pid: Word = None
    tid: Word = None
    ts: Raw = Raw()
    dur: Raw = Raw()
    args: Raw = Raw()


class GpuProperties(msgspec.Struct):
    """One of `deviceProperties`."""

    id: int | None = None
    name: str | None = None
    major: int | None = field(default=None, name="computeMajor")
    minor: int | None = field(default=None, name="computeMinor")
    sm_count: int | None = field(default=None, name="numSms")


class Distributed(msgspec.Struct):
    """`distributedInfo`."""

    rank: int | None = None
    world_size: int | None = None


class Header(msgspec.Struct):
    """What stands beside the events."""

    gpus: list[GpuProperties] | None = field(default=None, name="deviceProperties")
    distributed: Distributed | None = field(default=None, name="distributedInfo")


class SecondEvents(msgspec.Struct):
    """The last of the members `traceEvents`."""

    events: Raw = field(default=Raw(), name="traceEvents")


class GpuArgs(msgspec.Struct, gc=False):
    """`args` of a kernel, a copy or a fill."""

    device: Word = None
    stream: Word = None
    correlation: Word = None
    external: Word = field(default=None, name="External id")
    external_old: Word = field(default=None, name="external id")
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    registers: Word = field(default=None, name="registers per thread")
    shared_memory: Word = field(default=None, name="shared memory")
    blocks_per_sm: Word = field(default=None, name="blocks per SM")
    warps_per_sm: Word = field(default=None, name="warps per SM")
    occupancy: Word = field(default=None, name="est. achieved occupancy %")
    bytes: Word = None


class CallArgs(msgspec.Struct, gc=False):
    """`args` of a runtime or driver call."""

    correlation: Word = None
    external: Word = field(default=None, name="External id")
    external_old: Word = field(default=None, name="external id")


class OpArgs(msgspec.Struct, gc=False):
    """`args` of an operator; shapes only where they were recorded."""

    external: Word = field(default=None, name="External id")
    external_old: Word = field(default=None, name="external id")
    dims: Raw = field(default=Raw(), name="Input Dims")
    types: Raw = field(default=Raw(), name="Input type")
    strides: Raw = field(default=Raw(), name="Input Strides")
    concrete: Raw = field(default=Raw(), name="Concrete Inputs")
