"""One call of a step, recorded: every operator that reaches the dispatcher, every Triton launch.

What is seen: whatever torch dispatches in the step's threads. Operators that torch composes of
others are taken apart, as they are under autograd. What is not seen: what compiled functions and
CUDA graphs run (they are regions), what extensions do without torch's dispatcher.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from kernel_compass.profiling import step_patches as patches
from kernel_compass.profiling.step_dispatch import (
    WHY_SYNCHRONIZING,
    Range,
    is_composite,
    is_traced,
    mode_of,
    plain_value,
    tensors_in,
    text_of,
    waits_for,
    written_by,
)
from kernel_compass.profiling.step_lines import Lines
from kernel_compass.profiling.step_places import Places
from kernel_compass.profiling.step_tensors import (
    Snapshots,
    Storages,
    described,
    version_of,
)
from kernel_compass.profiling.step_triton import (
    TritonLaunch,
    foreseen,
    launches_seen,
    settled,
    source_sha256,
)
from kernel_compass.records.step_capture import (
    NotHandled,
    RegionKind,
    SourceLine,
    StepLaunch,
    StepOp,
    StepRegion,
    StepTensor,
)


@dataclass
class Recording:
    """What one call did."""

    ops: list[StepOp] = field(default_factory=list)
    launches: list[StepLaunch] = field(default_factory=list)
    regions: list[StepRegion] = field(default_factory=list)
    not_handled: list[NotHandled] = field(default_factory=list)
    written: set[int] = field(default_factory=set)
    """Storages that were written."""
    read_first: dict[int, int | None] = field(default_factory=dict)
    """Storages that were there before they were written: each with its version then."""

    @property
    def signature(self) -> list[tuple[Any, ...]]:
        """What two calls of one step have in common."""
        return [(op.name, *(one.shape for one in op.inputs)) for op in self.ops]


class Recorder:
    """Records calls of one step.

    Args:
        torch: the module.
        lines: finds the user's lines.
        storages: numbers storages.
        names: tensors by name.
        modules: modules by qualified name.
        functions: those that the program compiled.
    """

    def __init__(
        self,
        torch: Any,
        lines: Lines,
        storages: Storages,
        names: Mapping[str, Any],
        modules: Mapping[str, Any],
        functions: patches.CompiledFunctions,
    ) -> None:
        self._torch = torch
        self._lines, self._storages, self._functions = lines, storages, functions
        self._names = {
            storages.number(tensor): name for name, tensor in reversed(list(names.items()))
        }
        self._places = Places(modules)
        self._kept: set[int] = {
            storages.number(tensor)
            for module in modules.values()
            for tensor in (*module._parameters.values(), *module._buffers.values())
            if tensor is not None
        }
        self._lock = threading.RLock()
        self._local = threading.local()
        self._now = Recording()
        self._made: set[int] = set()
        self._snapshots: Snapshots | None = None
        self._ranges = ""
        self._compiles = True

    def record(
        self,
        call: Callable[[], Any],
        snapshots: Snapshots | None = None,
        ranges: str = "",
        compiles: bool = True,
    ) -> Recording:
        """Call once and say what happened.

        Args:
            call: one step.
            snapshots: takes what memory that was there before held, before it is written.
            ranges: what the profiler's ranges around operators begin with; empty = none are made.
            compiles: whether compiled regions run compiled; else their operators are recorded.
        """
        self._now, self._made = Recording(regions=self._places.begin()), set()
        self._snapshots, self._ranges, self._compiles = snapshots, ranges, compiles
        torch = self._torch
        self._functions.around = self._compiled
        try:
            with ExitStack() as stack:
                stack.enter_context(patches.module_calls(torch, self._module))
                stack.enter_context(patches.graph_replays(torch, self._replayed))
                stack.enter_context(patches.custom_autograd(torch, self._custom))
                stack.enter_context(patches.thread_starts(self._thread))
                stack.enter_context(launches_seen(self._launched))
                stack.enter_context(self._watching())
                if not compiles:
                    stack.enter_context(torch.compiler.set_stance("force_eager"))
                call()
        finally:
            self._functions.around = None
        return self._now

    def say(self, what: str, why: str, line: SourceLine | None = None) -> None:
        """Add to what is not handled; once for a line."""
        found = NotHandled(what, why, line)
        with self._lock:
            if found not in self._now.not_handled:
                self._now.not_handled.append(found)

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """The dispatcher's mode, in this thread."""
        mode = mode_of(self._torch, self._dispatched)
        before = getattr(self._local, "mode", None)
        self._local.mode = mode
        try:
            with mode:
                yield
        finally:
            self._local.mode = before

    @contextmanager
    def _unseen(self) -> Iterator[None]:
        """Nothing is recorded: the mode is off the stack, because `torch.compile` compiles
        nothing under one, and remembers that it did not."""
        mode = getattr(self._local, "mode", None)
        stack = self._torch.utils._python_dispatch._get_current_dispatch_mode
        if mode is None or stack() is not mode:  # the user's own mode is above ours
            paused = getattr(self._local, "paused", False)
            self._local.paused = True
            try:
                yield
            finally:
                self._local.paused = paused
            return
        mode.__exit__(None, None, None)
        try:
            yield
        finally:
            mode.__enter__()

    # Modules, regions ---------------------------------------------------------------------------

    def _module(self, module: Any, args: Any, kwargs: Any, go: Callable[[], Any]) -> Any:
        del args, kwargs
        original = getattr(module, "_orig_mod", None)
        compiled = original is not None or getattr(module, "_compiled_call_impl", None) is not None
        shown = module if original is None else original
        with self._places.inside(shown):
            if not compiled:
                return go()
            code = getattr(type(shown).forward, "__code__", None)
            return self._compiled_region(f"{type(shown).__name__}.forward", code, go)

    def _compiled(
        self, function: Any, call: Any, args: Any, kwargs: Any, go: Callable[[], Any]
    ) -> Any:
        del call, args, kwargs
        name = getattr(function, "__qualname__", repr(function)).rpartition("<locals>.")[2]
        return self._compiled_region(name, getattr(function, "__code__", None), go)

    def _compiled_region(self, name: str, code: Any, go: Callable[[], Any]) -> Any:
        if self._places.region is not None:
            return go()
        line = self._lines.of_code(code)
        unseen = self._unseen() if self._compiles else nullcontext()
        with self._in_region(RegionKind.COMPILED, name, line), unseen:
            return go()

    def _replayed(self, graph: Any, go: Callable[[], Any]) -> Any:
        del graph
        if self._places.region is not None:
            return go()
        line = self._lines.here()
        name = f"graph replayed in {line.function}" if line else "graph"
        with self._in_region(RegionKind.GRAPH, name, line):
            return go()

    @contextmanager
    def _in_region(self, kind: RegionKind, name: str, line: SourceLine | None) -> Iterator[None]:
        with self._places.in_region(kind, name, line) as at, self._range(f"r{at}"):
            yield

    @contextmanager
    def _thread(self, name: str) -> Iterator[None]:
        """In a thread of the program's: its operators are recorded as a region's."""
        with ExitStack() as stack:
            stack.enter_context(self._places.in_region(RegionKind.THREAD, name, None))
            if getattr(self._local, "mode", None) is None:
                stack.enter_context(self._watching())
            yield

    def _custom(self, kind: Any) -> None:
        why = (
            "its operators are captured, but what it saves for its backward is its own: nothing "
            "inside is replaced, and a region around it may not compile"
        )
        self.say(f"autograd.Function {kind.__qualname__}", why, self._lines.here())

    # Operators ----------------------------------------------------------------------------------

    def _dispatched(
        self, mode: Any, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """One operator; in a thread of autograd's the mode is on, and nothing else of ours is."""
        given = tensors_in(self._torch, (args, kwargs))
        paused = getattr(self._local, "paused", False) or func.namespace == "profiler"
        if paused or any(map(is_traced, given)):
            return func(*args, **kwargs)
        if is_composite(self._torch, func):
            with mode:
                found = func.decompose(*args, **kwargs)
            if found is not NotImplemented:
                return found
        line, region = self._lines.here(), self._places.region
        written = written_by(self._torch, func, args, kwargs)
        with self._lock:
            inputs = tuple(map(self._described, given))
            for tensor, one in zip(given, inputs, strict=True):
                self._reads(tensor, one.storage)
            for tensor in written:
                self._writes(tensor)
            index = len(self._now.ops)
            self._now.ops.append(None)  # type: ignore[arg-type]  # its place, until it ran
        name = str(func._schema.name)
        try:
            with self._range(f"o{index}"):
                result = func(*args, **kwargs)
        except BaseException:
            with self._lock:
                self._now.ops[index] = StepOp(
                    index,
                    name,
                    inputs,
                    (),
                    text_of(func, args, kwargs),
                    line,
                    self._places.module,
                    region,
                )
            raise
        made = tensors_in(self._torch, result)
        with self._lock:
            self._made |= set(map(self._storages.number, made)) - self._now.read_first.keys()
            self._now.ops[index] = StepOp(
                index=index,
                name=name,
                inputs=inputs,
                outputs=tuple(map(self._described, made)),
                arguments=text_of(func, args, kwargs),
                line=line,
                module=self._places.module,
                region=region,
                writes=bool(written),
            )
        waits = waits_for(name, inputs, given, made)
        if waits is not None:
            self.say(f"{name}: {waits}", WHY_SYNCHRONIZING, line)
        return result

    def _described(self, tensor: Any) -> StepTensor:
        name = self._names.get(self._storages.number(tensor))
        return described(tensor, self._storages, name)

    def _reads(self, tensor: Any, storage: int) -> None:
        if storage not in self._made and storage not in self._now.read_first:
            self._now.read_first[storage] = version_of(tensor)

    def _writes(self, tensor: Any) -> None:
        storage = self._storages.number(tensor)
        self._now.written.add(storage)
        if self._snapshots is not None and storage not in self._made:
            with self._torch.utils._python_dispatch._disable_current_modes():
                self._snapshots.save(tensor, storage)

    def _range(self, what: str) -> Any:
        """A range that the profiler writes down, where it is asked for."""
        if not self._ranges:
            return nullcontext()
        return Range(self._torch, f"{self._ranges}{what}")

    # Triton -------------------------------------------------------------------------------------

    def _launched(self, launch: Any, go: Callable[[], Any]) -> Any:
        before = foreseen(launch)
        code = getattr(before.function, "__code__", None)
        file = getattr(code, "co_filename", "")
        if (
            self._places.in_compiled
            or self._lines.name_of(file) is None
            or getattr(self._local, "paused", False)
        ):
            return go()
        tensors = {k: v for k, v in before.arguments.items() if self._is_tensor(v)}
        with self._lock:
            described_ = {name: self._described(tensor) for name, tensor in tensors.items()}
            for name, tensor in tensors.items():
                storage = described_[name].storage
                self._reads(tensor, storage)
                if storage not in self._kept:  # which of them a kernel writes is not known
                    self._writes(tensor)
            index = len(self._now.launches)
            self._now.launches.append(None)  # type: ignore[arg-type]
        line = self._lines.here()
        self._local.paused = True
        try:
            with self._range(f"l{index}"):
                result = go()
        finally:
            self._local.paused = False
            with self._lock:
                self._now.launches[index] = self._launch(
                    index, settled(launch), described_, line, code
                )
        return result

    def _launch(
        self,
        index: int,
        launch: TritonLaunch,
        tensors: Mapping[str, StepTensor],
        line: SourceLine | None,
        code: Any,
    ) -> StepLaunch:
        return StepLaunch(
            index=index,
            after_op=len(self._now.ops),
            kernel=launch.function.__name__,
            source_sha256=source_sha256(launch.function),
            kernel_line=self._lines.of_code(code) or SourceLine("?", 0, launch.function.__name__),
            grid=launch.grid,
            config=launch.config,
            arguments={
                name: tensors.get(name, plain_value(value))
                for name, value in launch.arguments.items()
            },
            choices=launch.choices,
            line=line,
            module=self._places.module,
            region=self._places.region,
            tied=launch.tied,
        )

    def _is_tensor(self, value: Any) -> bool:
        return isinstance(value, self._torch.Tensor)
