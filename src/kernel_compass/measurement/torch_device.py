"""The GPU through PyTorch. The one place where timing touches torch."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import platform
import random
import time
import warnings
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib import import_module, metadata
from typing import Any

from kernel_compass import __version__
from kernel_compass.errors import MeasurementCause, MeasurementError, MissingDependency
from kernel_compass.measurement.clocks import NvmlClocks
from kernel_compass.measurement.device import Call, ClockReading, NotCapturable
from kernel_compass.records.device import Device
from kernel_compass.records.environment import Environment
from kernel_compass.units import MIB

FLUSH_L2_MULTIPLE = 4
SHORTEST_PRIMER_US = 50.0
PRIMER_DOUBLINGS = 7
GATE_US = 4_000.0
"""How long the default stream is held back while the current one should drain."""
LONGEST_GATE_US = 500_000.0
IDLE_MARKS_US = 4.0
"""Two events on a stream without work between them lie closer than this."""
SCATTERED_BLOCKS = 32
_CU_LIMIT_PERSISTING_L2_CACHE_SIZE = 0x06
_SPIN_MHZ = 2000.0
"""Cycles a microsecond that a spin counts on: a slower clock only spins longer."""


class TorchDevice:
    """One CUDA device with a stream of its own.

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
        self._properties = self._torch.cuda.get_device_properties(index)
        self._stream = self._torch.cuda.Stream(index)
        self._start, self._end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._primer_us = SHORTEST_PRIMER_US
        self._unprimed = 0
        self._clocks = _clocks_of(self._properties)
        self._flush_buffer: Any = None
        self._gate: Any = None
        self._torch.zeros(1, device=f"cuda:{index}")  # the context exists from here on
        self._carve_out = _persisting_limit()

    @property
    def torch(self) -> Any:
        """The module."""
        return self._torch

    @property
    def l2_bytes(self) -> int:
        """Nominal L2 capacity as the driver reports it."""
        return int(self._properties.L2_cache_size)

    @property
    def sm_count(self) -> int:
        """Streaming multiprocessors."""
        return int(self._properties.multi_processor_count)

    def environment(self) -> Environment:
        """GPU, driver and versions, now."""
        p = self._properties
        return Environment(
            device=Device(p.name, f"{p.major}.{p.minor}", self.sm_count, self.l2_bytes),
            driver=_driver_version(),
            torch=str(self._torch.__version__),
            triton=_version("triton"),
            python=platform.python_version(),
            kernel_compass=__version__,
            date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        )

    def free_bytes(self) -> int:
        """Device memory that can be allocated: the driver's and what torch holds unused."""
        cuda = self._torch.cuda
        free, _ = cuda.mem_get_info(self.index)
        return int(free + cuda.memory_reserved(self.index) - cuda.memory_allocated(self.index))

    def bytes_of(self, operand: Any) -> int:
        """Bytes of a tensor's elements; 0 for what is none."""
        if not self._is_tensor(operand):
            return 0
        start, end = self.address_range(operand)  # an expanded tensor repeats its bytes
        return min(int(operand.numel() * operand.element_size()), end - start)

    def address_range(self, operand: Any) -> tuple[int, int]:
        """From a tensor's first element to the end of its last."""
        if not self._is_tensor(operand) or operand.numel() == 0:
            return (0, 0)
        reach = sum((n - 1) * s for n, s in zip(operand.shape, operand.stride(), strict=True))
        start = int(operand.data_ptr())
        return start, start + (reach + 1) * operand.element_size()

    def clone(self, operand: Any) -> Any:
        """A copy with the same strides; what is no tensor is shared."""
        if not self._is_tensor(operand):
            return operand
        start, end = self.address_range(operand)
        span = (end - start) // operand.element_size()
        source = operand.detach()
        flat = self._allocating(lambda: source.as_strided((span,), (1,)).clone())
        return flat.as_strided(operand.shape, operand.stride(), 0)

    def is_constant(self, operand: Any) -> bool:
        """Whether a CUDA tensor of several elements holds one value only."""
        if not self._is_tensor(operand) or not operand.is_cuda or operand.numel() < 2:
            return False
        if operand.element_size() == 1:
            operand = operand.view(self._torch.uint8)
        return bool(self._allocating(lambda: _one_value(operand)))

    def run(self, call: Call) -> None:
        """Call once on the stream, and wait."""
        self._guarded(call)
        self._synchronize()

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
            self._recover_from_capture(pool)
            if isinstance(first[0], self._torch.OutOfMemoryError):
                raise _out_of_memory(first[0])
            raise NotCapturable(_one_line(first[0]))
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

    def flush(self) -> Call:
        """Read a buffer of four times L2."""
        if self._flush_buffer is None:
            words = FLUSH_L2_MULTIPLE * self.l2_bytes // 4
            torch, where = self._torch, f"cuda:{self.index}"
            self._flush_buffer = self._allocating(
                lambda: torch.randint(1, 1 << 30, (words,), dtype=torch.int32, device=where)
            )
        buffer = self._flush_buffer
        call: Call = buffer.max
        return call

    def clocks(self) -> ClockReading | None:
        """The clocks now; None without nvidia-ml-py, or where the driver does not tell them."""
        try:
            return self._clocks.read() if self._clocks else None
        except Exception:  # NVML's errors: a vGPU or WSL knows no clocks, and it is said
            return None

    def carve_out(self) -> tuple[int, int]:
        """The context's limit on persisting L2, when this device was opened and now.

        The driver's default is not 0 (11 MiB of 60 on an H200), and harmless while nothing asks
        for persistence; lines left over from earlier are made ordinary here.
        """
        driver = _driver()
        if driver is not None:
            driver.cuCtxResetPersistingL2Cache()
        return self._carve_out, _persisting_limit()

    def memory_pin_tbs(self) -> float | None:
        """Memory clock x 2 (both edges) x bus width, as NVML tells them."""
        return self._clocks.memory_pin_tbs() if self._clocks else None

    def leaves_work_on_side_streams(self, call: Call) -> bool | None:
        """Whether the call starts work that the current stream does not wait for; None = unknown.

        Seen by capturing, which runs nothing: streams that the capture of the current one draws in
        must have come back to it, and every other stream of torch's pools is captured by itself
        while the call runs, so that work on it shows as nodes. The default stream is held at a gate
        instead. Streams made outside torch are not seen.
        """
        driver = _driver()
        if driver is None:
            return None
        joined = self._joined_streams(call, driver)
        if joined is None or isinstance(joined, bool):
            return joined
        known = {*joined, self._stream.cuda_stream}
        others = [s for s in self._pool() if s.cuda_stream not in known]
        found = self._captures_work(call, others, driver)
        return self._default_stream_works(call) if found is False else found

    def seed(self, number: int) -> None:
        """PyTorch's generators, on the CPU and the GPUs."""
        self._torch.manual_seed(number)

    def scatter(self, seed: int) -> object:
        """Blocks of 1 to 64 MiB straight from the driver, every other one given back."""
        numbers = random.Random(seed)
        sizes = [numbers.randint(1, 64) * MIB for _ in range(SCATTERED_BLOCKS)]
        where = f"cuda:{self.index}"
        empty, kind = self._torch.empty, self._torch.uint8
        blocks = self._allocating(lambda: [empty(s, dtype=kind, device=where) for s in sizes])
        kept = blocks[seed % 2 :: 2]
        del blocks
        self._torch.cuda.empty_cache()
        return kept

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
                self._spin(primer_us)
            begin = time.perf_counter()
            if before is not None:
                before()
            self._start.record()
            work()
            self._end.record()
            enqueue_us = (time.perf_counter() - begin) * 1e6
            return bool(primer_us) and bool(self._start.query()), enqueue_us

        late, enqueue_us = self._guarded(enqueue)
        self._synchronize()
        return late, float(self._start.elapsed_time(self._end)) * 1e3, enqueue_us

    def _guarded(self, work: Callable[[], Any], after_caller: bool = True) -> Any:
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
            self._recover()
            raise _out_of_memory(error) from None
        except MeasurementError:
            raise
        except Exception as error:
            self._recover()
            raise MeasurementError(
                MeasurementCause.CALLABLE_FAILED,
                f"The callable raised {_one_line(error)}",
                "Call it once by itself to see the whole error.",
            ) from error

    def _allocating(self, make: Callable[[], Any]) -> Any:
        """What some allocation gives; out of memory becomes one clear error."""
        try:
            return make()
        except self._torch.OutOfMemoryError as error:
            self.release()
            raise _out_of_memory(error) from None

    def _synchronize(self) -> None:
        try:
            self._torch.cuda.synchronize(self.index)
        except Exception as error:
            raise MeasurementError(
                MeasurementCause.CALLABLE_FAILED,
                f"The GPU failed after the callable: {_one_line(error)}",
                "This process cannot use the GPU any more; start another, and run the callable "
                "under compute-sanitizer.",
            ) from error

    def _recover(self) -> None:
        """Leave the process usable after a failed call or capture."""
        self._synchronize()
        self.release()

    def _recover_from_capture(self, pool: Any) -> None:
        """Undo what a capture that CUDA invalidated leaves in PyTorch.

        Ending such a capture raises before the allocator stops filling the graph's pool and before
        the random generator leaves its capturing state (PyTorch before 2.12): the first is done
        here, and a capture that succeeds does the second.
        """
        torch = self._torch
        self._synchronize()
        with contextlib.suppress(AttributeError, RuntimeError):  # it had ended, or has moved
            torch._C._cuda_endAllocateToPool(self.index, pool)
        word = torch.ones(2, dtype=torch.int32, device=f"cuda:{self.index}")
        with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=self._stream):
            word.neg_()
        self.release()

    def _spin(self, us: float) -> None:
        self._torch.cuda._sleep(int(us * _SPIN_MHZ))

    def _mark(self, stream: Any, gate: Any = None) -> Any:
        if gate is not None:
            stream.wait_event(gate)
        event = self._torch.cuda.Event(enable_timing=True)
        event.record(stream)
        return event

    def _joined_streams(self, call: Call, driver: ctypes.CDLL) -> set[int] | bool | None:
        """Streams that a capture of the call draws in; True where one does not come back."""
        cuda, pool = self._torch.cuda, self._torch.cuda.graph_pool_handle()
        drawn_in: set[int] = set()
        try:
            graph = cuda.CUDAGraph()
            # Relaxed: what other streams do meanwhile, allocations too, runs as if nothing were.
            capture = cuda.graph(
                graph, pool=pool, stream=self._stream, capture_error_mode="relaxed"
            )
            with warnings.catch_warnings(), capture:
                warnings.filterwarnings("ignore", message=".*CUDA Graph is empty.*")
                call()
                drawn_in = {s.cuda_stream for s in self._pool() if _is_capturing(s, driver)}
        except Exception as error:
            self._recover_from_capture(pool)
            return True if "unjoined" in str(error) else None
        return drawn_in

    def _captures_work(self, call: Call, streams: list[Any], driver: ctypes.CDLL) -> bool | None:
        """Run the call while these streams are captured one by one: whether one got any work.

        None where the call fails meanwhile: one that takes another stream each time is held to a
        stream that is being captured.
        """
        self._synchronize()
        held = [s for s in streams if _begin_capture(s, driver)]
        failed = False
        try:
            with self._torch.cuda.stream(self._stream):
                call()
        except Exception:
            failed = True
        nodes = [_end_capture(stream, driver) for stream in held]
        if failed:
            self._recover()
            return None
        self._synchronize()
        return any(nodes)

    def _default_stream_works(self, call: Call) -> bool:
        """Whether the current stream drains while work of the call waits on the default stream."""
        cuda = self._torch.cuda
        default = cuda.default_stream(self.index)
        gate_us = max(GATE_US, min(4 * self.elapsed_us(call), LONGEST_GATE_US))
        self._synchronize()
        with cuda.stream(self._gate_stream()):
            self._spin(gate_us)
            gate = cuda.Event()
            gate.record()
        begin = self._mark(default, gate)
        self._guarded(call, after_caller=False)  # the default stream is held back on purpose
        done = cuda.Event()
        done.record(self._stream)
        end = self._mark(default)
        deadline = time.monotonic() + gate_us / 2e6
        while not done.query() and time.monotonic() < deadline:
            time.sleep(1e-4)
        drained = bool(done.query()) and not gate.query()
        self._synchronize()
        return drained and begin.elapsed_time(end) * 1e3 > IDLE_MARKS_US

    def _gate_stream(self) -> Any:
        """A stream that no pool hands out."""
        if self._gate is None:
            handle, driver = ctypes.c_void_p(), _driver()
            assert driver is not None
            driver.cuStreamCreate(ctypes.byref(handle), ctypes.c_uint(1))  # non-blocking
            self._gate = self._torch.cuda.ExternalStream(handle.value)
        return self._gate

    def _pool(self) -> list[Any]:
        """Every stream of torch's pools: 32 a priority, handed out in turn."""
        cuda = self._torch.cuda
        least, greatest = cuda.Stream.priority_range()
        found = {}
        for priority in range(greatest, least + 1):
            for _ in range(32):
                stream = cuda.Stream(self.index, priority=priority)
                found[stream.cuda_stream] = stream
        return list(found.values())

    def _is_tensor(self, operand: Any) -> bool:
        return isinstance(operand, self._torch.Tensor)


def _one_value(operand: Any) -> bool:
    """Whether every element equals the first; NaN counts as a value."""
    first = operand[(0,) * operand.dim()]
    if bool(first.isnan()):
        return bool(operand.isnan().all())
    return bool((operand == first).all())


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


def _driver() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def _persisting_limit() -> int:
    size, driver = ctypes.c_size_t(), _driver()
    if driver is None:
        return 0
    code = driver.cuCtxGetLimit(ctypes.byref(size), _CU_LIMIT_PERSISTING_L2_CACHE_SIZE)
    return int(size.value) if code == 0 else 0


_RELAXED = 2


def _is_capturing(stream: Any, driver: ctypes.CDLL) -> bool:
    status = ctypes.c_int()
    driver.cuStreamIsCapturing(ctypes.c_void_p(stream.cuda_stream), ctypes.byref(status))
    return status.value != 0


def _begin_capture(stream: Any, driver: ctypes.CDLL) -> bool:
    handle = ctypes.c_void_p(stream.cuda_stream)
    return bool(driver.cuStreamBeginCapture_v2(handle, ctypes.c_int(_RELAXED)) == 0)


def _end_capture(stream: Any, driver: ctypes.CDLL) -> int:
    """End a capture and count what it caught; a capture that broke caught something."""
    graph, nodes = ctypes.c_void_p(), ctypes.c_size_t()
    if driver.cuStreamEndCapture(ctypes.c_void_p(stream.cuda_stream), ctypes.byref(graph)) != 0:
        return 1
    driver.cuGraphGetNodes(graph, None, ctypes.byref(nodes))
    driver.cuGraphDestroy(graph)
    return int(nodes.value)


def _clocks_of(properties: Any) -> NvmlClocks | None:
    uuid = getattr(properties, "uuid", None)
    try:
        return NvmlClocks(f"GPU-{uuid}") if uuid is not None else None
    except (
        Exception
    ):  # no nvidia-ml-py, or NVML does not answer: clocks stay unknown, and it is said
        return None


def _driver_version() -> str | None:
    try:
        nvml = import_module("pynvml")
        nvml.nvmlInit()
        version = nvml.nvmlSystemGetDriverVersion()
    except Exception:
        return None
    return version.decode() if isinstance(version, bytes) else str(version)


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _out_of_memory(error: Exception) -> MeasurementError:
    return MeasurementError(
        MeasurementCause.OUT_OF_MEMORY,
        f"The GPU ran out of memory: {_one_line(error)}",
        "Free memory, or time a smaller shape.",
    )


def _one_line(error: BaseException) -> str:
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
