"""What one call of a problem's baseline consists of, before anything is tried in its place."""

from __future__ import annotations

from dataclasses import dataclass

COMPILED = "baseline_compiled"
"""The candidate that is the problem's own baseline under `torch.compile`."""


@dataclass(frozen=True)
class BaselineSurvey:
    """Operators of one call, and what they could be together. Every operand counts once."""

    launches: int
    """Operators that launch something: views do not."""
    fused_launches: int
    """The same with one kernel in place of each run of small ones."""
    runs: int
    """Runs of small operators, two or more one after the other."""
    read_bytes: int
    """That the operators read one by one."""
    fused_read_bytes: int
    """... and that they would with one kernel a run."""
    products: int
    """Operators that do more than stream their operands."""
    saved_us: float | None = None
    """What one kernel a run would save at most, by the machine's floors; `None` = not known."""
    no_fusion: str | None = None
    """Why it is not compiled; `None` = it can be tried."""
    no_graph: str | None = None
    """Why it is not captured in a CUDA graph; `None` = it can be tried."""
