"""The live calibration's choices that need no GPU: rotated sets, and weights a word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernel_compass import api
from kernel_compass.analysis.capacity_grid import working_sets
from kernel_compass.measurement.calibration_run import cold_sets, stream_bytes
from kernel_compass.measurement.probes import WEIGHTS_A_WORD
from kernel_compass.measurement.simulated import SimulatedDevice, SimulatedOperand
from kernel_compass.measurement.subject import Subject, rotation

MIB = 1 << 20
L2_BYTES = [api.calibration(n).environment.device.l2_bytes for n in api.shipped_calibrations()]
KERNELS = Path(__file__).parents[2] / "src/kernel_compass/measurement/stream_kernels.py"


@pytest.mark.parametrize("l2_bytes", [*L2_BYTES, 4 * MIB, 256 * MIB])
@pytest.mark.parametrize("quick", [True, False])
def test_every_working_set_can_be_rotated_on_every_card(l2_bytes, quick):
    device = SimulatedDevice(l2_bytes=l2_bytes)
    room = stream_bytes(l2_bytes, quick)
    for size in working_sets(quick):
        count = cold_sets(size, l2_bytes)
        assert count * size / size >= 2
        assert count * size <= room
        weights = [(SimulatedOperand(size),) for _ in range(count)]
        subject = Subject(device.launch, weights[0], sets=tuple(weights[1:]))
        assert len(rotation(subject, device, 0)) == count


@pytest.mark.parametrize("size_mib", [50, 66, 90, 130])
def test_where_the_next_power_of_two_has_no_room_there_are_as_many_copies_as_it_takes(size_mib):
    size = size_mib * MIB
    least = 8 * SimulatedDevice().l2_bytes
    device = SimulatedDevice(memory_bytes=(least + size) * 10 // 9 + MIB)
    subject = Subject(device.launch, (SimulatedOperand(size),))
    sets = rotation(subject, device, 0)
    assert least <= len(sets) * size < least + size


@pytest.mark.parametrize("kind", WEIGHTS_A_WORD)
def test_the_weights_a_word_are_those_the_kernel_unpacks(kind):
    (body,) = re.findall(rf"def unpack_{kind}\(.*?(?=\n@|\Z)", KERNELS.read_text(), re.DOTALL)
    (steps,) = map(int, re.findall(r"tl\.static_range\((\d)\)", body))
    a_step = 2 if "0x000F000F" in body else 1
    assert steps * a_step == WEIGHTS_A_WORD[kind]
