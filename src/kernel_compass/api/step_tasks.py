"""What happens in a program's own process: a change tried, configurations ranked, samples taken.

Each function runs in a process apart (`execution.tasks`), opens the program, and answers in JSON.
One process may be asked several times (`api.step_session`): the program is opened once.
The program's output is its own until its step is held; what the step prints when it is called again
is not shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from kernel_compass.analysis.sequential import SequentialComparison
from kernel_compass.api.step_opened import SEED, Opened, state_of
from kernel_compass.api.step_sides import (
    AppliedSide,
    NotPutOn,
    clock_of,
    memory_now,
    on_gpu,
    reads_integers,
    refuse_cpu_graph,
    results,
)
from kernel_compass.codec.canonical import plain, reshaped
from kernel_compass.codec.step_capture_document import packed
from kernel_compass.errors import KernelCompassError, MeasurementError, shortened
from kernel_compass.measurement.step_timer import SETTLE, StepTimer
from kernel_compass.profiling.step_child import CAPTURE
from kernel_compass.profiling.step_measuring import captured, environment
from kernel_compass.profiling.step_running import silenced
from kernel_compass.records.comparison import Decision, Rule
from kernel_compass.records.step_action import StepAction, StepActionKind
from kernel_compass.records.step_loop import (
    PROCESS_FAULTS,
    ConfigTime,
    StepOptions,
    StepSampled,
    StepTried,
)
from kernel_compass.records.step_program import Program
from kernel_compass.records.trial import Reason
from kernel_compass.validation.step_outputs import (
    Kept,
    OutputBudget,
    compare,
    objection,
    rows_of,
)

RANK_SAMPLES = 3
MODULE = "kernel_compass.api.step_tasks"
Tell = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class _Asked:
    """What all tasks have in common, read."""

    opened: Opened
    accepted: tuple[StepAction, ...]
    options: StepOptions
    budget: OutputBudget
    in_graph: bool

    @classmethod
    def of(cls, a: Mapping[str, Any], tell: Tell) -> _Asked:
        """Open the program: from here on it is the step's process."""
        options = reshaped(a["options"], StepOptions)
        opened = Opened.of(reshaped(a["program"], Program), a["folder"])
        refuse_cpu_graph(opened.step, a["in_graph"])
        tell({"phase": "open", "step": opened.step.name})
        budget = OutputBudget(a["budget_pct"], options.top1_pct, options.kl_nats)
        accepted = tuple(reshaped(one, StepAction) for one in a["accepted"])
        return cls(opened, accepted, options, budget, a["in_graph"])

    @property
    def step(self) -> Any:
        """The program's."""
        return self.opened.step

    @property
    def inputs(self) -> int:
        """That outputs are compared on."""
        return 1 + len(self.step.others)

    def state(self, fault: bool = False) -> Mapping[str, Any]:
        """Whether this process is good for another trial, and what it takes of the GPU."""
        return state_of(self.step, not fault and self.opened.clean(self.budget))

    def side(self, actions: Sequence[StepAction]) -> AppliedSide:
        """The step with these on."""
        return AppliedSide(self.step, actions, self.in_graph)

    def timer(self, before: Sequence[StepAction]) -> StepTimer:
        """Times the step."""
        here = environment(self.step.torch, on_gpu(self.step))
        return StepTimer(clock_of(self.step, here, before, self.in_graph))


def capture_task(arguments: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """The step captured with what was accepted on; the capture and its traces go to a folder.

    A graph of ours would hide operators and lines: the step is captured without it, and timed
    with it.

    Args:
        arguments: those of all tasks, `place` (the folder), and the program's `name`.
        tell: told when the program is open.

    Returns:
        `graph_us`: the step's time in our graph; `None` without one.
    """
    asked = _Asked.of(arguments, tell)
    place = Path(arguments["place"])
    others = [one for one in asked.accepted if one.kind is not StepActionKind.STEP_GRAPH]
    side = AppliedSide(asked.step, others)
    # what our changes compile is a region of the capture, as what the program compiles is
    with silenced(), asked.step.functions.installed():
        assert asked.opened.again, "what it gives before anything is put on"
        side.put_on()
        try:
            for _ in range(SETTLE):
                asked.step.call()
            found = captured(asked.step, arguments["name"], place)
        finally:
            side.take_off()
    (place / CAPTURE).write_bytes(packed(found))
    graph_us = None
    with silenced():
        if len(others) < len(asked.accepted):
            graph_us = asked.timer(asked.accepted).time_us(asked.side(asked.accepted))
        # a profiler that was on slows launches for as long as the process lives
        return {"graph_us": graph_us, **asked.state(fault=on_gpu(asked.step))}


def attempt_task(arguments: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """One change on top of those accepted: its outputs, then the step with and without it.

    Args:
        arguments: those of all tasks (`program`, `folder`, `accepted`, `options`, `budget_pct`,
            `in_graph`) and `action`.
        tell: told when the program is open, and when it is timed.
    """
    asked = _Asked.of(arguments, tell)
    action = reshaped(arguments["action"], StepAction)
    with silenced():
        found = _attempted(asked, action, tell)
        return {**_plain(found), **asked.state(found.reason in PROCESS_FAULTS)}


def rank_task(arguments: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Each of some changes on top of those accepted, timed roughly; wrong results have no time.

    On a GPU the step is timed in a CUDA graph where it can be captured: in a step that waits for
    the CPU the times of changes to kernels are those of the CPU, whichever is faster.

    Args:
        arguments: those of all tasks and `actions`.
        tell: told when the program is open, and of each change.
    """
    asked = _Asked.of(arguments, tell)
    actions = [reshaped(one, StepAction) for one in arguments["actions"]]
    with silenced():
        reference, _ = _reference(asked)
        in_graph = _captured_or_not(asked)
        timed = replace(asked, in_graph=asked.in_graph or bool(in_graph))
        timer = timed.timer(asked.accepted)
        found = []
        for number, action in enumerate(actions):
            tell({"phase": "rank", "done": number, "of": len(actions)})
            found.append(_ranked(timed, action, reference, timer))
        # a capture that failed leaves a process of which nobody knows what works
        died = in_graph is False or all(one.time_us is None for one in found)
        return {"times": [plain(one) for one in found], **asked.state(died)}


def sample_task(arguments: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """The untouched step beside the one with all changes on.

    Args:
        arguments: those of all tasks and `process`; `steps` in a sample, as the first process
            chose, or `None`.
        tell: told when the program is open.
    """
    asked = _Asked.of(arguments, tell)
    with silenced():
        found, steps = _sampled(asked, arguments["process"], arguments["steps"])
    return {**_plain(found), "steps": steps}


def _captured_or_not(asked: _Asked) -> bool | None:
    """Whether the step as it is can be captured in a graph of ours; `None` = there is none to be
    made, without a GPU, or where the step is in one."""
    graph = any(one.kind is StepActionKind.STEP_GRAPH for one in asked.accepted)
    if graph or asked.in_graph or not on_gpu(asked.step):
        return None
    side = AppliedSide(asked.step, asked.accepted, True)
    try:
        side.put_on()
        side.take_off()
    except Exception:
        side.take_off()
        return False
    return True


def _attempted(asked: _Asked, action: StepAction, tell: Tell) -> StepTried:
    reference, noise = _reference(asked)
    if noise is not None:
        return StepTried(*noise)
    changes = (*asked.accepted, action)
    checked = _checked(asked, changes, reference)
    if checked.reason is not None:
        return checked
    tell({"phase": "run"})
    try:
        found = _compared(asked, changes)
    except Exception as error:
        return _failed(error)
    # what was right before it was timed has to be right afterwards
    again = _checked(asked, changes, reference)
    if again.reason is not None:
        return again
    return replace(
        found, outputs=again.outputs, added_bytes=checked.added_bytes, inputs=again.inputs
    )


def _compared(asked: _Asked, changes: Sequence[StepAction]) -> StepTried:
    """The step without the last of some changes and with it, in turns until it is decided."""
    before, after = asked.side(changes[:-1]), asked.side(changes)
    rule = Rule(minimum_effect=asked.options.minimum_effect, looks=_looks(asked.options.pairs))
    comparison = SequentialComparison(rule)
    timer = asked.timer(asked.accepted)
    times: tuple[list[float], list[float]] = ([], [])
    while comparison.decision is Decision.CONTINUE:
        pairs = timer.pairs(before, after, comparison.pairs_wanted)
        times[0].extend(pairs.baseline_us)
        times[1].extend(pairs.candidate_us)
        comparison.add(pairs)
    result = comparison.result()
    return StepTried(None, "", result, median(times[0]), median(times[1]))


def _checked(asked: _Asked, actions: Sequence[StepAction], reference: Sequence[Kept]) -> StepTried:
    """What outputs are with changes on, and why they cannot be kept."""
    memory = memory_now(asked.step)
    side = AppliedSide(asked.step, actions)
    try:
        side.put_on()
        try:
            found = results(side, asked.step, SEED)
            side.refused()  # a graph break, a kernel that cannot be launched: found when it runs
            side.check_used()
            added = side.added_bytes
            now = memory_now(asked.step)
            if memory is not None and now is not None:
                added = max(added, now - memory)
        finally:
            side.take_off()
    except Exception as error:
        return _failed(error)
    errors, wrong = compare(reference, found, reads_integers(asked.step))
    wrong = wrong or objection(errors, asked.budget, rows_of(reference))
    if wrong is not None:
        return StepTried(*wrong, outputs=errors, added_bytes=added, inputs=asked.inputs)
    return StepTried(None, "", outputs=errors, added_bytes=max(added, 0), inputs=asked.inputs)


def _reference(asked: _Asked) -> tuple[tuple[Kept, ...], tuple[Reason, str] | None]:
    """The untouched step's results; and what is wrong with them: it is not repeatable, say."""
    first = asked.opened.reference
    wrong = asked.opened.wrong(first, asked.opened.again, asked.budget)
    if wrong is not None:
        detail = f"the untouched step does not repeat its own results: {wrong[1]}"
        return first, (Reason.NOT_REPEATABLE, detail)
    return first, None


def _ranked(
    asked: _Asked, action: StepAction, reference: Sequence[Kept], timer: StepTimer
) -> ConfigTime:
    changes = (*asked.accepted, action)
    checked = _checked(asked, changes, reference)
    if checked.reason is not None:
        return ConfigTime(None, f"{checked.reason}: {checked.detail}")
    try:
        return ConfigTime(timer.time_us(asked.side(changes), RANK_SAMPLES))
    except Exception as error:
        return ConfigTime(None, _said(error))


def _sampled(asked: _Asked, process: int, steps: int | None) -> tuple[StepSampled, int | None]:
    reference, noise = _reference(asked)
    if noise is not None:
        return StepSampled(None, *noise), steps
    untouched, changed = asked.side(()), asked.side(asked.accepted)
    checked = _checked(asked, asked.accepted, reference)
    if checked.reason is not None:
        return StepSampled(None, checked.reason, checked.detail, checked.outputs), steps
    timer = asked.timer(())
    timer.steps = steps
    pairs = timer.pairs(untouched, changed, asked.options.final_pairs, process)
    found = StepSampled(pairs, None, "", checked.outputs, checked.added_bytes, asked.inputs)
    return found, timer.steps


def _looks(pairs: int) -> tuple[int, ...]:
    """A quarter, a half, all of them; 12 at least, or nothing can be said of their noise."""
    return tuple(sorted({max(pairs // 4, 12), max(pairs // 2, 12), max(pairs, 12)}))


def _failed(error: Exception) -> StepTried:
    if isinstance(error, NotPutOn):
        return StepTried(Reason.NOT_SUPPORTED, str(error))
    return StepTried(_reason_of(error), _said(error))


def _reason_of(error: Exception) -> Reason:
    name = type(error).__name__
    if isinstance(error, MeasurementError):
        return Reason.CANNOT_BE_TIMED
    if "OutOfMemory" in name:
        return Reason.OUT_OF_MEMORY
    if "illegal memory access" in str(error):
        return Reason.ILLEGAL_ACCESS
    if any(word in name for word in ("Compil", "Inductor", "Dynamo", "Unsupported")):
        return Reason.BUILD_FAILED
    return Reason.RAISED


def _said(error: Exception) -> str:
    found = error.found if isinstance(error, KernelCompassError) else str(error)
    return shortened(f"{type(error).__name__}: {found}".strip().replace("\n", " "), 600)


def _plain(found: StepTried | StepSampled) -> dict[str, Any]:
    answer: dict[str, Any] = plain(found)
    return answer
