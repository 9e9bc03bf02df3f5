"""Whether outputs of any computation are its float64 reference: whole, by slices, by element.

A product has a sharper gate (`fidelity`): its rounding can be derived. Of another computation only
its baseline says what honest rounding costs here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernel_compass.records.trial import Reason
from kernel_compass.validation.allowance import (
    BASELINE_FACTOR,
    MOST,
    WHOLE_NUMBERS,
    Allowance,
    allowance,
    explained,
)
from kernel_compass.validation.error_shape import is_coarse
from kernel_compass.validation.judge_contracts import GateFinding
from kernel_compass.validation.sensitivity import NO_NOISE, Noise

SMALLEST_NORMAL = {"float16": 2.0**-14, "float64": 2.0**-1022}
"""2^-126 for the others."""
SLICE_FACTOR = 8.0
"""A row's or a head's error over what the whole may have, relative to its own size."""
FEWEST_IN_SLICE = 8
"""Fewer elements are judged one by one: a small one's own size is no measure of its error."""
ELEMENT_FACTOR = 24.0
"""An element's, relative to itself and the size of its row and column."""
UNDECIDED_PER_SLIP = 16
"""A near tie in so many is not recognised as one."""
BIAS_SHARE = 0.3
"""Rounding goes up as often as down: a common factor may cost this share of the whole error."""
BIAS_DEVIATIONS = 4.0
"""... and as much as chance makes of it."""
DECIDED = 0.1
"""Where rounding the inputs moves an element by more of it, nobody can say what it should be."""
LEAST_SLICE = 0.05
"""Slices are as large as this share of the median one at least: a tiny one may be all rounding."""


@dataclass(frozen=True)
class Reference:
    """What an output is compared with."""

    values: tuple[Any, ...]
    """float64, or whole numbers and truth values as they are."""
    kinds: tuple[str, ...]
    """The type each output must have: `bfloat16`."""
    allowed: tuple[Allowance, ...]
    """Of each that is as precise as was declared."""
    budget: float
    """What a coarser number format may cost; a candidate that declares none has no use of it."""
    strides: tuple[tuple[int, ...], ...] = ()
    """Of the baseline's outputs; contiguous ones are as good."""
    undecided: tuple[Any, ...] = ()
    """For each output a mask of whole numbers that rounding decides; `None` = none."""
    moved: tuple[Any | None, ...] = ()
    """For each output how far rounding the inputs moves its elements: a near tie may be all of a
    slice. Empty = nowhere far enough to count."""


def reference(
    exact: Sequence[Any],
    baseline: Sequence[Any],
    budget: float,
    undecided: Sequence[Any] = (),
    products: bool = True,
    noise: Noise = NO_NOISE,
) -> Reference:
    """A reference with what the baseline shows that rounding costs.

    Args:
        exact: outputs in float64 (floating-point ones).
        baseline: outputs of the baseline on the same inputs.
        budget: relative error, 0.03 = 3 %.
        undecided: see `Reference`.
        products: matrix products or convolutions are part of it, on a device that has TF32.
        noise: what rounding the inputs once more makes of the outputs: of few of them the
            baseline's own error may be small by chance.
    """
    kinds, allowed = [], []
    for value, other in zip(exact, baseline, strict=True):
        kind = str(other.dtype).removeprefix("torch.")
        kinds.append(kind)
        if not other.dtype.is_floating_point:
            allowed.append(WHOLE_NUMBERS)
            continue
        judged = value.isfinite()
        error = (other.double() - value.double()).where(judged, 0.0)
        size = _norm(value.double().where(judged, 0.0))
        off = _norm(error.nan_to_num(0.0)) / size if size else 0.0
        allowed.append(allowance(kind, off, noise.whole, products))
    return Reference(
        tuple(exact),
        tuple(kinds),
        tuple(allowed),
        min(budget, MOST),
        tuple(tuple(one.stride()) for one in baseline),
        tuple(undecided),
        noise.local,
    )


def check_outputs(
    outputs: Sequence[Any], expected: Reference, coarser: bool = False
) -> GateFinding:
    """Judge outputs.

    Args:
        outputs: of the candidate.
        expected: from `reference`.
        coarser: the candidate declares a coarser number format, so that the budget holds.
    """
    if len(outputs) != len(expected.values):
        found = f"It returned {len(outputs)} outputs; there should be {len(expected.values)}."
        return GateFinding(Reason.WRONG_SHAPE, found)
    worst = 0.0
    for index, output in enumerate(outputs):
        value, kind = expected.values[index], expected.kinds[index]
        what = f"Output {index}" if len(outputs) > 1 else "The output"
        allowed = expected.allowed[index]
        if coarser and expected.budget > allowed.limit:
            allowed = Allowance(expected.budget, "the problem's error budget")
        finding = _laid_out(output, expected, index, what) or _one(
            output, value, kind, allowed, expected, what, index
        )
        if finding.reason is not None:
            return finding
        worst = max(worst, finding.fidelity_error_pct or 0.0)
    return GateFinding(None, f"{worst:.3g} % off (relative Frobenius).", worst)


def controls(torch: Any, expected: Reference) -> Mapping[str, Sequence[Any]]:
    """Outputs that no gate may pass: zeros, the mean, rows or columns moved by one."""
    typed = [
        value.to(getattr(torch, kind))
        for value, kind in zip(expected.values, expected.kinds, strict=True)
    ]
    found: dict[str, Sequence[Any]] = {"zeros": [torch.zeros_like(one) for one in typed]}
    if all(one.dtype.is_floating_point for one in typed):
        found["its mean"] = [
            torch.full_like(one, value.nan_to_num(0.0, 0.0, 0.0).mean().item())
            for one, value in zip(typed, expected.values, strict=True)
        ]
    for axis in (-1, 0):
        if all(one.ndim and one.shape[axis] > 1 for one in typed):
            found[f"itself moved along axis {axis}"] = [one.roll(1, axis) for one in typed]
    zeros = found.pop("zeros")
    told = {
        name: outputs
        for name, outputs in found.items()
        if check_outputs(outputs, _exactly(expected, typed)).reason is not None
    }
    return {"zeros": zeros, **told} if any(one.numel() for one in typed) else {}


def _pitched(output: Any) -> bool:
    """Whether it is contiguous, or a part of something that is: rows of a padded buffer."""
    reach = 1
    for size, stride in zip(reversed(output.shape), reversed(output.stride()), strict=True):
        if size > 1 and (stride < reach or (reach == 1 and stride != 1)):
            return False
        reach = max(reach, stride * (size - 1) + 1) if size > 1 else reach
    return True


def _exactly(expected: Reference, typed: Sequence[Any]) -> Reference:
    """The reference after rounding, with no allowance: what equals it is no control."""
    values = tuple(one.double() if one.dtype.is_floating_point else one for one in typed)
    exact = (Allowance(1e-12, "rounding to its type"),) * len(values)
    return Reference(values, expected.kinds, exact, 0.0)


def _laid_out(output: Any, expected: Reference, index: int, what: str) -> GateFinding | None:
    """An output whose elements lie otherwise than the baseline's, and not in order."""
    if not expected.strides or not output.numel():
        return None
    wanted, seen = expected.strides[index], tuple(output.stride())
    if len(wanted) != len(seen) or _pitched(output):
        return None
    if all(a == b or n == 1 for a, b, n in zip(wanted, seen, output.shape, strict=True)):
        return None
    return GateFinding(
        Reason.WRONG_SHAPE,
        f"{what} has strides {seen}; it should have {wanted}, or be contiguous.",
    )


def _one(
    output: Any,
    value: Any,
    kind: str,
    allowed: Allowance,
    expected: Reference,
    what: str,
    index: int,
) -> GateFinding:
    if tuple(output.shape) != tuple(value.shape):
        found = f"{what} is {tuple(output.shape)}; it should be {tuple(value.shape)}."
        return GateFinding(Reason.WRONG_SHAPE, found)
    if str(output.dtype) != f"torch.{kind}":
        return GateFinding(Reason.WRONG_SHAPE, f"{what} is {output.dtype}; it should be {kind}.")
    if value.numel() == 0:
        return GateFinding(None, "Nothing to compare.", 0.0)
    output = output.to(value.device)
    if not value.dtype.is_floating_point:
        unclear = expected.undecided[index] if index < len(expected.undecided) else None
        return _whole(output, value, unclear, what)
    least = _least(output, allowed.limit)
    moved = expected.moved[index] if index < len(expected.moved) else None
    return _floating(output.double(), value.double(), allowed, expected.budget, what, least, moved)


def _whole(output: Any, value: Any, unclear: Any, what: str) -> GateFinding:
    """Whole numbers and truth values: equal, but where rounding decides."""
    differs = output != value
    wrong = int((differs if unclear is None else differs & ~unclear).sum())
    slack = 0 if unclear is None else int(unclear.sum()) // UNDECIDED_PER_SLIP
    if wrong > slack:
        found = f"{what} has {wrong} of {value.numel()} values wrong."
        return GateFinding(Reason.WRONG_RESULT, found)
    return GateFinding(None, "Equal.", 0.0)


def _least(output: Any, allowed: float) -> float:
    """What is smaller is zero to this type, or to a unit that flushes denormals.

    16-bit floats of 5 exponent bits reach so far up that their denormals are used everywhere.
    """
    smallest = SMALLEST_NORMAL.get(str(output.dtype).removeprefix("torch."), 2.0**-126)
    return smallest if smallest > 1e-30 else smallest / max(allowed, 1e-12)


def _floating(
    output: Any,
    value: Any,
    allowed: Allowance,
    budget: float,
    what: str,
    least: float,
    moved: Any,
) -> GateFinding:
    judged = value.isfinite()
    if not bool((output.isfinite() | ~judged).all()):
        count = int((~output.isfinite() & judged).sum())
        found = f"{what} is not finite in {count} of {value.numel()} places where it should be."
        return GateFinding(Reason.NOT_FINITE, found)
    lost = ~judged & (output.isnan() != value.isnan())
    infinite = ~judged & ~value.isnan() & (output != value)
    if bool((lost | infinite).any()):
        return GateFinding(
            Reason.WRONG_RESULT, f"{what} is not NaN or infinite where the reference is."
        )
    output, value = output.where(judged, 0.0), value.where(judged, 0.0)
    error = output - value
    size, distance = _norm(value), _norm(error)
    relative = distance / size if size else (0.0 if distance == 0.0 else float("inf"))
    pct = 100.0 * relative
    if relative > allowed.limit:
        coarse = relative <= max(budget, 0.05) and is_coarse(error, value)
        reason = Reason.LOW_PRECISION if coarse else Reason.WRONG_RESULT
        found = f"{what} is {relative:.3%} off on the whole, {explained(allowed, relative, budget)}"
        return GateFinding(reason, found, pct)
    factor = float((output * value).sum() / value.square().sum()) - 1.0 if size else 0.0
    if abs(factor) > (BIAS_SHARE + BIAS_DEVIATIONS / value.numel() ** 0.5) * allowed.limit:
        found = f"{what} is {1.0 + factor:.5f} times what it should be."
        return GateFinding(Reason.WRONG_RESULT, found, pct)
    wrong = _in_parts(output, value, allowed, budget, what, least, moved)
    if wrong:
        return GateFinding(Reason.WRONG_RESULT, wrong, pct)
    return GateFinding(None, f"{pct:.3g} % off.", pct)


def _in_parts(
    output: Any,
    value: Any,
    allowed: Allowance,
    budget: float,
    what: str,
    least: float,
    moved: Any,
) -> str | None:
    """What is wrong with a slice or an element of an output that is right on the whole.

    `moved` is what no kernel can know of each element, see `Reference`.
    """
    error = (output - value).abs()
    if moved is not None:
        moved = moved.to(error.device)
        unknown = moved > DECIDED * value.abs()
        error = (error - BASELINE_FACTOR * moved).clamp_min(0.0).where(~unknown, 0.0)
    in_slice = allowed.times(SLICE_FACTOR)
    for name, off in _slices(error, value, least):
        if off > in_slice.limit:
            return f"{what} is {off:.3%} off in {name}, {explained(in_slice, off, budget)}"
    scale = value.abs() + _scale(value).clamp_min(least)
    ratio = (error / scale.clamp_min(1e-300)).where(error != 0, 0.0)
    if float(ratio.max()) > ELEMENT_FACTOR * allowed.limit:
        place = int(ratio.flatten().argmax())
        index = _unravelled(place, tuple(value.shape))
        return (
            f"{what} is {float(output[index]):.6g} at {list(index)}, should be "
            f"{float(value[index]):.6g}: more than rounding explains."
        )
    return None


def _slices(error: Any, value: Any, tiny: float) -> Iterator[tuple[str, float]]:
    """The worst relative error of a slice along each axis; none is smaller than `tiny`."""
    for axis in range(value.ndim):
        if value.shape[axis] < 2 or value.numel() < FEWEST_IN_SLICE * value.shape[axis]:
            continue
        others = tuple(i for i in range(value.ndim) if i != axis)
        sizes = value.square().sum(others).sqrt()
        off = error.square().sum(others).sqrt()
        least = LEAST_SLICE * sizes.median().clamp_min(max(tiny, 1e-300) / LEAST_SLICE)
        ratio = off / sizes.clamp_min(float(least))
        worst = int(ratio.argmax())
        yield f"slice {worst} of axis {axis}", float(ratio[worst])


def _scale(value: Any) -> Any:
    """The size of an element's row and column, whichever is larger."""
    if value.ndim == 0:
        return value.abs()
    row = value.square().mean(-1, keepdim=True).sqrt()
    if value.ndim == 1:
        return row.expand_as(value)
    column = value.square().mean(-2, keepdim=True).sqrt()
    return row.expand_as(value).maximum(column.expand_as(value))


def _unravelled(place: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    index = []
    for extent in reversed(shape):
        index.append(place % extent)
        place //= extent
    return tuple(reversed(index))


def _norm(tensor: Any) -> float:
    largest = float(tensor.abs().max()) if tensor.numel() else 0.0
    if largest == 0.0:
        return 0.0
    return largest * float((tensor / largest).square().sum().sqrt())
