"""Which decode configuration is chosen: always one that can be built, and for the reason given."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from importlib.resources import files
from itertools import product
from math import log2
from pathlib import Path

import pytest

from kernel_compass.codec.kernel_table import decode
from kernel_compass.kernels.decode import DecodeConfig, legal, space
from kernel_compass.kernels.decode_table import behind_cublas, choose, rows
from kernel_compass.kernels.providers import own
from kernel_compass.kernels.providers.own import Decode
from kernel_compass.records.contracts import Target
from kernel_compass.records.number_format import Code, NumberFormat
from kernel_compass.records.workload import Op, Workload

KEPT_BENCH = Path(__file__).parents[2] / "benchmarks/results/h200/kernels_bench.json"
GROUPED = tuple(f"w4a16_g{g}{kind}" for g, kind in product((32, 64, 128, "k"), ("", "_asym")))
FORMATS = ("bf16", "fp16", "w8a16_fp8", "w8a16_int8", *GROUPED)
SIZES = (1, 2, 7, 16, 17, 31, 33, 64, 100, 128, 129, 255, 256, 300, 512, 1000, 1536, 4096, 7168)
HOPPER, AMPERE = Target("cuda", (9, 0)), Target("cuda", (8, 0))


def test_where_cublas_is_to_be_taken_is_where_it_was_faster_in_the_kept_run():
    faster, slower = set(), set()
    for row in decode(KEPT_BENCH.read_bytes()).rows:
        if row.implementation == "own_decode" and row.format.name in ("bf16", "w8a16_fp8"):
            (faster if row.speedup < 0.98 else slower).add((row.workload, row.format))
    assert len(faster) >= 3
    for workload, number_format in faster:
        assert behind_cublas(workload, number_format), workload.shape_text
    for workload, number_format in slower - faster:
        assert not behind_cublas(workload, number_format), workload.shape_text
    v_up = Workload(Op.BMM, 128, 64, 512, 128)
    assert not behind_cublas(replace(v_up, tokens=4), NumberFormat.parse("fp16"))
    assert behind_cublas(replace(v_up, tokens=100), NumberFormat.parse("fp16"))


def random_workloads(count):
    draw = random.Random(7)
    for _ in range(count):
        heads, tokens = (
            draw.choice((1, 1, 3, 16, 128)),
            draw.choice((1, 2, 4, 5, 8, 16, 33, 64, 500)),
        )
        yield Workload(Op.BMM, heads, tokens, draw.choice(SIZES), draw.choice((*SIZES, 24576)))


def order_along_k(config):
    """What decides how the parts of a sum along K are grouped."""
    return config.kernel == "plain", config.warps_k, config.chains, config.rows


@pytest.mark.parametrize("invariant", [False, True])
@pytest.mark.parametrize("hopper", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_what_is_chosen_can_be_built(name, hopper, invariant):
    number_format = NumberFormat.parse(name)
    for workload in random_workloads(150):
        config = choose(workload, number_format, hopper, invariant)
        assert legal(config, workload, number_format), f"{workload}: {config}"
        assert hopper or config.kernel == "plain"


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_chosen_covers_its_tokens_without_a_program_for_nothing(name):
    number_format = NumberFormat.parse(name)
    for workload in random_workloads(150):
        for hopper in (False, True):
            config = choose(workload, number_format, hopper)
            assert config.tokens in (8, 16, 32, 64)
            assert config.tokens < 2 * max(workload.tokens, 16)


@pytest.mark.parametrize("target", [HOPPER, AMPERE])
@pytest.mark.parametrize("name", ["bf16", "w8a16_fp8", "w4a16_g128", "w4a16_g32_asym"])
def test_the_space_starts_with_the_choice_and_has_each_configuration_once(
    monkeypatch, name, target
):
    monkeypatch.setattr(own, "gluon_objection", lambda at: None if at == (9, 0) else "no Hopper")
    number_format = NumberFormat.parse(name)
    one = Decode("own_decode", invariant=False)
    for workload in (Workload(Op.BMM, 128, 4, 128, 512), Workload(Op.LINEAR, 1, 64, 7168, 2112)):
        configs = one.space(workload, number_format, target)
        first = choose(workload, number_format, target is HOPPER)
        assert configs[0] == first.as_config()
        assert len({tuple(c.items()) for c in configs}) == len(configs) > 5
        assert all(legal(DecodeConfig(**c), workload, number_format) for c in configs)
        # The warpgroup unit's steps are 64 rows at least, and want more than a few tokens.
        wide = workload.tokens > 4 and number_format.group != 32
        many = {"mma", "wgmma"} if wide else {"mma"}
        kinds = {c["kernel"] for c in configs}
        assert kinds == ({"plain"} | many if target is HOPPER else {"plain"})


def test_few_tokens_have_no_use_for_the_warpgroup_unit():
    for config in space(Workload(Op.BMM, 16, 4, 128, 512), NumberFormat.parse("bf16"), True):
        assert config.kernel != "wgmma"


@pytest.mark.parametrize("hopper", [False, True])
@pytest.mark.parametrize(
    "name", ["bf16", "fp16", "w8a16_int8", "w4a16_gk", "w4a16_g32", "w4a16_g128_asym"]
)
def test_the_invariant_variant_adds_in_one_order_at_every_number_of_tokens(name, hopper):
    number_format = NumberFormat.parse(name)
    shapes = [(128, 128, 512), (128, 512, 128), (1, 7168, 2112), (1, 100, 40), (3, 300, 1000)]
    for heads, k, n in shapes:
        orders = {
            order_along_k(choose(Workload(Op.BMM, heads, m, k, n), number_format, hopper, True))
            for m in range(1, 513)
        }
        assert len(orders) == 1, f"{heads} x {k} x {n}: {orders}"


@pytest.mark.parametrize("name", FORMATS)
def test_the_invariant_order_holds_for_random_shapes(name):
    number_format = NumberFormat.parse(name)
    for each in random_workloads(60):
        shape = (each.heads, each.reduction, each.columns)
        orders = {
            order_along_k(
                choose(Workload(Op.BMM, shape[0], m, *shape[1:]), number_format, True, True)
            )
            for m in (1, 2, 4, 5, 8, 9, 16, 17, 32, 33, 64, 65, 512)
        }
        assert len(orders) == 1, f"{shape}: {orders}"


def test_a_shape_of_the_table_gets_its_own_row():
    formats = {Code.BF16: "bf16", Code.FP8: "w8a16_fp8", Code.INT4: "w4a16_gk"}
    assert len(rows()) >= 80
    for row in rows():
        workload = Workload(Op.BMM, row.heads, row.tokens, row.reduction, row.columns)
        assert choose(workload, NumberFormat.parse(formats[row.code]), True) == row.best, row


def test_codes_without_rows_use_those_of_as_many_bits():
    for workload in random_workloads(40):
        for name, other in (("w8a16_int8", "w8a16_fp8"), ("fp16", "bf16")):
            chosen = (choose(workload, NumberFormat.parse(each), True) for each in (name, other))
            assert len(set(chosen)) == 1


def nearest(code, workload):
    """Rows by what the table says of distance: factors of two, K the dearest, H the cheapest."""
    tokens = next((size for size in (1, 4, 16) if workload.tokens <= size), 64)

    def distance(row):
        pairs = (
            (0.7, workload.heads, row.heads),
            (1.0, tokens, row.tokens),
            (1.5, workload.reduction, row.reduction),
            (1.0, workload.columns, row.columns),
        )
        return sum(weight * abs(log2(a / b)) for weight, a, b in pairs)

    return min((row for row in rows() if row.code is code), key=distance)


@pytest.mark.parametrize("shape", [(96, 1, 128, 512), (128, 3, 128, 640), (20, 1, 512, 128)])
def test_another_shape_takes_the_nearest_row(shape):
    """As the row has it, save for the tokens."""
    workload = Workload(Op.BMM, *shape)
    for code, name in ((Code.FP8, "w8a16_fp8"), (Code.INT4, "w4a16_gk")):
        row, chosen = nearest(code, workload), choose(workload, NumberFormat.parse(name), True)
        same = ("kernel", "fragments", "warps_n", "warps_k", "chains", "rows", "tiles")
        assert all(getattr(chosen, key) == getattr(row.best, key) for key in same)


def test_groups_bound_the_rows_of_a_step():
    for workload in random_workloads(60):
        for group in (32, 64, 128):
            number_format = NumberFormat.parse(f"w4a16_g{group}")
            if number_format.groups(workload.reduction) > 1:
                assert choose(workload, number_format, True).rows <= group


def test_the_table_names_its_gpu_and_no_shape_twice():
    text = files("kernel_compass.kernels").joinpath("decode_table.json").read_text()
    table = json.loads(text)
    keys = [(row["code"], *row["shape"]) for row in table["rows"]]
    assert table["gpu"] and len(set(keys)) == len(keys)
