"""The figures of docs/kernels.md are those of the kept run."""

from __future__ import annotations

from math import exp, log
from pathlib import Path

import pytest
from kernels_bench import section_of

from kernel_compass.codec.kernel_table import decode

ROOT = Path(__file__).parents[2]
ROWS = decode((ROOT / "benchmarks/results/h200/kernels_bench.json").read_bytes()).rows
TEXT = (ROOT / "docs/kernels.md").read_text()


def mean(values):
    return exp(sum(map(log, values)) / len(values))


def own(section, number_format):
    return [
        row
        for row in ROWS
        if row.implementation == "own_decode"
        and section_of(row.workload) == section
        and row.format.name == number_format
        and row.time_us is not None
    ]


@pytest.mark.parametrize(
    ("section", "number_format"),
    [
        ("mla", "bf16"),
        ("mla", "w8a16_fp8"),
        ("gate", "w8a16_fp8"),
        ("gate", "w4a16_gk"),
        ("linear", "w8a16_fp8"),
    ],
)
def test_the_means_are_those_of_the_kept_run(section, number_format):
    rows = own(section, number_format)
    by_regime = [[row for row in rows if row.regime.value == name] for name in ("warm", "cold")]
    speedups = " / ".join(f"{mean([row.speedup for row in group]):.2f}" for group in by_regime)
    rooms = " / ".join(f"{mean([row.headroom for row in group]):.2f}" for group in by_regime)
    assert f"| {speedups} | {rooms} |" in TEXT


def test_few_tokens_are_ahead_everywhere():
    for number_format, low, high in (("bf16", 1.06, 1.50), ("w8a16_fp8", 1.19, 2.72)):
        ratios = [
            row.speedup
            for section in ("mla", "gate", "linear")
            for row in own(section, number_format)
            if row.workload.tokens <= 16
        ]
        assert (round(min(ratios), 2), round(max(ratios), 2)) == (low, high)


def test_every_4_bit_time_has_its_error():
    rows = [row for row in ROWS if row.format.name.startswith("w4") and row.time_us is not None]
    assert rows
    assert all(row.format_error_pct and row.format_error_pct > 10 for row in rows)
