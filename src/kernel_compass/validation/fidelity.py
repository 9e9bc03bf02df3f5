"""Is an output the product of its dequantized operands? Independent of how good the format is.

Two bounds that honest rounding keeps to, of each element and of the whole (`validation.rounding`
derives them); and no mistake that a kernel makes everywhere may come as near.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from kernel_compass.records.fidelity import Expected, Fidelity, FidelityFault, WorstElement
from kernel_compass.validation.rounding import (
    OUTPUT_TYPES,
    ROUNDED_WEIGHTS_LIMIT,
    OutputType,
    element_bound,
    norm,
    output_type,
    whole_bound,
)


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
        limit: of the relative Frobenius error; `None` = 2.5e-3 in bfloat16 and
            3.2e-4 in wider types, with rounded weights 4e-3.

    Raises:
        UsageError: the output's type is none of these.
    """
    kind = output_type(output.dtype)
    if limit is None:
        limit = ROUNDED_WEIGHTS_LIMIT if rounded_weights else kind.limit
    if tuple(output.shape) != tuple(expected.value.shape):
        found = f"The output is {tuple(output.shape)}, the product {tuple(expected.value.shape)}."
        return Fidelity(FidelityFault.SHAPE, found, None, limit, None)
    if expected.value.numel() == 0:
        return Fidelity(None, "Nothing to compare: the product is empty.", None, limit, None)
    value = output.to(expected.value.device).double()
    bound = element_bound(expected, kind, rounded_weights)
    judged = _judged(expected, bound, kind)
    unjudged = int((~judged).sum())
    if unjudged == judged.numel():
        found = "No element of the reference is finite and within the output's range."
        return Fidelity(FidelityFault.NOTHING_JUDGED, found, None, limit, None, unjudged)
    nearest = expected.nearest(output) if expected.nearest else expected.value
    settled = replace(expected, value=nearest)
    allowed, noise = (
        whole_bound(settled, judged, output.dtype, relative, rounded_weights)
        for relative in (limit, 0.0)
    )
    reference, value = expected.value.where(judged, 0.0), value.where(judged, 0.0)
    distance = norm((value - nearest).where(judged, 0.0))
    limits = _Limits(bound.where(judged, 1.0), allowed, noise, limit)
    return _judge(value, reference, distance, limits, unjudged)


def _judged(expected: Expected, bound: Any, kind: OutputType) -> Any:
    """Finite in the reference, and in the output's type and float32 sums as well."""
    reached = expected.value.abs() + bound
    sums = expected.magnitude <= OUTPUT_TYPES["float32"].largest
    return (reached <= kind.largest) & sums & expected.value.isfinite()


@dataclass(frozen=True)
class _Limits:
    bound: Any
    allowed: float
    """Norm of the error."""
    noise: float
    """The same without the limit: what these operands cost an honest kernel at most."""
    relative: float


def _judge(value: Any, reference: Any, distance: float, limits: _Limits, unjudged: int) -> Fidelity:
    bound, allowed = limits.bound, limits.allowed
    error = (value - reference).abs()
    size, plain = norm(reference), norm(error)
    near, blind = [], []
    for name, rival in _rivals(reference):
        difference = (rival - reference).abs()
        if norm(difference) <= allowed and bool((difference <= bound).all()):
            blind.append(name)
        elif plain >= norm(difference) > limits.noise:
            near.append(name)
    worst = _worst(value, reference, error, bound)
    fault, reason = _verdict(worst, distance, size, allowed, near)
    relative = distance / size if size else None
    return Fidelity(fault, reason, relative, limits.relative, worst, unjudged, tuple(blind))


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
