"""Steps 2 and 3: the same inputs give the same result, whatever lies around them."""

from __future__ import annotations

import time

from kernel_compass.records.trial import Reason
from kernel_compass.validation.guards import guard_all
from kernel_compass.validation.judged_trial import NAN_BYTE, ODD_BYTE, ZERO_BYTE, Rejected, Trial
from kernel_compass.validation.judging import Runner
from kernel_compass.validation.outputs import all_same


def repeats(trial: Trial, runner: Runner) -> None:
    """The same inputs give the same result, call after call, in this process."""
    draw = trial.draws[-1]
    given, _ = guard_all(trial.torch, draw.inputs, NAN_BYTE)
    state = trial.prepared(runner, given)
    first = [o.clone() for o in trial.ran(runner, state, given)]
    deadline, differs = time.monotonic() + trial.effort.repeat_s, 0
    trial.audit.handed_over.clear()  # compilers were among them
    for count in range(trial.effort.repeats):
        outputs = trial.ran(runner, state, given)
        if not all_same(trial.torch, outputs, first):
            finding = draw.gate(outputs)
            if finding.reason is not None:
                detail = f"Call {count + 2} with the same inputs was wrong: {finding.detail}"
                raise Rejected(Reason.NOT_REPEATABLE, detail)
            differs += 1
        if time.monotonic() > deadline:
            break
    if trial.audit.handed_over:
        raise Rejected(
            Reason.NO_WORK,
            f"Every call starts another process ({trial.audit.handed_over[0]}): what is computed "
            "there takes no time here.",
        )
    if differs:
        trial.unseen.append(
            f"{differs} calls differ in their last bits: sums are added in no fixed order"
        )


def keeps_inside(trial: Trial, runner: Runner) -> None:
    """What lies around operands makes no difference."""
    draw, results = trial.draws[1], []
    for byte in (NAN_BYTE, ZERO_BYTE, ODD_BYTE):
        given, guards = guard_all(trial.torch, draw.inputs, byte)
        results.append([o.clone() for o in trial.called(runner, given)])
        trial.intact(guards, byte)
    if trial.leaves_gaps(runner, draw):
        raise Rejected(
            Reason.PARTIAL_RESULT,
            "Part of its output is what memory happened to hold: it is right where the memory was.",
        )
    for other in results[1:]:
        wrong = draw.gate(other)
        if not all_same(trial.torch, results[0], other) and wrong.reason is not None:
            raise Rejected(
                Reason.READS_OUTSIDE,
                f"Its result depends on what lies beside its operands: {wrong.detail}",
            )
