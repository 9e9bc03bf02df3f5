"""Whole-number outputs (positions, choices) that rounding decides: ties have no right answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Noise:
    """What rounding makes of the outputs."""

    whole: float = 0.0
    """Relative error, the largest of all outputs'."""
    local: tuple[Any | None, ...] = ()
    """For each output how far each element moves, root mean square; `None` = of whole numbers."""


NO_NOISE = Noise()


@dataclass(frozen=True)
class Rounded:
    """What is looked at for what rounding makes of it.

    Args:
        torch: the module.
        exact: the reference.
        baseline: the same in the inputs' own types.
        inputs: what they are called with.
        outputs: what `exact` gives.
    """

    torch: Any
    exact: Callable[[Tensors], Sequence[Any]]
    baseline: Callable[[Tensors], Sequence[Any]]
    inputs: Tensors
    outputs: Sequence[Any]

    def undecided(self) -> tuple[Any | None, ...]:
        """Where whole numbers are others when inputs change by their types' rounding, to the
        reference or to the baseline, which rounds on the way.

        Returns:
            A mask for each output; `None` for floating-point ones.
        """
        masks = [
            None
            if one.dtype.is_floating_point
            else self.torch.zeros_like(one, dtype=self.torch.bool)
            for one in self.outputs
        ]
        if all(mask is None for mask in masks):
            return tuple(masks)
        for seed in range(DRAWS):
            changed = _shaken(self.torch, self.inputs, seed)
            for others in (self.exact(changed), self.baseline(self._typed(changed))):
                for mask, one, other in zip(masks, self.outputs, others, strict=True):
                    if mask is not None:
                        mask.logical_or_(one != other)
        return tuple(masks)

    def noise(self) -> Noise:
        """How far outputs move when the inputs' last place is rounded anew."""
        return self._of(self.exact(one) for one in self._shaken({}))

    def noise_of_changed(
        self, far: bool, slack: float = 0.0, rounding: Mapping[str, float] | None = None
    ) -> Noise | None:
        """The same of inputs that no problem drew, and of what the baseline makes of such inputs.

        Args:
            far: see `judge_contracts.Change`.
            slack: what the whole is at least.
            rounding: of inputs by type, where it is coarser than arithmetic's: 2^-11 of `float32`.

        Returns:
            `None` where inputs far off tell nothing.
        """
        known = (rounding or {}) if far else {}
        of_inputs = self._of(self.exact(one) for one in self._shaken(known))
        if far and of_inputs.whole > MOST_NOISE:
            return None
        of_baseline = self._of(self.baseline(self._typed(one)) for one in self._shaken(known))
        local = tuple(
            None if one is None or other is None else one.hypot(other)
            for one, other in zip(of_inputs.local, of_baseline.local, strict=True)
        )
        return Noise(max(of_inputs.whole, of_baseline.whole, slack), local)

    def _of(self, found: Iterable[Sequence[Any]]) -> Noise:
        """The root mean square of how far these are from the outputs, over `DRAWS` of them."""
        squares = [
            self.torch.zeros_like(one) if one.dtype.is_floating_point else None
            for one in self.outputs
        ]
        for others in found:
            for total, one, other in zip(squares, self.outputs, others, strict=True):
                if total is not None:
                    off = one - other.to(one.dtype)
                    total.add_(off.where(off.isfinite(), 0.0).square() / DRAWS)
        local = tuple(None if total is None else total.sqrt() for total in squares)
        moved = zip(self.outputs, local, strict=True)
        shares = (_share(one, by) for one, by in moved if by is not None)
        return Noise(max(shares, default=0.0), local)

    def _shaken(self, rounding: Mapping[str, float]) -> Iterator[dict[str, Any]]:
        for seed in range(DRAWS):
            yield _shaken(self.torch, self.inputs, seed, ARITHMETIC, rounding)

    def _typed(self, changed: Tensors) -> dict[str, Any]:
        return {
            name: value if value is self.inputs[name] else value.to(self.inputs[name].dtype)
            for name, value in changed.items()
        }


def _share(output: Any, moved: Any) -> float:
    size = float(output.where(output.isfinite(), 0.0).norm())
    return float(moved.norm()) / size if size else 0.0


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
