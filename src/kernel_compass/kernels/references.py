"""What a product should be: float64, from the dequantized operands, a piece at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from kernel_compass.errors import UsageError
from kernel_compass.kernels.chunks import chunks, scale_columns
from kernel_compass.kernels.fp8_sums import lost_bits
from kernel_compass.kernels.library import torch_library
from kernel_compass.kernels.quantize import LARGEST, SYMMETRIC_ZERO, divided, linear_weight
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.kernels.ties import Ties, quotients
from kernel_compass.records.fidelity import Deviation, Expected
from kernel_compass.records.number_format import BLOCK, Code, NumberFormat

__all__ = [
    "QuantizedActivations",
    "dequantize",
    "dequantize_activations",
    "expected",
    "linear_weight",
    "product",
    "quantize_activations",
]

TIE_WIDTH = 2.0**-20
"""Relative distance from a tie within which a code may honestly fall either way: a kernel's scale
and quotient (a division, or a product with an approximate reciprocal) are each a few 2^-24 off."""

_TINY_SCALE = 2.0**-126

Place = tuple[slice, slice]
"""Heads and columns of a weight."""


@dataclass(frozen=True)
class QuantizedActivations:
    """`value[..., m, k] = codes[..., m, k] * scales[..., m, k // group]`."""

    codes: Any
    """`(..., M, K)`: int8 or float8_e4m3fn."""
    scales: Any
    """`(..., M, 1)`, or `(..., M, K/128)` rounded up: float32. NaN where a value is not finite."""
    group: int | None
    """Columns of K that share a scale; `None` = the whole row."""


def quantize_activations(a: Any, number_format: NumberFormat) -> QuantizedActivations:
    """Activations as a kernel with 8-bit activations has to quantize them.

    `scale = absmax / 127` (int8) or `absmax / 448` (fp8), in float32, a row or 1 x 128 values of
    it; codes round to nearest, ties to even. Zeros have the scale 1. A row (or its 128) with NaN or
    infinity has the scale NaN.

    Args:
        a: `(..., M, K)`, a floating type.
        number_format: one with 8-bit activations.

    Raises:
        UsageError: the format's activations are not quantized.
    """
    torch = torch_library()
    scales, group = _activation_scales(torch, a, number_format)
    ratio = a.double() / _along_row(scales, group, a.shape[-1]).double()
    codes = _round_to_codes(torch, ratio.nan_to_num(0.0), number_format.activation)
    return QuantizedActivations(codes, scales, group)


def dequantize_activations(quantized: QuantizedActivations) -> Any:
    """`(..., M, K)`, float64."""
    codes = quantized.codes
    scales = _along_row(quantized.scales, quantized.group, codes.shape[-1])
    return codes.double() * scales.double()


def dequantize(weight: QuantizedWeight) -> Any:
    """The weight `(H, K, N)`, float64. Eight bytes a weight: large ones go through `product`."""
    return _dequantize_part(weight, slice(0, weight.heads), slice(0, weight.columns))


def product(a: Any, weight: Any) -> Any:
    """`A @ W` in float64: `(H, M, N)`, or `(M, N)` where `a` has two dimensions.

    Args:
        a: `(H, M, K)`, or `(M, K)` for a weight of one head; any floating type, taken as it is.
        weight: a `QuantizedWeight`, or a tensor `(H, K, N)`.

    Raises:
        UsageError: the shapes do not fit.
    """
    (result,) = _products((a,), weight, 1, lambda sides, part, _: (sides[0] @ part,))
    return result


def expected(a: Any, weight: QuantizedWeight) -> Expected:
    """What a kernel is compared with for these operands, and how far it may be off.

    Args:
        a: `(H, M, K)` or `(M, K)`, 16-bit values; quantized here where the format says so.
        weight: the weight that the kernel was given.
    """
    number_format = weight.format
    if number_format.activation.bits == 16:
        return _expected_of_16_bits(a, weight)
    left = dequantize_activations(quantize_activations(a, number_format))
    steps = _tie_steps(torch_library(), a, number_format)
    fp8 = number_format.activation is Code.FP8 and number_format.weight is Code.FP8
    if fp8:
        found = _products((left, steps), weight, 9, _fp8_terms)
    else:
        found = _products((left, steps), weight, 6, _quantized_terms)
    lost = Deviation(*found[6:]) if fp8 else None
    ties, nearest = Deviation(*found[3:6]), _nearest(a, left, weight, found[0])
    value, magnitude, squares = found[:3]
    return Expected(value, magnitude, squares, weight.reduction, ties, nearest, fp8_sums=lost)


def _nearest(a: Any, left: Any, weight: QuantizedWeight, value: Any) -> Callable[[Any], Any]:
    """`Expected.nearest`; `left` is `a`, quantized as in `value`."""
    torch, shape = torch_library(), (weight.heads, a.shape[-2], a.shape[-1])
    scales, group = _activation_scales(torch, a, weight.format)
    scales = _along_row(scales, group, shape[2])
    code, finite = weight.format.activation, left.isfinite()
    changes: list[Any] = []
    for ratio in quotients(a, scales):
        values = _round_to_codes(torch, ratio.nan_to_num(0.0), code).double() * scales.double()
        change = (values - left).where(finite, 0.0).reshape(shape)
        if bool(change.any()) and not any(torch.equal(change, other) for other in changes):
            changes.append(change)

    def part(first: int, end: int) -> Any:
        scales: Any = weight.scales
        if weight.format.block:
            scales = scales[:, first // BLOCK : -(-end // BLOCK)]
        return dequantize(replace(weight, codes=weight.codes[:, first:end], scales=scales))

    whole = value.reshape(weight.heads, shape[1], weight.columns)
    ties = Ties(whole, tuple(changes), part, group, BLOCK)
    return lambda output: ties.nearest(output).reshape(value.shape)


def _expected_of_16_bits(a: Any, weight: QuantizedWeight) -> Expected:
    ways = rounding_ways(weight.format)

    def terms(sides: tuple[Any, ...], part: Any, place: Place) -> tuple[Any, ...]:
        shifts = (sides[0] @ (rounded_part(weight, *place, way) - part) for way in ways)
        return *_moments(sides, part), *shifts

    found = _products((a.double(),), weight, 3 + len(ways), terms)
    value, magnitude, squares, *roundings = found
    return Expected(value, magnitude, squares, weight.reduction, roundings=tuple(roundings))


def _moments(sides: tuple[Any, ...], part: Any) -> tuple[Any, ...]:
    (left,) = sides
    return left @ part, left.abs() @ part.abs(), left.square() @ part.square()


def _quantized_terms(sides: tuple[Any, ...], part: Any, _: Place) -> tuple[Any, ...]:
    left, steps = sides
    shift, most, squares = _moments((steps,), part)
    return *_moments((left,), part), most, shift, squares


def _fp8_terms(sides: tuple[Any, ...], part: Any, place: Place) -> tuple[Any, ...]:
    return *_quantized_terms(sides, part, place), *lost_bits(sides[0], part)


def _products(
    lefts: tuple[Any, ...],
    weight: Any,
    count: int,
    terms: Callable[[tuple[Any, ...], Any, Place], tuple[Any, ...]],
) -> list[Any]:
    """`count` results of `terms(sides, part of the weight, its place)`, in one pass over it."""
    torch = torch_library()
    heads, reduction, columns = (int(n) for n in _weight_shape(weight))
    flat = lefts[0].ndim == 2
    wanted = (reduction,) if flat else (heads, reduction)
    if lefts[0].ndim not in (2, 3) or wanted != _outer(lefts[0]) or (flat and heads != 1):
        raise UsageError(
            f"Activations {tuple(lefts[0].shape)} do not fit a weight (H, K, N) of "
            f"{(heads, reduction, columns)}.",
            "They are (H, M, K), or (M, K) for one head.",
        )
    rows = lefts[0].shape[-2]
    sides = [left.reshape(heads, rows, reduction).double() for left in lefts]
    shape, device = (heads, rows, columns), sides[0].device
    results = [torch.empty(shape, dtype=torch.float64, device=device) for _ in range(count)]
    for head, column in chunks(heads, reduction, columns):
        pieces = tuple(side[head] for side in sides)
        found = terms(pieces, _dequantize_part(weight, head, column), (head, column))
        for result, piece in zip(results, found, strict=True):
            result[head, :, column] = piece
    return [result.reshape(rows, columns) if flat else result for result in results]


def _outer(a: Any) -> tuple[int, ...]:
    return (int(a.shape[-1]),) if a.ndim == 2 else (int(a.shape[0]), int(a.shape[-1]))


def _weight_shape(weight: Any) -> tuple[int, ...]:
    shape = tuple((weight.codes if isinstance(weight, QuantizedWeight) else weight).shape)
    if len(shape) != 3:
        raise UsageError(
            f"A weight has the shape (H, K, N), not {shape}.",
            "A linear layer's W (N, K) becomes one by linear_weight(W).",
        )
    return shape


def _dequantize_part(weight: Any, head: slice, column: slice) -> Any:
    """Always a new tensor."""
    torch = torch_library()
    if not isinstance(weight, QuantizedWeight):
        return weight[head, :, column].to(torch.float64, copy=True)
    values = weight.codes[head, :, column].to(torch.float64, copy=True)
    if weight.scales is None:
        return values
    zeros, scales = _scaling(weight, head, column)
    values -= zeros
    values *= scales
    return values


def _scaling(weight: QuantizedWeight, head: slice, column: slice) -> tuple[Any, Any]:
    """Zero points and scales of a part, float64, that `(H, K, N)` is shifted and multiplied by."""
    across = scale_columns(column, weight.format.block)
    reduction, columns = weight.reduction, column.stop - column.start
    scales = weight.scales[head, :, across].double()  # type: ignore[index]
    if weight.format.block:
        scales = scales.repeat_interleave(BLOCK, 2)[..., :columns]
    zeros: Any = SYMMETRIC_ZERO if weight.format.weight is Code.INT4 else 0
    if weight.zeros is not None:
        zeros = weight.zeros[head, :, across].double()
        zeros = _along_k(zeros, weight.format.group, reduction)
    return zeros, _along_k(scales, weight.format.group, reduction)


def rounding_ways(number_format: NumberFormat) -> tuple[int | None, ...]:
    """How kernels round scaled weights to bfloat16; `rounded_part` takes one of them."""
    if number_format.weight.bits == 16:
        return ()
    return (None, 0, SYMMETRIC_ZERO) if number_format.zero_points else (None,)


def rounded_part(weight: QuantizedWeight, head: slice, column: slice, way: int | None) -> Any:
    """A part of the weight, each value rounded to bfloat16; `(H, K, N)` float64.

    Args:
        weight: of 8 bits or fewer.
        head: which heads.
        column: which columns.
        way: `None`: the value is rounded. A number: `(code - way) scale + (way - zero) scale`, with
            the second of these rounded to bfloat16 beforehand, as libraries store it.
    """
    torch = torch_library()
    if way is None:
        return _dequantize_part(weight, head, column).to(torch.bfloat16).double()
    zeros, scales = _scaling(weight, head, column)
    offset = ((way - zeros) * scales).to(torch.bfloat16).double()
    codes = weight.codes[head, :, column].double()
    return ((codes - way) * scales + offset).to(torch.bfloat16).double()


def _along_k(per_group: Any, group: int | None, reduction: int) -> Any:
    """`(H, G, N)` as something that multiplies `(H, K, N)`."""
    if group is None or per_group.shape[1] == 1:
        return per_group
    return per_group.repeat_interleave(group, 1)[:, :reduction]


def _along_row(scales: Any, group: int | None, reduction: int) -> Any:
    if group is None:
        return scales
    return scales.repeat_interleave(group, -1)[..., :reduction]


def _activation_scales(torch: Any, a: Any, number_format: NumberFormat) -> tuple[Any, int | None]:
    if number_format.activation.bits != 8:
        raise UsageError(
            f"Activations of {number_format.name} are not quantized.",
            "Formats with 8-bit activations: w8a8_fp8, w8a8_int8, w8a8_fp8_block.",
        )
    group = BLOCK if number_format.block else None
    reduction = a.shape[-1]
    width = group or reduction
    padded = torch.nn.functional.pad(a.float(), (0, -reduction % width))
    largest = padded.reshape(*a.shape[:-1], -(-reduction // width), width).abs().amax(-1)
    scales = divided(largest, LARGEST[number_format.activation]).clamp(min=_TINY_SCALE)
    scales = torch.where(largest > 0, scales, torch.ones_like(scales))
    return torch.where(largest.isfinite(), scales, torch.full_like(scales, torch.nan)), group


def _tie_steps(torch: Any, a: Any, number_format: NumberFormat) -> Any:
    """`(..., M, K)`: by how much another honest rounding of an activation may differ; its sign is
    the activation's."""
    scales, group = _activation_scales(torch, a, number_format)
    scales = _along_row(scales, group, a.shape[-1]).double()
    ratio = (a.double() / scales).nan_to_num(0.0)
    low, high = (
        _round_to_codes(torch, ratio * (1 + width), number_format.activation).double()
        for width in (-TIE_WIDTH, TIE_WIDTH)
    )
    return (high - low) * scales


def _round_to_codes(torch: Any, ratio: Any, code: Code) -> Any:
    limit = LARGEST[code]
    if code is Code.INT8:
        return ratio.round().clamp(-limit, limit).to(torch.int8)
    return ratio.clamp(-limit, limit).to(torch.float8_e4m3fn)
