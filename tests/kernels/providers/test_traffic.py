"""What each implementation says it must move, against a table of what each always said.

A row: implementation, format, op, `[H, M, K, N]`, bytes of weights, activations and outputs, FLOP,
weights converted, and the peak of the arithmetic. The table has what each supports on an H200.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernel_compass.kernels.providers.registry import all_implementations, implementation
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.workload import Op, Traffic, Workload

TABLE = Path(__file__).parents[2] / "golden" / "compulsory_traffic.json"
ROWS = json.loads(TABLE.read_text())
NAMES = [one.name for one in all_implementations()]


def test_the_table_has_every_implementation():
    assert {row[0] for row in ROWS} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_traffic_is_what_it_was(name):
    for _, number_format, op, sizes, counts, math in (row for row in ROWS if row[0] == name):
        workload = Workload(Op(op), *sizes)
        found = implementation(name).traffic(workload, NumberFormat.parse(number_format))
        assert found == Traffic(*counts, math, tokens=workload.tokens), (workload, number_format)


def test_half_a_byte_of_an_odd_4_bit_weight_counts_as_one():
    odd = Workload(Op.BMM, 1, 1, 5, 3)
    found = implementation("study_w4a16").traffic(odd, NumberFormat.parse("w4a16_gk"))
    assert found.weight_bytes == 8 + 3 * 2
