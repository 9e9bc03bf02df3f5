"""Step 3: it is no baseline under another name, and leaves nothing at work."""

from __future__ import annotations

from kernel_compass.records.trial import Reason
from kernel_compass.validation.judged_trial import Rejected, Trial
from kernel_compass.validation.judging import Runner
from kernel_compass.validation.op_record import executes, op_list


def is_new(trial: Trial, runner: Runner) -> None:
    """It does not call the baseline, nor the very operations that the baseline consists of."""
    inputs, problem = trial.draws[1].inputs, trial.problem
    given = dict(inputs)
    state = trial.prepared(runner, given)
    used = executes(problem.functions, lambda: runner.run(state, trial.rest(given)))
    if used:
        raise Rejected(Reason.BASELINE_IN_DISGUISE, f"It calls the problem's {used}.")
    theirs = op_list(trial.torch, lambda: problem.baseline(inputs))
    ours = op_list(trial.torch, lambda: runner.run(state, trial.rest(given)))
    if theirs is None or ours is None:
        trial.unseen.append("the operations it calls could not be listed")
    elif theirs and ours == theirs:
        names = ", ".join(o[0] for o in ours[:4])
        raise Rejected(Reason.BASELINE_IN_DISGUISE, f"It calls what the baseline calls: {names}.")


def leaves_nothing(trial: Trial, runner: Runner) -> None:
    """No work on other streams, no threads, no processes."""
    given = dict(trial.draws[-1].inputs)
    state = trial.prepared(runner, given)
    left = trial.machine.leaves_side_streams(lambda: runner.run(state, trial.rest(given)))
    if left:
        raise Rejected(
            Reason.SIDE_STREAM,
            "It leaves work on another stream when the current one is done.",
        )
    if left is None:
        trial.unseen.append("work on side streams could not be looked for")
    trial.left_alone()

    def call() -> None:
        trial.ran(runner, state, given)

    found = trial.watch.running() or trial.watch.helped(call)
    if found:
        raise Rejected(found.reason, found.detail)
