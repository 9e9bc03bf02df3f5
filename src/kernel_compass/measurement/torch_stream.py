"""One stream of a CUDA device through PyTorch: enqueue, capture, time, wait, recover."""

from __future__ import annotations

import contextlib
import gc
import time
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from kernel_compass.errors import MeasurementCause, MeasurementError, MissingDependency
from kernel_compass.measurement.device import Call, NotCapturable

SHORTEST_PRIMER_US = 50.0
PRIMER_DOUBLINGS = 7
_SPIN_MHZ = 2000.0
"""Cycles a microsecond that a spin counts on: a slower clock only spins longer."""


class TorchStream:
    """A stream of its own on one CUDA device.

    Args:
        index: as CUDA counts the visible devices.

    Raises:
        MissingDependency: torch is not installed.
        MeasurementError: `no_gpu`.
    """

    def __init__(self, index: int = 0) -> None:
        self._torch = _torch_with_cuda()
        self.index = index
        count = self._torch.cuda.device_count()
        if not 0 <= index < count:
            raise MeasurementError(
                MeasurementCause.NO_GPU,
                f"There is no cuda:{index}: PyTorch sees {count}.",
                f"Name cuda:0 to cuda:{count - 1}.",
            )
        self._torch.cuda.set_device(index)
        self._stream = self._torch.cuda.Stream(index)
        self._start, self._end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._primer_us = SHORTEST_PRIMER_US
        self._unprimed = 0

    @property
    def torch(self) -> Any:
        """The module."""
        return self._torch

    @property
    def stream(self) -> Any:
        """Torch's own object."""
        return self._stream

    def run(self, call: Call) -> None:
        """Call once on the stream, and wait."""
        self.guarded(call)
        self.synchronize()

    def capture(self, calls: Sequence[Call]) -> Call:
        """One CUDA graph of these calls, as a call that replays it."""
        cuda, pool = self._torch.cuda, self._torch.cuda.graph_pool_handle()
        graph = cuda.CUDAGraph()
        first: list[Exception] = []
        try:
            with warnings.catch_warnings(), cuda.graph(graph, pool=pool, stream=self._stream):
                warnings.filterwarnings("ignore", message=".*CUDA Graph is empty.*")
                try:
                    for call in calls:
                        call()
                except Exception as error:  # the capture must be ended in order, whatever it was
                    first.append(error)
        except Exception as error:
            first.append(error)
        if first:
            del graph
            self.recover_from_capture(pool)
            if isinstance(first[0], self._torch.OutOfMemoryError):
                raise out_of_memory(first[0])
            raise NotCapturable(one_line(first[0]))
        replay: Call = graph.replay
        return replay

    def elapsed_us(self, work: Call, before: Call | None = None, primed: bool = True) -> float:
        """GPU time between two events around some work.

        The primer is a spinning kernel that outlasts the enqueueing of all behind it; how long that
        takes is learnt from the last time. Work that itself waits for the GPU cannot be primed,
        and is timed as it runs.
        """
        if not primed:
            return self._timed(work, before, 0.0)[1]
        primer_us = self._primer_us
        for _ in range(PRIMER_DOUBLINGS):
            late, spent, enqueue_us = self._timed(work, before, primer_us)
            if not late:
                self._primer_us = max(1.5 * enqueue_us, SHORTEST_PRIMER_US)
                return spent
            primer_us *= 2
        self._primer_us = SHORTEST_PRIMER_US
        self._unprimed += 1
        return spent

    def unprimed(self) -> int:
        """Times whose primer ended before all was enqueued, however long it was made."""
        return self._unprimed

    def guarded(self, work: Callable[[], Any], after_caller: bool = True) -> Any:
        """Some enqueueing on the stream; what it raises becomes one clear error.

        Operands are made on the caller's stream, which this one does not wait for by itself: it is
        made to, or a kernel may run before its operands are there and its output be overwritten.
        """
        try:
            if after_caller:
                self._stream.wait_stream(self._torch.cuda.current_stream(self.index))
            with self._torch.cuda.stream(self._stream):
                return work()
        except self._torch.OutOfMemoryError as error:
            self.recover()
            raise out_of_memory(error) from None
        except MeasurementError:
            raise
        except Exception as error:
            self.recover()
            raise MeasurementError(
                MeasurementCause.CALLABLE_FAILED,
                f"The callable raised {one_line(error)}",
                "Call it once by itself to see the whole error.",
            ) from error

    def allocating(self, make: Callable[[], Any]) -> Any:
        """What some allocation gives; out of memory becomes one clear error."""
        try:
            return make()
        except self._torch.OutOfMemoryError as error:
            self.release()
            raise out_of_memory(error) from None

    def synchronize(self) -> None:
        """Wait for all work of the device.

        Raises:
            MeasurementError: what ran before has failed.
        """
        try:
            self._torch.cuda.synchronize(self.index)
        except Exception as error:
            raise MeasurementError(
                MeasurementCause.CALLABLE_FAILED,
                f"The GPU failed after the callable: {one_line(error)}",
                "This process cannot use the GPU any more; start another, and run the callable "
                "under compute-sanitizer.",
            ) from error

    def recover(self) -> None:
        """Leave the process usable after a failed call or capture."""
        self.synchronize()
        self.release()

    def recover_from_capture(self, pool: Any) -> None:
        """Undo what a capture that CUDA invalidated leaves in PyTorch.

        Ending such a capture raises before the allocator stops filling the graph's pool and before
        the random generator leaves its capturing state (PyTorch before 2.12): the first is done
        here, and a capture that succeeds does the second.
        """
        torch = self._torch
        self.synchronize()
        with contextlib.suppress(AttributeError, RuntimeError):  # it had ended, or has moved
            torch._C._cuda_endAllocateToPool(self.index, pool)
        word = torch.ones(2, dtype=torch.int32, device=f"cuda:{self.index}")
        with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=self._stream):
            word.neg_()
        self.release()

    def spin(self, us: float) -> None:
        """Keep the current stream busy for so many microseconds, or longer."""
        self._torch.cuda._sleep(int(us * _SPIN_MHZ))

    def release(self) -> None:
        """Drop what nothing refers to, and give cached memory back."""
        gc.collect()
        self._torch.cuda.empty_cache()

    def _timed(
        self, work: Call, before: Call | None, primer_us: float
    ) -> tuple[bool, float, float]:
        """Whether the primer ended too early, the GPU time, and the time of enqueueing."""

        def enqueue() -> tuple[bool, float]:
            if primer_us:
                self.spin(primer_us)
            begin = time.perf_counter()
            if before is not None:
                before()
            self._start.record()
            work()
            self._end.record()
            enqueue_us = (time.perf_counter() - begin) * 1e6
            return bool(primer_us) and bool(self._start.query()), enqueue_us

        late, enqueue_us = self.guarded(enqueue)
        self.synchronize()
        return late, float(self._start.elapsed_time(self._end)) * 1e3, enqueue_us


def out_of_memory(error: Exception) -> MeasurementError:
    """The error for what torch says of a GPU without room."""
    return MeasurementError(
        MeasurementCause.OUT_OF_MEMORY,
        f"The GPU ran out of memory: {one_line(error)}",
        "Free memory, or time a smaller shape.",
    )


def one_line(error: BaseException) -> str:
    """What an error is, and the first line of what it says."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _torch_with_cuda() -> Any:
    try:
        torch = import_module("torch")
    except ImportError as error:
        raise MissingDependency(
            f"Timing needs PyTorch, which cannot be imported ({error}).",
            "Install it: pip install torch triton nvidia-ml-py.",
        ) from None
    if not torch.cuda.is_available():
        raise MeasurementError(
            MeasurementCause.NO_GPU,
            f"PyTorch {torch.__version__} finds no CUDA GPU.",
            "See `kernel-compass doctor`; `kernel-compass advise` works without a GPU.",
        )
    return torch
