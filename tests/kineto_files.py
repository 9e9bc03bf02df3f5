"""Traces as torch.profiler writes them, built event by event, with sums that the tests expect."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PID, THREAD = 4321, 4321
H200 = {
    "id": 0,
    "name": "NVIDIA H200",
    "totalGlobalMem": 150_000_000_000,
    "computeMajor": 9,
    "computeMinor": 0,
    "numSms": 132,
}


@dataclass
class TraceBuilder:
    """Adds events; times are microseconds.

    Args:
        base: added to every time, as older traces count from 1970.
        pid: of the CPU's events.
    """

    base: float = 0.0
    pid: int | str = PID
    gpu_pid: int | str | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    correlation: int = 100
    external: int = 1000

    def add(self, cat: str, name: str, ts: float, dur: float, **rest: Any) -> dict[str, Any]:
        event = {"ph": "X", "cat": cat, "name": name, "pid": self.pid, "tid": THREAD}
        event |= {"ts": self.base + ts, "dur": dur, **rest}
        self.events.append(event)
        return event

    def op(self, name: str, ts: float, dur: float, dims=None, types=None, **args: Any) -> int:
        """A cpu_op; returns its External id."""
        self.external += 1
        found: dict[str, Any] = {"External id": self.external, "Record function id": 0}
        if dims is not None:
            found |= {"Input Dims": dims, "Input type": types}
        self.add("cpu_op", name, ts, dur, args=found | args)
        return self.external

    def call(
        self, ts: float, dur: float = 3.0, name: str = "cudaLaunchKernel", external: int = 0
    ) -> int:
        """A runtime call; returns its correlation."""
        self.correlation += 1
        args = {"cbid": 211, "correlation": self.correlation}
        if external:
            args["External id"] = external
        self.add("cuda_runtime", name, ts, dur, args=args)
        return self.correlation

    def kernel(
        self,
        ts: float,
        dur: float,
        name: str = "k",
        correlation: int = 0,
        stream: int = 7,
        device: int = 0,
        grid=(132, 1, 1),
        block=(128, 1, 1),
        cat: str = "kernel",
        **args: Any,
    ) -> dict[str, Any]:
        found = {
            "queued": 0,
            "device": device,
            "context": 1,
            "stream": stream,
            "correlation": correlation,
            "registers per thread": 32,
            "shared memory": 0,
            "blocks per SM": 1.0,
            "warps per SM": 4.0,
            "grid": list(grid),
            "block": list(block),
            "est. achieved occupancy %": 6,
        }
        pid = device if self.gpu_pid is None else self.gpu_pid
        return self.add(cat, name, ts, dur, pid=pid, tid=stream, args=found | args)

    def launch(self, call_ts: float, start: float, dur: float, name: str = "k", **rest: Any) -> int:
        """A call and its kernel."""
        correlation = self.call(call_ts)
        self.kernel(start, dur, name, correlation, **rest)
        return correlation

    def copy(self, ts: float, dur: float, size: int, kind="HtoD (Pageable -> Device)", **rest: Any):
        args = {"device": 0, "stream": 7, "correlation": 0, "bytes": size} | rest
        name = f"Memcpy {kind}"
        pid, tid = args["device"], args["stream"]
        self.add("gpu_memcpy", name, ts, dur, pid=pid, tid=tid, args=args)

    def document(self, **header: Any) -> dict[str, Any]:
        return {
            "schemaVersion": 1,
            "deviceProperties": [H200],
            **header,
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": 1_743_521_598_000_000_000,
            "traceEvents": self.events,
            "traceName": "/tmp/trace.json",
        }

    def write(self, path: Path, bare: bool = False, **header: Any) -> Path:
        document = self.events if bare else self.document(**header)
        text = json.dumps(document, indent=1)
        if path.suffix == ".gz":
            path.write_bytes(gzip.compress(text.encode()))
        else:
            path.write_text(text)
        return path


def eager_steps(steps: int = 3, launch_us: float = 12.0) -> TraceBuilder:
    """A program whose CPU is slow: five 3 us kernels and one of 100 us a step.

    Each launch takes the CPU `launch_us`; the kernel starts 2 us after its call has returned, or
    when the one before it is done.
    """
    trace = TraceBuilder()
    clock, free = 1000.0, 0.0
    for step in range(steps):
        begin = clock
        for at in range(6):
            duration, name = (100.0, "gemm") if at == 5 else (3.0, f"small_{at}")
            external = trace.op("aten::add" if at < 5 else "aten::mm", clock, launch_us)
            correlation = trace.call(clock + 2.0, launch_us - 4.0, external=external)
            start = max(clock + launch_us, free)
            trace.kernel(start, duration, name, correlation, **{"External id": external})
            free = start + duration
            clock += launch_us
        clock = free + 5.0
        trace.add("user_annotation", f"ProfilerStep#{step}", begin, clock - begin)
    return trace
