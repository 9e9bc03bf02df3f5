"""What the loop optimizes, as data: the code behind it is loaded in workers alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kernel_compass.records.contracts import Config
from kernel_compass.records.workload import Workload

Value = int | float | str | bool


ERROR_BUDGET_PCT = 3.0
"""Largest relative error against full precision where a problem names none."""


@dataclass(frozen=True)
class ProblemSource:
    """How a worker finds a problem again."""

    target: str
    """`mla:deepseek-v3`, `bmm:128x1x128x512`, `linear:16x4096x4096`, or the path of a file."""
    arguments: Mapping[str, Value] = field(default_factory=dict)
    """What else decides its workloads: `tokens`, `tp`, ..."""
    sha256: str | None = None
    """Of the file; a worker refuses another."""

    @property
    def files(self) -> tuple[tuple[Path, str], ...]:
        """The file whose code it runs, with its SHA-256; of a built-in problem, none."""
        return () if self.sha256 is None else ((Path(self.target), self.sha256),)


@dataclass(frozen=True)
class ProblemWorkload:
    """One set of sizes."""

    name: str
    values: Mapping[str, Value]
    """What the problem's `inputs` gets."""
    product: Workload | None = None
    """The same as an op, where it is one."""
    weight: float = 1.0
    """How often it runs beside the others."""


@dataclass(frozen=True)
class OwnCandidate:
    """An implementation that a problem's file brings with it."""

    name: str
    space: tuple[Config, ...]
    """All its configurations; one, empty, where it has none."""


@dataclass(frozen=True)
class ProblemDescription:
    """What a worker says of a problem."""

    name: str
    workloads: tuple[ProblemWorkload, ...]
    streamed: tuple[str, ...]
    """Names of the inputs that a cold regime drives out of L2."""
    error_budget_pct: float
    """Largest relative error against full precision."""
    candidates: tuple[OwnCandidate, ...] = ()
