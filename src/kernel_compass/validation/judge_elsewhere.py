"""Step 2, elsewhere: other sizes, operands of other magnitudes, and far from zero."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kernel_compass.records.trial import Reason
from kernel_compass.validation.found import Found
from kernel_compass.validation.guards import guard_all
from kernel_compass.validation.in_place import is_data, scaled, shifted
from kernel_compass.validation.judge_contracts import Change, Runner
from kernel_compass.validation.judge_session import NAN_BYTE, ZERO_BYTE, Draw, Rejected, Session
from kernel_compass.validation.outputs import flat

SCALES = (1.0 / 64.0, 4.0)
"""Small inputs show what is added to them; large ones what overflows."""
FAR_SCALES = {2.0**-12: 2.0**-10, 2.0**16: 0.0}
"""With the slack of each: where float16 overflows, and where its numbers end; of types with eight
bits of exponent and more. Of small inputs a few units beside 1 may be lost: tanh from exp."""
WIDE = frozenset(("float32", "bfloat16", "float64"))
DEVIATIONS = {"float64": 2.0**20, "float32": 2.0**10, "float16": 2.0**6, "bfloat16": 2.0**3}
"""How far from zero data is moved, in its standard deviations: E[x^2] - E[x]^2 loses that number's
square of the arithmetic's precision, two passes or Welford's sums the number itself. Of 16-bit
types as far as leaves four bits of the data."""
UNIT = {"float64": 2.0**-53}
"""Of arithmetic; 2^-24 for all others, which sum in float32."""
STABLE = 8.0
"""Units, times the deviations, that a stable sum may lose."""


@dataclass(frozen=True)
class _Changed:
    """Inputs that a problem did not draw."""

    what: str
    """`With inputs 4 times as large`."""
    inputs: dict[str, Any]
    change: Change


def right_elsewhere(session: Session, runner: Runner) -> None:
    """Other sizes that the same candidate must be right for."""
    for variant in session.problem.variants(session.workload):
        draw = session.drawn(variant, secrets.randbits(30) + 1)
        given, guards = guard_all(session.torch, draw.inputs, NAN_BYTE)
        try:
            outputs = session.called(runner, given)
        except Rejected as no:
            raise _elsewhere(session, runner, f"At {variant.name}: {no.detail}") from no
        session.untouched(draw, given, guards)
        finding = draw.gate(outputs)
        if finding.reason is not None:
            raise _elsewhere(session, runner, f"At {variant.name}: {finding.detail}")


def right_with_other_data(session: Session, runner: Runner) -> None:
    """Operands of another size, or far from zero: wrong epsilons, sums that overflow or cancel.

    Only where the baseline is right, and where rounding the operands does not decide the result.
    """
    for changed in _changes(session):
        draw = session.of_changed(session.workload, changed.inputs, changed.change)
        if draw is None or not _baseline_is_right(session, draw):
            continue
        given, _ = guard_all(session.torch, draw.inputs, NAN_BYTE)
        finding = draw.gate(session.called(runner, given))
        if finding.reason is not None:
            raise _elsewhere(session, runner, f"{changed.what}: {finding.detail}")


def _changes(session: Session) -> Iterator[_Changed]:
    torch, inputs = session.torch, session.draws[1].inputs
    data = {n: v for n, v in session.rest(inputs).items() if is_data(torch, v)}
    for scale in SCALES:
        others = {name: scaled(value, scale) for name, value in data.items()}
        if others:
            what = f"With inputs {scale:g} times as large"
            yield _Changed(what, {**inputs, **others}, Change(far=False, own=inputs))
    wide = {name: value for name, value in data.items() if _kind(value) in WIDE}
    for scale, slack in FAR_SCALES.items() if wide else ():
        others = {name: scaled(value, scale) for name, value in wide.items()}
        what = f"With inputs {scale:g} times as large"
        yield _Changed(what, {**inputs, **others}, Change(far=True, slack=slack, own=inputs))
    far = {name: value for name, value in data.items() if _kind(value) in DEVIATIONS}
    if far:
        name = max(far, key=lambda one: int(far[one].numel()))
        yield _far_from_zero(inputs, name)


def _far_from_zero(inputs: dict[str, Any], name: str) -> _Changed:
    """The largest operand moved away from zero; it stays of one sign where it was."""
    value = inputs[name]
    known = value[value.isfinite()].double()
    kind, mean = _kind(value), float(known.mean())
    deviations = DEVIATIONS[kind]
    amount = deviations * float(known.std()) * (-1.0 if mean < 0 and float(known.max()) <= 0 else 1)
    moved = {**inputs, name: shifted(value, amount)}
    slack = STABLE * deviations * UNIT.get(kind, 2.0**-24)
    what = f"With {name} moved {deviations:g} deviations from zero"
    return _Changed(what, moved, Change(far=True, slack=slack, own=inputs))


def _baseline_is_right(session: Session, draw: Draw) -> bool:
    given, _ = guard_all(session.torch, draw.inputs, ZERO_BYTE)
    theirs = flat(session.torch, session.problem.baseline(given))
    return not isinstance(theirs, Found) and draw.gate(theirs).reason is None


def _kind(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _elsewhere(session: Session, runner: Runner, found: str) -> Rejected:
    """Wrong elsewhere; or everywhere, since some call that was the first of its kind by chance."""
    for draw in session.draws[:2]:
        given, _ = guard_all(session.torch, draw.inputs, NAN_BYTE)
        outputs = session.called(runner, given)
        finding = draw.gate(outputs)
        if finding.reason is None:
            continue
        if any(other.gate(outputs).reason is None for other in session.draws if other is not draw):
            said = "Right at first; at a later call the result of other contents"
            return Rejected(Reason.STALE_RESULT, f"{said}: {finding.detail}")
        said = f"Right at first, wrong at a later call: {finding.detail}"
        return Rejected(Reason.NOT_REPEATABLE, said)
    return Rejected(Reason.WRONG_ELSEWHERE, found)
