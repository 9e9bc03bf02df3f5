"""The time of one launch: the slope between n and 2n launches of a primed queue.

A replay of n launches takes `T(n) = a + n b`; `b` is the time of a launch, `a` the replay's own
cost, which a plain `T(n) / n` spreads over the launches and so makes short kernels look slow. One
sample is `T(2n) - T(n)` over n. Every timed replay follows an untimed one of the same launches, so
that each launch finds the caches as its own regime leaves them.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from kernel_compass.errors import MeasurementCause, MeasurementError
from kernel_compass.measurement.clocks import clock_warnings, summarize
from kernel_compass.measurement.device import Call, ClockReading, NotCapturable, TimingDevice
from kernel_compass.measurement.honesty import check_subject, refuse_if_not_cold
from kernel_compass.measurement.subject import Subject, rotation, streamed_bytes, subject_of
from kernel_compass.records.measurement import ColdMethod, LaunchMode, Measurement
from kernel_compass.records.profile import Regime

SETTLE_US = 20_000.0
"""GPU time of the warm-up before the first sample: clocks have ramped up."""
PILOT_LAUNCHES = 16
SPREAD_WARNING_PCT = 10.0
LAUNCHES_A_GRAPH = 8192
"""Most launches of the longer replay: capturing takes about 10 us each."""


@dataclass(frozen=True)
class TimingOptions:
    """How long and how carefully to look."""

    samples: int = 25
    replay_us: float = 200.0
    """A replay of n launches takes at least this long."""
    rotation_bytes: int | None = None
    """Total of the rotated sets; default 1 GiB, and never under 8 times L2."""
    cold_method: ColdMethod | None = None
    """`None` = rotated, and of two that are timed in turns flushed where either is too small."""
    settle_us: float = SETTLE_US
    launches: int | None = None
    """n, where it is prescribed; default: what `replay_us` needs."""
    check: bool = True
    """Whether inputs, side streams and the L2 carve-out are examined first."""


@dataclass
class Tap:
    """One of the launches of the longer replay, drawn at random, whose result is kept."""

    index: int = -1
    """Among the launches of the replay."""
    result: Any = None

    def into(self, calls: list[Call], before: int) -> list[Call]:
        """The same calls, with one launch that keeps its result.

        Args:
            calls: launches, each after what precedes it.
            before: how many calls precede each.
        """
        self.index = secrets.randbelow(len(calls) // (before + 1))
        place = self.index * (before + 1) + before
        launch = calls[place]

        def kept() -> None:
            self.result = launch()

        return [*calls[:place], kept, *calls[place + 1 :]]


@dataclass(frozen=True)
class Plan:
    """Everything to time one subject in one regime, captured."""

    short: Call
    """n launches."""
    long: Call
    """2n launches."""
    launches: int
    sets: int
    mode: LaunchMode
    reason: str | None = None
    bare: tuple[Call, Call] | None = None
    """The same without the subject: what runs in between alone, n and 2n times."""

    @property
    def primed(self) -> bool:
        """Eager launches are timed as the CPU issues them."""
        return self.mode is LaunchMode.GRAPH


def measure(
    timed: Subject | Callable[[], object],
    device: TimingDevice,
    regime: Regime = Regime.WARM,
    launch_mode: LaunchMode = LaunchMode.GRAPH,
    between: Sequence[Call] = (),
    options: TimingOptions | None = None,
) -> Measurement:
    """The time of one launch in one regime.

    Args:
        timed: what is timed.
        device: the GPU.
        regime: `cold`, `warm` or `in_situ`.
        launch_mode: `eager` is the time a launch takes in a stream of launches that the CPU
            issues one by one; where it issues slower than the GPU works, that is the CPU's time.
        between: for `in_situ`, the calls that precede each launch in the program; the time of
            the launch is that of the whole less that of these alone.
        options: effort and checks.

    Raises:
        MeasurementError: the callable fails, does nothing on the GPU, has constant inputs, leaves
            work on side streams, or cannot be cold; the GPU is out of memory.
    """
    options = options or TimingOptions()
    subject, regime, launch_mode = subject_of(timed), regime_of(regime), LaunchMode(launch_mode)
    unseen = check_subject(subject, device) if options.check else ()
    try:
        prepared = prepare(subject, device, regime, between, options)
        n = options.launches or prepared.launches_needed(device, options)
        plan = prepared.plan(device, n, launch_mode)
        found = run_plan(plan, subject, device, regime, options)
        return replace(found, warnings=(*found.warnings, *unseen))
    finally:
        if regime is Regime.COLD and not subject.sets:
            device.release()  # the rotated copies


def regime_of(regime: Regime | str) -> Regime:
    """The regime, also by its name.

    Raises:
        MeasurementError: there is none of that name.
    """
    try:
        return Regime(regime)
    except ValueError:
        raise MeasurementError(
            MeasurementCause.REGIME,
            f"There is no regime {regime!r}.",
            "Name cold, warm or in_situ.",
        ) from None


@dataclass(frozen=True)
class Prepared:
    """One subject in one regime, before the number of launches is known."""

    calls: tuple[Call, ...]
    """The launch on each set of streamed operands."""
    before: tuple[Call, ...]
    """What precedes each launch."""
    operands: tuple[tuple[Any, ...], ...] = ()
    """Streamed and resident ones of each of these calls."""

    def launches_needed(self, device: TimingDevice, options: TimingOptions) -> int:
        """n: whole cycles of the sets, long enough for the events' resolution."""
        pilot = _sequence(self, min(PILOT_LAUNCHES, max(len(self.calls), 4)))
        count = len(pilot) // (1 + len(self.before))
        device.elapsed_us(lambda: _issue(pilot))
        each = max(device.elapsed_us(lambda: _issue(pilot)) / count, 0.3)
        most = max(LAUNCHES_A_GRAPH // (2 * (1 + len(self.before))), 1)
        rounds = math.ceil(min(options.replay_us / each, most) / len(self.calls))
        return len(self.calls) * max(rounds, 1)

    def plan(
        self, device: TimingDevice, n: int, launch_mode: LaunchMode, tap: Tap | None = None
    ) -> Plan:
        """The replays of n and of 2n launches; eager where they cannot be captured."""
        reason = None
        if launch_mode is LaunchMode.GRAPH:
            try:
                return _captured(self, n, device, tap)
            except NotCapturable as error:
                reason = str(error)
        return _issued(self, n, reason, tap)


def prepare(
    subject: Subject,
    device: TimingDevice,
    regime: Regime,
    between: Sequence[Call] = (),
    options: TimingOptions | None = None,
) -> Prepared:
    """Operand sets, and what runs in between.

    Args:
        subject: what is timed.
        device: the GPU.
        regime: which sets are cycled.
        between: what runs before each launch, in situ; default: the subject's own.
        options: effort.

    Raises:
        MeasurementError: the regime cannot be made.
    """
    options, regime = options or TimingOptions(), regime_of(regime)
    before = _between(device, regime, between or subject.between, bool(between), options)
    sets = _sets(subject, device, regime, options)
    operands = tuple((*one, *subject.resident) for one in sets)
    return Prepared(tuple(subject.call(one) for one in sets), before, operands)


def run_plan(
    plan: Plan, subject: Subject, device: TimingDevice, regime: Regime, options: TimingOptions
) -> Measurement:
    """Warm up, take the samples, and say what speaks against them."""
    settle(plan, device, options.settle_us)
    readings: list[ClockReading] = []
    samples, overheads = [], []
    unprimed = device.unprimed()
    for index in range(options.samples):
        slope, overhead = sample(plan, device, index % 2 == 1)
        samples.append(slope)
        overheads.append(overhead)
        reading = device.clocks() if index % 4 == 0 else None
        if reading:
            readings.append(reading)
    clocks = summarize(readings)
    cold = (options.cold_method or ColdMethod.ROTATE) if regime is Regime.COLD else None
    result = Measurement(
        samples_us=tuple(samples),
        regime=regime,
        launch_mode=plan.mode,
        launches_per_replay=plan.launches,
        operand_sets=plan.sets,
        streamed_bytes=streamed_bytes(subject, device),
        clocks=clocks,
        environment=device.environment(),
        cold_method=cold,
        fallback_reason=plan.reason,
        warnings=(*clock_warnings(clocks), *_late(device.unprimed() - unprimed)),
        replay_overhead_us=median(overheads),
    )
    return _judged(result, device)


def sample(plan: Plan, device: TimingDevice, long_first: bool = False) -> tuple[float, float]:
    """One slope, and the replay's own cost `2 T(n) - T(2n)`, microseconds."""
    slope, overhead = _slope(plan.short, plan.long, plan, device, long_first)
    if plan.bare is not None:
        alone, _ = _slope(*plan.bare, plan, device, long_first)
        slope -= alone
    return slope, overhead


def settle(plan: Plan, device: TimingDevice, settle_us: float) -> None:
    """Run until the clocks have ramped up."""
    spent = 0.0
    while spent < settle_us:
        spent += max(device.elapsed_us(plan.long, primed=plan.primed), 1.0)


def _slope(
    short: Call, long: Call, plan: Plan, device: TimingDevice, long_first: bool
) -> tuple[float, float]:
    def time(work: Call) -> float:
        return device.elapsed_us(work, before=short, primed=plan.primed)

    if long_first:
        t2 = time(long)
        t1 = time(short)
    else:
        t1 = time(short)
        t2 = time(long)
    return (t2 - t1) / plan.launches, 2 * t1 - t2


def _late(times: int) -> tuple[str, ...]:
    if not times:
        return ()
    return (f"{times} replays began before all was enqueued: the CPU's pace is in their times",)


def _judged(result: Measurement, device: TimingDevice) -> Measurement:
    if result.median_us <= 0:
        raise MeasurementError(
            MeasurementCause.UNSTABLE,
            f"The slope is {result.median_us:.3f} us a launch: lost in noise.",
            "Does it do the same work at every call? If so, time it with longer replays "
            "(TimingOptions(replay_us=...)) on a quiet GPU.",
        )
    if result.regime is Regime.COLD:
        refuse_if_not_cold(result.streamed_bytes, result.median_us, device)
    if result.spread_pct > SPREAD_WARNING_PCT:
        text = f"half of the samples lie {result.spread_pct:.0f} % or more from the median"
        return replace(result, warnings=(*result.warnings, text))
    return result


def _between(
    device: TimingDevice,
    regime: Regime,
    between: Sequence[Call],
    asked: bool,
    options: TimingOptions,
) -> tuple[Call, ...]:
    if regime is Regime.IN_SITU and between:
        return tuple(between)
    if regime in (Regime.IN_SITU, Regime.UNKNOWN):
        raise MeasurementError(
            MeasurementCause.REGIME,
            f"The regime is {regime.value}, and nothing says what runs between the launches.",
            "Pass between=[...], the calls that precede each launch in the program; or time it "
            "warm and cold.",
        )
    if asked:
        raise MeasurementError(
            MeasurementCause.REGIME,
            f"Calls in between belong to the regime in_situ, and {regime.value} was asked for.",
            "Pass regime=Regime.IN_SITU, or no calls in between.",
        )
    flushing = regime is Regime.COLD and options.cold_method is ColdMethod.FLUSH
    return (device.flush(),) if flushing else ()


def _sets(
    subject: Subject, device: TimingDevice, regime: Regime, options: TimingOptions
) -> tuple[tuple[Any, ...], ...]:
    if regime is Regime.COLD and options.cold_method is not ColdMethod.FLUSH:
        return rotation(subject, device, options.rotation_bytes)
    return (subject.streamed,)


def _sequence(prepared: Prepared, n: int) -> list[Call]:
    """n launches with what precedes each, cycling the sets."""
    calls, before = prepared.calls, prepared.before
    return [c for i in range(n) for c in (*before, calls[i % len(calls)])]


def _tapped(prepared: Prepared, n: int, tap: Tap | None) -> list[Call]:
    calls = _sequence(prepared, n)
    return calls if tap is None else tap.into(calls, len(prepared.before))


def _captured(prepared: Prepared, n: int, device: TimingDevice, tap: Tap | None) -> Plan:
    short = device.capture(_sequence(prepared, n))
    long = device.capture(_tapped(prepared, 2 * n, tap))
    bare = None
    if prepared.before:
        bare = tuple(device.capture([*prepared.before] * times) for times in (n, 2 * n))
    return _plan(prepared, short, long, n, LaunchMode.GRAPH, bare)


def _issued(prepared: Prepared, n: int, reason: str | None, tap: Tap | None) -> Plan:
    def issue(work: Sequence[Call]) -> Call:
        return lambda: _issue(work)

    short, long = issue(_sequence(prepared, n)), issue(_tapped(prepared, 2 * n, tap))
    bare = None
    if prepared.before:
        bare = tuple(issue([*prepared.before] * times) for times in (n, 2 * n))
    return _plan(prepared, short, long, n, LaunchMode.EAGER, bare, reason)


def _plan(
    prepared: Prepared,
    short: Call,
    long: Call,
    n: int,
    mode: LaunchMode,
    bare: tuple[Call, ...] | None,
    reason: str | None = None,
) -> Plan:
    pair = None if bare is None else (bare[0], bare[1])
    return Plan(short, long, n, len(prepared.calls), mode, reason, pair)


def _issue(calls: Sequence[Call]) -> None:
    for call in calls:
        call()
