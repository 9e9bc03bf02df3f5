"""What honest rounding may cost: each element of an output, and the output as a whole.

The element bound is `|y - r| <= u |r| + (1 + u) (g S + w + t + c + e)`:

- `u`, half an ulp of the output's type: p significant bits give 2^-p, so 2^-8 for bfloat16.
- `g = (K + 16) 2^-23`: products of 16-bit or narrower operands are exact in float32; adding K of
  them in any order costs at most 2^-24 of the partial sums each when rounded, and under 2^-23 in
  tensor cores, which align and truncate. The 16 are for scales, bias and splits of K. `S`, what
  partial sums come to, is `|r| + 6 (A^2 W^2)^1/2`, six deviations of a sum in random order, and
  never above `|A||W|`. (An order that adds up one sign first passes that, and then its roundings
  have to go one way as well before g S does not cover them.)
- `w`, weights rounded to 16 bits after scaling: `2^-8 |A||W|`, half an ulp of bfloat16, or what one
  of the ways in which kernels round costs, `A (W' - W)` (`references.rounded_part`).
- `t`, activations quantized in the kernel, codes on a tie. With t the step of each, its sign the
  activation's: `((t W)^2 + 36 t^2 W^2)^1/2`, of all that fall the other way (`t W`) and of a random
  share (q t W and (q - q^2)^1/2 (t^2 W^2)^1/2 are never more); at most `|t| |W|`.
- `c`, sums of fp8 products on tensor cores of 13 bits: `kernels.fp8_sums` says what they lose.
  The shift counts twice here: the addends of one element may all lose all that they can.
- `e`: what flushed subnormal numbers may lose, K + 1 times 2^-126, or half of float16's smallest.

At large K this bound grows above what one dropped product costs; the whole then shows it. The norm
of the error may be `limit ||R||`: rounding to bfloat16 costs 1.66e-3 of it, and the limit is 2.5e-3
(4e-3 where weights are rounded, 3.2e-4 in float16, whose rounding costs an eighth; in float32 too,
where long sums that lose bits all one way cost more than its rounding). Dropping one product of K
costs about K^-1/2. Where this is more, the norm is

- what rounding the reference itself costs, and rounding the product of rounded weights, in each of
  the ways in which kernels do it. Exact however few the elements are. Where the result moves by
  more (below), its rounding may be up to that much worse, but no worse than the mean of n roundings
  gets: with n = (sum r^2)^2 / sum r^4, the mean of squares exceeds `(0.43 u)^2` by
  `u^2 (10.4 / n)^1/2` once in 1e9 outputs (Hoeffding).
- Ties cost nothing here: R is the nearest of the products that honest kernels make
  (`kernels.ties`).

And beside both:

- sums that cancel: `K^1/2 2^-23 || |A||W| ||`, what independent roundings of them come to.
- sums of fp8 products: the norm of their shift, and of what strays: with n columns that count, a
  sum of n squares exceeds its expectation by `2 (x / n)^1/2 + 2 x / n` of it once in e^x outputs.
- results below the normal numbers: `e` an element.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot, sqrt
from typing import Any

from kernel_compass.errors import UsageError
from kernel_compass.records.fidelity import Deviation, Expected

ROUNDED_WEIGHTS_LIMIT = 4e-3
_RMS = 0.43
"""Root mean square of a rounding to nearest; 1 is half an ulp of a number of mantissa 1."""
_CHANCE = 20.7
"""ln(1e9)."""
_SIGMAS = 6.0
"""Of an element: passed by chance once in 5e8."""


@dataclass(frozen=True)
class OutputType:
    """A floating type that an output is rounded to."""

    half_ulp: float
    """Relative, of a normal number."""
    largest: float
    lost: float
    """Absolute error of a result so small that it is subnormal or flushed."""
    limit: float
    """Of the relative Frobenius error."""


OUTPUT_TYPES = {
    "bfloat16": OutputType(2.0**-8, 3.3895313892515355e38, 2.0**-126, 2.5e-3),
    "float16": OutputType(2.0**-11, 65504.0, 2.0**-25, 3.2e-4),
    "float32": OutputType(2.0**-24, 3.4028234663852886e38, 2.0**-126, 3.2e-4),
}


def output_type(dtype: Any) -> OutputType:
    """The type of a tensor with this `dtype`.

    Raises:
        UsageError: no type that outputs are judged in.
    """
    name = str(dtype).removeprefix("torch.")
    if name not in OUTPUT_TYPES:
        raise UsageError(
            f"An output of {name} cannot be judged.", "Types: " + ", ".join(OUTPUT_TYPES) + "."
        )
    return OUTPUT_TYPES[name]


def element_bound(expected: Expected, kind: OutputType, rounded_weights: bool = False) -> Any:
    """What the error of each element may be; this module's text derives it."""
    sums = expected.value.abs() + _SIGMAS * expected.squares.sqrt()
    inner = (expected.reduction + 16) * 2.0**-23 * sums.minimum(expected.magnitude)
    if rounded_weights:
        inner += _largest(2.0**-8 * expected.magnitude, *expected.roundings)
    inner += (expected.reduction + 1) * 2.0**-126 + kind.lost
    if expected.ties is not None:
        inner += _element_part(expected.ties, 1)
    if expected.fp8_sums is not None:
        inner += _element_part(expected.fp8_sums, 2)
    return kind.half_ulp * expected.value.abs() + (1 + kind.half_ulp) * inner


def whole_bound(
    expected: Expected, judged: Any, dtype: Any, limit: float, rounded_weights: bool = False
) -> float:
    """What the norm of the error over judged elements may be; this module's text derives it."""
    value = expected.value.where(judged, 0.0)
    magnitude = norm(expected.magnitude.where(judged, 0.0))
    moves = [sqrt(expected.reduction) * 2.0**-23 * magnitude]
    if expected.fp8_sums is not None:
        moves.append(_lost_in_sums(expected.fp8_sums, judged))
    shifts = (x.where(judged, 0.0) for x in expected.roundings) if rounded_weights else ()
    exact = (value, *(value + shift for shift in shifts))
    written = max(_written(value, x, dtype, hypot(*moves)) for x in exact)
    lost = sqrt(float(judged.sum())) * output_type(dtype).lost
    return hypot(max(limit * norm(value), written), lost, *moves)


def _written(value: Any, exact: Any, dtype: Any, moved: float) -> float:
    """How far from `value` results are that are `exact` but for a vector of norm `moved`, once they
    are rounded to a type: without what that vector adds itself."""
    rounding, half_ulp = exact.to(dtype).double() - value, output_type(dtype).half_ulp
    chance = half_ulp**2 * sqrt(_CHANCE / 2 / max(_effective_count(exact.square()), 1))
    likely = sqrt((_RMS * half_ulp) ** 2 + chance)
    most = norm(exact - value) + min(half_ulp, likely) * norm(exact)
    return max(norm(rounding), min(norm(rounding) + moved, most))


def _element_part(deviation: Deviation, shifts: float) -> Any:
    shift = shifts * deviation.shift
    likely = (shift.square() + _SIGMAS**2 * deviation.squares).sqrt()
    return likely.minimum(deviation.most)


def _lost_in_sums(deviation: Deviation, judged: Any) -> float:
    shift, squares = norm(deviation.shift.where(judged, 0.0)), deviation.squares.where(judged, 0.0)
    return min(hypot(shift, _strays(squares)), norm(deviation.most.where(judged, 0.0)))


def _largest(first: Any, *others: Any) -> Any:
    for other in others:
        first = first.maximum(other.abs())
    return first


def _strays(squares: Any) -> float:
    """The norm that independent errors of these variances do not exceed.

    Rows of an output share the weights, and may be alike: only columns are counted as independent.
    """
    total = float(squares.sum())
    count = max(_effective_count(squares.sum(-2)), 1)
    return sqrt(total * (1 + 2 * sqrt(_CHANCE / count) + 2 * _CHANCE / count))


def norm(values: Any) -> float:
    """Square root of the sum of squares, scaled so that nothing overflows."""
    largest = float(values.abs().max())
    if not 0 < largest < float("inf"):
        return largest
    return largest * sqrt(float((values / largest).square().sum()))


def _effective_count(energies: Any) -> float:
    """How many equal elements would average as much; 0 where all are 0."""
    largest = float(energies.max())
    if not largest:
        return 0.0
    parts = energies / largest
    return float(parts.sum()) ** 2 / float(parts.square().sum())
