"""The files of `benchmarks/kernelbench_style`, float32 and eager: what could be won on each.

An operator that the program calls is one pass over memory; how many times the size of its input
each reads and writes stands beside it, and behind it what one compiled region leaves. None of them
waits for the CPU. Products run in float32, unless their precision is changed; torch lets cuDNN's
convolutions use TF32 by itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from steps.formulas import (
    MACHINE,
    PEAK_REACHED,
    Change,
    Part,
    Prediction,
    cold_us,
    predicted,
    small,
)
from steps.problem_files import problem_files, sizes_of

FLOAT = 4
"""Bytes of float32."""
TF32_OF_BF16 = 0.5
"""Of the peak, as the H200's datasheet has it."""


def file_01_gelu_tanh(a: Any) -> Prediction:
    """Eight passes become one."""
    one = a.batch_size * a.dim * FLOAT
    # power 2, scale 2, sum 3, scale 2, half of x 2, tanh 2, plus one 2, product 3
    return _predicted(a, passes("operators", 8, 18 * one, 2 * one))


def file_02_softmax(a: Any) -> Prediction:
    """A row stays in L2 between its passes."""
    one = a.batch_size * a.dim * FLOAT
    # largest 1, taken off 2, exp 2, sum 1, quotient 2
    return _predicted(a, passes("operators", 5, 8 * one, 2 * one))


def file_03_mean_and_spread(a: Any) -> Prediction:
    """The mean first, then what is around it: two passes that read; at best one."""
    one = a.batch_size * a.length * a.dim * FLOAT
    # mean 1, taken off 2, square 2, mean 1
    part = passes("over the input", 4, 6 * one, 2 * one, one)
    return _predicted(a, part, small("eps, root, joined", 3, 1))


def file_04_layer_norm(a: Any) -> Prediction:
    """torch's norm is one kernel: what is saved is the sum's way to memory and back."""
    one = a.batch_size * a.length * a.dim * FLOAT
    return _predicted(a, passes("sum and norm", 2, 5 * one, 3 * one))


def file_05_rms_norm(a: Any) -> Prediction:
    """Channels lie apart: one pass for the mean and one for the quotient, which reads again."""
    one = a.batch_size * a.channels * a.height * a.width * FLOAT
    # square 2, mean 1, quotient 2
    part = passes("over the input", 3, 5 * one, 3 * one, 2 * one)
    return _predicted(a, part, passes("eps and root", 2, 4 * one / a.channels, 0.0))


def file_06_linear_gelu_scale(a: Any) -> Prediction:
    """TF32, and the two passes behind the product as one."""
    flops = 2 * a.batch_size * a.in_features * a.out_features
    moved = FLOAT * (
        a.batch_size * (a.in_features + a.out_features) + a.in_features * a.out_features
    )
    one = a.batch_size * a.out_features * FLOAT
    return _predicted(
        a, multiplied("product", flops, moved), passes("GELU, scale", 2, 4 * one, 2 * one)
    )


def file_07_matmul_residual_clamp(a: Any) -> Prediction:
    """TF32, and eight passes as one that reads the product and C."""
    one = a.size**2 * FLOAT
    # doubled 2, sum 3, clamp 2, sigmoid 2, product 3, |C| 2, plus one 2, quotient 3
    rest = passes("operators", 8, 19 * one, 3 * one)
    return _predicted(a, multiplied("product", 2 * a.size**3, 3 * one), rest)


def file_08_attention(a: Any) -> Prediction:
    """TF32, and one pass over the scores, which still are written to memory and read again."""
    rows = a.batch_size * a.length
    x = rows * a.dim * FLOAT
    scores = a.batch_size * a.heads * a.length**2 * FLOAT
    flops = 2 * rows * a.length * a.dim
    return _predicted(
        a,
        multiplied("query, key, value", 2 * rows * a.dim * 3 * a.dim, 4 * x + 3 * a.dim**2 * FLOAT),
        multiplied("scores", flops, 2 * x + scores, 2 * x),
        multiplied("mix of values", flops, 2 * x + scores, 2 * x),
        # scale 2, mask 2, softmax 2; at best they stay on the chip
        passes("over scores", 3, 6 * scores, 2 * scores, 0.0),
        small("mask", 1, 0),
        Part("copies of heads", 4, cold_us(2 * x), 0.0),
    )


def file_09_cross_entropy(a: Any) -> Prediction:
    """Nothing of the size of the input has to be written."""
    one = a.batch_size * a.classes * FLOAT
    # temperature 2, log of the softmax 2
    part = passes("over the logits", 2, 4 * one, one)
    return _predicted(a, part, small("losses", 1, 1))


def file_10_conv_bias_relu(a: Any) -> Prediction:
    """The passes behind the convolution as one; its bias is a pass of its own, in torch."""
    pixels = a.batch_size * a.size**2
    one = pixels * a.out_channels * FLOAT
    flops = 2 * pixels * a.out_channels * a.in_channels * a.kernel_size**2
    moved = one + pixels * a.in_channels * FLOAT
    now = max(flops / (PEAK_REACHED * _tf32() * 1e6), cold_us(moved))
    least = max(flops / (_tf32() * 1e6), cold_us(moved))
    rest = passes("bias, ReLU, shift, half", 4, 8 * one, 2 * one)
    return _predicted(a, Part("convolution", 1, now, least), rest)


def passes(name: str, count: int, moved: float, left: float, least: float | None = None) -> Part:
    """Passes over memory that move so many bytes in all.

    Args:
        name: of them.
        count: launches.
        moved: by all of them.
        left: what one compiled region moves in their place; 0 = they are in another's.
        least: what the best program moves; `None` = as many.
    """
    fused_us = cold_us(left) if left else 0.0
    best = left if least is None else least
    floor = cold_us(best) if best else 0.0
    each = cold_us(moved / count)
    return Part(name, count, each, floor / count, int(left > 0), fused_us)


def multiplied(name: str, flops: float, moved: float, least: float | None = None) -> Part:
    """A product in float32, outside of the tensor cores; at best in TF32.

    Args:
        name: of it.
        flops: its operations.
        moved: bytes.
        least: of them, those that the best program moves.
    """
    peak = MACHINE.peak_tflops["fp32"].value
    assert peak, "the shipped calibration has it"
    now = max(flops / (PEAK_REACHED * peak * 1e6), cold_us(moved))
    floor = max(flops / (_tf32() * 1e6), cold_us(moved if least is None else least))
    return Part(
        name, 1, now, floor, tf32_us=max(flops / (PEAK_REACHED * _tf32() * 1e6), cold_us(moved))
    )


def _tf32() -> float:
    peak = MACHINE.peak_tflops["bf16"].value
    assert peak, "the shipped calibration has it"
    return TF32_OF_BF16 * peak


def _predicted(a: Any, *parts: Part) -> Prediction:
    changes = [
        Change("matmul_precision", one.name, one.count * (one.each_us - one.tf32_us))
        for one in parts
        if one.tf32_us is not None
    ]
    return predicted(a.stem, a, parts, False, *changes)


def _made(make: Callable[[Any], Prediction], stem: str, sizes: dict[str, int]) -> Any:
    return lambda: make(argparse.Namespace(stem=stem, **sizes))


_MAKERS = {
    name.removeprefix("file_"): one for name, one in globals().items() if name[:5] == "file_"
}
FILES: dict[str, Callable[[], Prediction]] = {
    path.stem: _made(_MAKERS[path.stem], path.stem, sizes_of(path)) for path in problem_files()
}
"""By the stem of the file."""
