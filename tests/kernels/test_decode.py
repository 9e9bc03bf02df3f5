"""The decode product in plain Triton, in its interpreter, against float64.

`decode_gluon.py`, which the interpreter does not run, has the same tests on a GPU.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernel_cases import INTERPRETER_WARNING, gaussian, torch_with_interpreter

torch = torch_with_interpreter()

import wider_conformance as conformance  # noqa: E402

from kernel_compass.api.kernel_checks import check_fidelity  # noqa: E402
from kernel_compass.errors import UsageError  # noqa: E402
from kernel_compass.kernels.decode import DecodeConfig, configuration, launch, legal  # noqa: E402
from kernel_compass.kernels.fragments import pack  # noqa: E402
from kernel_compass.kernels.providers.own import Decode  # noqa: E402
from kernel_compass.kernels.quantize import quantize  # noqa: E402
from kernel_compass.records.number_format import NumberFormat  # noqa: E402
from kernel_compass.records.workload import Op, Workload  # noqa: E402

pytestmark = pytest.mark.filterwarnings(INTERPRETER_WARNING)
OWN = Decode("own_decode", invariant=False)
INVARIANT = Decode("own_decode_invariant", invariant=True)
FORMATS = ("bf16", "fp16", "w8a16_fp8", "w8a16_int8", "w4a16_gk", "w4a16_g128", "w4a16_g32_asym")
GROUPS = tuple(f"w4a16_g{group}{kind}" for group in (32, 64, 128, "k") for kind in ("", "_asym"))
CONFIGS = (
    DecodeConfig("plain", 2, 2, rows=64, tokens=16),
    DecodeConfig("plain", 4, 4, rows=128, tokens=64),
    DecodeConfig("plain", 8, 8, rows=64, tokens=16),
)


def case(name, shape=(3, 5, 100, 70), config=None, one=OWN):
    made = conformance.Case(torch, one, name, shape, config and config.as_config())
    made.rounded_weights = False  # codes are exact in 16 bits; scales come after the sums
    return made


def dtype_of(name):
    return torch.float16 if name == "fp16" else torch.bfloat16


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("shape", conformance.SHAPES)
def test_it_is_the_product_of_the_quantized_weight(name, shape):
    conformance.check_dense(case(name, shape), dtype_of(name))


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("shape", [(2, 3, 256, 40), (1, 2, 300, 33), (1, 1, 31, 5)])
def test_groups_of_every_size_also_where_the_last_is_cut(name, shape):
    conformance.check_dense(case(name, shape), torch.bfloat16)


@pytest.mark.parametrize("name", ["bf16", "w8a16_fp8", "w4a16_gk", "w4a16_g32", "w4a16_g64_asym"])
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_every_kind_of_tile_computes_it(name, config):
    shape = (1, 18, 200, 70)
    assert legal(config, Workload(Op.BMM, *shape), NumberFormat.parse(name))
    conformance.check_dense(case(name, shape, config), torch.bfloat16)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("offset", [0, 1])
def test_views_are_read_and_written_where_they_lie(name, offset):
    conformance.check_strided(case(name), dtype_of(name), offset)


@pytest.mark.parametrize("name", FORMATS)
def test_no_rows_give_an_empty_output(name):
    conformance.check_empty(case(name), dtype_of(name))


@pytest.mark.parametrize("name", ["w8a16_fp8", "w4a16_g32_asym"])
def test_more_rows_than_it_was_prepared_for(name):
    conformance.check_other_tokens(case(name, (2, 1, 100, 70)), torch.bfloat16, 37)


@pytest.mark.parametrize("name", FORMATS)
def test_linear(name):
    conformance.check_linear(torch, OWN, name, dtype_of(name), "cpu")


@pytest.mark.parametrize("name", ["w8a16_fp8", "w4a16_g64_asym"])
def test_sums_may_stay_in_float32(name):
    weight = conformance.weight_of(torch, name, 2, 100, 40, "cpu")
    a = gaussian(torch, 2, 5, 100).bfloat16()
    out = torch.full((2, 5, 40), float("nan"))
    launch(pack(weight), a, out, CONFIGS[0], wide=True)
    exact = check_fidelity(out, a, weight, limit=1e-5)
    assert exact.passed, exact.reason


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("depth", [100, 600])
def test_hostile_activations(name, depth):
    hard = case(name, (1, 6, depth, 40))
    kinds = dict(conformance.hostile_activations(hard, dtype_of(name)))
    assert len(kinds) >= len(conformance.HOSTILE) - (name == "fp16")
    for a in kinds.values():
        hard.check(a, hard.run(a))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_row_that_is_not_finite_shows_it_and_spoils_no_other(name, bad):
    conformance.check_not_finite(case(name, (2, 4, 100, 40)), dtype_of(name), bad)


@pytest.mark.parametrize("name", ["w4a16_gk_asym", "w4a16_g32_asym", "w4a16_g128_asym"])
@pytest.mark.parametrize("zero", [0, 15])
def test_zero_points_at_either_end_beside_an_outlier(name, zero):
    """A code's offset is as large as its range: what cancels must cancel before it is summed."""
    made = case(name, (1, 3, 160, 32))
    made.weight.zeros.fill_(zero)
    made.prepared = OWN.prepare(made.weight, made.workload)
    a = made.activations(torch.bfloat16)
    a[:, 1, 7] = 3e4
    made.check(a, made.run(a))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", ["w8a16_int8", "w4a16_g64"])
def test_scales_of_every_type(name, kind):
    weight = quantize(gaussian(torch, 1, 130, 20), NumberFormat.parse(name), scale_dtype=kind)
    assert weight.scales.dtype == kind
    prepared = OWN.prepare(weight, Workload(Op.BMM, 1, 2, 130, 20))
    a = gaussian(torch, 1, 2, 130).bfloat16()
    found = check_fidelity(OWN.run(prepared, prepared.streamed, a), a, weight)
    assert found.passed, found.reason


@pytest.mark.parametrize("name", ["bf16", "w8a16_int8", "w4a16_g32_asym"])
@pytest.mark.parametrize("depth", [100, 600])
def test_a_row_of_the_invariant_variant_does_not_depend_on_its_batch(name, depth):
    conformance.check_rows_alone(case(name, (1, 70, depth, 40), one=INVARIANT), torch.bfloat16)


def test_what_is_streamed_is_what_is_read():
    made = case("w4a16_gk_asym")
    a = made.activations(torch.bfloat16)
    before = made.run(a)
    copies = tuple(t.clone() for t in made.prepared.streamed)
    copies[1].mul_(2)
    assert torch.equal(OWN.run(made.prepared, copies, a), 2 * before)
    assert torch.equal(made.run(a), before)


def test_a_configuration_goes_into_plain_values_and_back():
    config = replace(CONFIGS[0], load="evict_first", hold=True)
    assert configuration(config.as_config()) == config
    with pytest.raises(UsageError, match=r"BLOCK_M.*no configuration.*fragments, warps_n"):
        configuration({"BLOCK_M": 16})
    with pytest.raises(UsageError, match="no configuration"):
        configuration({"kernel": "plain"})
