"""Short kernel names: what tells kernels apart stays, the rest goes."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_compass.records.profile import KernelProfile
from kernel_compass.report.names import dim_text, short_names

CAPTURE = Path(__file__).parents[2].parent / "shared" / "data" / "h200_captures" / "decode_raw.csv"

LAMBDA = (
    "void at::native::vectorized_elementwise_kernel<{v}, at::native::{f}(TensorIteratorBase &)::"
    "[lambda() (instance 2)]::operator ()() const::[lambda() (instance 2)]::operator ()() const::"
    "[lambda({t}) (instance 1)], std::array<char *, 2>>(int, T2, T3)"
)


def kernels(*names, grids=None, blocks=None, devices=None):
    n = len(names)
    return [
        KernelProfile(name, grid, block, device, 1, None, {})
        for name, grid, block, device in zip(
            names,
            grids or [(1, 1, 1)] * n,
            blocks or [(128, 1, 1)] * n,
            devices or [0] * n,
            strict=True,
        )
    ]


def short(*names, width=None):
    return short_names(kernels(*names), width)


def test_no_kernels_have_no_names():
    assert short_names([]) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("k_tiny", "k_tiny"),
        ("void k_tiny(float*, int)", "k_tiny"),
        ("void ns::k<float, 128>(float const*, int)", "k"),
        ("ns::k<(int)4, (bool)1>(T1 *)", "k"),
        ("void (anonymous namespace)::softmax_warp<float>(float*)", "softmax_warp"),
        ("void at::<unnamed>::softmax_warp<float>(float*)", "softmax_warp"),
        ("unnamed>::softmax_warp(float *)", "softmax_warp"),
        (
            LAMBDA.format(v=4, f="silu_kernel", t="float"),
            "vectorized_elementwise_kernel<silu_kernel>",
        ),
        (
            "void at::reduce_kernel<512, 1, at::ReduceOp<float, at::MeanOps<float, float>, "
            "unsigned int, float, 4, 4>>(T3)",
            "reduce_kernel<MeanOps>",
        ),
        (
            "void at::reduce_kernel<512, 1, at::ReduceOp<float, at::func_wrapper_t<float, "
            "at::sum_functor<float, float, float>::operator ()(at::TensorIterator &)::"
            "[lambda(float, float) (instance 1)]>, unsigned int, float, 4, 4>>(T3)",
            "reduce_kernel<sum_functor>",
        ),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64>(T1::Params)",
            "Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64>",
        ),
        ("matmul|naive", "matmul|naive"),
        ("broken<name(", "broken<name("),
        ("void closed>early(int)", "void closed>early(int)"),
        ("", ""),
        ("_Z6kernelPfi", "_Z6kernelPfi"),
    ],
)
def test_a_name_alone(name, expected):
    assert short(name) == [expected]


def test_a_number_that_differs_is_shown():
    name = "void at::native::vectorized_elementwise_kernel<{}, at::CUDAFunctor_add<float>>(int, T2)"
    assert short(name.format(4), name.format(8)) == [
        "vectorized_elementwise_kernel<4, CUDAFunctor_add>",
        "vectorized_elementwise_kernel<8, CUDAFunctor_add>",
    ]


def test_the_functor_that_differs_is_shown_without_what_all_share():
    name = (
        "void at::vectorized_elementwise_kernel<4, at::{}<float>, std::array<char *, 3>>(int, T2)"
    )
    assert short(name.format("CUDAFunctor_add"), name.format("CUDAFunctor_mul")) == [
        "vectorized_elementwise_kernel<CUDAFunctor_add>",
        "vectorized_elementwise_kernel<CUDAFunctor_mul>",
    ]


def test_a_shared_wrapper_is_left_out():
    name = "void at::elementwise_kernel<128, 4, at::wrap<at::{}<{}>>>(int, T3)"
    names = [name.format(*x) for x in (("Unary", "float"), ("Binary", "float"), ("Binary", "Half"))]
    assert short(*names) == [
        "elementwise_kernel<Unary>",
        "elementwise_kernel<Binary<float>>",
        "elementwise_kernel<Binary<Half>>",
    ]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (
            LAMBDA.format(v=4, f="silu_kernel", t="float"),
            LAMBDA.format(v=4, f="silu_kernel", t="c10::BFloat16"),
            [
                "vectorized_elementwise_kernel<silu_kernel<float>>",
                "vectorized_elementwise_kernel<silu_kernel<BFloat16>>",
            ],
        ),
        ("void a::k(int)", "void b::k(int)", ["a::k", "b::k"]),
        ("void k(int)", "void k(float)", ["k(int)", "k(float)"]),
        ("void k<int>(T1)", "void k<int, 2>(T1)", ["k", "k<2>"]),
        ("void k(int)", "k(int)", ["void k(int)", "k(int)"]),
    ],
)
def test_what_else_can_differ(one, other, expected):
    assert short(one, other) == expected


def test_launches_of_one_name_show_grid_then_block_then_gpu():
    four = kernels(
        "k",
        "k",
        "k",
        "k",
        "other",
        grids=[(8, 1, 1), (64, 2, 1), (64, 2, 1), (64, 2, 1), (8, 1, 1)],
        blocks=[(128, 1, 1), (128, 1, 1), (256, 1, 1), (256, 1, 1), (1, 1, 1)],
        devices=[0, 0, 0, 1, 0],
    )
    assert short_names(four) == [
        "k (grid 8)",
        "k (grid 64x2, block 128)",
        "k (grid 64x2, block 256, gpu 0)",
        "k (grid 64x2, block 256, gpu 1)",
        "other",
    ]


def test_dims():
    assert [dim_text(d) for d in ((1, 1, 1), (2, 66, 1), (1, 8, 16), None)] == [
        "1",
        "2x66",
        "1x8x16",
        "?",
    ]


def test_cutting_keeps_the_arguments():
    name = "void at::vectorized_elementwise_kernel<4, at::CUDAFunctor_add<float>>(int)"
    assert short(name, width=33) == ["vectorized_elem…<CUDAFunctor_add>"]


def test_cutting_keeps_the_difference():
    one = "nvjet_sm90_tst_64x16_64x16_2x1_v_bz_splitK_TNT"
    other = one.replace("2x1", "4x1")
    assert short(one, other, width=33) == [
        "nvjet_sm90_ts…2x1_v_bz_splitK_TNT",
        "nvjet_sm90_ts…4x1_v_bz_splitK_TNT",
    ]


def capture_kernels():
    if not CAPTURE.is_file():
        pytest.skip(f"recorded capture {CAPTURE.name} is not in the checkout's neighbourhood")
    with CAPTURE.open(newline="") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("==")))[1:]
    seen = {(r["Kernel Name"], dim(r["Grid Size"]), dim(r["Block Size"])) for r in rows}
    return [KernelProfile(n, g, b, 0, 1, None, {}) for n, g, b in sorted(seen)]


def dim(text):
    x, y, z = map(int, text.strip("()").split(","))
    return (x, y, z)


@pytest.mark.parametrize("width", [None, 24, 33, 57])
def test_a_real_decode_step_stays_distinguishable(width):
    profiles = capture_kernels()
    names = short_names(profiles, width)
    assert len(set(names)) == len(profiles) == 24
    assert max(map(len, names)) <= (width or max(len(k.name) for k in profiles))


def test_a_real_decode_step_reads_well():
    names = short_names(capture_kernels())
    assert "vectorized_elementwise_kernel<silu_kernel>" in names
    assert "elementwise_kernel<BinaryFunctor<BFloat16, MulFunctor>>" in names
    assert "nvjet_sm90_tst_64x16_64x16_4x1_v_bz_splitK_TNT" in names
    assert "splitKreduce_kernel (grid 32)" in names


pieces = st.sampled_from(
    [
        "void ",
        "ns::",
        "k",
        "<",
        ">",
        "(",
        ")",
        "[lambda(",
        ")]",
        ", ",
        "int",
        "4",
        "::",
        "{",
        "}",
        "->",
        "|",
        "…",
        " ",
    ]
)
odd_names = st.lists(pieces, max_size=14).map("".join)


@given(st.lists(odd_names, min_size=1, max_size=8, unique=True), st.sampled_from([None, 12, 30]))
def test_any_names_stay_apart_and_fit(names, width):
    stripped = {name.strip() for name in names}
    result = short(*names, width=width)
    assert len(set(result)) >= len(stripped) if width is None else len(set(result)) >= 1
    assert width is None or max(map(len, result)) <= width


def test_a_name_nested_too_deeply_is_still_shown() -> None:
    deep = KernelProfile("a<" * 3000 + ">" * 3000, None, None, 0, 1, None, {})
    (name,) = short_names([deep], 40)
    assert name.startswith("a")
    assert len(name) <= 40
