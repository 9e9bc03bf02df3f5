"""Small checkpoints written value by value from the published layouts, in numpy."""

from __future__ import annotations

import json

import numpy as np


def words(values, bits, axis, places=None):
    """Unsigned values into int32 words along an axis, low bits first, value by value.

    `places[i]` is which value of a word's worth lies at its position i.
    """
    values = np.moveaxis(np.asarray(values), axis, -1)
    each = 32 // bits
    packed = np.zeros((*values.shape[:-1], -(-values.shape[-1] // each)), np.uint32)
    for word in range(packed.shape[-1]):
        for position in range(each):
            k = word * each + (places[position] if places else position)
            if k < values.shape[-1]:
                packed[..., word] |= values[..., k].astype(np.uint32) << np.uint32(bits * position)
    return np.ascontiguousarray(np.moveaxis(packed, -1, axis)).view(np.int32)


def write(folder, tensors, config, files=1):
    """`config.json` and safetensors files, with an index where there are several."""
    from safetensors.torch import save_file

    (folder / "config.json").write_text(json.dumps(config))
    if files == 1:
        save_file(tensors, folder / "model.safetensors")
        return folder
    placed = {}
    for i, name in enumerate(sorted(tensors)):
        placed[name] = f"model-{i % files + 1:05}-of-{files:05}.safetensors"
    for file in set(placed.values()):
        save_file({n: t for n, t in tensors.items() if placed[n] == file}, folder / file)
    index = {"metadata": {}, "weight_map": placed}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def int4(reduction, columns, group, seed=0, symmetric=False):
    """Random codes `(K, N)`, scales `(G, N)` and zero points `(G, N)`; and their values."""
    rng = np.random.default_rng(seed)
    groups = 1 if group is None else -(-reduction // group)
    codes = rng.integers(0, 16, (reduction, columns))
    scales = rng.uniform(0.01, 0.1, (groups, columns)).astype(np.float16)
    zeros = (
        rng.integers(1, 15, (groups, columns)) if not symmetric else np.full_like(scales, 8, int)
    )
    return codes, scales, zeros


def values(codes, scales, zeros, group_of_row):
    """Float64, row by row."""
    return np.stack(
        [(codes[k] - zeros[g]) * scales[g].astype(float) for k, g in enumerate(group_of_row)]
    )


def compressed_tensors(layout, weights, activations=None, **more):
    """A `config.json` of the library of that name."""
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
    found = {"quant_method": "compressed-tensors", "format": layout, **more}
    return {"quantization_config": {**found, "config_groups": {"group_0": group}}}


def gptq(**more):
    """A `config.json` of GPTQ."""
    found = {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False, "desc_act": False}
    return {"quantization_config": {**found, **more}}


def awq(**more):
    """A `config.json` of AutoAWQ."""
    found = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True}
    return {"quantization_config": {**found, "version": "gemm", **more}}


def deepseek(**more):
    """A `config.json` of DeepSeek-V3."""
    found = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic"}
    return {"quantization_config": {**found, "weight_block_size": [128, 128], **more}}
