"""Recipes on the simulated device: built by name in fresh processes."""

from __future__ import annotations

from kernel_compass.measurement.simulated import SimulatedOperand
from kernel_compass.measurement.subject import Subject

MIB = 1 << 20


def read(device, mib=16, extra_us=0.0):
    """A read of one weight, slowed by some time."""
    weight = SimulatedOperand(mib * MIB)
    return Subject(lambda w: device.launch(w, extra_us=extra_us), streamed=(weight,))


def number(device):
    """Nothing that can be timed."""
    return 3


def waits(device):
    """What cannot be captured."""
    weight = SimulatedOperand(16 * MIB)

    def run(w):
        device.launch(w)
        device.wait_for_gpu()

    return Subject(run, streamed=(weight,))
