"""Subjects whose time is a ceiling of the machine: streams, products, unpacking, empty launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from kernel_compass.errors import MissingDependency
from kernel_compass.measurement.subject import GIB, Subject
from kernel_compass.measurement.torch_device import TorchDevice
from kernel_compass.records.calibration import Access

WORD_BYTES = 4


@dataclass(frozen=True)
class StreamConfig:
    """One configuration of a streaming kernel."""

    block: int
    """Words a program."""
    warps: int
    programs_a_sm: int | None = None
    """A fixed grid that strides over the data; None = one block a program."""


STREAM_CONFIGS = (
    StreamConfig(1024, 4),
    StreamConfig(2048, 4),
    StreamConfig(4096, 8),
    StreamConfig(8192, 8),
    StreamConfig(8192, 16),
)
"""Tried at the anchor sizes: small sets need many small programs, large ones long ones."""

PERSISTENT_CONFIGS = (StreamConfig(4096, 8, 4), StreamConfig(2048, 8, 8))
"""For reads: each block of the data is always read by the same program."""

WEIGHTS_A_WORD = {"int4": 8, "int4_packed": 8, "int8": 4, "fp8": 4}
"""Weights that `unpack_<kind>` converts from a 32-bit word: `int4` by plain integer-to-float
conversion, `int4_packed` two at a time by the bits of bf16 128 + n."""

IN_FLIGHT_BLOCK = 1024
"""Words that a program of `read_in_flight` waits for: 4 KiB, 16 bytes and two loads a thread."""


class StreamProbes:
    """Streaming subjects over slices of one random buffer.

    Args:
        device: the GPU.
        total_bytes: the buffer; rotated sets are disjoint slices of it.
    """

    def __init__(self, device: TorchDevice, total_bytes: int = GIB) -> None:
        self._torch = device.torch
        self._kernels = stream_kernels()
        self._where = f"cuda:{device.index}"
        self._sm_count = device.sm_count
        self._buffer = self._random(total_bytes // WORD_BYTES)
        self._other = self._random(total_bytes // WORD_BYTES)
        self._sink = self._random(16384)

    @property
    def total_bytes(self) -> int:
        """Bytes of the buffer."""
        return int(self._buffer.numel()) * WORD_BYTES

    def stream(self, access: Access, size: int, config: StreamConfig, sets: int) -> Subject:
        """Stream `size` bytes (read, or half of them read and half written) a launch.

        Args:
            access: what is done.
            size: bytes moved by a launch, a multiple of 8.
            config: of the kernel.
            sets: disjoint slices to cycle; 1 = the same one each time.
        """
        read_only = access is Access.READ
        words = size // WORD_BYTES if read_only else size // (2 * WORD_BYTES)
        step = min(words, self._buffer.numel())
        slices = [self._slices(i * step, words, read_only) for i in range(sets)]
        kernel, grid = self._kernels.read_write, (-(-words // config.block),)
        if read_only:
            kernel = self._kernels.read
        if read_only and config.programs_a_sm:
            kernel = self._kernels.read_persistent
            grid = (min(grid[0], config.programs_a_sm * self._sm_count),)

        def run(src: Any, dst: Any) -> None:
            kernel[grid](src, dst, words, BLOCK=config.block, num_warps=config.warps)

        outputs = (self._sink,) if read_only else ()
        return Subject(run, streamed=slices[0], outputs=outputs, sets=tuple(slices[1:]))

    def in_flight(self, size: int, programs: int, sets: int) -> Subject:
        """Read `size` bytes a launch with `programs` x 4 KiB in flight."""
        words = size // WORD_BYTES
        kernel = self._kernels.read_in_flight
        slices = [self._slices(i * words, words, True) for i in range(sets)]

        def run(src: Any, dst: Any) -> None:
            kernel[(programs,)](src, dst, words, BLOCK=IN_FLIGHT_BLOCK, num_warps=4)

        return Subject(run, slices[0], outputs=(self._sink,), sets=tuple(slices[1:]))

    def unpack(self, kind: str, rounds: int, programs: int) -> tuple[Subject, int]:
        """Unpack weights in registers, and how many a launch converts.

        Args:
            kind: a key of `WEIGHTS_A_WORD`.
            rounds: conversions of each word.
            programs: of 1,024 words.
        """
        kernel = getattr(self._kernels, f"unpack_{kind}")

        def run(src: Any, dst: Any) -> None:
            kernel[(programs,)](src, dst, rounds, BLOCK=1024, num_warps=4)

        weights = programs * 1024 * WEIGHTS_A_WORD[kind] * rounds
        return Subject(run, (self._buffer,), outputs=(self._sink,)), weights

    def smallest_launch(self) -> Subject:
        """One program that touches one word."""
        kernel = self._kernels.touch

        def run(x: Any) -> None:
            kernel[(1,)](x, num_warps=1)

        return Subject(run, streamed=(self._sink,))

    def _slices(self, start: int, words: int, read_only: bool) -> tuple[Any, ...]:
        src = self._buffer[start : start + words]
        return (src,) if read_only else (src, self._other[start : start + words])

    def _random(self, words: int) -> Any:
        torch = self._torch
        return torch.randint(1, 1 << 30, (words,), dtype=torch.int32, device=self._where)


def stream_kernels() -> Any:
    """The module of the streaming kernels.

    Raises:
        MissingDependency: triton is not installed.
    """
    try:
        return import_module("kernel_compass.measurement.stream_kernels")
    except ImportError as error:
        raise MissingDependency(
            f"Measuring bandwidth needs Triton, which cannot be imported ({error}).",
            "Install it: pip install torch triton nvidia-ml-py.",
        ) from None


@dataclass(frozen=True)
class Product:
    """A large square matrix product of one format."""

    format: str
    """`bf16`, `fp8`, `int8`, `fp32`."""
    subject: Subject
    flops: int


def products(device: TorchDevice, formats: Sequence[str], size: int) -> list[Product]:
    """The products that this card and this torch can do; the others are left out.

    Args:
        device: the GPU.
        formats: wanted, of `bf16`, `fp8`, `int8`, `fp32`.
        size: rows and columns.
    """
    makers: dict[str, Callable[[TorchDevice, int], Subject]] = {
        "bf16": _bf16,
        "fp8": _fp8,
        "int8": _int8,
        "fp32": _fp32,
    }
    found = []
    for name in formats:
        side = size // 2 if name == "fp32" else size
        try:
            subject = makers[name](device, side)
            device.run(subject.first_call)
        except Exception as error:
            device.release()
            if isinstance(error, device.torch.OutOfMemoryError):
                raise
            continue  # this card or this torch has no such product; the caller says so
        found.append(Product(name, subject, 2 * side**3))
    return found


def _bf16(device: TorchDevice, n: int) -> Subject:
    torch = device.torch
    a, b = (_normal(device, n).to(torch.bfloat16) for _ in range(2))
    return Subject(torch.mm, (a, b))


def _fp32(device: TorchDevice, n: int) -> Subject:
    torch = device.torch
    return Subject(torch.mm, (_normal(device, n), _normal(device, n)))


def _fp8(device: TorchDevice, n: int) -> Subject:
    torch = device.torch
    a, b = (_normal(device, n).to(torch.float8_e4m3fn) for _ in range(2))
    one = torch.ones((), device=a.device)

    def run(x: Any, y: Any) -> Any:
        return torch._scaled_mm(x, y.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

    return Subject(run, (a, b))


def _int8(device: TorchDevice, n: int) -> Subject:
    torch = device.torch
    where = f"cuda:{device.index}"
    a, b = (torch.randint(-127, 128, (n, n), dtype=torch.int8, device=where) for _ in range(2))

    def run(x: Any, y: Any) -> Any:
        return torch._int_mm(x, y.t())

    return Subject(run, (a, b))


def _normal(device: TorchDevice, n: int) -> Any:
    return device.torch.randn(n, n, device=f"cuda:{device.index}")
