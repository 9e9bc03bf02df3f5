"""The live calibration of one GPU: every ceiling timed by slope, in one process.

The order is that of need: launch costs first, then the curves, the capacity they show, products,
unpacking, bytes in flight, and a kernel against itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from time import sleep
from typing import Any

from kernel_compass.analysis.capacity import c_eff
from kernel_compass.analysis.capacity_grid import refine_grid, working_sets
from kernel_compass.measurement.clocks import clock_warnings, summarize
from kernel_compass.measurement.datasheets import datasheet
from kernel_compass.measurement.device import ClockReading
from kernel_compass.measurement.paired import pair
from kernel_compass.measurement.probes import (
    IN_FLIGHT_BLOCK,
    PERSISTENT_CONFIGS,
    STREAM_CONFIGS,
    WEIGHTS_A_WORD,
    WORD_BYTES,
    StreamConfig,
    StreamProbes,
    products,
)
from kernel_compass.measurement.subject import COLD_L2_MULTIPLE, Subject
from kernel_compass.measurement.timing import TimingOptions, measure
from kernel_compass.measurement.torch_device import TorchDevice
from kernel_compass.records.calibration import (
    Access,
    Basis,
    Calibration,
    CurvePoint,
    NoiseFloor,
    Quantity,
    StreamCurve,
)
from kernel_compass.records.measurement import LaunchMode, Measurement, PairedSamples
from kernel_compass.records.profile import Regime
from kernel_compass.units import MIB

FORMATS = ("bf16", "fp8", "int8", "fp32")
PEAK_PAUSE_S = 0.1
"""Idle before each try: what a card may draw is averaged over about as long."""
UNPACKED = tuple(WEIGHTS_A_WORD)
IN_FLIGHT_SHARE = 0.9
"""Of the plateau: from there on more bytes in flight add little."""
IN_FLIGHT_BYTES = 256 * MIB
"""A size of both grids, so that the buffer holds its rotated sets; long beside a launch."""
NOISE_BYTES = 16 * MIB
NOISE_LAUNCHES = 64


@dataclass(frozen=True)
class Effort:
    """How long a calibration looks."""

    samples: int
    configs: Sequence[StreamConfig]
    persistent: Sequence[StreamConfig]
    product_size: int
    refinements: int
    """Times the warm curve is made denser around its cliff."""
    refine_points: int
    peak_tries: int
    """Times each matrix product is tried for its peak, after a pause each; one takes 0.9 s."""


ANCHORS = tuple(round(mib * MIB) for mib in (0.5, 2, 8, 32, 128))
"""Sizes at which all configurations of a stream are tried."""

FULL = Effort(11, STREAM_CONFIGS, PERSISTENT_CONFIGS, 8192, 2, 24, 3)
QUICK = Effort(5, STREAM_CONFIGS[1:3], PERSISTENT_CONFIGS[:1], 8192, 2, 6, 1)


def cold_sets(size: int, l2_bytes: int) -> int:
    """How many sets of `size` bytes are rotated: at least two, and 8 times L2 in all."""
    return max(2, -(-COLD_L2_MULTIPLE * l2_bytes // size))


def stream_bytes(l2_bytes: int, quick: bool) -> int:
    """The buffer that holds the rotated sets of every size of the grid."""
    return max(cold_sets(size, l2_bytes) * size for size in working_sets(quick))


@dataclass(frozen=True)
class CalibrationProgress:
    """How far the live procedure is."""

    part: str
    """What is being measured, in words."""
    done: int
    total: int


OnProgress = Callable[[CalibrationProgress], None]


def run_calibration(
    quick: bool = False, on_progress: OnProgress | None = None, index: int = 0
) -> Calibration:
    """Measure one GPU's ceilings.

    Args:
        quick: fewer sizes, samples and configurations.
        on_progress: told before each part.
        index: of the device, as CUDA counts.

    Raises:
        MissingDependency: torch or triton is not installed.
        MeasurementError: no GPU, or too little memory on it.
    """
    return _Run(TorchDevice(index), quick, on_progress or (lambda _: None)).calibration()


def noise_samples(pairs: int, process: int = 0, index: int = 0) -> PairedSamples:
    """One kernel against itself in this process: the raw material of the noise floor.

    Args:
        pairs: ABBA blocks.
        process: which fresh process this is.
        index: of the device.
    """
    device = TorchDevice(index)
    scattered = device.scatter(process)
    probes = StreamProbes(device, 4 * NOISE_BYTES)
    del scattered
    subject = probes.stream(Access.READ, NOISE_BYTES, STREAM_CONFIGS[2], 1)
    # The same n in every process: pairs of different replays are not compared.
    options = TimingOptions(launches=NOISE_LAUNCHES, check=False)
    timer = pair(subject, subject, device, options=options)
    return timer.take(pairs, process)


def warm_capacity(quick: bool = False, index: int = 0) -> tuple[Quantity, StreamCurve]:
    """The effective capacity alone, and the curve it was read from."""
    run = _Run(TorchDevice(index), quick, lambda _: None)
    probes = StreamProbes(run.device, max(working_sets(quick)))
    curve = run.curve(probes, Access.READ, Regime.WARM)
    return c_eff(*_arrays(curve.points)), curve


@dataclass
class _Run:
    device: TorchDevice
    quick: bool
    tell: OnProgress
    readings: list[ClockReading] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    winners: dict[tuple[Access, Regime, int], StreamConfig] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.effort = QUICK if self.quick else FULL
        self.options = TimingOptions(
            samples=self.effort.samples,
            rotation_bytes=0,
            settle_us=2_000.0,
            check=False,
        )
        self.done = 0
        # Launch cost, curves, products, unpacking, bytes in flight.
        self.total = 2 + 4 * len(working_sets(self.quick)) + len(FORMATS) + len(UNPACKED)

    def calibration(self) -> Calibration:
        """Everything, in order."""
        self._step("launch cost")
        probes = StreamProbes(self.device, stream_bytes(self.device.l2_bytes, self.quick))
        t0_graph = self._launch_cost(probes, LaunchMode.GRAPH)
        t0_eager = self._launch_cost(probes, LaunchMode.EAGER)
        curves = tuple(self.curve(probes, a, r) for a, r in _CURVES)
        warm = next(c for c in curves if (c.access, c.regime) == (Access.READ, Regime.WARM))
        return Calibration(
            name=_slug(self.device.environment().device.name),
            environment=self.device.environment(),
            launch_mode=LaunchMode.GRAPH,
            curves=curves,
            c_eff_bytes=c_eff(*_arrays(warm.points)),
            peak_tflops=self._peaks(),
            dequantization_tweights_s=self._unpacking(probes),
            t0_graph_us=t0_graph,
            t0_eager_us=t0_eager,
            bytes_in_flight=self._in_flight(probes),
            noise=NoiseFloor(_NO_NOISE, _NO_NOISE),
            datasheet=datasheet(self.device.environment().device.name),
            notes=(*self.notes, *clock_warnings(summarize(self.readings))),
        )

    def _step(self, part: str) -> None:
        self.tell(CalibrationProgress(part, min(self.done, self.total - 1), self.total))
        self.done += 1
        reading = self.device.clocks()
        if reading:
            self.readings.append(reading)

    def _time(self, subject: Subject, regime: Regime = Regime.WARM, **changes: Any) -> Measurement:
        options = replace(self.options, **changes)
        return measure(subject, self.device, regime, options=options)

    def _launch_cost(self, probes: StreamProbes, mode: LaunchMode) -> Quantity:
        options = replace(self.options, samples=max(self.effort.samples, 11))
        found = measure(probes.smallest_launch(), self.device, launch_mode=mode, options=options)
        return _quantity(found, 1.0, f"slope of one-program launches, {mode.value}")

    def curve(self, probes: StreamProbes, access: Access, regime: Regime) -> StreamCurve:
        """Times over the working set; the warm read curve is made dense around its cliff."""
        points: dict[int, CurvePoint] = {}
        dense = access is Access.READ and regime is Regime.WARM
        todo: Sequence[int] = working_sets(self.quick)
        for round_ in range(1 + (self.effort.refinements if dense else 0)):
            for size in todo:
                self._step(f"{_WORDS[access]}, {_NAMES[regime]}, {size / MIB:g} MiB")
                points[size] = self._point(probes, access, regime, size, round_ > 0)
            ordered = tuple(points[size] for size in sorted(points))
            if dense and round_ < self.effort.refinements:
                todo = refine_grid(*_arrays(ordered), max_points=self.effort.refine_points)
                self.total += len(todo)
        source = f"slope of a {_WORDS[access]} stream, best of {len(self._configs(access))} forms"
        return StreamCurve(access, regime, ordered, source)

    def _point(
        self,
        probes: StreamProbes,
        access: Access,
        regime: Regime,
        size: int,
        near_cliff: bool = False,
    ) -> CurvePoint:
        """The best time of the configurations that won at the nearest anchors; of all near the
        cliff, where they differ in how they use L2.
        """
        anchors = sorted(ANCHORS, key=lambda anchor: abs(math.log(anchor / size)))[:2]
        configs = dict.fromkeys(self._winner(probes, access, regime, a) for a in anchors)
        if near_cliff:
            configs = dict.fromkeys(self._configs(access))
        times = [self._stream(probes, access, regime, size, c).median_us for c in configs]
        return CurvePoint(size, min(times))

    def _winner(
        self, probes: StreamProbes, access: Access, regime: Regime, size: int
    ) -> StreamConfig:
        key = (access, regime, size)
        if key not in self.winners:
            trial = {"samples": 3, "replay_us": 100.0, "settle_us": 500.0}

            def time(config: StreamConfig) -> float:
                return self._stream(probes, access, regime, size, config, **trial).median_us

            self.winners[key] = min(self._configs(access), key=time)
        return self.winners[key]

    def _configs(self, access: Access) -> Sequence[StreamConfig]:
        persistent = self.effort.persistent if access is Access.READ else ()
        return (*self.effort.configs, *persistent)

    def _stream(
        self,
        probes: StreamProbes,
        access: Access,
        regime: Regime,
        size: int,
        config: StreamConfig,
        **changes: Any,
    ) -> Measurement:
        sets = cold_sets(size, self.device.l2_bytes) if regime is Regime.COLD else 1
        return self._time(probes.stream(access, size, config, sets), regime, **changes)

    def _peaks(self) -> dict[str, Quantity]:
        found = {}
        for name in FORMATS:
            self._step(f"{name} matrix product")
            made = products(self.device, [name], self.effort.product_size)
            if not made:
                found[name] = Quantity(
                    None, Basis.ABSENT, "this card or PyTorch has no such product"
                )
                continue
            side = round((made[0].flops / 2) ** (1 / 3))
            source = f"torch product of {side} x {side} x {side}, random data, the faster quartile"
            rates = []
            for _ in range(self.effort.peak_tries):
                sleep(PEAK_PAUSE_S)
                time = self._time(made[0].subject, samples=5, settle_us=3_000.0)
                rates.append(_rate(time, made[0].flops / 1e6, source))
            # A peak is what the card can reach: power capping slows products that follow others,
            # so each try comes after a pause, and the best one counts.
            best = max(rates, key=lambda rate: rate.high or 0.0)
            found[name] = replace(best, value=best.high)
            del made
            self.device.release()
        return found

    def _unpacking(self, probes: StreamProbes) -> dict[str, Quantity]:
        found = {}
        programs = 16 * self.device.sm_count
        for kind in UNPACKED:
            self._step(f"unpacking {kind}")
            subject, weights = probes.unpack(kind, 64, programs)
            source = f"in registers, {programs} programs, one use a weight or pair"
            found[kind] = _rate(self._time(subject), weights / 1e6, source)
        return found

    def _in_flight(self, probes: StreamProbes) -> dict[str, Quantity]:
        self._step("bytes in flight")
        many = cold_sets(IN_FLIGHT_BYTES, self.device.l2_bytes)
        levels = {
            "dram": (Regime.COLD, IN_FLIGHT_BYTES, many),
            "l2": (Regime.WARM, 16 * MIB, 1),
        }
        return {
            level: self._saturation(probes, regime, size, sets)
            for level, (regime, size, sets) in levels.items()
        }

    def _saturation(self, probes: StreamProbes, regime: Regime, size: int, sets: int) -> Quantity:
        """Bytes in flight from which on the bandwidth is 90 % of its plateau."""
        each = IN_FLIGHT_BLOCK * WORD_BYTES
        steps = (1, 2, 3, 4, 6, 8, 12, 16)
        programs = [step * self.device.sm_count for step in steps]
        times = [
            self._time(probes.in_flight(size, p, sets), regime, samples=5).median_us
            for p in programs
        ]
        wanted = min(times) / IN_FLIGHT_SHARE
        first = next(i for i, t in enumerate(times) if t <= wanted)
        low = programs[first - 1] * each if first else 0
        value = float(programs[first] * each)
        source = f"{size // MIB} MiB by programs of 4 KiB in flight each"
        return Quantity(value, Basis.MEASURED, source, float(low), value)


_CURVES: Iterable[tuple[Access, Regime]] = (
    (Access.READ, Regime.WARM),
    (Access.READ, Regime.COLD),
    (Access.READ_WRITE, Regime.WARM),
    (Access.READ_WRITE, Regime.COLD),
)
_NO_NOISE = Quantity(None, Basis.ABSENT, "one process cannot see the noise between processes")
_WORDS = {Access.READ: "read", Access.READ_WRITE: "read and write"}
_NAMES = {Regime.WARM: "re-read", Regime.COLD: "rotated"}


def _arrays(points: Sequence[CurvePoint]) -> tuple[list[int], list[float]]:
    return [point.bytes for point in points], [point.duration_us for point in points]


def _quantity(found: Measurement, factor: float, source: str) -> Quantity:
    low, high = found.quantile_us(0.25) * factor, found.quantile_us(0.75) * factor
    return Quantity(found.median_us * factor, Basis.MEASURED, source, low, high)


def _rate(found: Measurement, amount: float, source: str) -> Quantity:
    """Amount (1e6 operations) a microsecond = 1e12 operations a second."""
    rates = sorted(amount / found.quantile_us(q) for q in (0.25, 0.75))
    return Quantity(amount / median(found.samples_us), Basis.MEASURED, source, *rates)


def _slug(name: str | None) -> str:
    words = (name or "gpu").lower().replace("nvidia", "").split()
    return "-".join(words) or "gpu"
