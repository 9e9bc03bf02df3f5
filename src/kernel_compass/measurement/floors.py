"""The floor of a product in one run: what streaming its operands takes beside the kernel itself.

A calibration's curves are another run's; here the same bytes (packed weights and scales,
activations, outputs) are moved on the same card in the same minutes, the weights rotated and all of
it replayed as the kernel's are. The best of a few tile sizes counts. The arithmetic is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernel_compass.errors import MeasurementCause, MeasurementError, UsageError
from kernel_compass.measurement.probes import WORD_BYTES, stream_kernels
from kernel_compass.measurement.subject import (
    COLD_L2_MULTIPLE,
    ROTATION_BYTES,
    Subject,
    set_count,
)
from kernel_compass.measurement.timing import TimingOptions, measure
from kernel_compass.measurement.torch_device import TorchDevice
from kernel_compass.records.profile import Regime
from kernel_compass.units import bytes_text

OUTPUT_BYTES = 2
SHARE_ALIGNMENT = 16
"""Shares of a program are multiples of this: Triton then knows that accesses can be 16 bytes."""
MOST_AT_ONCE = 4096
"""Activations read, or outputs written, by a program at a time."""
_SLICE_WORDS = 128
"""Slices start at multiples of 512 bytes, as allocations do."""


@dataclass(frozen=True)
class PackedConfig:
    """A tile of the streaming kernel."""

    words: int
    """32-bit words a program."""
    warps: int


PACKED_CONFIGS = (
    PackedConfig(512, 2),
    PackedConfig(1024, 4),
    PackedConfig(2048, 4),
    PackedConfig(2048, 8),
    PackedConfig(4096, 8),
    PackedConfig(8192, 8),
)
KEPT_CONFIGS = 2
"""So many of the best are tried again for the same weights with other outputs."""


@dataclass(frozen=True)
class PackedShape:
    """What one launch moves."""

    weight_bytes: int
    scale_bytes: int
    """Scales and zero points; 0 where there are none."""
    output_bytes: int
    activation_bytes: int = 0
    """Read once, warm in every regime; 0 = left out."""

    def __post_init__(self) -> None:
        least = min(self.weight_bytes, self.output_bytes, 1 + self.scale_bytes)
        if min(least, 1 + self.activation_bytes) < 1:
            raise UsageError(
                f"{self.weight_bytes} bytes of weights, {self.scale_bytes} of scales and "
                f"{self.output_bytes} of outputs are no product.",
                "Weights and outputs have a byte at least.",
            )

    @property
    def words(self) -> int:
        """Words of weights, the last one padded."""
        return -(-self.weight_bytes // WORD_BYTES)

    @property
    def scale_words(self) -> int:
        """Words of scales, the last one padded."""
        return -(-self.scale_bytes // WORD_BYTES)

    @property
    def resident_words(self) -> int:
        """Words of activations, the last one padded."""
        return -(-self.activation_bytes // WORD_BYTES)

    @property
    def outputs(self) -> int:
        """16-bit outputs."""
        return -(-self.output_bytes // OUTPUT_BYTES)


@dataclass(frozen=True)
class StreamedFloor:
    """The best time of the streaming kernel."""

    time_us: float
    config: PackedConfig
    spread_pct: float
    launches: int


def launch_packed(
    kernel: Any,
    shape: PackedShape,
    config: PackedConfig,
    src: Any,
    scales: Any,
    resident: Any,
    dst: Any,
) -> None:
    """One launch of `stream_packed`; each program takes an even share of all but the weights."""
    programs = -(-shape.words // config.words)
    scale_share = _share(shape.scale_words, programs)
    resident_share = _share(shape.resident_words, programs)
    output_share = _share(shape.outputs, programs)
    kernel[(programs,)](
        src,
        scales,
        resident,
        dst,
        shape.words,
        shape.scale_words,
        shape.resident_words,
        shape.outputs,
        scale_share,
        resident_share,
        output_share,
        WORDS=config.words,
        SCALES=_power_of_two(max(scale_share, SHARE_ALIGNMENT)),
        RESIDENT=_at_once(resident_share),
        OUTPUTS=_at_once(output_share),
        num_warps=config.warps,
    )


class StreamingFloors:
    """Floors of one device, measured as they are asked for, each once.

    Args:
        device: the GPU.
        options: as for the kernels they stand beside; `launches` is given with each floor.
        configs: tiles that are tried.
    """

    def __init__(
        self,
        device: TorchDevice,
        options: TimingOptions | None = None,
        configs: Sequence[PackedConfig] = PACKED_CONFIGS,
    ) -> None:
        self._device = device
        self._options = options or TimingOptions(check=False)
        self._configs = tuple(configs)
        self._kernel = stream_kernels().stream_packed
        self._buffer: Any = None
        self._resident: Any = None
        self._output: Any = None
        self._found: dict[tuple[PackedShape, Regime, int | None], StreamedFloor] = {}
        self._best: dict[tuple[int, int, Regime], tuple[PackedConfig, ...]] = {}

    def of(self, shape: PackedShape, regime: Regime, launches: int | None = None) -> StreamedFloor:
        """The floor of these bytes in a regime.

        Args:
            shape: what is moved.
            regime: `warm` or `cold`.
            launches: n, as of the kernels compared with it.

        Raises:
            MeasurementError: out of memory, or the regime cannot be made.
        """
        key = (shape, regime, launches)
        if key not in self._found:
            self._found[key] = self._measured(shape, regime, launches)
        return self._found[key]

    def compile(self, shape: PackedShape) -> None:
        """Launch every tile once: Triton's cache then holds what `of` will ask for.

        Raises:
            MeasurementError: out of memory, or a launch fails.
        """
        for config in self._configs:
            self._device.run(self._subject(shape, config, Regime.WARM, None).first_call)

    def _measured(self, shape: PackedShape, regime: Regime, launches: int | None) -> StreamedFloor:
        weights = (shape.weight_bytes, shape.scale_bytes, regime)
        configs = self._best.get(weights, self._configs)
        times = sorted(
            (self._timed(shape, config, regime, launches) for config in configs),
            key=lambda floor: floor.time_us,
        )
        self._best.setdefault(weights, tuple(f.config for f in times[:KEPT_CONFIGS]))
        return times[0]

    def _timed(
        self, shape: PackedShape, config: PackedConfig, regime: Regime, launches: int | None
    ) -> StreamedFloor:
        options = replace(self._options, launches=launches)
        subject = self._subject(shape, config, regime, launches)
        found = measure(subject, self._device, regime, options=options)
        return StreamedFloor(found.median_us, config, found.spread_pct, found.launches_per_replay)

    def _subject(
        self, shape: PackedShape, config: PackedConfig, regime: Regime, launches: int | None
    ) -> Subject:
        first = _aligned(shape.words)
        step = first + _aligned(shape.scale_words)
        count = 1
        if regime is Regime.COLD:
            enough = self._sets_enough((shape.words + shape.scale_words) * WORD_BYTES)
            count = min(enough, launches or enough)
        buffer = self._words(count, step)
        sets = [
            (buffer[i : i + shape.words], buffer[i + first : i + first + shape.scale_words])
            for i in range(0, count * step, step)
        ]
        kernel = self._kernel

        def run(src: Any, scales: Any, resident: Any, dst: Any) -> None:
            launch_packed(kernel, shape, config, src, scales, resident, dst)

        beside = self._activations(shape.resident_words)
        output = self._outputs(shape.outputs)
        return Subject(run, sets[0], (beside,), (output,), tuple(sets[1:]))

    def _sets_enough(self, one_bytes: int) -> int:
        """As many as a kernel's own copies: rounded down they could total too little to be cold."""
        least = COLD_L2_MULTIPLE * self._device.l2_bytes
        return set_count(one_bytes, max(least, self._options.rotation_bytes or ROTATION_BYTES))

    def _words(self, copies: int, step: int) -> Any:
        words = copies * step
        if self._buffer is None or self._buffer.numel() < words:
            self._buffer = None
            each = f"{copies} copies of {bytes_text(step * WORD_BYTES)} of " if copies > 1 else ""
            self._buffer = self._random(words, f"{each}weights and scales", rotated=copies > 1)
        return self._buffer

    def _activations(self, words: int) -> Any:
        if self._resident is None or self._resident.numel() < words:
            self._resident = self._random(max(words, SHARE_ALIGNMENT), "activations")
        return self._resident[: max(words, SHARE_ALIGNMENT)]

    def _random(self, words: int, what: str, rotated: bool = False) -> Any:
        torch, where = self._device.torch, f"cuda:{self._device.index}"

        def make() -> Any:
            return torch.randint(1, 1 << 30, (words,), dtype=torch.int32, device=where)

        return self._allocated(make, words * WORD_BYTES, what, rotated)

    def _outputs(self, count: int) -> Any:
        if self._output is None or self._output.numel() < count:
            torch, where = self._device.torch, f"cuda:{self._device.index}"

            def make() -> Any:
                return torch.empty(count, dtype=torch.int16, device=where)

            self._output = self._allocated(make, count * OUTPUT_BYTES, "outputs")
        return self._output[:count]

    def _allocated(
        self, make: Callable[[], Any], size: int, what: str, rotated: bool = False
    ) -> Any:
        try:
            return make()
        except self._device.torch.OutOfMemoryError as error:
            self._device.release()
            free = bytes_text(self._device.free_bytes())
            less = ", rotate over less (TimingOptions.rotation_bytes)" if rotated else ""
            raise MeasurementError(
                MeasurementCause.OUT_OF_MEMORY,
                f"The streaming floor needs {bytes_text(size)} for {what}, and {free} are free on "
                "the GPU.",
                f"Free memory{less}, or take a smaller shape.",
            ) from error


def streaming_floor(
    device: TorchDevice,
    weight_bytes: int,
    scale_bytes: int,
    output_bytes: int,
    regime: Regime,
    launches: int | None = None,
    activation_bytes: int = 0,
) -> StreamedFloor:
    """The floor of one product; for many of them keep a `StreamingFloors`.

    Raises:
        MissingDependency: triton is not installed.
        MeasurementError: out of memory, or the regime cannot be made.
    """
    shape = PackedShape(weight_bytes, scale_bytes, output_bytes, activation_bytes)
    return StreamingFloors(device).of(shape, regime, launches)


def _share(count: int, programs: int) -> int:
    each = -(-count // programs)
    return -(-each // SHARE_ALIGNMENT) * SHARE_ALIGNMENT


def _at_once(share: int) -> int:
    return min(_power_of_two(max(share, SHARE_ALIGNMENT)), MOST_AT_ONCE)


def _power_of_two(value: int) -> int:
    return 1 << (value - 1).bit_length()


def _aligned(words: int) -> int:
    return -(-words // _SLICE_WORDS) * _SLICE_WORDS
