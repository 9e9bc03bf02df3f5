"""Is an error what coarse arithmetic leaves, or a mistake: it decides which of the two is named."""

from __future__ import annotations

from typing import Any

FEWEST = 16
"""Elements to tell anything from."""
ALIKE = 0.25
"""Rounding errs everywhere: the median element by this share of the whole's relative error."""
BIASED = 0.5
SAME_FACTOR = 0.9
"""A row's common factor over the size of its errors."""
EXPLAINED = 0.5
"""Of the rows' energy: more of it in one direction is a mistake's."""


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
    """Whether each row has a factor of its own, or one row of errors explains all others.

    Rows count alike, whatever their size: of a peaked softmax few elements have all the energy.
    """
    if value.ndim < 2 or min(value.shape[-2:]) < 4:
        return False
    rows, values = (t.reshape(-1, t.shape[-1]) for t in (error, value))
    ratio = rows / values.where(values != 0, 1e300)
    common = ratio.median(-1).values.abs() / ratio.abs().median(-1).values.clamp_min(1e-300)
    if float(common.mean()) > SAME_FACTOR:
        return True
    sizes = rows.norm(dim=-1, keepdim=True)
    rows = rows[sizes[:, 0] > 0] / sizes[sizes > 0][:, None]
    vector = rows[0]
    for _ in range(6):
        vector = rows.t() @ (rows @ (vector / vector.norm().clamp_min(1e-300)))
    vector = vector / vector.norm().clamp_min(1e-300)
    return float((rows @ vector).square().sum()) > EXPLAINED * len(rows)
