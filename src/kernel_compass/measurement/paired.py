"""Two subjects timed in turns, so that clocks, heat and neighbours touch both alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernel_compass.measurement.device import Call, TimingDevice
from kernel_compass.measurement.honesty import check_subject
from kernel_compass.measurement.subject import Subject, subject_of
from kernel_compass.measurement.timing import Plan, TimingOptions, plan_for, sample, settle
from kernel_compass.records.measurement import LaunchMode, PairedSamples
from kernel_compass.records.profile import Regime


@dataclass(frozen=True)
class PairedTimer:
    """Both sides captured with the same number of launches; `take` measures pairs."""

    device: TimingDevice
    baseline: Plan
    candidate: Plan
    regime: Regime

    def take(self, pairs: int, process: int = 0) -> PairedSamples:
        """Measure some ABBA blocks, one pair each.

        A block times baseline, candidate, candidate, baseline: a drift that is linear over the
        block moves both means alike.

        Args:
            pairs: number of blocks.
            process: which fresh process this is.
        """
        baseline, candidate = [], []
        for index in range(pairs):
            long_first = index % 2 == 1
            a1 = self._slope(self.baseline, long_first)
            b1 = self._slope(self.candidate, long_first)
            b2 = self._slope(self.candidate, not long_first)
            a2 = self._slope(self.baseline, not long_first)
            baseline.append((a1 + a2) / 2)
            candidate.append((b1 + b2) / 2)
        return PairedSamples(
            tuple(baseline),
            tuple(candidate),
            self.regime,
            self.baseline.mode,
            self.baseline.launches,
            process,
        )

    def _slope(self, plan: Plan, long_first: bool) -> float:
        return sample(plan, self.device, long_first)[0]


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

    Both get the same number of launches a replay and the same launch mode: where one cannot be
    captured, both run eager.

    Args:
        baseline: the A of the comparison.
        candidate: the B.
        device: the GPU.
        regime: of both.
        launch_mode: of both.
        between: what runs before each launch, in situ.
        options: effort and checks.

    Raises:
        MeasurementError: as `measure`.
    """
    options = options or TimingOptions()
    sides = (subject_of(baseline), subject_of(candidate))
    if options.check:
        for side in sides:
            check_subject(side, device)

    def plans(mode: LaunchMode, n: int | None) -> list[Plan]:
        return [plan_for(s, device, regime, mode, between, options, n) for s in sides]

    found = plans(launch_mode, None)
    mode = LaunchMode.EAGER if LaunchMode.EAGER in [p.mode for p in found] else LaunchMode.GRAPH
    n = _common(found)
    if any(p.launches != n or p.mode is not mode for p in found):
        found = plans(mode, n)
    timer = PairedTimer(device, found[0], found[1], regime)
    for plan in found:
        settle(plan, device, options.settle_us / 2)
    return timer


def _common(plans: Sequence[Plan]) -> int:
    """A number of launches for both: the larger, in whole cycles of both numbers of sets."""
    n = max(plan.launches for plan in plans)
    cycle = math.lcm(*(plan.sets for plan in plans))
    return math.ceil(n / cycle) * cycle
