"""The figures of docs/kernels.md are those of the kept run."""

from __future__ import annotations

from math import exp, log
from pathlib import Path

import pytest
from kernels_bench import section_of

from kernel_compass.cli.main import main
from kernel_compass.codec.kernel_table import decode
from kernel_compass.kernels.decode_table import rows as table_rows

ROOT = Path(__file__).parents[2]
ROWS = decode((ROOT / "benchmarks/results/h200/kernels_bench.json").read_bytes()).rows
TEXT = (ROOT / "docs/kernels.md").read_text()


def mean(values):
    return exp(sum(map(log, values)) / len(values))


def rows_of(section, number_format, implementation="own_decode"):
    return [
        row
        for row in ROWS
        if row.implementation == implementation
        and section_of(row.workload) == section
        and row.format.name == number_format
        and row.time_us is not None
    ]


@pytest.mark.parametrize(
    ("section", "number_format", "implementation"),
    [
        ("mla", "bf16", "own_decode"),
        ("mla", "w8a16_fp8", "own_decode"),
        ("mla", "w8a16_fp8", "own_decode_invariant"),
        ("gate", "w8a16_fp8", "own_decode"),
        ("gate", "w4a16_gk", "own_decode"),
        ("gate", "w4a16_gk", "study_w4a16"),
        ("gate", "w8a8_int8", "study_w8a8"),
        ("linear", "w8a16_fp8", "own_decode"),
    ],
)
def test_the_means_are_those_of_the_kept_run(section, number_format, implementation):
    rows = rows_of(section, number_format, implementation)
    by_regime = [[row for row in rows if row.regime.value == name] for name in ("warm", "cold")]
    speedups = " / ".join(f"{mean([row.speedup for row in group]):.2f}" for group in by_regime)
    rooms = " / ".join(f"{mean([row.headroom for row in group]):.2f}" for group in by_regime)
    assert f"| {speedups} | {rooms} |" in TEXT


@pytest.mark.parametrize(
    ("number_format", "low", "high"),
    [("bf16", 1.07, 1.65), ("w8a16_fp8", 1.22, 3.00), ("w4a16_gk", 1.52, 4.16)],
)
def test_few_tokens_are_ahead_everywhere(number_format, low, high):
    ratios = [
        row.speedup
        for section in ("mla", "gate", "linear")
        for row in rows_of(section, number_format)
        if row.workload.tokens <= 16
    ]
    assert (round(min(ratios), 2), round(max(ratios), 2)) == (low, high)
    assert f"{low:.2f} to {high:.2f}" in TEXT


def test_the_cells_that_are_behind():
    for number_format, text in (("w8a16_fp8", "0.99 to 1.16"), ("bf16", "0.92 to 1.19")):
        ratios = [
            row.speedup
            for row in rows_of("mla", number_format)
            if row.workload.tokens == 64 and row.workload.columns == 128
        ]
        assert f"{min(ratios):.2f} to {max(ratios):.2f}" == text
        assert text in TEXT


def test_what_the_invariant_variant_costs():
    best = {(r.workload, r.regime): r.time_us for r in rows_of("mla", "w8a16_fp8")}
    costs = {}
    for row in rows_of("mla", "w8a16_fp8", "own_decode_invariant"):
        cost = 100 * (row.time_us / best[row.workload, row.regime] - 1)
        costs.setdefault((row.workload.tokens > 16, row.workload.columns), []).append(cost)
    assert max(costs[False, 512] + costs[False, 128]) < 9
    assert 12 < min(costs[True, 512]) < max(costs[True, 512]) < 24
    assert max(costs[True, 128]) < 3


def test_what_libraries_reach():
    cells = {
        (r.implementation, r.workload.tokens): r.time_us
        for implementation in ("own_decode", "gemlite_w8a16", "humming_w8a16")
        for r in rows_of("linear", "w8a16_fp8", implementation)
        if r.workload.columns == 6144 and r.regime.value == "warm"
    }
    ratios = [
        round(cells[name, tokens] / cells["own_decode", tokens], 1)
        for name, tokens in (("gemlite_w8a16", 1), ("gemlite_w8a16", 16), ("humming_w8a16", 1))
    ]
    assert ratios == [1.7, 2.5, 1.7]


def test_every_4_bit_time_has_its_error():
    rows = [row for row in ROWS if row.format.name.startswith("w4") and row.time_us is not None]
    assert rows
    assert all(row.format_error_pct and row.format_error_pct > 10 for row in rows)


def test_what_small_projections_are_away():
    rooms = [
        row.headroom
        for row in rows_of("linear", "w8a16_fp8")
        if row.workload.tokens == 16
        and row.workload.columns <= 6144
        and row.workload.reduction <= 7168
    ]
    assert f"are {min(rooms):.1f} to {max(rooms):.1f} floors away at 16 tokens" in TEXT


def test_the_slowest_value_projection():
    (time_us,) = [
        row.time_us
        for row in rows_of("mla", "w8a16_fp8")
        if row.workload.shape_text == "bmm 128x64x512x128" and row.regime.value == "warm"
    ]
    assert f"of {time_us:.2f} measured" in TEXT


def test_where_programs_share_k():
    shared = {
        (row.columns, row.reduction)
        for row in table_rows()
        if row.heads == 1 and row.tokens == 16 and row.best.split > 1 and row.code.value == "fp8"
    }
    assert shared == {(2112, 7168), (4096, 14336), (7168, 16384)}


def test_the_floor_of_the_slowest_value_projection(capsys):
    line = "mla --dry-run --gpu h200 --tokens 64 --precisions w8a16_fp8 --regime warm"
    assert main(line.split()) == 0
    value_projection = capsys.readouterr().out.partition("v_up")[2]
    assert "3.26 us" in value_projection
    assert "is 3.26 us warm" in TEXT
