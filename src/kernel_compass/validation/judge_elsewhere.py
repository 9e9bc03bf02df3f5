"""Step 2, elsewhere: other sizes, and operands of other magnitudes."""

from __future__ import annotations

import secrets

from kernel_compass.records.problem import ProblemWorkload
from kernel_compass.records.trial import Reason
from kernel_compass.validation.found import Found
from kernel_compass.validation.guards import guard_all
from kernel_compass.validation.in_place import scaled
from kernel_compass.validation.judge_contracts import Runner
from kernel_compass.validation.judge_session import NAN_BYTE, ZERO_BYTE, Draw, Rejected, Session
from kernel_compass.validation.outputs import flat

SCALES = (1.0 / 64.0, 4.0)
"""Small inputs show what is added to them; large ones what overflows."""


def right_elsewhere(session: Session, runner: Runner) -> None:
    """Other sizes that the same candidate must be right for."""
    for variant in session.problem.variants(session.workload):
        draw = session.drawn(variant, secrets.randbits(30) + 1)
        given, guards = guard_all(session.torch, draw.inputs, NAN_BYTE)
        try:
            outputs = session.called(runner, given)
        except Rejected as no:
            raise _rejected_at(variant, no.detail) from no
        session.untouched(draw, given, guards)
        finding = draw.gate(outputs)
        if finding.reason is not None:
            raise _rejected_at(variant, finding.detail)


def right_at_other_scales(session: Session, runner: Runner) -> None:
    """Operands of another size: a wrong epsilon, a sum that overflows, a clamp show."""
    for scale in SCALES:
        changed = _at_scale(session, scale)
        baseline, _ = guard_all(session.torch, changed.inputs, ZERO_BYTE)
        theirs = flat(session.torch, session.problem.baseline(baseline))
        if isinstance(theirs, Found) or changed.gate(theirs).reason is not None:
            continue  # nobody is right here
        given, _ = guard_all(session.torch, changed.inputs, NAN_BYTE)
        finding = changed.gate(session.called(runner, given))
        if finding.reason is not None:
            detail = f"With inputs {scale:g} times as large: {finding.detail}"
            raise Rejected(Reason.WRONG_ELSEWHERE, detail)


def _at_scale(session: Session, scale: float) -> Draw:
    inputs = dict(session.draws[1].inputs)
    for name, value in session.rest(inputs).items():
        if isinstance(value, session.torch.Tensor) and value.dtype.is_floating_point:
            inputs[name] = scaled(value, scale)
    return session.of(session.workload, inputs)


def _rejected_at(variant: ProblemWorkload, detail: str) -> Rejected:
    return Rejected(Reason.WRONG_ELSEWHERE, f"At {variant.name}: {detail}")
