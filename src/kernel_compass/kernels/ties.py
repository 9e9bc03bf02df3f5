"""Activations on a tie between two codes: which product of those that honest kernels make is near.

A kernel finds a code from `fl(a / s)` or `fl(a c)`, where the scale s or its inverse c is a few
2^-24 off. Of bfloat16 numbers many quotients are ties, and which way they fall follows from that
one error: all that share a scale fall towards zero, or away from it, or, where the error is so
small that the quotient is rounded to the tie itself, to the even code. So there are few products,
one for each s and c near the exact one, and an output is judged by the nearest, row by row. Were
every tie free instead, a row could be 0.8 % off: every second has values on the tie of 1.3125.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kernel_compass.kernels.library import torch_library

_INVERSES, _SCALES = (-2, -1, 0, 1, 2), (-1, 0, 1)
"""By how many units in the last place they are off."""


def quotients(a: Any, scales: Any) -> Iterator[Any]:
    """`a / scales` as honest kernels find it in float32.

    Args:
        a: `(..., K)`.
        scales: float32, one for each.
    """
    a, inverse = a.float(), (1 / scales.double()).float()
    for off in _INVERSES:
        yield a * _stepped(inverse, off)
    for off in _SCALES:
        yield a / _stepped(scales, off)


def _stepped(positive: Any, units: int) -> Any:
    """Positive float32 numbers, so many units in the last place away: a factor of `1 + 2^-23` may
    step over one. Zero and what is not finite stay as they are."""
    torch = torch_library()
    bits = positive.contiguous().view(torch.int32) + units
    stays = ~positive.isfinite() | (positive == 0) | (bits <= 0)
    return torch.where(stays, positive, bits.view(torch.float32))


@dataclass(frozen=True)
class Ties:
    """What the activations of `value` become in other honest kernels."""

    value: Any
    """`(H, M, N)`, float64: the reference."""
    changes: tuple[Any, ...]
    """`(H, M, K)` each: what a kernel's activations have more than the reference's."""
    part: Callable[[int, int], Any]
    """The weight `(H, rows, N)`, float64, of rows of K from one to another."""
    group: int | None
    """Rows of K that share a scale; `None` = all."""
    step: int
    """Rows of the weight that are taken at once; of a group, all."""

    def nearest(self, output: Any) -> Any:
        """`value` with the changes that bring it nearest to an output, row by row."""
        value = self.value
        wanted = output.to(value.device).double().reshape(value.shape)
        taken: dict[int, Any] = {}
        for _ in range(1 if self.group is None else 2):
            for first, shifts in self._shifts():
                if first in taken:
                    value = value - taken[first]
                taken[first] = _best(wanted - value, shifts)
                value = value + taken[first]
        return value

    def _shifts(self) -> Iterator[tuple[int, list[Any]]]:
        """Where a scale's rows of K begin, and what each kernel adds to the output there."""
        if not self.changes:
            return
        reduction = self.changes[0].shape[-1]
        width = self.group or reduction
        for first in range(0, reduction, width):
            inside = slice(first, first + width)
            changes = [x for x in self.changes if bool(x[..., inside].any())]
            if changes:
                yield first, self._products(changes, first, min(first + width, reduction))

    def _products(self, changes: list[Any], first: int, end: int) -> list[Any]:
        shifts = [self.value * 0 for _ in changes]
        for begin in range(first, end, self.step):
            stop = min(begin + self.step, end)
            part = self.part(begin, stop)
            shifts = [
                shift + change[..., begin:stop] @ part
                for shift, change in zip(shifts, changes, strict=True)
            ]
        return shifts


def _best(error: Any, shifts: list[Any]) -> Any:
    """For each row the shift that leaves least of its error, or 0."""
    # a scale of the row's own: squares of tiny or huge numbers stay numbers
    size = error.abs().amax(-1, keepdim=True).clamp(min=2.0**-500)
    error, best = error / size, error * 0
    least = best.sum(-1, keepdim=True)
    for shift in shifts:
        unit = shift / size
        more = (unit.square() - 2 * unit * error).sum(-1, keepdim=True)
        better = more < least
        best, least = shift.where(better, best), more.where(better, least)
    return best
