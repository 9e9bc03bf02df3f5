"""Is an output the product of its dequantized operands? Independent of how good the format is.

The element bound is `|y - r| <= u |r| + (1 + u) (g |A||W| + T |W| + e)`, and holds for every honest
kernel, so that passing it by is proof of a mistake:

- `u`, half an ulp of the output's type: p significant bits give 2^-p, so 2^-8 for bfloat16.
- `g = (K + 16) 2^-23`: products of 16-bit or narrower operands are exact in float32; adding K of
  them in any order costs at most 2^-24 of the partial sums each when rounded, and under 2^-23 in
  tensor cores, which align and truncate. The 16 are for scales, bias and splits of K.
- weights rounded to 16 bits after scaling add 2^-8 to g (bfloat16 has 2^-8 half an ulp).
- fp8 x fp8 adds 2^-7: Hopper's tensor cores keep 13 bits behind the point while they add 32
  products to a sum (DeepSeek-V3 report, section 3.3.2). An honest kernel adds in float32 every 128:
  in those 4 steps 33 addends lose at most 2^-13 of the largest, (1/4 + 1/2 + 3/4) 33 2^-13 and the
  first step's 2^-13. On an H200 `_scaled_mm` lost 2^-9.2 at most (positive operands), and with
  `use_fast_accum`, which adds nothing in float32, 7 % of the whole at K = 4096: more than allowed.
- `T |W|`: activations quantized in the kernel, codes that lie on a tie (`records.fidelity`).
- `e`: what flushed subnormal numbers may lose, K + 1 times 2^-126, or half of float16's smallest.

At large K this bound grows above what one dropped product costs; the mean then shows it: the
relative Frobenius error, 1.66e-3 from rounding to bfloat16, may be 2.5e-3 (4e-3 with rounded
weights), and dropping one product of K costs about K^-1/2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Any

from kernel_compass.errors import UsageError
from kernel_compass.records.fidelity import Expected, Fidelity, FidelityFault, WorstElement

FROBENIUS_LIMIT = 2.5e-3
ROUNDED_WEIGHTS_LIMIT = 4e-3


@dataclass(frozen=True)
class OutputType:
    """A floating type that an output is rounded to."""

    half_ulp: float
    """Relative, of a normal number."""
    largest: float
    lost: float
    """Absolute error of a result so small that it is subnormal or flushed."""


OUTPUT_TYPES = {
    "bfloat16": OutputType(2.0**-8, 3.3895313892515355e38, 2.0**-126),
    "float16": OutputType(2.0**-11, 65504.0, 2.0**-25),
    "float32": OutputType(2.0**-24, 3.4028234663852886e38, 2.0**-126),
}


def check_fidelity(
    output: Any, expected: Expected, *, rounded_weights: bool = False, limit: float | None = None
) -> Fidelity:
    """Compares an output with its reference.

    Judged are the elements whose reference is finite and within the output's range. A product with
    a zero reference is judged by the element bound alone; an empty one passes.

    Args:
        output: a tensor of `expected.value`'s shape; bfloat16, float16 or float32.
        expected: from `kernels.references.expected`, on the same device or not.
        rounded_weights: the kernel rounds scaled weights to 16 bits before the product.
        limit: of the relative Frobenius error; `None` = 2.5e-3, with rounded weights 4e-3.

    Raises:
        UsageError: the output's type is none of these.
    """
    kind = output_type(output)
    if limit is None:
        limit = ROUNDED_WEIGHTS_LIMIT if rounded_weights else FROBENIUS_LIMIT
    if tuple(output.shape) != tuple(expected.value.shape):
        found = f"The output is {tuple(output.shape)}, the product {tuple(expected.value.shape)}."
        return Fidelity(FidelityFault.SHAPE, found, None, limit, None)
    if expected.value.numel() == 0:
        return Fidelity(None, "Nothing to compare: the product is empty.", None, limit, None)
    value = output.to(expected.value.device).double()
    bound = element_bound(expected, kind, rounded_weights)
    return _judge(value, expected, bound, _judged(expected, bound, kind), limit)


def output_type(output: Any) -> OutputType:
    """The type of a tensor.

    Raises:
        UsageError: no type that outputs are judged in.
    """
    name = str(output.dtype).removeprefix("torch.")
    if name not in OUTPUT_TYPES:
        raise UsageError(
            f"An output of {name} cannot be judged.", "Types: " + ", ".join(OUTPUT_TYPES) + "."
        )
    return OUTPUT_TYPES[name]


def element_bound(expected: Expected, kind: OutputType, rounded_weights: bool = False) -> Any:
    """What the error of each element may be; this module's text derives it."""
    share = (expected.reduction + 16) * 2.0**-23
    share += 2.0**-8 if rounded_weights else 0.0
    share += 2.0**-7 if expected.fp8_products else 0.0
    inner = share * expected.magnitude
    inner += (expected.reduction + 1) * 2.0**-126 + kind.lost
    if expected.ties is not None:
        inner += expected.ties
    return kind.half_ulp * expected.value.abs() + (1 + kind.half_ulp) * inner


def _judged(expected: Expected, bound: Any, kind: OutputType) -> Any:
    """Finite in the reference, and in the output's type and float32 sums as well."""
    reached = expected.value.abs() + bound
    sums = expected.magnitude <= OUTPUT_TYPES["float32"].largest
    return (reached <= kind.largest) & sums & expected.value.isfinite()


def _judge(value: Any, expected: Expected, bound: Any, judged: Any, limit: float) -> Fidelity:
    unjudged = int((~judged).sum())
    if unjudged == judged.numel():
        found = "No element of the reference is finite and within the output's range."
        return Fidelity(FidelityFault.NOTHING_JUDGED, found, None, limit, None, unjudged)
    reference, value = expected.value.where(judged, 0.0), value.where(judged, 0.0)
    bound = bound.where(judged, 1.0)
    error = (value - reference).abs()
    size, distance = _norm(reference), _norm(error)
    # ties are allowed for as a whole too: every one of them may have fallen the other way
    ties = 0.0 if expected.ties is None else _norm(expected.ties.where(judged, 0.0))
    allowed = limit * size + ties
    near, blind = [], []
    for name, rival in _rivals(reference):
        difference = (rival - reference).abs()
        if _norm(difference) <= allowed and bool((difference <= bound).all()):
            blind.append(name)
        elif distance >= _norm(difference):
            near.append(name)
    worst = _worst(value, reference, error, bound)
    fault, reason = _verdict(worst, distance, size, allowed, near)
    relative = distance / size if size else None
    return Fidelity(fault, reason, relative, limit, worst, unjudged, tuple(blind))


_AS_NEAR = {
    "zeros": "An output of zeros",
    "heads": "The reference with heads moved by one",
    "rows": "The reference with rows moved by one",
    "columns": "The reference with columns moved by one",
}


def _verdict(
    worst: WorstElement, distance: float, size: float, allowed: float, near: list[str]
) -> tuple[FidelityFault | None, str]:
    at = f"element {list(worst.index)} is {worst.value:.6g}, should be {worst.reference:.6g}"
    if not isfinite(distance):
        return FidelityFault.NOT_FINITE, f"The output is not finite where it should be: {at}."
    relative = distance / size if size else 0.0
    if near:
        found = f"{_AS_NEAR[near[0]]} is as near as the output ({relative:.1%} off): {at}."
        return FidelityFault.NO_BETTER, found
    if size and distance > allowed:
        return (
            FidelityFault.FROBENIUS,
            f"The output is {relative:.3%} off on the whole (relative Frobenius), "
            f"more than {allowed / size:.3%}; {at}.",
        )
    if worst.ratio > 1:
        return (
            FidelityFault.ELEMENT,
            f"An error of {abs(worst.value - worst.reference):.3g} is more than rounding explains "
            f"({worst.bound:.3g}): {at}.",
        )
    return None, f"{relative:.3%} off (relative Frobenius); {worst.ratio:.2f} of the worst bound."


def _worst(value: Any, reference: Any, error: Any, bound: Any) -> WorstElement:
    # a value that is not finite comes first: max() of NaN is NaN, and its index is found by it
    ratio = (error / bound).nan_to_num(float("inf"), float("inf"))
    flat = int(ratio.flatten().argmax())
    index = []
    rest = flat
    for extent in reversed(tuple(ratio.shape)):
        index.append(rest % extent)
        rest //= extent
    place = tuple(reversed(index))
    return WorstElement(place, float(value[place]), float(reference[place]), float(bound[place]))


def _rivals(reference: Any) -> Iterator[tuple[str, Any]]:
    """What a kernel with one mistake everywhere would put out."""
    yield "zeros", reference * 0
    names = ("heads", "rows", "columns")[-reference.ndim :]
    for axis, name in enumerate(names):
        if reference.shape[axis] > 1:
            yield name, reference.roll(1, axis)


def _norm(values: Any) -> float:
    """Square root of the sum of squares, scaled so that nothing overflows."""
    largest = float(values.abs().max())
    if not 0 < largest < float("inf"):
        return largest
    return largest * sqrt(float((values / largest).square().sum()))
