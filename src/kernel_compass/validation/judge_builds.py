"""Step 1: inputs and a gate that can say no, then the candidate's own building."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from kernel_compass.errors import KernelCompassError
from kernel_compass.records.trial import Reason
from kernel_compass.validation.judge_contracts import Runner
from kernel_compass.validation.judge_session import Draw, Rejected, Session, said

PUBLIC_SEED = 0
"""What everybody can guess; the others are drawn when the candidate is built."""


def draw_inputs(session: Session) -> None:
    """Inputs of the public seed and of secret ones, before the candidate is there."""
    seeds = [PUBLIC_SEED, *(secrets.randbits(30) + 1 for _ in range(session.effort.seeds))]
    session.draws = [session.drawn(session.workload, seed) for seed in seeds]
    with session.draws[0].sealed.opened() as expected:
        session.sizes = _sizes(session.torch, session.draws[0].inputs, expected)
        del expected
    always = set.intersection(*(_controls_passed(draw) for draw in session.draws))
    if always:
        raise Rejected(
            Reason.NO_BETTER_THAN_ZEROS,
            f"With these inputs {min(always)} would pass as the result: the problem's inputs or "
            "its error budget cannot tell right from wrong.",
        )


def built(session: Session, build: Callable[[], Runner]) -> Runner:
    """The candidate, and whether loading it left all else alone."""
    try:
        runner = build()
    except KernelCompassError as error:
        raise Rejected(Reason.NOT_SUPPORTED, str(error)) from error
    except MemoryError as error:
        raise Rejected(Reason.OUT_OF_MEMORY, said(error)) from error
    except Exception as error:
        raise Rejected(Reason.BUILD_FAILED, said(error)) from error
    session.left_alone()
    return runner


def _controls_passed(draw: Draw) -> set[str]:
    """Names of wrong outputs that the gate takes for right."""
    with draw.sealed.opened() as expected:
        return {
            name
            for name, outputs in draw.problem.controls(expected).items()
            if draw.problem.gate(list(outputs), expected).reason is None
        }


def _sizes(torch: Any, inputs: dict[str, Any], expected: Any) -> list[int]:
    """Bytes of what outputs may take: of each input, and of the expected values where they show."""
    sizes: set[int] = set()
    for one in (*inputs.values(), *getattr(expected, "values", ())):
        if isinstance(one, torch.Tensor):
            sizes.update(one.numel() * width for width in (1, 2, 4, 8))
    return sorted(sizes)
