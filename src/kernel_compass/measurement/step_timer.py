"""A whole step timed with and without a change, in turns, in one process.

A side is put on, settled and timed for some steps, then the other one: A B B A, so that a drift
that is linear over the block moves both alike. Neighbouring blocks share a side, which is then not
taken off between them. What putting a side on costs (a CUDA graph captured anew, say) is not in its
time: the steps that follow it settle first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any, Protocol

from kernel_compass.records.environment import Environment
from kernel_compass.records.measurement import LaunchMode, PairedSamples
from kernel_compass.records.profile import Regime

LEAST_SAMPLE_US = 20_000.0
"""Of one sample: several steps where one is shorter."""
MOST_STEPS = 500
SETTLE = 3
"""Steps after a side was put on, not timed."""


class Side(Protocol):
    """The program with some changes on."""

    def put_on(self) -> None:
        """Put them on; they are off."""

    def take_off(self) -> None:
        """Take them off, all of them."""

    def call(self) -> object:
        """One step."""

    def reset(self) -> None:
        """Restore what steps wrote."""


class StepClock(Protocol):
    """How long some steps take."""

    @property
    def mode(self) -> LaunchMode:
        """Whether they are replayed from a graph."""

    def elapsed_us(self, call: Callable[[], object], steps: int) -> float:
        """Time of so many steps, one after the other, all work done at the end."""

    def environment(self) -> Environment:
        """Where."""


class HostClock:
    """The host's clock: for steps on the CPU."""

    mode = LaunchMode.EAGER

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def elapsed_us(self, call: Callable[[], object], steps: int) -> float:
        """Wall time."""
        start = time.perf_counter_ns()
        for _ in range(steps):
            call()
        return (time.perf_counter_ns() - start) / 1e3

    def environment(self) -> Environment:
        """The machine."""
        return self._environment


class CudaClock:
    """Events on the current stream.

    Args:
        torch: the module.
        environment: the machine.
        graph: whether a step replays a CUDA graph. Its time is then the slope between n and 2n
            steps, which leaves out what the first replay waits for.
    """

    def __init__(self, torch: Any, environment: Environment, graph: bool) -> None:
        self._torch, self._environment = torch, environment
        self.mode = LaunchMode.GRAPH if graph else LaunchMode.EAGER

    def elapsed_us(self, call: Callable[[], object], steps: int) -> float:
        """GPU time of so many steps."""
        if self.mode is LaunchMode.EAGER:
            return self._between_events(call, steps)
        once = self._between_events(call, steps)
        return self._between_events(call, 2 * steps) - once

    def environment(self) -> Environment:
        """The GPU."""
        return self._environment

    def _between_events(self, call: Callable[[], object], steps: int) -> float:
        cuda = self._torch.cuda
        begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
        cuda.synchronize()
        begin.record()
        for _ in range(steps):
            call()
        end.record()
        end.synchronize()
        cuda.synchronize()
        return float(begin.elapsed_time(end)) * 1e3


class StepTimer:
    """Pairs of two sides; `pairs` may be called again and again.

    Args:
        clock: how steps are timed.
        steps: in a sample; `None` = as many as make a sample long enough.
        settle: steps after a side was put on, not timed.
    """

    def __init__(self, clock: StepClock, steps: int | None = None, settle: int = SETTLE) -> None:
        self._clock, self._settle = clock, settle
        self.steps = steps
        self._on: Side | None = None

    def pairs(self, a: Side, b: Side, n: int, process: int = 0) -> PairedSamples:
        """Measure `n` blocks of A B B A; both sides are off afterwards.

        Args:
            a: the step without the change.
            b: with it.
            n: blocks, one pair each.
            process: which fresh process this is.
        """
        try:
            self.steps = self.steps or self._enough(a, b)
            first, second = [], []
            for _ in range(n):
                a1, b1, b2, a2 = (self._sample(side) for side in (a, b, b, a))
                first.append((a1 + a2) / 2)
                second.append((b1 + b2) / 2)
        finally:
            self.off()
        return PairedSamples(
            tuple(first),
            tuple(second),
            Regime.IN_SITU,
            self._clock.mode,
            self.steps,
            process,
            (),
            self._clock.environment(),
        )

    def time_us(self, side: Side, samples: int = 3) -> float:
        """One side alone, median of some samples: for ordering, never for accepting."""
        try:
            self.steps = self.steps or self._enough(side)
            return median(self._sample(side) for _ in range(samples))
        finally:
            self.off()

    def off(self) -> None:
        """Take off what is on."""
        side, self._on = self._on, None
        if side is not None:
            side.take_off()

    def _enough(self, *sides: Side) -> int:
        """Steps whose time is worth a sample, of the faster side."""
        times = []
        for side in sides:
            self._put_on(side)
            times.append(self._clock.elapsed_us(side.call, 1))
        shortest = max(min(times), 1.0)
        return int(min(max(LEAST_SAMPLE_US // shortest, 1), MOST_STEPS))

    def _sample(self, side: Side) -> float:
        assert self.steps is not None, "chosen before"
        self._put_on(side)
        side.reset()
        return self._clock.elapsed_us(side.call, self.steps) / self.steps

    def _put_on(self, side: Side) -> None:
        if side is self._on:
            return
        self.off()
        side.put_on()
        self._on = side
        for _ in range(self._settle):
            side.call()
