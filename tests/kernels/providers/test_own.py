"""The decode products as implementations: what they refuse, in words, and what they count."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

import kernel_compass
from kernel_compass.errors import UsageError
from kernel_compass.kernels.providers.own import PROVIDER, Decode
from kernel_compass.records.contracts import Target
from kernel_compass.records.number_format import EXAMPLES, NumberFormat
from kernel_compass.records.workload import Op, Workload

OWN = Decode("own_decode", invariant=False)
INVARIANT = Decode("own_decode_invariant", invariant=True)
Q_ABSORB = Workload(Op.BMM, 128, 4, 128, 512, "q_absorb")
H200 = Target("cuda", (9, 0), "NVIDIA H200", 132)
INSTALLED = find_spec("torch") is not None and find_spec("triton") is not None
needs_triton = pytest.mark.skipif(not INSTALLED, reason="kernels need torch, triton")
SIXTEEN_BIT = {name for name in EXAMPLES if not name.startswith("w8a8")}


def objection(name, target=H200, workload=Q_ABSORB, one=OWN):
    return one.supports(workload, NumberFormat.parse(name), target)


def test_it_offers_both_variants_and_the_wider_kernels():
    names = [one.name for one in PROVIDER.implementations()]
    assert names[:2] == ["own_decode", "own_decode_invariant"]
    assert {"own_w8a8", "own_fp8_block"} < set(names)
    assert {one.provider for one in PROVIDER.implementations()} == {PROVIDER.name} == {"own"}


@needs_triton
@pytest.mark.parametrize("one", [OWN, INVARIANT], ids=lambda one: one.name)
@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (9, 0), (10, 0), (12, 0)])
def test_formats_with_16_bit_activations_are_computed_from_ampere_on(one, capability):
    target = Target("cuda", capability)
    computed = {name for name in EXAMPLES if objection(name, target, one=one) is None}
    assert computed == SIXTEEN_BIT


@needs_triton
def test_reasons():
    quantized = (
        "own_decode takes 16-bit activations, and w8a8_int8 quantizes them: that is own_w8a8"
    )
    assert objection("w8a8_int8") == quantized
    assert objection("w4a16_g96") == "own_decode has groups of 32, 64, 128 and all of K, not of 96"
    assert objection("w4a16_g16", one=INVARIANT).startswith("own_decode_invariant has groups")
    assert "65535" in objection("bf16", workload=Workload(Op.BMM, 65_536, 1, 128, 8))
    assert objection("bf16", workload=Workload(Op.BMM, 65_535, 1, 128, 8)) is None
    old = objection("bf16", Target("cuda", (7, 5)))
    assert old == "needs compute capability 8.0; the device has 7.5"
    assert "the device has none" in objection("bf16", Target("cuda"))


@needs_triton
def test_a_cpu_takes_the_interpreter(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert "TRITON_INTERPRET=1" in objection("bf16", Target("cpu"))
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert objection("bf16", Target("cpu")) is None


def test_the_invariant_variant_has_one_configuration_for_a_shape():
    for target in (H200, Target("cuda", (8, 0)), Target("cpu")):
        assert len(INVARIANT.space(Q_ABSORB, NumberFormat.parse("w4a16_gk"), target)) == 1
        assert len(OWN.space(Q_ABSORB, NumberFormat.parse("w4a16_gk"), target)) > 1


def test_traffic_is_the_operands_as_they_are_packed():
    int4 = OWN.traffic(Q_ABSORB, NumberFormat.parse("w4a16_g32_asym"))
    assert int4.weight_bytes == 128 * 512 * (64 + 4 * 3)
    assert int4.dequantized_weights == 128 * 128 * 512 and int4.math == "bf16"
    assert (int4.activation_bytes, int4.output_bytes) == (2 * 128 * 4 * 128, 2 * 128 * 4 * 512)
    wide = OWN.traffic(Workload(Op.BMM, 2, 1, 100, 20), NumberFormat.parse("bf16"))
    assert wide.weight_bytes == 2 * 2 * 128 * 32 and wide.dequantized_weights == 0
    assert wide.flops == 2 * 2 * 100 * 20


class Weighed:
    """A prepared weight on the CPU, and the operands that fit it."""

    def __init__(self, name="w8a16_fp8", op=Op.BMM, heads=2):
        self.torch = pytest.importorskip("torch", reason="kernels need torch")
        from kernel_compass.kernels.quantize import quantize

        self.kind = NumberFormat.parse(name)
        full = self.torch.randn(heads, 64, 48)
        self.weight = quantize(full, self.kind)
        self.workload = Workload(op, heads, 4, 64, 48)
        self.prepared = OWN.prepare(self.weight, self.workload)

    def run(self, a, out=None):
        return OWN.run(self.prepared, self.prepared.streamed, a, out)

    def zeros(self, *sizes, dtype=None):
        return self.torch.zeros(*sizes, dtype=dtype or self.torch.bfloat16)


def test_a_weight_of_other_sizes_or_formats_is_refused():
    made = Weighed()
    with pytest.raises(UsageError, match=r"\(2, 64, 48\).*\(2, 64, 49\)"):
        OWN.prepare(made.weight, Workload(Op.BMM, 2, 4, 64, 49))
    quantized = replace(made.weight, format=NumberFormat.parse("w8a8_fp8"))
    with pytest.raises(UsageError, match="16-bit activations, and w8a8_fp8 quantizes them"):
        OWN.prepare(quantized, made.workload)


@pytest.mark.parametrize("pattern", [0x7F, 0xFF])
def test_fp8_codes_that_are_nan_are_refused(pattern):
    made = Weighed()
    codes = made.weight.codes.view(made.torch.uint8)
    codes[1, 63, 47] = pattern
    with pytest.raises(UsageError, match=r"NaN among its fp8 codes.*checkpoint"):
        OWN.prepare(made.weight, made.workload)
    codes[1, 63, 47] = pattern - 1  # +-448, the largest
    OWN.prepare(made.weight, made.workload)


def test_int8_codes_of_the_same_bits_are_numbers():
    made = Weighed("w8a16_int8")
    made.weight.codes.fill_(127)
    OWN.prepare(made.weight, made.workload)


@pytest.mark.parametrize("name, wanted", [("w8a16_fp8", "bfloat16"), ("fp16", "float16")])
def test_activations_of_another_type_are_refused(name, wanted):
    made = Weighed(name)
    for dtype in {made.torch.float32, made.torch.float16, made.torch.bfloat16}:
        if str(dtype) != f"torch.{wanted}":
            with pytest.raises(UsageError, match=f"are {dtype}.*takes {wanted}"):
                made.run(made.zeros(2, 4, 64, dtype=dtype))


@pytest.mark.parametrize("sizes", [(2, 4, 63), (3, 4, 64), (1, 4, 64), (4, 64), (2, 2, 4, 64)])
def test_activations_of_other_sizes_are_refused(sizes):
    made = Weighed()
    with pytest.raises(UsageError, match=r"Activations are .*\(2, M, 64\)"):
        made.run(made.zeros(*sizes))


@pytest.mark.parametrize("sizes", [(4, 63), (2, 4, 64), (64,)])
def test_linear_activations_of_other_sizes_are_refused(sizes):
    made = Weighed(op=Op.LINEAR, heads=1)
    with pytest.raises(UsageError, match="Activations are"):
        made.run(made.zeros(*sizes))


def test_activations_that_are_not_dense_along_k_are_refused():
    made = Weighed()
    with pytest.raises(UsageError, match="dense along K"):
        made.run(made.zeros(2, 64, 4).transpose(1, 2))


@pytest.mark.parametrize("sizes", [(2, 4, 47), (2, 3, 48), (1, 4, 48), (4, 48)])
def test_an_output_of_other_sizes_is_refused(sizes):
    made = Weighed()
    with pytest.raises(UsageError, match=r"output is .*dense along N"):
        made.run(made.zeros(2, 4, 64), made.zeros(*sizes))


def test_an_output_that_is_not_dense_along_n_is_refused():
    made = Weighed()
    with pytest.raises(UsageError, match=r"output is .*dense along N"):
        made.run(made.zeros(2, 4, 64), made.zeros(2, 48, 4).transpose(1, 2))


def test_no_rows_launch_nothing():
    made = Weighed()
    assert made.run(made.zeros(2, 0, 64)).shape == (2, 0, 48)


def test_without_torch_and_triton_it_says_so():
    code = """
import sys
from importlib import util
found = util.find_spec
util.find_spec = lambda name, *rest: None if name in ("torch", "triton") else found(name, *rest)
from kernel_compass.kernels.providers.own import PROVIDER, Decode
from kernel_compass.records.contracts import Target
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.workload import Op, Workload
workload, kind = Workload(Op.BMM, 1, 1, 8, 8), NumberFormat.parse("bf16")
print(Decode("own_decode", False).supports(workload, kind, Target("cuda", (9, 0))))
print(PROVIDER.version(), "torch" in sys.modules, "triton" in sys.modules)
"""
    source = str(Path(kernel_compass.__file__).parents[1])
    result = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {source!r})\n" + code],
        capture_output=True,
        text=True,
        check=True,
    )
    said, rest = result.stdout.splitlines()
    assert said.startswith("torch and triton are not installed: ") and "pip install" in said
    assert rest == "None False False"


def test_rows_beyond_32_bit_offsets_are_refused():
    made = Weighed()
    far = made.torch.empty_strided(
        (2, 70_000, 64), (64, 32_768, 1), dtype=made.torch.bfloat16, device="meta"
    )
    with pytest.raises(UsageError, match="activations have 70000 rows, 32768 elements apart"):
        made.run(far)
    near = made.torch.empty(2, 70_000, 64, dtype=made.torch.bfloat16, device="meta")
    out = made.torch.empty_strided(
        (2, 70_000, 48), (48, 32_768, 1), dtype=made.torch.bfloat16, device="meta"
    )
    with pytest.raises(UsageError, match="outputs have 70000 rows"):
        made.run(near, out)
