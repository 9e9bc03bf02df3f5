"""Weights to codes and scales: round to nearest, the scale from the largest value.

A scale is rounded to its own type first and the codes are found with the rounded one, so that
rounding it costs clipping of the extreme value alone and no error in the others.
"""

from __future__ import annotations

from typing import Any

from kernel_compass.errors import UsageError
from kernel_compass.kernels.chunks import chunks, scale_columns
from kernel_compass.kernels.library import torch_library
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.records.number_format import BLOCK, Code, NumberFormat

LARGEST = {Code.INT8: 127.0, Code.FP8: 448.0, Code.INT4: 7.0}
"""The value that the largest weight becomes; fp8 is e4m3."""

SYMMETRIC_ZERO = 8
"""The int4 code that stands for 0 where there are no zero points."""


def quantize(
    weight: Any, number_format: NumberFormat, scale_dtype: Any | None = None
) -> QuantizedWeight:
    """Codes and scales of a weight, on its device and with its strides.

    int8: `absmax / 127` a column; fp8: `absmax / 448` a column or a block of 128 x 128; int4:
    `absmax / 7` a group and column, or `(max - min) / 15` with zero points (0 lies between them).
    A group of zeros has the scale 1.

    Args:
        weight: `(H, K, N)`, a floating type, any strides.
        number_format: what to make of it; 16-bit formats are a cast.
        scale_dtype: torch type of the scales; `None` = bfloat16, and float32 for blocks.

    Raises:
        UsageError: the format is no `NumberFormat`; NaN or infinity in the weight; or a scale that
            its type cannot hold as a normal number.
        MissingDependency: torch is not installed.
    """
    torch = torch_library()
    _check_format(number_format)
    _check_weight(torch, weight)
    if number_format.weight.bits == 16:
        return QuantizedWeight(number_format, _cast(torch, weight, number_format), None)
    if scale_dtype is None:
        scale_dtype = torch.float32 if number_format.block else torch.bfloat16
    heads, reduction, columns = weight.shape
    across = -(-columns // BLOCK) if number_format.block else columns
    shape = (heads, number_format.groups(reduction), across)
    codes = torch.empty_like(weight, dtype=_code_dtype(torch, number_format.weight))
    scales = torch.empty(shape, dtype=scale_dtype, device=weight.device)
    zeros = None
    if number_format.zero_points:
        zeros = torch.empty(shape, dtype=torch.uint8, device=weight.device)
    for head, column in chunks(heads, reduction, columns):
        part = weight[head, :, column].to(torch.float32)
        found, scale, zero = _quantize_part(torch, part, number_format, scale_dtype)
        codes[head, :, column] = found
        across_part = scale_columns(column, number_format.block)
        scales[head, :, across_part] = scale
        if zeros is not None:
            zeros[head, :, across_part] = zero
    return QuantizedWeight(number_format, codes, scales, zeros)


def linear_weight(weight: Any) -> Any:
    """A linear layer's `W (N, K)` as the view `(1, K, N)` that quantizing and packing take."""
    if weight.ndim != 2:
        raise UsageError(
            f"A linear layer's weight has two dimensions (N, K), not {tuple(weight.shape)}.",
            "Pass one layer's weight as its checkpoint stores it.",
        )
    return weight.t().unsqueeze(0)


def divided(tensor: Any, number: float) -> Any:
    """`tensor / number`, each quotient rounded correctly on every device: on a GPU PyTorch takes a
    product with the inverse of a Python number instead, which is one unit in the last place off in
    places."""
    return tensor / torch_library().full_like(tensor, number)


def grouped(tensor: Any, group: int, fill: float = 0.0) -> Any:
    """`(H, K, N)` as `(H, G, group, N)`; the last group is filled up where K is no multiple."""
    torch = torch_library()
    heads, reduction, columns = tensor.shape
    missing = -reduction % group
    if missing:
        tensor = torch.nn.functional.pad(tensor, (0, 0, 0, missing), value=fill)
    return tensor.reshape(heads, (reduction + missing) // group, group, columns)


def _quantize_part(
    torch: Any, part: Any, number_format: NumberFormat, scale_dtype: Any
) -> tuple[Any, Any, Any]:
    reduction, columns = part.shape[1], part.shape[2]
    group = number_format.group or reduction
    groups = grouped(part, group)
    if number_format.zero_points:
        low, high = groups.amin(2).clamp(max=0), groups.amax(2).clamp(min=0)
        step = divided(high, 15) - divided(low, 15)
        scale = _round_scale(torch, step, high > low, scale_dtype)
        zero = (-low / scale.float()).round().clamp(0, 15)
        codes = (groups / scale.float().unsqueeze(2)).round() + zero.unsqueeze(2)
        codes = codes.clamp(0, 15).reshape(len(part), -1, columns)[:, :reduction]
        return codes.to(torch.uint8), scale, zero.to(torch.uint8)
    largest = groups.abs().amax(2)
    if number_format.block:
        largest = _block_maximum(torch, largest)
    exact = divided(largest, LARGEST[number_format.weight])
    scale = _round_scale(torch, exact, largest > 0, scale_dtype)
    spread = scale.float()
    if number_format.block:
        spread = spread.repeat_interleave(BLOCK, 2)[..., :columns]
    ratio = (groups / spread.unsqueeze(2)).reshape(len(part), -1, columns)[:, :reduction]
    return _codes(torch, ratio, number_format.weight), scale, None


def _block_maximum(torch: Any, largest: Any) -> Any:
    missing = -largest.shape[2] % BLOCK
    filled = torch.nn.functional.pad(largest, (0, missing))
    return filled.reshape(*largest.shape[:2], -1, BLOCK).amax(3)


def _codes(torch: Any, ratio: Any, code: Code) -> Any:
    # A rounded scale may be too small for the extreme value; a cast beyond 448 would be NaN.
    if code is Code.FP8:
        return ratio.clamp(-448, 448).to(torch.float8_e4m3fn)
    limit = int(LARGEST[code])
    rounded = ratio.round().clamp(-limit, limit)
    if code is Code.INT8:
        return rounded.to(torch.int8)
    return (rounded + SYMMETRIC_ZERO).to(torch.uint8)


def _round_scale(torch: Any, exact: Any, used: Any, scale_dtype: Any) -> Any:
    scale = exact.to(scale_dtype)
    limits = torch.finfo(scale_dtype)
    bad = used & ~((scale >= limits.tiny) & (scale <= limits.max))
    if bool(bad.any()):
        where = tuple(int(i) for i in bad.nonzero()[0])
        raise UsageError(
            f"A scale of {float(exact[where]):.3g} (group {where[1]}, column {where[2]}) is "
            f"outside {scale_dtype}'s normal numbers ({limits.tiny:.3g} ... {limits.max:.3g}).",
            "Pass scale_dtype=torch.float32, or set weights that small to 0 first.",
        )
    return torch.where(used, scale, torch.ones_like(scale))


def _check_format(number_format: Any) -> None:
    if not isinstance(number_format, NumberFormat):
        written = number_format if isinstance(number_format, str) else "w4a16_g32"
        raise UsageError(
            f"The format is {number_format!r}, which is no NumberFormat.",
            f"Pass NumberFormat.parse({written!r}) (kernel_compass.records.number_format).",
        )


def _check_weight(torch: Any, weight: Any) -> None:
    kind = getattr(weight, "dtype", type(weight).__name__)
    if kind not in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        raise UsageError(
            f"A weight to quantize is a tensor of 16 bits a value or more, not {kind}.",
            "Pass the unquantized weight; weights that are codes already come from a checkpoint.",
        )
    if weight.ndim != 3 or 0 in weight.shape:
        raise UsageError(
            f"A weight has the shape (H, K, N), none of them 0, not {tuple(weight.shape)}.",
            "A linear layer's W (N, K) becomes one by linear_weight(W).",
        )
    # min and max carry NaN and infinity, and need no second copy of the weight
    low, high = (float(x) for x in weight.aminmax())
    if not (abs(low) <= torch.finfo(torch.float32).max >= abs(high)):
        raise UsageError(
            f"The weight has values that float32 cannot hold (from {low} to {high}).",
            "NaN and infinity have no code: find the damaged layer and mend the checkpoint.",
        )


def _cast(torch: Any, weight: Any, number_format: NumberFormat) -> Any:
    dtype = torch.bfloat16 if number_format.weight is Code.BF16 else torch.float16
    cast = weight.to(dtype)
    if not bool(cast.isfinite().all()):
        raise UsageError(
            f"The largest weight {float(weight.abs().max()):.3g} is beyond {dtype}.",
            "Use bf16, which has float32's range.",
        )
    return cast


def _code_dtype(torch: Any, code: Code) -> Any:
    return {Code.FP8: torch.float8_e4m3fn, Code.INT8: torch.int8, Code.INT4: torch.uint8}[code]
