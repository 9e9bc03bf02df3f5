"""Two subjects timed in turns, so that clocks, heat and neighbours touch both alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from kernel_compass.errors import MeasurementCause, MeasurementError
from kernel_compass.measurement.clocks import clock_warnings, summarize
from kernel_compass.measurement.device import Call, TimingDevice
from kernel_compass.measurement.honesty import check_subject, refuse_if_not_cold
from kernel_compass.measurement.subject import (
    Subject,
    is_too_small,
    streamed_bytes,
    subject_of,
)
from kernel_compass.measurement.timing import (
    Plan,
    Prepared,
    Tap,
    TimingOptions,
    prepare,
    regime_of,
    sample,
    settle,
)
from kernel_compass.records.measurement import ColdMethod, LaunchMode, PairedSamples
from kernel_compass.records.profile import Regime
from kernel_compass.records.trial import Reason

FLUSHED_REPLAY_US = 2000.0
"""Of a replay with flushes, which are some thirty times what they precede."""
CLOCKS_EVERY = 8
"""Pairs between two looks at the clocks."""


class TimedWrong(MeasurementError):
    """A candidate is wrong when it is timed.

    Args:
        reason: of the closed list.
        found: what was seen.
    """

    def __init__(self, reason: Reason, found: str) -> None:
        follows = "A candidate has to compute its result at every call, the timed ones as well."
        super().__init__(MeasurementCause.TIMED_WRONG, found, follows)
        self.reason = reason


@dataclass(frozen=True)
class PairedTimer:
    """Both sides captured with the same number of launches; `take` measures pairs."""

    device: TimingDevice
    baseline: Plan
    candidate: Plan
    regime: Regime
    streamed_bytes: tuple[int, int] = (0, 0)
    """Of a launch of the baseline and of the candidate."""
    warnings: tuple[str, ...] = ()
    timed_fault: Callable[[], tuple[Reason, str] | None] = lambda: None
    """What is wrong with a result of the candidate, of a launch as it was timed, with other
    contents in its operands; asked when all is taken."""

    def take(self, pairs: int, process: int = 0) -> PairedSamples:
        """Measure some ABBA blocks, one pair each.

        A block times baseline, candidate, candidate, baseline: a drift that is linear over the
        block moves both means alike.

        Args:
            pairs: number of blocks.
            process: which fresh process this is.

        Raises:
            MeasurementError: times called cold are faster than the memory's pins (`not_cold`).
        """
        baseline, candidate = [], []
        readings = []
        for index in range(pairs):
            long_first = index % 2 == 1
            a1 = self._slope(self.baseline, long_first)
            b1 = self._slope(self.candidate, long_first)
            b2 = self._slope(self.candidate, not long_first)
            a2 = self._slope(self.baseline, not long_first)
            baseline.append((a1 + a2) / 2)
            candidate.append((b1 + b2) / 2)
            readings += [self.device.clocks()] if index % CLOCKS_EVERY == 0 else []
        self._check_cold(baseline, candidate)
        clocks = summarize([reading for reading in readings if reading])
        return PairedSamples(
            tuple(baseline),
            tuple(candidate),
            self.regime,
            self.baseline.mode,
            self.baseline.launches,
            process,
            (*self.warnings, *clock_warnings(clocks)),
            self.device.environment(),
        )

    def refuse_if_wrong(self) -> None:
        """Refuse the times of a candidate that is wrong when it is timed.

        Raises:
            TimedWrong: it is.
        """
        fault = self.timed_fault()
        if fault is not None:
            raise TimedWrong(*fault)

    def _slope(self, plan: Plan, long_first: bool) -> float:
        return sample(plan, self.device, long_first)[0]

    def _check_cold(self, *sides: Sequence[float]) -> None:
        if self.regime is Regime.COLD:
            for size, times in zip(self.streamed_bytes, sides, strict=True):
                refuse_if_not_cold(size, median(times), self.device)


def pair(
    baseline: Subject | Callable[[], object],
    candidate: Subject | Callable[[], object],
    device: TimingDevice,
    regime: Regime = Regime.WARM,
    launch_mode: LaunchMode = LaunchMode.GRAPH,
    between: Sequence[Call] = (),
    options: TimingOptions | None = None,
) -> PairedTimer:
    """Prepare two subjects for being timed in turns.

    Cold is by rotation; where the streamed operands of either are too small for that, both are
    flushed before each launch, unless `options` names a method.

    Both get the same number of launches a replay and the same launch mode: where one cannot be
    captured, both run eager.

    Args:
        baseline: the A of the comparison.
        candidate: the B.
        device: the GPU.
        regime: of both.
        launch_mode: of both.
        between: what runs before each launch, in situ; default: each subject's own.
        options: effort and checks.

    Raises:
        MeasurementError: as `measure`.
    """
    options, regime, launch_mode = (
        options or TimingOptions(),
        regime_of(regime),
        LaunchMode(launch_mode),
    )
    sides = (subject_of(baseline), subject_of(candidate))
    warnings = [w for s in sides for w in (check_subject(s, device) if options.check else ())]
    if regime is Regime.COLD and options.cold_method is None:
        options, said = _cold(sides, device, options)
        warnings += said
    prepared = [prepare(side, device, regime, between, options) for side in sides]
    n = options.launches or max(p.launches_needed(device, options) for p in prepared)
    cycle = math.lcm(*(len(p.calls) for p in prepared))
    n = math.ceil(n / cycle) * cycle
    tap = Tap() if sides[1].renew else None
    found = [p.plan(device, n, launch_mode, t) for p, t in zip(prepared, (None, tap), strict=True)]
    if len({plan.mode for plan in found}) > 1:
        warnings += [f"eager: {plan.reason}" for plan in found if plan.reason]
        taps = zip(prepared, (None, tap), strict=True)
        found = [p.plan(device, n, LaunchMode.EAGER, t) for p, t in taps]
    else:
        warnings += [f"eager: {plan.reason}" for plan in found if plan.reason]
    for plan in found:
        settle(plan, device, options.settle_us / 2)
    sizes = (streamed_bytes(sides[0], device), streamed_bytes(sides[1], device))
    fault = _fault(sides[1], prepared[1], found[1], device, tap)
    return PairedTimer(
        device, found[0], found[1], regime, sizes, tuple(dict.fromkeys(warnings)), fault
    )


def _fault(
    subject: Subject, prepared: Prepared, plan: Plan, device: TimingDevice, tap: Tap | None
) -> Callable[[], tuple[Reason, str] | None]:
    def fault() -> tuple[Reason, str] | None:
        if tap is None or subject.renew is None:
            return None
        renewed = subject.renew(prepared.operands[tap.index % len(prepared.operands)])
        renewed.spoil(tap.result)
        device.run(plan.long)
        return renewed.fault(tap.result)

    return fault


def _cold(
    sides: Sequence[Subject], device: TimingDevice, options: TimingOptions
) -> tuple[TimingOptions, list[str]]:
    """The method for both; what is flushed is the difference of two long times: longer replays."""
    if not any(is_too_small(side, device) for side in sides):
        return options, []
    longer = max(options.replay_us, FLUSHED_REPLAY_US)
    chosen = replace(options, cold_method=ColdMethod.FLUSH, replay_us=longer)
    return chosen, ["cold by flushing: the streamed operands are too small to be rotated"]
