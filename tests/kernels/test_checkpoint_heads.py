"""`kv_b_proj` cut into heads, from files: the whole matrix in float64, head by head."""

from __future__ import annotations

import checkpoint_files as files
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="weights are tensors of PyTorch")
pytest.importorskip("safetensors", reason="checkpoints are safetensors files")

from kernel_compass.errors import UsageError  # noqa: E402
from kernel_compass.kernels import fragments  # noqa: E402
from kernel_compass.kernels.checkpoint_heads import (  # noqa: E402
    q_absorb_weight,
    reconstruction_weights,
    v_up_weight,
)
from kernel_compass.kernels.checkpoints import open_checkpoint  # noqa: E402
from kernel_compass.kernels.plain_layouts import columns_first  # noqa: E402
from kernel_compass.kernels.quantize import quantize  # noqa: E402
from kernel_compass.kernels.quantized import QuantizedWeight  # noqa: E402
from kernel_compass.kernels.references import dequantize, product  # noqa: E402
from kernel_compass.records.number_format import NumberFormat  # noqa: E402

LAYER = "model.layers.0.self_attn.kv_b_proj"
SIZES = {"heads": 3, "nope": 128, "value": 128}
RANK = 192
"""L; no multiple of 128, so that the last blocks are ragged."""
INT8 = {"num_bits": 8, "type": "int", "symmetric": True}


def outputs(sizes):
    return sizes["heads"] * (sizes["nope"] + sizes["value"])


def loaded(folder, config, tensors, **options):
    named = {
        f"{LAYER}.{name}": torch.from_numpy(np.ascontiguousarray(x))
        if isinstance(x, np.ndarray)
        else x
        for name, x in tensors.items()
    }
    files.write(folder, named, config)
    return open_checkpoint(folder).load(LAYER, **options)


def deepseek(folder, sizes=SIZES, rank=RANK):
    """Block fp8; and W in float64, element by element."""
    rows = outputs(sizes)
    codes = torch.randn(rows, rank).mul(50).to(torch.float8_e4m3fn)
    scales = torch.rand(-(-rows // 128), -(-rank // 128)) + 0.1
    found = loaded(folder, files.deepseek(), {"weight": codes, "weight_scale_inv": scales})
    spread = scales.double().repeat_interleave(128, 0).repeat_interleave(128, 1)
    return found, codes.double() * spread[:rows, :rank]


def bf16(folder, sizes=SIZES, rank=RANK):
    weight = torch.randn(outputs(sizes), rank).to(torch.bfloat16)
    return loaded(folder, {}, {"weight": weight}), weight.double()


def int8(folder, strategy="tensor", sizes=SIZES, rank=RANK):
    rng, rows = np.random.default_rng(0), outputs(sizes)
    codes = rng.integers(-128, 128, (rows, rank)).astype(np.int8)
    shape = (rows, 1) if strategy == "channel" else 1
    scales = rng.uniform(0.01, 0.1, shape).astype(np.float32)
    config = files.compressed_tensors("int-quantized", {**INT8, "strategy": strategy})
    found = loaded(folder, config, {"weight": codes, "weight_scale": scales})
    return found, torch.from_numpy(codes).double() * torch.from_numpy(scales).double()


def int4(folder, sizes=SIZES, rank=RANK, one_a_head=False):
    """GPTQ with zero points, in groups of 32 along L."""
    rows, groups = outputs(sizes), rank // 32
    codes, scales, zeros = files.int4(rank, rows, 32)
    if one_a_head:
        head = np.arange(rows) // (sizes["nope"] + sizes["value"])
        scales = scales[:, : sizes["heads"]][:, head]
        zeros = zeros[:, : sizes["heads"]][:, head]
    tensors = {
        "qweight": files.words(codes, 4, 0),
        "qzeros": files.words(zeros, 4, 1),
        "scales": scales,
    }
    found = loaded(folder, files.gptq(checkpoint_format="gptq_v2"), tensors)
    values = files.values(codes, scales, zeros, np.arange(groups).repeat(32))
    return found, torch.from_numpy(values.T)


def check_q_absorb(q_absorb, whole, sizes=SIZES):
    width = sizes["nope"] + sizes["value"]
    found = dequantize(q_absorb)
    assert found.shape == (sizes["heads"], sizes["nope"], whole.shape[1])
    for head in range(sizes["heads"]):
        first = head * width
        assert torch.equal(found[head], whole[first : first + sizes["nope"]])


def check_v_up(v_up, whole, sizes=SIZES):
    width = sizes["nope"] + sizes["value"]
    found = dequantize(v_up)
    assert found.shape == (sizes["heads"], whole.shape[1], sizes["value"])
    for head in range(sizes["heads"]):
        first = head * width + sizes["nope"]
        assert torch.equal(found[head], whole[first : first + sizes["value"]].t())


def one_scale_a_head(folder):
    return int4(folder, one_a_head=True)


@pytest.mark.parametrize(
    "make, names",
    [
        (bf16, ("bf16", "bf16")),
        (deepseek, ("w8a8_fp8_block", "w8a8_fp8_block")),
        (int8, ("w8a16_int8", "w8a16_int8")),
        (one_scale_a_head, ("w4a16_gk_asym", "w4a16_g32_asym")),
    ],
)
def test_both_halves_are_the_whole_matrix_head_by_head(tmp_path, make, names):
    layer, whole = make(tmp_path)
    assert torch.equal(dequantize(layer.weight)[0].t(), whole)
    q_absorb, v_up = reconstruction_weights(layer, **SIZES)
    assert (q_absorb.format.name, v_up.format.name) == names
    check_q_absorb(q_absorb, whole)
    check_v_up(v_up, whole)
    for half in (q_absorb, v_up):  # the codes are the file's, not copied
        storage = layer.weight.codes.untyped_storage().data_ptr()
        assert half.codes.untyped_storage().data_ptr() == storage


def test_the_two_products_are_those_of_the_layer(tmp_path):
    """Scores and outputs as without absorption: keys and values by `kv_b_proj` itself."""
    layer, whole = deepseek(tmp_path)
    q_absorb, v_up = reconstruction_weights(layer, **SIZES)
    latent = torch.randn(7, RANK, dtype=torch.float64)
    keys, values = (latent @ whole.t()).unflatten(1, (3, 256)).split(128, 2)
    q = torch.randn(3, 2, 128, dtype=torch.float64)
    scores = product(q, q_absorb) @ latent.t()
    torch.testing.assert_close(scores, torch.einsum("hmp,thp->hmt", q, keys))
    weights = torch.rand(3, 2, 7, dtype=torch.float64)
    out = product(weights @ latent, v_up)
    torch.testing.assert_close(out, torch.einsum("hmt,thv->hmv", weights, values))


def test_heads_whose_parts_differ_in_size(tmp_path):
    sizes = {"heads": 2, "nope": 24, "value": 40}
    layer, whole = bf16(tmp_path, sizes, 32)
    q_absorb, v_up = reconstruction_weights(layer, **sizes)
    check_q_absorb(q_absorb, whole, sizes)
    check_v_up(v_up, whole, sizes)
    sizes = {"heads": 2, "nope": 128, "value": 256}
    layer, whole = deepseek(tmp_path, sizes, 256)
    q_absorb, v_up = reconstruction_weights(layer, **sizes)
    check_q_absorb(q_absorb, whole, sizes)
    check_v_up(v_up, whole, sizes)


@pytest.mark.parametrize("make", [bf16, int8, one_scale_a_head])
def test_both_halves_are_packed_as_they_are(tmp_path, make):
    for half in reconstruction_weights(make(tmp_path)[0], **SIZES):
        back = fragments.unpack(fragments.pack(half))
        assert torch.equal(dequantize(back), dequantize(half))


def test_blocks_are_packed_as_they_are(tmp_path):
    for half in reconstruction_weights(deepseek(tmp_path)[0], **SIZES):
        packed = columns_first(half.codes).float()
        assert torch.equal(packed[:, :, : half.reduction], half.codes.float().transpose(1, 2))
        assert half.scales.is_contiguous()


@pytest.mark.parametrize("make", [lambda folder: int8(folder, "channel"), int4])
def test_scales_of_single_outputs_are_kept_by_v_up_and_refused_for_q_absorb(tmp_path, make):
    layer, whole = make(tmp_path)
    name = layer.weight.format.name
    for cut in (q_absorb_weight, reconstruction_weights):
        with pytest.raises(UsageError, match=f"q_absorb cannot keep .* {name}") as refusal:
            cut(layer, **SIZES)
        assert "v_up_weight" in refusal.value.remedy and "quantize" in refusal.value.remedy
    v_up = v_up_weight(layer, **SIZES)
    assert v_up.format == layer.weight.format
    check_v_up(v_up, whole)


def test_what_the_refusal_advises_works(tmp_path):
    layer, whole = int8(tmp_path, "channel")
    wide = dequantize(layer.weight).to(torch.bfloat16)
    plain = QuantizedWeight(NumberFormat.parse("bf16"), wide, None)
    q_absorb, _ = reconstruction_weights(type(layer)(plain), **SIZES)
    anew = quantize(q_absorb.codes, NumberFormat.parse("w8a16_int8"))
    assert anew.scales.shape == (3, 1, RANK)
    error = dequantize(anew) - whole.unflatten(0, (3, 256))[:, :128]
    assert error.abs().max() <= 0.01 * whole.abs().max()


@pytest.mark.parametrize("nope, value", [(64, 192), (192, 64)])
def test_blocks_that_span_two_parts_are_refused(tmp_path, nope, value):
    sizes = {"heads": 2, "nope": nope, "value": value}
    layer, _ = deepseek(tmp_path, sizes)
    for cut in (q_absorb_weight, v_up_weight):
        with pytest.raises(UsageError, match="spans two parts") as refusal:
            cut(layer, **sizes)
        assert "16-bit" in refusal.value.remedy


@pytest.mark.parametrize("change", [{"heads": 4}, {"nope": 64}, {"value": 0}, {"heads": -3}])
def test_sizes_that_are_not_the_layers_are_refused(tmp_path, change):
    layer, _ = bf16(tmp_path)
    for cut in (q_absorb_weight, v_up_weight):
        with pytest.raises(UsageError, match="768 outputs") as refusal:
            cut(layer, **{**SIZES, **change})
        assert "qk_nope_head_dim" in refusal.value.remedy


def test_rows_in_another_order_are_refused(tmp_path):
    codes, scales, zeros = files.int4(128, 768, 32)
    tensors = {
        "qweight": files.words(codes, 4, 0),
        "qzeros": files.words(zeros, 4, 1),
        "scales": scales,
        "g_idx": np.random.default_rng(3).permutation(np.arange(128) // 32).astype(np.int32),
    }
    config = files.gptq(checkpoint_format="gptq_v2", desc_act=True)
    layer = loaded(tmp_path, config, tensors, permuted=True)
    assert layer.order is not None
    with pytest.raises(UsageError, match="desc_act"):
        v_up_weight(layer, **SIZES)
