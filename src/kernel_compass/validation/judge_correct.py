"""Step 2: right for the public draw and for secret ones of the same sizes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from kernel_compass.records.trial import Reason
from kernel_compass.validation.found import Found
from kernel_compass.validation.guards import guard_all
from kernel_compass.validation.judge_contracts import Runner
from kernel_compass.validation.judge_session import NAN_BYTE, Draw, Rejected, Session
from kernel_compass.validation.judge_wrong import reject_wrong
from kernel_compass.validation.outputs import all_same, flat, overlap


def right(session: Session, runner: Runner) -> None:
    """Its results are right, its own, and stay as they were when the call returned."""
    results: list[tuple[Mapping[str, Any], list[Any], list[Any]]] = []
    for index, draw in enumerate(session.draws):
        given, guards = guard_all(session.torch, draw.inputs, NAN_BYTE)
        outputs = session.called(runner, given)
        copies = session.copies
        session.untouched(draw, given, guards)
        _earlier_untouched(session, [one[0] for one in results])
        _still(session, outputs, copies)  # first: what is at work yet is wrong in any way
        finding = draw.gate(outputs)
        if finding.reason is None:
            _of_its_own(session, draw, [given, *(one[0] for one in results)], outputs)
        else:
            reject_wrong(session, runner, index, given, copies, finding)
        results.append((given, outputs, copies))
        session.keep_worst(finding)
    for _, outputs, copies in results[:-1]:
        if not all_same(session.torch, outputs, copies):
            raise Rejected(
                Reason.STALE_RESULT,
                "A later call overwrote the result of an earlier one: it hands out one buffer "
                "again and again.",
            )


def _earlier_untouched(session: Session, earlier: Sequence[Mapping[str, Any]]) -> None:
    """Whether operands of earlier calls, which the caller has still, are what they were."""
    for draw, given in zip(session.draws, earlier, strict=False):
        for name, value in draw.inputs.items():
            if isinstance(value, session.torch.Tensor) and not all_same(
                session.torch, [value], [given[name]]
            ):
                found = f"It wrote into the {name!r} of an earlier call."
                raise Rejected(Reason.CHANGES_INPUTS, found)


def _of_its_own(
    session: Session, draw: Draw, given: Sequence[Mapping[str, Any]], outputs: list[Any]
) -> None:
    """Whether outputs lie where the baseline's do, and in no memory of an input unless those do."""
    theirs = flat(session.torch, session.problem.baseline(draw.inputs))
    if isinstance(theirs, Found):
        return
    for one, other in zip(outputs, theirs, strict=False):
        if one.device != other.device:
            found = f"Its output is on the device {one.device}; it should be on {other.device}."
            raise Rejected(Reason.WRONG_SHAPE, found)
    if _shared(session.torch, draw.inputs, theirs):
        return
    for operands in given:
        name = _shared(session.torch, operands, outputs)
        if name:
            found = f"It hands back memory of its input {name!r} as a result."
            raise Rejected(Reason.NO_WORK, found)


def _still(session: Session, outputs: list[Any], copies: list[Any]) -> None:
    """Whether a result stays as it was when the call returned."""
    time.sleep(session.effort.settle_s)
    if not all_same(session.torch, outputs, copies):
        raise Rejected(Reason.KEEPS_RUNNING, "The result changed after the call had returned.")


def _shared(torch: Any, inputs: Mapping[str, Any], outputs: Sequence[Any]) -> str | None:
    """The name of an input whose memory an output lies in."""
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor) and any(overlap(one, value) for one in outputs):
            return name
    return None
