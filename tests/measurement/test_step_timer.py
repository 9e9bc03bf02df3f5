"""Steps timed in turns: the order of sides, and what is and is not in a time."""

from __future__ import annotations

import pytest

from kernel_compass.measurement.step_timer import StepTimer
from kernel_compass.records.device import Device
from kernel_compass.records.environment import Environment
from kernel_compass.records.measurement import LaunchMode
from kernel_compass.records.profile import Regime


class World:
    """A clock that sides move."""

    def __init__(self):
        self.now_us, self.said = 0.0, []


class FakeSide:
    def __init__(self, world, name, us, put_on_us=1e6):
        self.world, self.name, self.us, self.put_on_us = world, name, us, put_on_us
        self.on = False

    def put_on(self):
        assert not self.on
        self.on = True
        self.world.said.append(f"+{self.name}")
        self.world.now_us += self.put_on_us

    def take_off(self):
        assert self.on
        self.on = False
        self.world.said.append(f"-{self.name}")

    def call(self):
        assert self.on
        self.world.now_us += self.us

    def reset(self):
        self.world.said.append("reset")


class FakeClock:
    mode = LaunchMode.EAGER

    def __init__(self, world, drift=0.0):
        self.world, self.drift = world, drift

    def elapsed_us(self, call, steps):
        start = self.world.now_us
        for _ in range(steps):
            call()
        taken = self.world.now_us - start
        self.drift_now = 1 + self.drift * len(self.world.said)
        return taken * self.drift_now

    def environment(self):
        return Environment(Device("fake"))


def test_sides_are_timed_in_turns_and_share_what_neighbours_have_in_common():
    world = World()
    a, b = FakeSide(world, "a", 100.0), FakeSide(world, "b", 50.0)
    timer = StepTimer(FakeClock(world), steps=4)
    found = timer.pairs(a, b, 2, process=3)
    switches = [word for word in world.said if word != "reset"]
    assert switches == ["+a", "-a", "+b", "-b", "+a", "-a", "+b", "-b", "+a", "-a"]
    assert found.baseline_us == (100.0, 100.0) and found.candidate_us == (50.0, 50.0)
    assert (found.regime, found.launch_mode, found.process) == (Regime.IN_SITU, "eager", 3)
    assert found.launches_per_replay == 4
    assert not a.on and not b.on


def test_putting_a_side_on_is_not_in_its_time():
    world = World()
    a, b = FakeSide(world, "a", 10.0), FakeSide(world, "b", 10.0, put_on_us=1e9)
    found = StepTimer(FakeClock(world), steps=2).pairs(a, b, 1)
    assert found.candidate_us == (10.0,)


def test_a_linear_drift_moves_both_sides_alike():
    world = World()
    a, b = FakeSide(world, "a", 100.0), FakeSide(world, "b", 100.0)
    found = StepTimer(FakeClock(world, drift=0.01), steps=1).pairs(a, b, 4)
    for one, other in zip(found.baseline_us, found.candidate_us, strict=True):
        assert one / other == pytest.approx(1.0, abs=0.02)


def test_short_steps_are_timed_many_at_a_time():
    world = World()
    a, b = FakeSide(world, "a", 100.0), FakeSide(world, "b", 400.0)
    timer = StepTimer(FakeClock(world))
    timer.pairs(a, b, 1)
    assert timer.steps == 200  # 20 ms of the faster one


def test_everything_is_off_when_a_step_fails():
    world = World()
    a, b = FakeSide(world, "a", 1.0), FakeSide(world, "b", 1.0)

    def fails():
        raise RuntimeError("no memory")

    b.call = fails
    with pytest.raises(RuntimeError, match="no memory"):
        StepTimer(FakeClock(world), steps=1).pairs(a, b, 1)
    assert not a.on and not b.on


def test_one_side_alone_is_timed_for_ordering():
    world = World()
    side = FakeSide(world, "a", 70.0)
    assert StepTimer(FakeClock(world), steps=3).time_us(side) == 70.0
    assert not side.on
