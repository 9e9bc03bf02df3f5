"""Compulsory bytes and operations of operators, as torch.profiler records their shapes."""

from __future__ import annotations

import pytest

from kernel_compass.analysis.op_traffic import traffic_of
from kernel_compass.records.trace import OpCall

BF16, FLOAT, FP8 = "c10::BFloat16", "float", "c10::Float8_e4m3fn"


def op(name, *inputs, concrete=()) -> OpCall:
    """Inputs are (type, sizes) or (type, sizes, strides); a type alone is a scalar."""
    full = [(i, (), ()) if isinstance(i, str) else (*i, None)[:3] for i in inputs]
    return OpCall(
        f"aten::{name}",
        dims=tuple(None if sizes is None else tuple(sizes) for _, sizes, _ in full),
        types=tuple(kind for kind, _, _ in full),
        strides=tuple(strides for _, _, strides in full),
        concrete=tuple(concrete),
    )


def naive_pairs(rows: int, columns: int) -> int:
    """Pairs of a causal attention, counted: the last row sees every column."""
    return sum(c <= r + columns - rows for r in range(rows) for c in range(columns))


@pytest.mark.parametrize(
    ("call", "read", "written", "flops", "math"),
    [
        (op("mm", (BF16, (16, 64)), (BF16, (64, 32))),
         2 * (16 * 64 + 64 * 32), 2 * 16 * 32, 2 * 16 * 64 * 32, "bf16"),
        (op("bmm", (BF16, (8, 1, 64)), (BF16, (8, 64, 32))),
         2 * 8 * (64 + 64 * 32), 2 * 8 * 32, 2 * 8 * 64 * 32, "bf16"),
        (op("addmm", (FLOAT, (32,)), (FLOAT, (16, 64)), (FLOAT, (64, 32)), "Scalar", "Scalar",
            concrete=("", "", "", "1", "1")),
         4 * (32 + 16 * 64 + 64 * 32), 4 * 16 * 32, 2 * 16 * 64 * 32, "fp32"),
        (op("baddbmm", (BF16, (2, 3, 5)), (BF16, (2, 3, 4)), (BF16, (2, 4, 5)), "Scalar", "Scalar",
            concrete=("", "", "", "0", "1")),
         2 * 2 * (3 * 4 + 4 * 5), 2 * 2 * 3 * 5, 2 * 2 * 3 * 4 * 5, "bf16"),
        (op("linear", (BF16, (2, 8, 64)), (BF16, (32, 64)), (BF16, (32,))),
         2 * (2 * 8 * 64 + 32 * 64 + 32), 2 * 2 * 8 * 32, 2 * 16 * 64 * 32, "bf16"),
        (op("_scaled_mm", (FP8, (16, 64)), (FP8, (64, 32)), (FLOAT, ()), (FLOAT, ()), ""),
         16 * 64 + 64 * 32, 2 * 16 * 32, 2 * 16 * 64 * 32, "fp8"),
        (op("copy_", (FLOAT, (16, 64)), (BF16, (16, 64)), "Scalar"),
         2 * 16 * 64, 4 * 16 * 64, 0, "fp32"),
        (op("mul", (BF16, (16, 1, 64)), (BF16, (64,))),
         2 * (16 * 64 + 64), 2 * 16 * 64, 1024, "fp32"),
        (op("add", (FLOAT, (16, 1, 1)), "double", "Scalar"), 4 * 16 + 8, 4 * 16, 16, "fp32"),
        (op("div_", (BF16, (16, 4)), (FLOAT, (16, 1))), 2 * 64 + 4 * 16, 2 * 64, 64, "fp32"),
        (op("silu", (BF16, (16, 64))), 2 * 1024, 2 * 1024, 1024, "fp32"),
        (op("fill_", (FLOAT, (100,)), "Scalar"), 0, 400, 100, "fp32"),
        (op("_softmax", (BF16, (4, 100)), "Scalar", "Scalar", concrete=("", "-1", "True")),
         800, 1600, 400, "fp32"),
        (op("native_layer_norm", (BF16, (4, 64)), "ScalarList", (BF16, (64,)), "", "Scalar"),
         2 * (256 + 64), 512, 256, "fp32"),
    ],
)  # fmt: skip
def test_known_operators(call, read, written, flops, math) -> None:
    traffic = traffic_of(call)
    assert traffic is not None
    assert traffic.weight_bytes + traffic.activation_bytes == read
    assert (traffic.output_bytes, traffic.flops, traffic.math) == (written, flops, math)


def test_the_second_operand_of_a_product_is_the_streamed_one() -> None:
    traffic = traffic_of(op("mm", (BF16, (16, 64)), (BF16, (64, 32))))
    assert traffic is not None
    assert (traffic.weight_bytes, traffic.activation_bytes) == (2 * 64 * 32, 2 * 16 * 64)


def test_a_broadcast_operand_counts_once() -> None:
    expanded = (BF16, (8, 64, 32), (0, 32, 1))
    traffic = traffic_of(op("bmm", (BF16, (8, 1, 64), (64, 64, 1)), expanded))
    assert traffic is not None
    assert traffic.weight_bytes == 2 * 64 * 32


@pytest.mark.parametrize("causal", [False, True])
def test_attention_in_both_layouts(causal: bool) -> None:
    rows, columns, heads, kv_heads, dim, batch = 12, 40, 8, 2, 16, 3
    pairs = naive_pairs(rows, columns) if causal else rows * columns
    flash = op(
        "_flash_attention_forward",
        (BF16, (batch, rows, heads, dim)), (BF16, (batch, columns, kv_heads, dim)),
        (BF16, (batch, columns, kv_heads, dim)), "", "", "Scalar", "Scalar", "Scalar", "Scalar",
        "Scalar",
        concrete=("", "", "", "", "", "12", "40", "0.", str(causal), "False"),
    )  # fmt: skip
    plain = op(
        "_scaled_dot_product_cudnn_attention",
        (BF16, (batch, heads, rows, dim)), (BF16, (batch, kv_heads, columns, dim)),
        (BF16, (batch, kv_heads, columns, dim)), "", "Scalar", "Scalar", "Scalar", "Scalar",
        concrete=("", "", "", "", "False", "0.", str(causal), "False"),
    )  # fmt: skip
    for call in (flash, plain):
        traffic = traffic_of(call)
        assert traffic is not None
        assert traffic.weight_bytes == 2 * 2 * batch * columns * kv_heads * dim
        assert traffic.activation_bytes == traffic.output_bytes == 2 * batch * rows * heads * dim
        assert traffic.flops == 4 * batch * heads * dim * pairs


def test_attention_that_does_not_say_whether_it_is_causal_counts_the_smaller_work() -> None:
    query = (BF16, (1, 2, 6, 16))
    traffic = traffic_of(op("_scaled_dot_product_flash_attention", query, query, query))
    assert traffic is not None
    assert traffic.flops == 4 * 2 * 16 * naive_pairs(6, 6)


@pytest.mark.parametrize(
    "call",
    [
        op("mm", (BF16, (16, 64)), (BF16, (63, 32))),
        op("mm", (BF16, (16, 64))),
        op("mm", (BF16, (64,)), (BF16, (64,))),
        op("mm", ("Unheard_of", (16, 64)), (BF16, (64, 32))),
        op("mm"),
        op("bmm", (BF16, (8, 1, 64)), (BF16, (4, 64, 32))),
        op("mul", (BF16, (3,)), (BF16, (4,))),
        op("cat", ("TensorList", None), "Scalar"),
        op("sort", (BF16, (16, 64))),
        op("_flash_attention_forward", (BF16, (100, 8, 16)), (BF16, (100, 8, 16)),
           (BF16, (100, 8, 16)), ("int", (5,)), ("int", (5,))),
        op("_flash_attention_forward", *[(BF16, (1, 4, 8, 16))] * 3, ("int", (5,)), ("int", (5,))),
        OpCall("vllm::unified_attention", ((1, 2, 3, 4),), (BF16,)),
    ],
)  # fmt: skip
def test_what_is_unknown_has_no_traffic(call: OpCall) -> None:
    assert traffic_of(call) is None
