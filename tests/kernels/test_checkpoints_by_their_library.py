"""Checkpoints compressed by compressed-tensors itself give the values that it gives back."""

from __future__ import annotations

import checkpoint_files as files
import pytest

from kernel_compass.kernels.checkpoints import open_checkpoint
from kernel_compass.kernels.references import dequantize

torch = pytest.importorskip("torch", reason="weights are tensors of PyTorch")
pytest.importorskip("safetensors", reason="checkpoints are safetensors files")
library = pytest.importorskip("compressed_tensors", reason="pip install compressed-tensors")

CASES = {
    "w4 group": ("pack-quantized", {"num_bits": 4, "strategy": "group", "group_size": 32}),
    "w4 asym": (
        "pack-quantized",
        {"num_bits": 4, "strategy": "group", "group_size": 32, "symmetric": False},
    ),
    "w4 channel": ("pack-quantized", {"num_bits": 4, "strategy": "channel"}),
    "w8 channel": ("pack-quantized", {"num_bits": 8, "strategy": "channel"}),
    "int8": ("int-quantized", {"num_bits": 8, "strategy": "channel"}),
    "fp8": ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "channel"}),
    "fp8 block": (
        "float-quantized",
        {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_values_are_the_library_s(tmp_path, case):
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    layout, arguments = CASES[case]
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**arguments))
    weight = torch.randn(136, 256)
    shape = {"group": (136, 8), "channel": (136, 1), "block": (2, 2)}[arguments["strategy"]]
    state = {"weight": weight, "weight_scale": torch.rand(shape) * 0.1 + 0.1}
    if not arguments.get("symmetric", True):
        state["weight_zero_point"] = torch.randint(-7, 7, shape, dtype=torch.int8)
    compressor = BaseCompressor.load_from_registry(layout)
    compressed = compressor.compress(state, scheme)
    named = {f"layer.{name}": tensor.contiguous() for name, tensor in compressed.items()}
    files.write(tmp_path, named, files.compressed_tensors(layout, scheme.weights.model_dump()))
    found = dequantize(open_checkpoint(tmp_path).load("layer").weight)[0]
    expected = compressor.decompress(compressed, scheme)["weight"]
    assert torch.allclose(found, expected.double().t(), rtol=1e-6, atol=0)
