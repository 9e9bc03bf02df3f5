"""Compulsory traffic against byte counts done by hand and against the published operand sizes."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from kernel_compass.analysis.traffic import traffic
from kernel_compass.errors import UsageError
from kernel_compass.records.workload import Op, Precision, Workload
from kernel_compass.units import MIB

SWEEP = Path(__file__).resolve().parents[3] / "shared" / "data" / "cache_barrier" / "gate_sweep.csv"


def bmm(tokens: int = 1, columns: int = 256) -> Workload:
    return Workload(Op.BMM, 128, tokens, 128, columns)


@pytest.mark.parametrize(
    ("precision", "mib"),
    [
        (Precision.BF16, 8.0),
        (Precision.W8A8, 4.125),
        (Precision.W8A16, 4.125),
        (Precision.W4A16, 2.0625),
    ],
)
def test_weights_are_counted_with_their_scales(precision: Precision, mib: float) -> None:
    assert traffic(bmm(), precision).weight_bytes == mib * MIB


def test_activations_outputs_and_arithmetic() -> None:
    found = traffic(bmm(tokens=16), Precision.W4A16)
    assert found.activation_bytes == 2 * 128 * 16 * 128
    assert found.output_bytes == 2 * 128 * 16 * 256
    assert found.flops == 2 * 128 * 16 * 128 * 256
    assert found.dequantized_weights == 128 * 128 * 256
    assert found.math == "bf16"


def test_arithmetic_in_eight_bits_takes_the_weights_as_stored() -> None:
    found = traffic(bmm(), Precision.W8A8)
    assert found.dequantized_weights == 0
    assert found.math == "8bit"
    assert traffic(bmm(), Precision.W8A16).dequantized_weights == 128 * 128 * 256


def test_groups_and_odd_rows_round_up() -> None:
    odd = Workload(Op.LINEAR, 1, 1, 129, 3)
    assert traffic(odd, Precision.W4A16).weight_bytes == 3 * (65 + 2 * 2)


@pytest.mark.parametrize("size", [0, -4, 1.5, float("nan")])
def test_sizes_that_are_none_are_refused(size: float) -> None:
    with pytest.raises(UsageError, match="tokens"):
        traffic(Workload(Op.BMM, 128, size, 128, 256), Precision.BF16)  # type: ignore[arg-type]


@pytest.mark.skipif(not SWEEP.is_file(), reason=f"the shared gate sweep is not here: {SWEEP}")
def test_published_operand_sizes_are_met() -> None:
    with SWEEP.open(newline="") as source:
        rows = list(csv.DictReader(source))
    for row in rows:
        shape = Workload(Op.BMM, *(int(row[name]) for name in ("h", "m", "k", "n")))
        found = traffic(shape, Precision(row["precision"]))
        published = float(row["weight_operand_mib"])
        assert found.weight_bytes / MIB == pytest.approx(published, abs=1e-3)
        assert found.activation_bytes == int(row["act_bytes"])
        assert found.output_bytes == int(row["out_bytes"])
        assert found.flops == int(row["flops"])
    assert rows
