"""Whole-number outputs (positions, choices) that rounding decides: ties have no right answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernel_compass.validation.judge_contracts import Tensors

ARITHMETIC = 2.0**-23
"""Sums are kept in float32 at least, whatever the inputs are."""
DRAWS = 8
"""A tie of two is broken the same way in all of them once in 256 times."""
TF32 = 2.0**-11
"""What a float32 operand of a product is rounded to on a GPU's matrix units."""
MOST_NOISE = 0.02
"""Of a result with changed inputs: beyond it, who is right is decided by rounding."""
UNITS = 4.0
"""Noise in units of an input's last place: a few roundings on the way."""


def undecided_places(
    torch: Any,
    exact: Callable[[Tensors], Sequence[Any]],
    inputs: Tensors,
    outputs: Sequence[Any],
) -> tuple[Any | None, ...]:
    """Where outputs that are no floating-point numbers change when inputs change by their rounding.

    Args:
        torch: the module.
        exact: the reference.
        inputs: what it was called with.
        outputs: what it gave.

    Returns:
        A mask for each output; `None` for floating-point ones.
    """
    if all(one.dtype.is_floating_point for one in outputs):
        return (None,) * len(outputs)
    masks = [
        None if one.dtype.is_floating_point else torch.zeros_like(one, dtype=torch.bool)
        for one in outputs
    ]
    for seed in range(DRAWS):
        others = exact(_shaken(torch, inputs, seed))
        for mask, one, other in zip(masks, outputs, others, strict=True):
            if mask is not None:
                mask.logical_or_(one != other)
    return tuple(masks)


def noise_of(
    torch: Any,
    exact: Callable[[Tensors], Sequence[Any]],
    inputs: Tensors,
    outputs: Sequence[Any],
    rounding: Mapping[str, float] | None = None,
) -> float:
    """Relative error that the inputs' own rounding makes: the largest of all outputs'.

    Args:
        torch: the module.
        exact: the reference.
        inputs: what it was called with.
        outputs: what it gave.
        rounding: of inputs by type, where it is coarser than arithmetic's: 2^-11 of `float32`.
    """
    worst = 0.0
    changed = _shaken(torch, inputs, 0, ARITHMETIC, rounding or {})
    for one, other in zip(outputs, exact(changed), strict=True):
        known = one.isfinite() & other.isfinite()
        if one.dtype.is_floating_point and bool(known.any()):
            size = float(one[known].norm())
            worst = max(worst, float((one - other)[known].norm()) / size if size else 0.0)
    return worst


def noise_of_changed(
    torch: Any,
    exact: Callable[[Tensors], Sequence[Any]],
    inputs: Tensors,
    outputs: Sequence[Any],
    slack: float,
    rounding: Mapping[str, float] | None = None,
) -> float | None:
    """The same of inputs that no problem drew, `slack` at least; `None` = they tell nothing."""
    noise = noise_of(torch, exact, inputs, outputs, rounding)
    return None if noise > MOST_NOISE else max(noise, slack)


def _shaken(
    torch: Any,
    inputs: Tensors,
    seed: int,
    most: float = 1.0,
    rounding: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    changed = {}
    for name, value in inputs.items():
        changed[name] = value
        if isinstance(value, torch.Tensor) and value.dtype.is_floating_point:
            generator = torch.Generator(value.device).manual_seed(seed)
            wide = value.double()
            noise = torch.randn(
                wide.shape, generator=generator, dtype=wide.dtype, device=wide.device
            )
            kind = str(value.dtype).removeprefix("torch.")
            known = (rounding or {}).get(kind, min(most, torch.finfo(value.dtype).eps))
            unit = UNITS * known / 2
            changed[name] = torch.where(wide.isfinite(), wide * (1.0 + unit * noise), wide)
    return changed
