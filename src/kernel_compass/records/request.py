"""What a user asks Stage 1 for, and what the machine says about itself."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kernel_compass.records.profile import Regime


@dataclass(frozen=True)
class ProfileRequest:
    """One profiling job."""

    command: tuple[str, ...]
    """The target's argv: an executable and its arguments."""
    regimes: tuple[Regime, ...] = (Regime.WARM, Regime.COLD)
    kernels: str | None = None
    """Regular expression on the kernel's function name."""
    nvtx: str | None = None
    """ncu's NVTX filter expression, e.g. `decode/` (push/pop) or `decode` (start/end)."""
    launch_skip: int = 0
    launch_count: int | None = None
    timeout_s: float | None = None
    label: str | None = None
    each_launch: bool = False
    """Every launch is a kernel of its own, in the order of launching."""
    save_dir: Path | None = None
    """Where the captures are kept; `None` keeps none."""


class CheckStatus(StrEnum):
    """How one part of the machine stands."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


@dataclass(frozen=True)
class Check:
    """One line of `doctor`."""

    name: str
    status: CheckStatus
    found: str
    cost: str = ""
    """What does not work without it."""
    remedy: str = ""
    """How to get it."""
