"""A program opened in this process, for one trial after another: what it gave before any of them.

What is put on is taken off after each trial. Whether the step then is what it was is looked at: its
results, to the bit where it repeats them to the bit, and the memory that it holds. Where not, the
process is of no further use.
"""

from __future__ import annotations

import gc
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kernel_compass.api.step_program import Program, open_step
from kernel_compass.api.step_sides import AppliedSide, memory_now, on_gpu, reads_integers, results
from kernel_compass.kernels.library import torch_library
from kernel_compass.validation.step_outputs import Kept, OutputBudget, compare, objection, rows_of

SEED = 20
"""Of random numbers that a step draws: the same for all that is compared."""
LEFT_BYTES = 256 << 20
"""GPU memory that a trial may leave behind: libraries keep workspaces, for every stream."""
_OPEN: dict[tuple[Program, str], Opened] = {}


@dataclass
class Opened:
    """The held step, and the untouched program's results."""

    step: Any

    def __post_init__(self) -> None:
        self._memory = settled_memory(self.step)
        self._exact = False
        """Whether it repeats its results to the bit."""

    @classmethod
    def of(cls, program: Program, folder: str) -> Opened:
        """Run the program, unless this process has done so already."""
        key = (program, folder)
        if key not in _OPEN:
            os.chdir(folder)
            _OPEN[key] = cls(open_step(program))
        os.chdir(folder)
        return _OPEN[key]

    @cached_property
    def reference(self) -> tuple[Kept, ...]:
        """What the untouched step gives."""
        return results(AppliedSide(self.step, ()), self.step, SEED)

    @cached_property
    def again(self) -> tuple[Kept, ...]:
        """What it gives a second time."""
        before = self.reference
        found = results(AppliedSide(self.step, ()), self.step, SEED)
        self._exact = _same(before, found)
        return found

    def clean(self, budget: OutputBudget) -> bool:
        """Whether nothing is left of what was put on."""
        noise = self.again
        now = results(AppliedSide(self.step, ()), self.step, SEED)
        if self._exact:
            if not _same(self.reference, now):
                return False
        elif self.wrong(noise, now, budget) is not None:
            return False
        memory = settled_memory(self.step)
        return memory is None or self._memory is None or memory <= self._memory + LEFT_BYTES

    def wrong(
        self, reference: Sequence[Kept], found: Sequence[Kept], budget: OutputBudget
    ) -> tuple[Any, str] | None:
        """Why results are not within the budget of others."""
        errors, wrong = compare(reference, found, reads_integers(self.step))
        return wrong or objection(errors, budget, rows_of(reference))


def settled_memory(step: Any) -> int | None:
    """GPU memory that tensors take once nothing unused is left."""
    if on_gpu(step):
        gc.collect()
        step.torch.cuda.empty_cache()
    return memory_now(step)


def gpu_used(step: Any) -> float | None:
    """Which part of the GPU's memory is taken, by whatever; `None` on a CPU."""
    if not on_gpu(step):
        return None
    free, total = step.torch.cuda.mem_get_info()
    return float(1.0 - free / total)


def state_of(step: Any, clean: bool) -> Mapping[str, Any]:
    """What the caller wants to know of this process after a trial."""
    return {"clean": clean, "gpu_used": gpu_used(step)}


def _same(one: Sequence[Kept], other: Sequence[Kept]) -> bool:
    """Whether all is the same to the bit."""
    if [a.name for a in one] != [b.name for b in other]:
        return False
    return all(_bits(a.tensor) == _bits(b.tensor) for a, b in zip(one, other, strict=True))


def _bits(tensor: Any) -> tuple[Any, ...]:
    found = tensor.contiguous().reshape(-1).view(torch_library().uint8)
    return tuple(tensor.shape), tensor.dtype, hashlib.sha256(found.numpy()).digest()
