"""A step with some changes on, as timing puts it on and takes it off; and what it gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Protocol

from kernel_compass.api.actions.graphed import CudaGraphs
from kernel_compass.api.applying import applied_actions
from kernel_compass.errors import MeasurementCause, MeasurementError
from kernel_compass.measurement.step_timer import CudaClock, HostClock, StepClock
from kernel_compass.records.environment import Environment
from kernel_compass.records.step_action import StepAction, StepActionKind
from kernel_compass.validation.step_outputs import Kept, kept, tensors_of

COUNTED = frozenset([StepActionKind.COMPILE_REGION, StepActionKind.STEP_GRAPH])
"""Changes that count their uses wherever they are used."""
WARM_UP = 3
"""Steps on a side stream before a graph is captured."""
CALLS = 3
"""Of a step whose results are looked at: the first ones compile, pack and capture, and only what
comes after them is what will run."""


class Step(Protocol):
    """A user's step in its own process."""

    name: str
    torch: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    others: Sequence[Any]
    """More inputs."""

    def given(self, one: Any) -> AbstractContextManager[None]:
        """Called with other inputs meanwhile."""

    def call(self) -> Any:
        """One step with its inputs."""

    def reset(self) -> None:
        """Put back what steps write."""

    def roots(self) -> Mapping[str, Any]:
        """Modules by qualified name."""

    def tensors(self) -> dict[str, Any]:
        """Tensors of the modules by name."""


class NotPutOn(Exception):
    """A change cannot be put on; the text says why."""


class AppliedSide:
    """The step with some changes on.

    Args:
        step: of the program.
        actions: put on in their order.
        graph: capture each step in a CUDA graph and replay that: as the program does by itself.
    """

    def __init__(self, step: Step, actions: Sequence[StepAction], graph: bool = False) -> None:
        self._step, self._actions, self._graph = step, tuple(actions), graph
        self._stack: ExitStack | None = None
        self._replay: Any = None
        self.applied: Any = None
        """What `applied_actions` says of each change, while it is on."""

    def put_on(self) -> None:
        """Put all of them on.

        Raises:
            NotPutOn: one of them cannot be.
        """
        with ExitStack() as stack:
            if self._actions:
                self.applied = stack.enter_context(applied_actions(self._actions, self._step))
            self.refused()
            if self._graph:
                self._replay = self._captured()
                stack.callback(self._forget)
            self._stack = stack.pop_all()

    def take_off(self) -> None:
        """Take all of them off."""
        stack, self._stack = self._stack, None
        if stack is not None:
            stack.close()

    def call(self) -> Any:
        """One step."""
        if self._replay is not None:
            return self._replay()
        return self._step.call()

    def reset(self) -> None:
        """Put back what steps write."""
        self._step.reset()

    def refused(self) -> None:
        """Whether a change was refused, or taken off by itself.

        Raises:
            NotPutOn: it was.
        """
        for one in objections_of(self.applied):
            raise NotPutOn(one)

    def check_used(self) -> None:
        """Whether every change did something in the steps so far.

        Raises:
            NotPutOn: one did not: nothing of the step goes through it.
        """
        if self.applied is None:
            return
        regions = any(o.kind is StepActionKind.COMPILE_REGION for o in self._actions)
        rows = sorted(self.applied.applications, key=lambda one: self._actions.index(one.action))
        for at, one in enumerate(rows):
            kind = one.action.kind
            if kind is StepActionKind.COMPILE_REGION and any(
                other.uses and other.action.kind is kind for other in rows[at + 1 :]
            ):
                continue  # a later one may hold it whole
            if kind in COUNTED and not one.uses:
                notes = "; ".join(getattr(one, "notes", ()) or ())
                why = (
                    notes or "nothing of the step goes through it, or only within what is compiled"
                )
                raise NotPutOn(f"{one.action.text}: {why}")
        wanted = [o for o in self._actions if o.kind is StepActionKind.PRODUCT]
        if wanted and not regions and not self.applied.products:
            raise NotPutOn(f"{wanted[-1].text}: {'; '.join(self.applied.explain()[-2:])}")

    @property
    def added_bytes(self) -> int:
        """Memory that the changes hold beside what was there, as they count it."""
        return int(getattr(self.applied, "added_bytes", 0) or 0)

    def _forget(self) -> None:
        self._replay = None

    def _captured(self) -> Any:
        torch = self._step.torch
        with CudaGraphs().warm_up():
            for _ in range(WARM_UP):
                self._step.call()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step.call()
        return graph.replay


def objections_of(applied: Any) -> list[str]:
    """Why changes are not on, each in a line."""
    rows = getattr(applied, "applications", None) or ()
    return [f"{one.action.text}: {one.objection}" for one in rows if one.objection]


def results(side: AppliedSide, step: Step, seed: int) -> tuple[Kept, ...]:
    """What one step gives with a side on, and what it writes in place, for each of its inputs; the
    state is put back."""
    found = list(_results(side, step, seed))
    for other in step.others:
        with step.given(other):
            rows = _results(side, step, seed)
        found += [Kept(f"{other.name}: {one.name}", one.tensor) for one in rows]
    return tuple(found)


def _results(side: AppliedSide, step: Step, seed: int) -> tuple[Kept, ...]:
    try:
        for _ in range(CALLS):
            step.reset()
            step.torch.manual_seed(seed)
            found = side.call()
        if on_gpu(step):
            step.torch.cuda.synchronize()
        return kept(found, written(step))
    finally:
        step.reset()


def written(step: Step) -> dict[str, Any]:
    """Tensors of the program's modules that a step changes in place, by name."""
    first = getattr(step, "first", None)
    numbers = getattr(step, "storages", None)
    if first is None or numbers is None:
        return {}
    found = {}
    for name, tensor in step.tensors().items():
        if numbers.number(tensor) in first.written:
            found[f"written {name}"] = tensor
    return found


def reads_integers(step: Step) -> bool:
    """Whether the step is given integers: tokens."""
    given = tensors_of([list(step.args), dict(step.kwargs)])
    return any(
        not one.is_floating_point() and not one.is_complex() and one.numel() > 0 for _, one in given
    )


def on_gpu(step: Step) -> bool:
    """Whether the program uses one."""
    cuda = step.torch.cuda
    return bool(cuda.is_available() and cuda.is_initialized())


def clock_of(
    step: Step, environment: Environment, before: Sequence[StepAction], in_graph: bool
) -> StepClock:
    """How the step is timed: events on a GPU, the slope where it replays a graph anyway."""
    if not on_gpu(step):
        return HostClock(environment)
    graph = in_graph or any(one.kind is StepActionKind.STEP_GRAPH for one in before)
    return CudaClock(step.torch, environment, graph)


def memory_now(step: Step) -> int | None:
    """GPU memory that tensors take; `None` on a CPU."""
    if not on_gpu(step):
        return None
    step.torch.cuda.synchronize()
    return int(step.torch.cuda.memory_allocated())


def refuse_cpu_graph(step: Step, in_graph: bool) -> None:
    """No CUDA graph without a GPU.

    Raises:
        MeasurementError: one is asked for.
    """
    if in_graph and not on_gpu(step):
        found = "The step was captured on a GPU, and none is here."
        raise MeasurementError(MeasurementCause.NO_GPU, found, "Run it where it was captured.")
