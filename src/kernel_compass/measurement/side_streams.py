"""Whether a call starts work on streams that the current one does not wait for."""

from __future__ import annotations

import ctypes
import time
import warnings
from typing import Any

from kernel_compass.measurement.cuda_driver import (
    begin_capture,
    driver,
    end_capture,
    is_capturing,
    new_stream,
)
from kernel_compass.measurement.device import Call
from kernel_compass.measurement.torch_stream import TorchStream

GATE_US = 4_000.0
"""How long the default stream is held back while the current one should drain."""
LONGEST_GATE_US = 500_000.0
IDLE_MARKS_US = 4.0
"""Two events on a stream without work between them lie closer than this."""


class SideStreams:
    """All streams of a device but the one that calls are enqueued on.

    Seen by capturing, which runs nothing: streams that the capture of the current one draws in
    must have come back to it, and every other stream of torch's pools is captured by itself
    while the call runs, so that work on it shows as nodes. The default stream is held at a gate
    instead. Streams made outside torch are not seen.

    Args:
        own: the current stream.
    """

    def __init__(self, own: TorchStream) -> None:
        self._own = own
        self._gate: Any = None

    def leave_work(self, call: Call) -> bool | None:
        """Whether the call leaves work on one of them; None = unknown."""
        library = driver()
        if library is None:
            return None
        joined = self._joined_streams(call, library)
        if joined is None or isinstance(joined, bool):
            return joined
        known = {*joined, self._own.stream.cuda_stream}
        others = [s for s in self._pool() if s.cuda_stream not in known]
        found = self._captures_work(call, others, library)
        return self._default_stream_works(call) if found is False else found

    def _joined_streams(self, call: Call, library: ctypes.CDLL) -> set[int] | bool | None:
        """Streams that a capture of the call draws in; True where one does not come back."""
        cuda, pool = self._own.torch.cuda, self._own.torch.cuda.graph_pool_handle()
        drawn_in: set[int] = set()
        try:
            graph = cuda.CUDAGraph()
            # Relaxed: what other streams do meanwhile, allocations too, runs as if nothing were.
            capture = cuda.graph(
                graph, pool=pool, stream=self._own.stream, capture_error_mode="relaxed"
            )
            with warnings.catch_warnings(), capture:
                warnings.filterwarnings("ignore", message=".*CUDA Graph is empty.*")
                call()
                drawn_in = {s.cuda_stream for s in self._pool() if is_capturing(s, library)}
        except Exception as error:
            self._own.recover_from_capture(pool)
            return True if "unjoined" in str(error) else None
        return drawn_in

    def _captures_work(self, call: Call, streams: list[Any], library: ctypes.CDLL) -> bool | None:
        """Run the call while these streams are captured one by one: whether one got any work.

        None where the call fails meanwhile: one that takes another stream each time is held to a
        stream that is being captured.
        """
        self._own.synchronize()
        held = [s for s in streams if begin_capture(s, library)]
        failed = False
        try:
            with self._own.torch.cuda.stream(self._own.stream):
                call()
        except Exception:
            failed = True
        nodes = [end_capture(stream, library) for stream in held]
        if failed:
            self._own.recover()
            return None
        self._own.synchronize()
        return any(nodes)

    def _default_stream_works(self, call: Call) -> bool:
        """Whether the current stream drains while work of the call waits on the default stream."""
        cuda = self._own.torch.cuda
        default = cuda.default_stream(self._own.index)
        gate_us = max(GATE_US, min(4 * self._own.elapsed_us(call), LONGEST_GATE_US))
        self._own.synchronize()
        with cuda.stream(self._gate_stream()):
            self._own.spin(gate_us)
            gate = cuda.Event()
            gate.record()
        begin = self._mark(default, gate)
        self._own.guarded(call, after_caller=False)  # the default stream is held back on purpose
        done = cuda.Event()
        done.record(self._own.stream)
        end = self._mark(default)
        deadline = time.monotonic() + gate_us / 2e6
        while not done.query() and time.monotonic() < deadline:
            time.sleep(1e-4)
        drained = bool(done.query()) and not gate.query()
        self._own.synchronize()
        return drained and begin.elapsed_time(end) * 1e3 > IDLE_MARKS_US

    def _gate_stream(self) -> Any:
        """A stream that no pool hands out."""
        if self._gate is None:
            library = driver()
            assert library is not None
            self._gate = self._own.torch.cuda.ExternalStream(new_stream(library))
        return self._gate

    def _pool(self) -> list[Any]:
        """Every stream of torch's pools: 32 a priority, handed out in turn."""
        cuda = self._own.torch.cuda
        least, greatest = cuda.Stream.priority_range()
        found = {}
        for priority in range(greatest, least + 1):
            for _ in range(32):
                stream = cuda.Stream(self._own.index, priority=priority)
                found[stream.cuda_stream] = stream
        return list(found.values())

    def _mark(self, stream: Any, gate: Any = None) -> Any:
        if gate is not None:
            stream.wait_event(gate)
        event = self._own.torch.cuda.Event(enable_timing=True)
        event.record(stream)
        return event
