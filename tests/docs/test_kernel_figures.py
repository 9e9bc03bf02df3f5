"""The figures of docs/kernels.md are those of the kept run."""

from __future__ import annotations

import json
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
        ("linear", "w4a16_g128", "own_decode"),
        ("linear", "w8a8_fp8", "own_w8a8"),
    ],
)
def test_the_means_are_those_of_the_kept_run(section, number_format, implementation):
    rows = rows_of(section, number_format, implementation)
    by_regime = [[row for row in rows if row.regime.value == name] for name in ("warm", "cold")]
    speedups = " / ".join(f"{mean([row.speedup for row in group]):.2f}" for group in by_regime)
    rooms = " / ".join(f"{mean([row.headroom for row in group]):.2f}" for group in by_regime)
    assert f"| {speedups} | {rooms} |" in TEXT


@pytest.mark.parametrize("number_format", ["bf16", "w8a16_fp8", "w4a16_gk"])
def test_few_tokens_are_ahead_everywhere(number_format):
    ratios = [
        row.speedup
        for section in ("mla", "gate", "linear")
        for row in rows_of(section, number_format)
        if row.workload.tokens <= 16
    ]
    assert min(ratios) > 1
    assert f"{min(ratios):.2f} to {max(ratios):.2f}" in TEXT


def test_the_cells_that_are_behind():
    v_up = [
        row.speedup
        for row in rows_of("mla", "bf16")
        if row.workload.tokens == 64 and row.workload.columns == 128 and row.workload.heads >= 32
    ]
    assert f"({min(v_up):.2f} to {max(v_up):.2f})" in TEXT
    linears = [
        row.speedup
        for row in rows_of("linear", "w8a16_fp8")
        if row.workload.tokens == 64 and row.workload.columns <= 6144
    ]
    assert f"({min(linears):.2f} to {max(linears):.2f})" in TEXT


def test_how_many_are_far_from_their_floor():
    mla = [r for r in rows_of("mla", "w8a16_fp8") if r.workload.heads == 128]
    far = [r for r in mla if r.headroom > 1.12]
    assert f"{len(far)} of {len(mla)} cells" in TEXT
    assert f"the worst {max(r.headroom for r in mla):.2f}" in TEXT
    gate = [r for r in rows_of("gate", "w8a16_fp8") if r.workload.columns >= 2048]
    assert f"{sum(r.headroom > 1.04 for r in gate)} of {len(gate)} at N 2048" in TEXT
    linears = [r for r in rows_of("linear", "w8a16_fp8") if r.workload.tokens <= 16]
    assert f"{sum(r.headroom > 1.25 for r in linears)} of {len(linears)} more than 1.25" in TEXT


def test_what_the_invariant_variant_costs():
    best = {(r.workload, r.regime): r.time_us for r in rows_of("mla", "w8a16_fp8")}
    costs = {}
    for row in rows_of("mla", "w8a16_fp8", "own_decode_invariant"):
        cost = row.time_us / best[row.workload, row.regime]
        costs.setdefault((row.workload.tokens > 16, row.workload.columns), []).append(cost)
    assert f"at most {max(costs[False, 512]):.2f} times as long as the best" in TEXT
    few = costs[False, 128]
    assert f"{max(few):.2f} (mean {mean(few):.2f}) of `v_up`" in TEXT
    assert f"{min(costs[True, 512]):.2f} to {max(costs[True, 512]):.2f} and" in TEXT
    assert f"up to {max(costs[True, 128]):.2f} times" in TEXT


@pytest.mark.parametrize(
    ("number_format", "libraries", "tokens"),
    [
        ("w8a16_fp8", ("gemlite_w8a16", "humming_w8a16"), (1, 4, 16)),
        ("w4a16_g128", ("tinygemm_w4", "gemlite_w4a16", "humming_w4a16"), (1, 16)),
    ],
)
def test_what_libraries_reach(number_format, libraries, tokens):
    best = {}
    for name in libraries:
        for row in rows_of("linear", number_format, name):
            key = row.workload, row.regime.value
            best[key] = min(row.time_us, best.get(key, row.time_us))
    ahead = {
        key: best[key] / row.time_us
        for row in rows_of("linear", number_format)
        for key in ((row.workload, row.regime.value),)
        if row.workload.tokens in tokens and key in best
    }
    if number_format == "w8a16_fp8":
        warm, cold = (mean([r for k, r in ahead.items() if k[1] == n]) for n in ("warm", "cold"))
        low, high = min(ahead.values()), max(ahead.values())
        assert f"{warm:.2f} warm and {cold:.2f} cold" in TEXT
        assert f"the closest is {low:.2f}, the farthest {high:.2f}" in TEXT
        assert len(ahead) == 42
    else:
        low, high = min(ahead.values()), max(ahead.values())
        text = f"by {mean(ahead.values()):.2f} ({len(ahead)} cells, {low:.2f} to {high:.2f};"
        assert text in TEXT


def test_64_tokens_beside_the_libraries():
    rows = {
        (r.implementation, r.workload.columns, r.regime.value): r
        for name in ("own_decode", "humming_w8a16")
        for r in rows_of("linear", "w8a16_fp8", name)
        if r.workload.tokens == 64
    }
    warm, cold, smaller = (
        rows["own_decode", n, regime].time_us / rows["humming_w8a16", n, regime].time_us
        for n, regime in ((6144, "warm"), (6144, "cold"), (4096, "cold"))
    )
    assert (
        f"N = 6144 ({warm:.2f} warm, {cold:.2f} cold) and, cold, at N = 4096 ({smaller:.2f})"
        in (TEXT)
    )
    for name in ("own_decode", "humming_w8a16"):
        assert rows[name, 6144, "cold"].speedup < 1
        assert max(rows[name, 4096, regime].speedup for regime in ("warm", "cold")) < 1


def test_8_bit_activations():
    for name in ("own_w8a8", "scaled_mm_fp8"):
        ratios = [r.speedup for r in rows_of("linear", "w8a8_fp8", name)]
        assert f"at {min(ratios):.2f} to {max(ratios):.2f}" in TEXT


def test_what_the_counters_say():
    counters = json.loads((ROOT / "benchmarks/results/h200/decode_cells.json").read_text())
    said = set()
    for kernel in counters["kernels"]:
        m = kernel["metrics"]
        warps = round(64 * m["achieved_occupancy_pct"] / 100)
        registers = round(m["registers_per_thread"])
        said.add(
            f"| {m['issue_active_pct']:.0f} % | {warps}, of {registers}"
            f"{' registers' if registers == 239 else ''} | {m['l2_throughput_pct']:.0f} % |"
        )
    assert len(said) == 6
    from_dram = [
        k["metrics"]["dram_bytes_read"] / k["metrics"]["l2_bytes_read"] > 0.1
        for k in counters["kernels"]
    ]
    assert sum(from_dram) == TEXT.count("(not warm)") == 2
    assert all(one in TEXT for one in said), [one for one in said if one not in TEXT]


def test_every_4_bit_time_has_its_error():
    rows = [row for row in ROWS if row.format.name.startswith("w4") and row.time_us is not None]
    assert rows
    assert all(row.format_error_pct and row.format_error_pct > 10 for row in rows)


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
