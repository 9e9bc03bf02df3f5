"""Changes to a program's step put on for a while: nothing of the program is edited.

    with kernel_compass.applied("compass.json"):
        model(x)

Products, attention and copies are changed in the thread that enters; Triton launches, compiled
functions, the captured step and torch's switches in all threads of the process. Afterwards nothing
of ours is left, and results are, bit for bit, those of the untouched program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from kernel_compass.api.actions import finding, layout, product, sdpa_backend
from kernel_compass.api.actions.constant_weights import Weights
from kernel_compass.api.actions.context import Application, Context, machine_model
from kernel_compass.api.actions.joined_graph import joining
from kernel_compass.api.actions.mode import Entered
from kernel_compass.api.actions.shared_input import SharedInputs
from kernel_compass.errors import KernelCompassError, UsageError, shortened
from kernel_compass.kernels.library import torch_library
from kernel_compass.optimizer.dispatch_file import read_table
from kernel_compass.records.dispatch import DispatchEntry, DispatchTable
from kernel_compass.records.step_action import StepAction, StepActionKind, StepEntry

__all__ = ["Application", "Applied", "applied", "applied_actions", "machine_model"]

Roots = Mapping[str, Any] | Any | None
"""Modules by name, one module, a held step, or nothing."""


@dataclass
class _State:
    """What handlers of the mode find at run time."""

    context: Context
    weights: Weights | None
    copies: layout.Copies | None
    entries: Sequence[DispatchEntry]
    shared: SharedInputs | None = None

    def fits_sdpa(self) -> bool:
        """Whether attention was measured on this machine."""
        kind = StepActionKind.SDPA_BACKEND
        chosen = [one for one in self.context.applications if one.action.kind is kind and one.on]
        fitting = [one for one in chosen if one.fits(self.context.here)]
        for one in fitting:
            one.uses += 1
        return bool(fitting)

    def ranges_here(self, sizes: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
        """Ranges of tokens with an entry of this machine for a weight of these sizes."""
        here = self.context.here()
        table = DispatchTable(tuple(one for one in self.entries if one.gpu == here))
        groups = () if self.shared is None else self.shared.groups
        return product.patterns_of(table, groups).get(sizes, ())

    def has_own(self, shape: tuple[int, ...]) -> bool:
        """Whether an entry is for a weight `(N, K)` or `(K, N)` by itself, or `(H, K, N)`."""
        known = self._own
        return tuple(shape) in known or tuple(reversed(shape)) in known

    @cached_property
    def _own(self) -> frozenset[tuple[int, ...]]:
        return frozenset(product.patterns_of(DispatchTable(tuple(self.entries))))


class Applied(AbstractContextManager["Applied"]):
    """Actions put on; a context manager that can be entered once more after it was left.

    Args:
        actions: with what they were measured on, where that is known.
        context: made anew each time it is entered.
        entries: products beside those of the actions.
    """

    def __init__(
        self,
        actions: Sequence[Application],
        context: Callable[[], Context],
        entries: Sequence[DispatchEntry] = (),
    ) -> None:
        self._make = context
        self._entries = tuple(entries)
        order = list(StepActionKind)
        self.applications = sorted(actions, key=lambda one: order.index(one.action.kind))
        """Each action with whether it is on, and if not, why."""
        self._stack: ExitStack | None = None
        self._weights: Weights | None = None
        self._shared: SharedInputs | None = None

    def __enter__(self) -> Applied:
        if self._stack is not None:
            raise UsageError(
                "These actions are on already.", "Leave the block first, or make another."
            )
        with ExitStack() as stack:
            context = self._make()
            context.applications = self.applications
            for one in self.applications:
                self._put_on(one, context, stack)
            self._enter_mode(context, stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        stack, self._stack = self._stack, None
        if stack is not None:
            stack.__exit__(kind, error, trace)

    def start(self) -> Applied:
        """Put them on until `stop`, or the end of the process."""
        return self.__enter__()

    def stop(self) -> None:
        """Take them off."""
        self.__exit__(None, None, None)

    @property
    def added_bytes(self) -> int:
        """Memory that packed weights take beside the originals."""
        both = (self._weights, self._shared)
        return sum(one.added_bytes for one in both if one is not None)

    @property
    def freed_bytes(self) -> int:
        """Memory of originals that lie on the host meanwhile."""
        freed = None if self._weights is None else self._weights.freed
        return 0 if freed is None else freed.freed_bytes

    @property
    def products(self) -> int:
        """Products computed by an entry, as they were called in eager code or captured."""
        return sum(one.uses for one in (self._weights, self._shared) if one is not None)

    def explain(self) -> tuple[str, ...]:
        """Each action in a line, and of weights which are packed, or why torch computes them."""
        lines = [one.text for one in self.applications]
        lines += [f"{one.action.text}: {note}" for one in self.applications for note in one.notes]
        if self._weights is None:
            return tuple(lines)
        for found in (self._weights, self._shared):
            if found is not None:
                lines += [repr(one).strip("<>") for one in found.handles]
                lines += [f"weight {what}: {why}" for what, why in found.reasons.items()]
        return tuple(lines)

    def _put_on(self, one: Application, context: Context, stack: ExitStack) -> None:
        one.on, one.uses = False, 0
        if one.objection is not None:
            return
        module = _module_of(one.action.kind)
        one.objection = module.objection(one.action, context)
        if one.objection is not None:
            return
        try:
            undo = module.put_on(one.action, context)
        except KernelCompassError as error:
            one.refuse(error.found)
            return

        def taken_off() -> None:
            one.on = False
            undo()

        stack.callback(taken_off)

    def _enter_mode(self, context: Context, stack: ExitStack) -> None:
        """One mode for all that is changed by torch function; where nothing is, one all the same:
        it keeps what is compiled under these actions apart from the program's own."""
        on = [one for one in self.applications if one.on or one.objection is None]
        entries = [*context.products, *self._entries]
        self._weights = self._shared = None
        if not on and not entries:
            return
        handlers: dict[Any, Any] = {}
        facts: dict[str, Any] = {"torch": torch_library()}
        if entries or context.shared:
            self._weights = product.weights_of(context, entries)
            stack.callback(self._weights.close)
            handlers |= product.handlers()
            table = DispatchTable(tuple(entries))
            facts["products"] = product.patterns_of(table, context.shared)
        if context.shared and self._weights is not None:
            self._shared = product.shared_of(context, self._weights)
            stack.callback(self._shared.close)
            stack.enter_context(joining())
        if context.sdpa:
            handlers |= sdpa_backend.handlers()
            facts["sdpa"] = dict(context.sdpa)
            facts["backends"] = sdpa_backend.backends_of(set(context.sdpa.values()))
        copies = layout.Copies(context) if context.layouts else None
        if copies is not None:
            stack.callback(copies.close)
            handlers |= layout.handlers()
        state = _State(context, self._weights, copies, entries, self._shared)
        signature = (
            tuple((repr(one.action), repr(one.gpu)) for one in on),
            tuple(map(repr, entries)),
            context.free_originals,
            repr(facts.get("backends")),
        )
        stack.enter_context(Entered(signature, handlers, facts, state, _watch_of(state)))


def applied_actions(
    actions: Iterable[StepAction],
    roots: Roots = None,
    *,
    free_originals: bool = False,
    context: Callable[[], Context] | None = None,
) -> Applied:
    """Put actions on for a block, in the order of their kinds; taken off in reverse.

    Args:
        actions: one that cannot be put on is left out: `Applied.applications` says why.
        roots: the program's modules by name, its one module, or its held step.
        free_originals: whether weights that were packed may lie in host memory meanwhile.
        context: what actions share, where it is not the usual one.
    """

    def usual() -> Context:
        return _with_roots(Context(free_originals=free_originals), roots)

    made = context or usual
    return Applied([Application(one) for one in actions], made)


def applied(
    path: str | Path,
    roots: Roots = None,
    *,
    free_originals: bool = False,
    kinds: Iterable[StepActionKind | str] | None = None,
    folder: str | Path | None = None,
    defer: bool = False,
    renamed: Mapping[str, str] | None = None,
) -> Applied:
    """Put on what a dispatch table holds: its products, and its changes to steps.

    An entry that was measured on another machine, or with other files, is left out; where none is
    left, nothing is changed.

    Args:
        path: of the table.
        roots: the program's modules by name, or its one module: for entries of single modules.
        free_originals: whether weights that were packed may lie in host memory meanwhile.
        kinds: of actions; `None` = all. The table's own products are of the kind `product`.
        folder: of the program, where files of entries lie; `None` = as modules were loaded.
        defer: whether functions that are not defined yet are waited for.
        renamed: files of entries -> their copies, which are not compared with what was measured.

    Raises:
        StudyError: there is no table, or it cannot be used.
        UsageError: there is no such kind.
    """
    table = read_table(Path(path))
    wanted = _kinds(kinds)
    place = None if folder is None else Path(folder)
    steps = [one for one in table.steps if one.action.kind in wanted]
    entries = table.entries if StepActionKind.PRODUCT in wanted else ()
    rows = [_application(_moved(one, renamed or {}), place, defer) for one in steps]

    def context() -> Context:
        found = Context(
            free_originals=free_originals,
            folder=place,
            defer=defer,
            environments=table.environments,
        )
        return _with_roots(found, roots)

    return Applied(rows, context, entries)


def _moved(entry: StepEntry, renamed: Mapping[str, str]) -> StepEntry:
    """An entry for the copies of its files."""
    at = entry.action.target
    target = replace(
        at,
        module_class=_moved_name(at.module_class, renamed),
        function=_moved_name(at.function, renamed),
    )
    action = replace(entry.action, target=target)
    files = {name: digest for name, digest in entry.files.items() if name not in renamed}
    return replace(entry, action=action, files=files)


def _moved_name(name: str | None, renamed: Mapping[str, str]) -> str | None:
    file, colon, rest = (name or "").rpartition(":")
    return f"{renamed[file]}:{rest}" if colon and file in renamed else name


def _application(entry: StepEntry, folder: Path | None, defer: bool) -> Application:
    """An entry's action, refused where its files or packages are not those that were measured.

    What a program is yet to load from elsewhere is looked at when the action would be used first.
    """
    late = {}
    if defer:
        there = folder or Path()
        late = {n: d for n, d in entry.files.items() if folder is None or not (there / n).is_file()}
    now = {name: digest for name, digest in entry.files.items() if name not in late}
    found = Application(entry.action, gpu=entry.gpu, files=late)
    changed = finding.changed_file(now, folder) or finding.changed_package(entry.packages)
    if changed is not None:
        found.refuse(changed)
    return found


def _kinds(kinds: Iterable[StepActionKind | str] | None) -> set[StepActionKind]:
    if kinds is None:
        return set(StepActionKind)
    known = [one.value for one in StepActionKind]
    wanted = [str(one) for one in kinds]
    for one in wanted:
        if one not in known:
            raise UsageError(
                f"{shortened(one)!r} is no kind of action.", f"Use {', '.join(known)}."
            )
    return {StepActionKind(one) for one in wanted}


def _with_roots(context: Context, roots: Roots) -> Context:
    if roots is None or isinstance(roots, Mapping):
        context.roots = roots
    elif hasattr(roots, "named_modules"):
        context.roots = {"": roots}
    else:
        context.roots, context.step = roots.roots(), roots
    return context


def _module_of(kind: StepActionKind) -> ModuleType:
    return import_module(f"kernel_compass.api.actions.{kind.value}")


def _watch_of(state: _State) -> Any:
    """Sees the arguments of every function first, where something has to be made before."""
    freed = None if state.weights is None else state.weights.freed
    if freed is None and state.copies is None:
        return None

    def watch(function: Any, args: Any, kwargs: Any) -> None:
        if freed is not None:
            freed.before(function, args, kwargs)
        if state.copies is not None:
            state.copies.before(function, args, kwargs)

    return watch
