"""Is an error what coarse arithmetic leaves, or a mistake: it decides which of the two is named."""

from __future__ import annotations

from typing import Any

FEWEST = 16
"""Elements to tell anything from."""
ALIKE = 0.25
"""Rounding errs everywhere: the median element by this share of the whole's relative error."""
BIASED = 0.5
EXPLAINED = 0.5
"""Of the error's energy: more of it in one term is a mistake's."""


def is_coarse(error: Any, value: Any) -> bool:
    """Whether it is everywhere alike, of either sign, and no simple function of the outputs."""
    known = value != 0
    if int(known.sum()) < FEWEST:
        return False
    relative = (error / value)[known]
    whole = float(error.norm() / value.norm())
    alike = float(relative.abs().median()) > ALIKE * whole
    biased = abs(float((error * value.sign()).sum())) > BIASED * float(error.abs().sum())
    return alike and not biased and not _simple(error, value)


def _simple(error: Any, value: Any) -> bool:
    """Whether one factor a row or column, or one term of rank one, explains most of it."""
    if value.ndim < 2 or min(value.shape[-2:]) < 4:
        return False
    energy = float(error.square().sum())
    for axis in (-1, -2):
        along = (error * value).sum(axis).square()
        size = value.square().sum(axis).clamp_min(1e-300)
        if float((along / size).sum()) > EXPLAINED * energy:
            return True
    rows = error.reshape(-1, error.shape[-1])
    vector = rows[int(rows.square().sum(-1).argmax())]
    for _ in range(6):
        vector = rows.t() @ (rows @ (vector / vector.norm().clamp_min(1e-300)))
    vector = vector / vector.norm().clamp_min(1e-300)
    return float((rows @ vector).square().sum()) > EXPLAINED * energy
