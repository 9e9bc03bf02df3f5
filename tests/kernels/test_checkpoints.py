"""Quantized weights out of files: the values that the layout says, bit for bit."""

from __future__ import annotations

import json
import sys

import checkpoint_files as files
import numpy as np
import pytest

from kernel_compass.errors import MissingDependency, UsageError
from kernel_compass.kernels.checkpoints import open_checkpoint
from kernel_compass.kernels.references import dequantize, product

torch = pytest.importorskip("torch", reason="weights are tensors of PyTorch")
pytest.importorskip("safetensors", reason="checkpoints are safetensors files")

LAYER = "model.layers.0.self_attn.q_proj"
AWQ_COLUMNS = (0, 2, 4, 6, 1, 3, 5, 7)


def named(**tensors):
    return {
        f"{LAYER}.{name}": torch.from_numpy(np.ascontiguousarray(x))
        if isinstance(x, np.ndarray)
        else x
        for name, x in tensors.items()
    }


def found(loaded):
    return dequantize(loaded.weight)[0].numpy()


def gptq_tensors(codes, scales, zeros, version=1, index=None):
    stored = zeros - 1 if version == 1 else zeros
    tensors = {
        "qweight": files.words(codes, 4, 0),
        "qzeros": files.words(stored, 4, 1),
        "scales": scales,
    }
    if index is not None:
        tensors["g_idx"] = index.astype(np.int32)
    return named(**tensors)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("group", [32, 128, -1])
def test_gptq(tmp_path, version, group):
    size = None if group == -1 else group
    codes, scales, zeros = files.int4(256, 48, size)
    rows = np.arange(256) // (size or 256)
    config = files.gptq(group_size=group, checkpoint_format="gptq" if version == 1 else "gptq_v2")
    files.write(tmp_path, gptq_tensors(codes, scales, zeros, version, rows), config)
    loaded = open_checkpoint(tmp_path).load(LAYER)
    assert loaded.order is None
    assert loaded.weight.format.name == f"w4a16_g{size or 'k'}_asym"
    assert loaded.weight.scales.dtype is torch.float16
    np.testing.assert_array_equal(loaded.weight.codes[0].numpy(), codes)
    np.testing.assert_array_equal(found(loaded), files.values(codes, scales, zeros, rows))


@pytest.mark.parametrize("shape", [(8, 12), (3, 5), (40, 1)])
def test_a_single_word_a_column_or_a_row(tmp_path, shape):
    codes, scales, zeros = files.int4(*shape, 8)
    rows = np.arange(shape[0]) // 8
    config = files.gptq(group_size=8)
    files.write(tmp_path, gptq_tensors(codes, scales, zeros, 1, rows), config)
    expected = files.values(codes, scales, zeros, rows)
    np.testing.assert_array_equal(found(open_checkpoint(tmp_path).load(LAYER)), expected)
    tensors = named(
        weight_packed=files.words(codes.T, 4, 1),
        weight_scale=scales.T,
        weight_zero_point=files.words(zeros.T, 4, 0),
        weight_shape=np.array(shape[::-1]),
    )
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 8}
    config = files.compressed_tensors("pack-quantized", {**weights, "symmetric": False})
    files.write(tmp_path, tensors, config)
    np.testing.assert_array_equal(found(open_checkpoint(tmp_path).load(LAYER)), expected)


def test_symmetric_gptq_has_no_zero_points(tmp_path):
    codes, scales, zeros = files.int4(64, 24, 32, symmetric=True)
    files.write(tmp_path, gptq_tensors(codes, scales, zeros), files.gptq(sym=True))
    loaded = open_checkpoint(tmp_path).load(LAYER)
    assert loaded.weight.format.name == "w4a16_g32"
    assert loaded.weight.zeros is None
    np.testing.assert_array_equal(
        found(loaded), files.values(codes, scales, zeros, np.arange(64) // 32)
    )


def test_gptq_of_8_bits(tmp_path):
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, (64, 24))
    scales = rng.uniform(0.01, 0.1, (1, 24)).astype(np.float16)
    tensors = named(
        qweight=files.words(codes, 8, 0),
        qzeros=files.words(np.full((1, 24), 127), 8, 1),
        scales=scales,
    )
    files.write(tmp_path, tensors, files.gptq(bits=8, group_size=-1, sym=True))
    loaded = open_checkpoint(tmp_path).load(LAYER)
    assert loaded.weight.format.name == "w8a16_int8"
    np.testing.assert_array_equal(found(loaded), (codes - 128) * scales.astype(float))


def test_scattered_groups_are_refused_or_brought_into_order(tmp_path):
    codes, scales, zeros = files.int4(128, 16, 32)
    rows = np.random.default_rng(3).permutation(np.arange(128) // 32)
    files.write(tmp_path, gptq_tensors(codes, scales, zeros, 1, rows), files.gptq(desc_act=True))
    checkpoint = open_checkpoint(tmp_path)
    with pytest.raises(UsageError, match="permuted=True"):
        checkpoint.load(LAYER)
    loaded = checkpoint.load(LAYER, permuted=True)
    a = torch.randn(5, 128, dtype=torch.float64)
    np.testing.assert_allclose(
        product(a[:, loaded.order], loaded.weight).numpy(),
        a.numpy() @ files.values(codes, scales, zeros, rows),
        rtol=1e-12,
        atol=1e-12,
    )


def test_groups_of_unequal_size_are_refused(tmp_path):
    codes, scales, zeros = files.int4(128, 16, 32)
    rows = np.minimum(np.arange(128) // 16, 3)
    files.write(tmp_path, gptq_tensors(codes, scales, zeros, 1, rows), files.gptq())
    with pytest.raises(UsageError, match="not of 32 rows each"):
        open_checkpoint(tmp_path).load(LAYER, permuted=True)


def test_a_wrapped_zero_point_of_version_1_is_not_guessed(tmp_path):
    codes, scales, zeros = files.int4(64, 16, 32)
    tensors = gptq_tensors(codes, scales, zeros)
    tensors[f"{LAYER}.qzeros"][0, 0] = -1  # eight times 15
    files.write(tmp_path, tensors, files.gptq())
    with pytest.raises(UsageError, match="gptq_v2"):
        open_checkpoint(tmp_path).load(LAYER)


def test_awq(tmp_path):
    codes, scales, zeros = files.int4(128, 48, 32)
    tensors = named(
        qweight=files.words(codes, 4, 1, AWQ_COLUMNS),
        qzeros=files.words(zeros, 4, 1, AWQ_COLUMNS),
        scales=scales,
    )
    files.write(tmp_path, tensors, files.awq())
    loaded = open_checkpoint(tmp_path).load(LAYER)
    assert loaded.weight.format.name == "w4a16_g32_asym"
    expected = files.values(codes, scales, zeros, np.arange(128) // 32)
    np.testing.assert_array_equal(found(loaded), expected)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("shape", [(128, 48), (72, 20)])
@pytest.mark.parametrize("files_", [1, 3])
def test_packed_compressed_tensors(tmp_path, symmetric, shape, files_):
    codes, scales, zeros = files.int4(*shape, 32, symmetric=symmetric)
    tensors = named(
        weight_packed=files.words(codes.T, 4, 1),
        weight_scale=torch.from_numpy(scales.T.copy()).to(torch.bfloat16),
        weight_shape=np.array(shape[::-1]),
    )
    if not symmetric:
        tensors |= named(weight_zero_point=files.words(zeros.T, 4, 0))
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}
    config = files.compressed_tensors("pack-quantized", {**weights, "symmetric": symmetric})
    files.write(tmp_path, tensors, config, files_)
    loaded = open_checkpoint(tmp_path).load(LAYER)
    assert loaded.weight.format.name == "w4a16_g32" + ("" if symmetric else "_asym")
    scales = torch.from_numpy(scales).to(torch.bfloat16).double().numpy()
    expected = files.values(codes, scales, zeros, np.arange(shape[0]) // 32)
    np.testing.assert_array_equal(found(loaded), expected)


def test_packed_compressed_tensors_of_8_bits(tmp_path):
    rng = np.random.default_rng(0)
    codes = rng.integers(-127, 128, (64, 24))
    scales = rng.uniform(0.01, 0.1, (24, 1)).astype(np.float32)
    tensors = named(
        weight_packed=files.words(codes.T + 128, 8, 1),
        weight_scale=scales,
        weight_shape=np.array([24, 64]),
    )
    weights = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}
    files.write(tmp_path, tensors, files.compressed_tensors("pack-quantized", weights))
    loaded = open_checkpoint(tmp_path).load(LAYER)
    assert loaded.weight.format.name == "w8a16_int8"
    np.testing.assert_array_equal(found(loaded), codes * scales.T.astype(float))


TOKEN = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}


@pytest.mark.parametrize("activations", [None, TOKEN])
@pytest.mark.parametrize("strategy", ["channel", "tensor"])
def test_int_quantized(tmp_path, activations, strategy):
    rng = np.random.default_rng(0)
    codes = rng.integers(-128, 128, (24, 64)).astype(np.int8)
    scales = rng.uniform(0.01, 0.1, (24, 1) if strategy == "channel" else 1).astype(np.float32)
    weights = {"num_bits": 8, "type": "int", "strategy": strategy, "symmetric": True}
    config = files.compressed_tensors("int-quantized", weights, activations)
    files.write(tmp_path, named(weight=codes, weight_scale=scales), config)
    loaded = open_checkpoint(tmp_path).load(LAYER)
    assert loaded.weight.format.name == ("w8a8_int8" if activations else "w8a16_int8")
    np.testing.assert_array_equal(found(loaded), (codes * scales.astype(float)).T)
    alone = open_checkpoint(tmp_path).load(LAYER, weight_only=True)
    assert alone.weight.format.name == "w8a16_int8"


@pytest.mark.parametrize("layout", ["float-quantized", "deepseek", "compressed blocks"])
def test_fp8(tmp_path, layout):
    codes = torch.randn(200, 300).to(torch.float8_e4m3fn)
    channel = layout == "float-quantized"
    scales = torch.rand(200, 1) if channel else torch.rand(2, 3)
    spread = scales if channel else scales.repeat_interleave(128, 0).repeat_interleave(128, 1)
    weights = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel"}
    activations = {**TOKEN, "type": "float"}
    if layout == "compressed blocks":
        weights |= {"strategy": "block", "block_structure": [128, 128]}
        activations |= {"strategy": "group", "group_size": 128}
    config = files.compressed_tensors("float-quantized", weights, activations)
    name = "weight_scale"
    if layout == "deepseek":
        name, config = "weight_scale_inv", files.deepseek()
    files.write(tmp_path, named(weight=codes, **{name: scales}), config)
    loaded = open_checkpoint(tmp_path).load(LAYER)
    assert loaded.weight.format.name == ("w8a8_fp8" if channel else "w8a8_fp8_block")
    expected = (codes.double() * spread[:200, :300].double()).T
    np.testing.assert_array_equal(found(loaded), expected.numpy())


def test_static_activations_need_weight_only(tmp_path):
    static = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False}
    weights = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}
    tensors = named(weight=torch.ones(4, 8).to(torch.float8_e4m3fn), weight_scale=torch.ones(4, 1))
    files.write(tmp_path, tensors, files.compressed_tensors("float-quantized", weights, static))
    with pytest.raises(UsageError, match="weight_only=True"):
        open_checkpoint(tmp_path).load(LAYER)
    alone = open_checkpoint(tmp_path).load(LAYER, weight_only=True)
    assert alone.weight.format.name == "w8a16_fp8"


def test_layers_that_are_not_quantized(tmp_path):
    head = torch.randn(12, 8).to(torch.bfloat16)
    norm = torch.ones(8).to(torch.bfloat16)
    files.write(tmp_path, {"lm_head.weight": head, "norm.weight": norm}, {})
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.layers == ("lm_head", "norm")
    loaded = checkpoint.load("lm_head")
    assert loaded.weight.format.name == "bf16"
    assert torch.equal(loaded.weight.codes[0], head.t())
    with pytest.raises(UsageError, match="no scales beside it"):
        checkpoint.load("norm")
    with pytest.raises(UsageError, match="Did you mean 'lm_head'"):
        checkpoint.load("lm_heads")


def test_schemes_by_name_come_before_those_by_class(tmp_path):
    weights = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}
    config = files.compressed_tensors("int-quantized", {**weights, "strategy": "attn_head"})
    groups = config["quantization_config"]["config_groups"]
    groups["group_1"] = {"targets": [r"re:.*\.q_proj$"], "weights": weights}
    tensors = named(weight=torch.ones(4, 8).to(torch.int8), weight_scale=torch.ones(4, 1))
    files.write(tmp_path, tensors, config)
    assert open_checkpoint(tmp_path).load(LAYER).weight.format.name == "w8a16_int8"
    groups["group_1"]["targets"] = ["Linear"]
    files.write(tmp_path, tensors, config)
    with pytest.raises(UsageError, match="2 of 2 config_groups"):
        open_checkpoint(tmp_path).load(LAYER)


REFUSED = {
    "another method": ({"quantization_config": {"quant_method": "bitsandbytes"}}, "bitsandbytes"),
    "no method": ({"quantization_config": {"bits": 4}}, "'not given'"),
    "no configuration": ({}, "no quantization_config"),
    "gptq marlin": (files.gptq(checkpoint_format="marlin"), "'marlin'"),
    "gptq of 3 bits": (files.gptq(bits=3), "3 bits"),
    "gptq without bits": ({"quantization_config": {"quant_method": "gptq"}}, "not as published"),
    "gptq of no group": (files.gptq(group_size=0), "group_size 0"),
    "gptq of another group": (files.gptq(group_size=64), r"needs \(1, 16\)"),
    "gptq of 8 bits": (files.gptq(bits=8), "needs"),
    "awq gemv": (files.awq(version="gemv"), "'gemv'"),
    "awq of 3 bits": (files.awq(bits=3), "3 bits"),
    "fp8 of one scale": (files.deepseek(weight_block_size=None), "None"),
    "fp8 e5m2": (files.deepseek(fmt="e5m2"), "e5m2"),
    "nvfp4": (files.compressed_tensors("nvfp4-pack-quantized", {}), "nvfp4"),
    "missing tensors": (
        files.compressed_tensors(
            "pack-quantized", {"num_bits": 4, "strategy": "group", "group_size": 32}
        ),
        "has no tensor weight",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_named(tmp_path, case):
    config, message = REFUSED[case]
    files.write(tmp_path, gptq_tensors(*files.int4(64, 16, 32)), config)
    with pytest.raises(UsageError, match=message) as refusal:
        open_checkpoint(tmp_path).load(LAYER)
    assert refusal.value.remedy


def one_of(tensors, **changed):
    """A layer's tensors with some of them replaced; `None` leaves one out."""
    whole = {**tensors, **named(**{k: v for k, v in changed.items() if v is not None})}
    return {
        n: t for n, t in whole.items() if changed.get(n.removeprefix(f"{LAYER}."), 0) is not None
    }


GPTQ = gptq_tensors(*files.int4(64, 16, 32))
AWQ = named(
    qweight=np.ones((64, 2), np.int32),
    qzeros=np.ones((2, 2), np.int32),
    scales=np.ones((2, 16), np.float16),
)
WEIGHTS = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}
PACKED = named(
    weight_packed=np.ones((16, 8), np.int32),
    weight_scale=np.ones((16, 2), np.float32),
    weight_shape=np.array([16, 64]),
)
PACK = files.compressed_tensors("pack-quantized", WEIGHTS)
CHANNEL = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}
INT8 = named(weight=torch.ones(4, 8, dtype=torch.int8), weight_scale=torch.ones(4, 1))
INTS = files.compressed_tensors("int-quantized", CHANNEL)
BLOCKS = named(
    weight=torch.ones(200, 300).to(torch.float8_e4m3fn), weight_scale_inv=torch.ones(2, 3)
)
BLOCK = files.deepseek()
NAN = float("nan")

DAMAGED = {
    "words of 64 bits": (one_of(GPTQ, qweight=np.ones((8, 16), np.int64)), files.gptq(), "int64"),
    "words of 16 bits": (one_of(GPTQ, qweight=np.ones((8, 16), np.int16)), files.gptq(), "int16"),
    "floats as words": (one_of(AWQ, qweight=np.ones((64, 2), np.float32)), files.awq(), "float32"),
    "floats as zeros": (one_of(GPTQ, qzeros=np.ones((2, 2), np.float32)), files.gptq(), "float32"),
    "bytes as words": (one_of(PACKED, weight_packed=np.ones((16, 8), np.int8)), PACK, "int8"),
    "a row of words": (one_of(AWQ, qweight=np.ones(64, np.int32)), files.awq(), r"\(64,\)"),
    "a column of words": (one_of(GPTQ, qweight=np.ones(8, np.int32)), files.gptq(), r"\(8,\)"),
    "no columns": (one_of(GPTQ, qweight=np.ones((8, 0), np.int32)), files.gptq(), r"\(8, 0\)"),
    "no rows": (one_of(GPTQ, qweight=np.ones((0, 16), np.int32)), files.gptq(), r"\(0, 16\)"),
    "no outputs": (
        named(weight=torch.ones(0, 8, dtype=torch.int8), weight_scale=torch.ones(0, 1)),
        INTS,
        "is empty",
    ),
    "nothing at all": (named(weight=torch.ones(0, 8, dtype=torch.bfloat16)), {}, "is empty"),
    "whole scales": (one_of(GPTQ, scales=np.ones((2, 16), np.int32)), files.gptq(), "int32"),
    "wide scales": (one_of(INT8, weight_scale=np.full((4, 1), 1 / 3)), INTS, "float64"),
    "exponents as bytes": (
        one_of(BLOCKS, weight_scale_inv=np.full((2, 3), 127, np.uint8)),
        BLOCK,
        "uint8",
    ),
    "one scale for all groups": (one_of(PACKED, weight_scale=torch.ones(1)), PACK, r"\(16, 2\)"),
    "a scale of NaN": (
        one_of(INT8, weight_scale=np.full((4, 1), NAN)[:, :1].astype("f4")),
        INTS,
        "NaN",
    ),
    "an infinite scale": (
        one_of(GPTQ, scales=np.full((2, 16), np.inf, np.float16)),
        files.gptq(),
        "32 of 32",
    ),
    "an e8m0 scale of NaN": (
        one_of(
            BLOCKS,
            weight_scale_inv=torch.full((2, 3), 255, dtype=torch.uint8).view(torch.float8_e8m0fnu),
        ),
        BLOCK,
        "NaN",
    ),
    "a code of NaN": (
        one_of(BLOCKS, weight=torch.full((200, 300), NAN).to(torch.float8_e4m3fn)),
        BLOCK,
        "NaN",
    ),
    "a weight of NaN": (named(weight=torch.full((4, 8), NAN, dtype=torch.bfloat16)), {}, "NaN"),
    "zeros of a symmetric one": (
        one_of(PACKED, weight_zero_point=np.ones((2, 2), np.int32)),
        PACK,
        "calls it symmetric",
    ),
    "two forms": (
        one_of(PACKED, weight=torch.ones(16, 64, dtype=torch.int8)),
        PACK,
        "several forms",
    ),
    "a shape of one head": (one_of(PACKED, weight_shape=np.array([1, 16, 64])), PACK, "N and K"),
    "a shape of floats": (one_of(PACKED, weight_shape=np.array([16.0, NAN])), PACK, "N and K"),
    "a shape of one number": (one_of(PACKED, weight_shape=torch.tensor(5)), PACK, "N and K"),
    "a negative shape": (one_of(PACKED, weight_shape=np.array([16, -64])), PACK, "-8"),
    "an index of floats": (
        one_of(GPTQ, g_idx=(np.arange(64) // 32).astype(np.float32)),
        files.gptq(),
        "float32",
    ),
    "an index of one number": (one_of(GPTQ, g_idx=torch.tensor(3)), files.gptq(), "int64"),
    "an index of several groups for one": (
        {
            **gptq_tensors(*files.int4(64, 16, None)),
            **named(g_idx=(np.arange(64) // 32).astype(np.int32)),
        },
        files.gptq(group_size=-1),
        "of 64 rows each",
    ),
    "bits without end": (GPTQ, files.gptq(bits=float("inf")), "not as published"),
    "half a bit": (GPTQ, files.gptq(bits=4.5), "not as published"),
    "a part of a row": (GPTQ, files.gptq(group_size=32.7), "not as published"),
    "a pattern that is none": (GPTQ, files.gptq(dynamic={"+:(": {"bits": 4}}), "not as published"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_tensors_are_refused_not_misread(tmp_path, case):
    tensors, config, message = DAMAGED[case]
    files.write(tmp_path, tensors, config)
    with pytest.raises(UsageError, match=message) as refusal:
        open_checkpoint(tmp_path).load(LAYER, permuted=True)
    assert refusal.value.remedy


def test_the_undamaged_ones_of_these_are_read(tmp_path):
    for tensors, config in (
        (GPTQ, files.gptq()),
        (AWQ, files.awq()),
        (PACKED, PACK),
        (INT8, INTS),
        (BLOCKS, BLOCK),
    ):
        files.write(tmp_path, tensors, config)
        assert found(open_checkpoint(tmp_path).load(LAYER)).size


def test_a_tensor_of_two_files_needs_an_index(tmp_path):
    from safetensors.torch import save_file

    for i in (1, 2):
        tensors = named(weight=torch.full((4, 8), float(i), dtype=torch.bfloat16))
        save_file(tensors, tmp_path / f"copy{i}.safetensors")
    with pytest.raises(UsageError, match=r"both in .*copy1\.safetensors and in .*copy2"):
        open_checkpoint(tmp_path)
    index = {"weight_map": {f"{LAYER}.weight": "copy2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert float(open_checkpoint(tmp_path).load(LAYER).weight.codes[0, 0, 0]) == 2


def test_a_type_that_torch_lacks_is_named(tmp_path):
    header = {f"{LAYER}.weight": {"dtype": "F6_E2M3", "shape": [4, 8], "data_offsets": [0, 24]}}
    head = json.dumps(header).encode()
    data = len(head).to_bytes(8, "little") + head + bytes(24)
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(UsageError, match="F6_E2M3"):
        open_checkpoint(tmp_path).load(LAYER)


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 10**6, 0])
def test_a_header_of_another_length_than_it_says(tmp_path, length):
    (tmp_path / "model.safetensors").write_bytes(length.to_bytes(8, "little") + b'{"a": 1}')
    with pytest.raises(UsageError, match="cannot be read as safetensors"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json"])
def test_json_without_end(tmp_path, name):
    (tmp_path / name).write_text("[" * 200_000)
    with pytest.raises(UsageError, match="cannot be read"):
        open_checkpoint(tmp_path)


def test_names_that_no_file_can_have(tmp_path):
    with pytest.raises(UsageError, match=r"is no directory .*too long") as refused:
        open_checkpoint("a" * 5000)
    assert len(str(refused.value)) < 500
    index = {"weight_map": {f"{LAYER}.weight": "a" * 5000}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UsageError, match="no file beside it"):
        open_checkpoint(tmp_path)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(UsageError, match="no safetensors files"):
        open_checkpoint(tmp_path)
    with pytest.raises(UsageError, match="There is no"):
        open_checkpoint(tmp_path / "nowhere")
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(UsageError, match="cannot be read as safetensors"):
        open_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("[")
    with pytest.raises(UsageError, match=r"config\.json cannot be read"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("place", ["../outside.safetensors", "/etc/passwd", "gone.safetensors"])
def test_an_index_names_files_beside_it_only(tmp_path, place):
    inside = tmp_path / "checkpoint"
    inside.mkdir()
    (tmp_path / "outside.safetensors").write_bytes(b"")
    index = {"weight_map": {f"{LAYER}.weight": place}}
    (inside / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UsageError, match="no file beside it"):
        open_checkpoint(inside)


def test_an_index_that_does_not_fit_its_files(tmp_path):
    files.write(tmp_path, gptq_tensors(*files.int4(64, 16, 32)), files.gptq(), files=2)
    index = tmp_path / "model.safetensors.index.json"
    found = json.loads(index.read_text())
    found["weight_map"] = dict.fromkeys(found["weight_map"], found["weight_map"][f"{LAYER}.scales"])
    index.write_text(json.dumps(found))
    with pytest.raises(UsageError, match="lacks"):
        open_checkpoint(tmp_path).load(LAYER)
    index.write_text("{}")
    with pytest.raises(UsageError, match="no weight_map"):
        open_checkpoint(tmp_path)


def test_without_safetensors_its_name_is_given(tmp_path, monkeypatch):
    files.write(tmp_path, gptq_tensors(*files.int4(64, 16, 32)), files.gptq())
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(MissingDependency, match="pip install safetensors"):
        open_checkpoint(tmp_path)


def test_a_folder_that_is_none_is_named(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"There is no nowhere/DeepSeek-V3 here\..*downloaded"):
        open_checkpoint("nowhere/DeepSeek-V3")
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"")
    with pytest.raises(UsageError, match=f"{file} is a file.*Here: {tmp_path}"):
        open_checkpoint(file)
    with pytest.raises(UsageError, match="is no directory"):
        open_checkpoint("x" * 5000)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UsageError, match=f"There is no {tmp_path}/models here"):
        open_checkpoint("~/models")


def test_home_is_expanded(tmp_path, monkeypatch):
    (tmp_path / "models").mkdir()
    files.write(tmp_path / "models", gptq_tensors(*files.int4(64, 16, 32)), files.gptq())
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_checkpoint("~/models").layers == (LAYER,)


def test_without_torch_no_more_than_is_needed_is_advised(tmp_path, monkeypatch):
    files.write(tmp_path, gptq_tensors(*files.int4(64, 16, 32)), files.gptq())
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependency, match="pip install torch safetensors") as caught:
        open_checkpoint(tmp_path)
    assert "triton" not in str(caught.value)
