"""What this machine can do for the other commands."""

from __future__ import annotations

from kernel_compass.records.request import Check


def doctor() -> tuple[Check, ...]:
    """Examine GPU, driver, ncu and its permission, torch, triton; every check answers."""
    from kernel_compass.profiling.doctor import checks

    return checks()
