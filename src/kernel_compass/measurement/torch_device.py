"""The GPU through PyTorch: with `torch_stream` and `side_streams` where timing touches torch."""

from __future__ import annotations

import platform
import random
from datetime import UTC, datetime
from functools import cached_property
from importlib import import_module, metadata
from typing import Any

from kernel_compass import __version__
from kernel_compass.measurement.clocks import NvmlClocks
from kernel_compass.measurement.cuda_driver import driver, persisting_limit
from kernel_compass.measurement.device import Call, ClockReading
from kernel_compass.measurement.side_streams import SideStreams
from kernel_compass.measurement.torch_stream import TorchStream
from kernel_compass.records.device import Device
from kernel_compass.records.environment import Environment
from kernel_compass.units import MIB

FLUSH_L2_MULTIPLE = 4
SCATTERED_BLOCKS = 32


class TorchDevice(TorchStream):
    """One CUDA device with a stream of its own.

    Args:
        index: as CUDA counts the visible devices.

    Raises:
        MissingDependency: torch is not installed.
        MeasurementError: `no_gpu`.
    """

    def __init__(self, index: int = 0) -> None:
        super().__init__(index)
        self._properties = self._torch.cuda.get_device_properties(index)
        self._clocks = _clocks_of(self._properties)
        self._flush_buffer: Any = None
        self._torch.zeros(1, device=f"cuda:{index}")  # the context exists from here on
        self._carve_out = persisting_limit()

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
        flat = self.allocating(lambda: source.as_strided((span,), (1,)).clone())
        return flat.as_strided(operand.shape, operand.stride(), 0)

    def is_constant(self, operand: Any) -> bool:
        """Whether a CUDA tensor of several elements holds one value only."""
        if not self._is_tensor(operand) or not operand.is_cuda or operand.numel() < 2:
            return False
        if operand.element_size() == 1:
            operand = operand.view(self._torch.uint8)
        return bool(self.allocating(lambda: _one_value(operand)))

    def flush(self) -> Call:
        """Read a buffer of four times L2."""
        if self._flush_buffer is None:
            words = FLUSH_L2_MULTIPLE * self.l2_bytes // 4
            torch, where = self._torch, f"cuda:{self.index}"
            self._flush_buffer = self.allocating(
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
        library = driver()
        if library is not None:
            library.cuCtxResetPersistingL2Cache()
        return self._carve_out, persisting_limit()

    def memory_pin_tbs(self) -> float | None:
        """Memory clock x 2 (both edges) x bus width, as NVML tells them."""
        return self._clocks.memory_pin_tbs() if self._clocks else None

    def leaves_work_on_side_streams(self, call: Call) -> bool | None:
        """Whether the call starts work that the current stream does not wait for; None = unknown.

        See `SideStreams`.
        """
        return None if driver() is None else self._side_streams.leave_work(call)

    def seed(self, number: int) -> None:
        """PyTorch's generators, on the CPU and the GPUs."""
        self._torch.manual_seed(number)

    def scatter(self, seed: int) -> object:
        """Blocks of 1 to 64 MiB straight from the driver, every other one given back."""
        numbers = random.Random(seed)
        sizes = [numbers.randint(1, 64) * MIB for _ in range(SCATTERED_BLOCKS)]
        where = f"cuda:{self.index}"
        empty, kind = self._torch.empty, self._torch.uint8
        blocks = self.allocating(lambda: [empty(s, dtype=kind, device=where) for s in sizes])
        kept = blocks[seed % 2 :: 2]
        del blocks
        self._torch.cuda.empty_cache()
        return kept

    @cached_property
    def _side_streams(self) -> SideStreams:
        return SideStreams(self)

    def _is_tensor(self, operand: Any) -> bool:
        return isinstance(operand, self._torch.Tensor)


def _one_value(operand: Any) -> bool:
    """Whether every element equals the first; NaN counts as a value."""
    first = operand[(0,) * operand.dim()]
    if bool(first.isnan()):
        return bool(operand.isnan().all())
    return bool((operand == first).all())


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
