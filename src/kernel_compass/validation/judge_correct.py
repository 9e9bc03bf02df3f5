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
from kernel_compass.validation.outputs import all_same, flat


def right(session: Session, runner: Runner) -> None:
    """Its results are right, its own, and stay as they were when the call returned."""
    results = []
    for index, draw in enumerate(session.draws):
        given, guards = guard_all(session.torch, draw.inputs, NAN_BYTE)
        outputs = session.called(runner, given)
        copies = session.copies
        session.untouched(draw, given, guards)
        _still(session, outputs, copies)  # first: what is at work yet is wrong in any way
        finding = draw.gate(outputs)
        if finding.reason is None:
            _of_its_own(session, draw, given, outputs)
        else:
            reject_wrong(session, runner, index, given, copies, finding)
        results.append((outputs, copies))
        session.keep_worst(finding)
    for outputs, copies in results[:-1]:
        if not all_same(session.torch, outputs, copies):
            raise Rejected(
                Reason.STALE_RESULT,
                "A later call overwrote the result of an earlier one: it hands out one buffer "
                "again and again.",
            )


def _of_its_own(session: Session, draw: Draw, given: Mapping[str, Any], outputs: list[Any]) -> None:
    """Whether outputs are no memory of an input, unless the baseline's are."""
    theirs = flat(session.torch, session.problem.baseline(draw.inputs))
    if isinstance(theirs, Found) or _shared(session.torch, draw.inputs, theirs):
        return
    name = _shared(session.torch, given, outputs)
    if name:
        raise Rejected(Reason.NO_WORK, f"It hands back memory of its input {name!r} as a result.")


def _still(session: Session, outputs: list[Any], copies: list[Any]) -> None:
    """Whether a result stays as it was when the call returned."""
    time.sleep(session.effort.settle_s)
    if not all_same(session.torch, outputs, copies):
        raise Rejected(Reason.KEEPS_RUNNING, "The result changed after the call had returned.")


def _shared(torch: Any, inputs: Mapping[str, Any], outputs: Sequence[Any]) -> str | None:
    """The name of an input whose memory an output lies in."""
    places = {
        value.untyped_storage().data_ptr(): name
        for name, value in inputs.items()
        if isinstance(value, torch.Tensor) and value.layout is torch.strided and value.numel()
    }
    for one in outputs:
        if one.layout is torch.strided and one.numel():
            name = places.get(one.untyped_storage().data_ptr())
            if name:
                return name
    return None
