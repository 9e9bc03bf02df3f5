"""The floor: the time a streaming kernel needs on this machine for the same bytes.

Measured and achievable, **not** a physical bound: a better streamer may be faster. In the formulas
R, C and S are the calibrated times (launch included) of re-reading, of reading from DRAM, and of
what writing adds to reading; W, A, O the bytes of weights, activations and outputs.

    warm    R(W + A + O) + S(O), but never more than cold: what DRAM gives, it gives here too
    cold    C(W) + [R(b) - R(b - A - O)] + S(O), b the working set of L2's best bandwidth

Activations and outputs are warm in every regime, so behind the weights they cost what so many more
bytes cost a stream that is already running: the difference on the warm curve's fast end holds no
launch. `in_situ` lies between the two. The arithmetic bounds them all: t0 + flops / peak, the peak
calibrated or, where it is not, the datasheet's; without either there is no floor.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernel_compass.analysis.peaks import peak_of
from kernel_compass.analysis.stream_time import Streams, Time, streams_of
from kernel_compass.records.calibration import Basis, Calibration
from kernel_compass.records.measurement import LaunchMode
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import Traffic

LAUNCH_SHARE = 0.5
"""From this share of the floor on, the launch's fixed cost is what bounds it."""
LEAST_REACHED = 0.45
"""Of a datasheet's peak, what a large product reaches at least (an H200: int8 49 %, fp8 74 %, bf16
80 %): arithmetic that would decide the floor at this rate makes it a guess."""


@dataclass(frozen=True)
class Floor:
    """An achievable time, and how it is known."""

    time_us: float
    """Launch included; for `in_situ` the warm end."""
    bound: str
    """What decides it: `dram`, `l2`, `compute` or `launch`."""
    basis: Basis
    """`measured` or `extrapolated`."""
    notes: tuple[str, ...] = ()
    """Why it is extrapolated."""
    high_us: float | None = None
    """The cold end for `in_situ`; `None` in a regime with one answer."""


def floor(
    traffic: Traffic,
    regime: Regime,
    calibration: Calibration,
    launch_mode: LaunchMode = LaunchMode.GRAPH,
) -> Floor | None:
    """The floor of one launch; `None` where the calibration does not say enough.

    Args:
        traffic: bytes and operations of the launch.
        regime: where the weights are before it; `unknown` has no floor.
        calibration: the machine.
        launch_mode: how it is launched; eager takes at least what the CPU needs to issue it.
    """
    return Floors(calibration, launch_mode).of(traffic, regime)


class Floors:
    """The floors of one machine in one launch mode; arguments as for `floor`."""

    def __init__(
        self, calibration: Calibration, launch_mode: LaunchMode = LaunchMode.GRAPH
    ) -> None:
        self._calibration = calibration
        self._launch_mode = launch_mode
        self._streams = streams_of(calibration)

    def of(self, traffic: Traffic, regime: Regime) -> Floor | None:
        """The floor of one launch; `None` where the calibration does not say enough."""
        if regime is Regime.WARM:
            return self._finished(_warm(traffic, self._streams), traffic)
        if regime is Regime.COLD:
            return self._finished(_cold(traffic, self._streams), traffic)
        return self._between(traffic) if regime is Regime.IN_SITU else None

    def _between(self, traffic: Traffic) -> Floor | None:
        warm, cold = self.of(traffic, Regime.WARM), self.of(traffic, Regime.COLD)
        if warm is None or cold is None:
            return None
        notes = tuple(dict.fromkeys((*warm.notes, *cold.notes)))
        guessed = Basis.EXTRAPOLATED in (warm.basis, cold.basis)
        basis = Basis.EXTRAPOLATED if guessed else Basis.MEASURED
        return Floor(warm.time_us, cold.bound, basis, notes, max(cold.time_us, warm.time_us))

    def _finished(self, stream: _Stream | None, traffic: Traffic) -> Floor | None:
        """The stream against the arithmetic, then against the CPU that issues eager launches."""
        curves, asked = self._calibration.launch_mode, self._launch_mode
        issue = self._calibration.t0_eager_us.value
        eager = asked is LaunchMode.EAGER
        if stream is None or (asked is not curves and not (eager and issue is not None)):
            return None
        graph_us = self._calibration.t0_graph_us.value
        fixed = issue if curves is LaunchMode.EAGER else graph_us
        us, guesses = stream.time.us, list(stream.time.guesses)
        bound = "launch" if fixed is not None and fixed >= LAUNCH_SHARE * us else stream.level
        if traffic.flops:
            peak = peak_of(traffic.math, self._calibration)
            if peak is None:
                return None
            busy = traffic.flops / (peak.tflops * 1e6)
            if (fixed or 0.0) + busy > us:
                us, bound = (fixed or 0.0) + busy, "compute"
                guesses = [peak.guess] if peak.guess else []
            elif peak.guess and (fixed or 0.0) + busy / LEAST_REACHED > us:
                guesses.append(peak.guess)
        if eager and issue is not None and issue > us:
            us, bound = issue, "launch"  # the GPU waits for the CPU, and works meanwhile
        basis = Basis.EXTRAPOLATED if guesses else Basis.MEASURED
        return Floor(us, bound, basis, tuple(guesses))


@dataclass(frozen=True)
class _Stream:
    time: Time
    level: str


def _warm(traffic: Traffic, streams: Streams) -> _Stream | None:
    if streams.warm is None:
        return None
    total = traffic.total_bytes
    found = _sum(streams.warm.at(total), streams.written(traffic.output_bytes, traffic.total_bytes))
    fits = streams.capacity_bytes is None or total <= streams.capacity_bytes
    cold = _cold(traffic, streams)
    if cold is not None and cold.time.us < found.us:
        found = cold.time
    return _Stream(found, "l2" if fits else "dram")


def _cold(traffic: Traffic, streams: Streams) -> _Stream | None:
    if streams.cold is None:
        return None
    beside = traffic.activation_bytes + traffic.output_bytes
    parts = [streams.cold.at(traffic.weight_bytes)]
    if streams.warm is not None:
        parts.append(_marginal(beside, streams))
    elif beside > 0:
        parts = [streams.cold.at(traffic.total_bytes)]
    return _Stream(_sum(*parts, streams.written(traffic.output_bytes, traffic.total_bytes)), "dram")


def _marginal(size: float, streams: Streams) -> Time:
    """What so many warm bytes add to a stream that is running: no launch, no ramp."""
    warm = streams.warm
    assert warm is not None
    top = warm.best_rate_at(streams.capacity_bytes or 0.0) or 0.0
    start = max(top - size, 0.0)
    end = warm.at(start + size)
    return Time(end.us - warm.at(start).us, tuple(g for g in end.guesses if "below" not in g))


def _sum(*times: Time) -> Time:
    guesses = dict.fromkeys(guess for time in times for guess in time.guesses)
    return Time(sum(time.us for time in times), tuple(guesses))
