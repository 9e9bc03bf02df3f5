"""A program's run, watched from outside: which module or function it calls again and again.

Nothing is recorded but calls of the outermost modules and compiled functions, with copies of what
the last of them was given.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kernel_compass.profiling import step_patches as patches
from kernel_compass.profiling.step_inputs import HELD, CallState, Spread, StepInput, copies
from kernel_compass.profiling.step_lines import Lines
from kernel_compass.profiling.step_tensors import bytes_of
from kernel_compass.records.step_capture import NotHandled

MOST_COPIED = 2 << 30
"""Bytes of arguments of a call that are copied; of more, what the program holds itself is used."""
_CHILDREN = frozenset(
    {"os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen"}
)


@dataclass
class Called:
    """Something that was called at the outermost level."""

    target: Any
    """A module, or a compiled function."""
    call: Callable[..., Any]
    is_module: bool
    calls: int = 0
    seconds: float = 0.0
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    state: CallState | None = None
    earlier: Spread = field(default_factory=lambda: Spread(0))
    """Calls before the last: what they were given."""
    in_graph: bool = False
    """Whether it was called while a CUDA graph was captured."""
    notes: list[str] = field(default_factory=list)


class Watcher:
    """Watches one run of a program.

    Args:
        torch: the module.
        lines: finds the user's lines.
        functions: those that the program compiles.
        earlier: calls before the last whose arguments are kept as well.
    """

    def __init__(
        self,
        torch: Any,
        lines: Lines,
        functions: patches.CompiledFunctions,
        earlier: int = 0,
    ) -> None:
        self._torch, self._lines, self._functions = torch, lines, functions
        self._earlier = earlier
        self._local = threading.local()
        self._found: dict[int, Called] = {}
        self._on = False
        self._process = os.getpid()
        self.replays = 0
        self.graph: Any = None
        """The CUDA graph that was replayed last."""
        self.not_handled: list[NotHandled] = []

    @property
    def modules(self) -> list[Called]:
        """Outermost modules in order of their first call."""
        return [one for one in self._found.values() if one.is_module]

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While the program runs."""
        sys.addaudithook(self._audit)
        self._on = True
        self._functions.around = self._function
        try:
            with (
                patches.module_calls(self._torch, self._module),
                patches.graph_replays(self._torch, self._replay),
            ):
                yield
        finally:
            self._functions.around = None
            self._on = False

    def most_called(self) -> Called | None:
        """The outermost module that was called most; of several the one that took longest; where
        there is none, the outermost compiled function."""
        modules = self.modules
        among = modules or list(self._found.values())
        return max(among, key=lambda one: (one.calls, one.seconds), default=None)

    def _module(self, module: Any, args: Any, kwargs: Any, go: Callable[[], Any]) -> Any:
        return self._called(module, module, True, args, kwargs, go)

    def _function(
        self, function: Any, call: Any, args: Any, kwargs: Any, go: Callable[[], Any]
    ) -> Any:
        return self._called(function, call, False, args, kwargs, go)

    def _called(
        self, key: Any, call: Any, is_module: bool, args: Any, kwargs: Any, go: Callable[[], Any]
    ) -> Any:
        depth = getattr(self._local, "depth", 0)
        if depth or not self._watched():
            return go()
        made = Called(key, call, is_module, earlier=Spread(self._earlier))
        found = self._found.setdefault(id(key), made)
        self._keep(found, args, kwargs)
        self._local.depth = 1
        start = time.perf_counter()
        try:
            return go()
        finally:
            self._local.depth = 0
            found.calls += 1
            found.seconds += time.perf_counter() - start

    def _watched(self) -> bool:
        return self._on and os.getpid() == self._process and not self._torch.jit.is_tracing()

    def _keep(self, found: Called, args: Any, kwargs: Any) -> None:
        """Copies of the arguments; while a graph is captured nothing may be copied."""
        torch = self._torch
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            found.in_graph = True
            if found.state is None:
                found.args, found.kwargs = args, kwargs
                found.state = CallState.now(torch)
            return
        found.state = CallState.now(torch)
        found.notes.clear()
        tensors = list(_tensors(torch, (args, kwargs)))
        size = bytes_of(tensors)
        if size > MOST_COPIED:
            found.notes.append("its arguments are too large to copy: the program's own are used")
            found.args, found.kwargs = args, kwargs
            return
        with torch.no_grad(), torch.utils._python_dispatch._disable_current_modes():
            found.args, found.kwargs = copies(torch, args), copies(torch, kwargs)
        if size > MOST_COPIED / (1 + HELD * self._earlier):
            return
        name = f"call {found.calls + 1:,}"
        found.earlier.offer(found.calls, StepInput(name, found.args, found.kwargs, found.state))

    def _replay(self, graph: Any, go: Callable[[], Any]) -> Any:
        if self._watched():
            self.replays += 1
            self.graph = graph
        return go()

    def _audit(self, event: str, _args: tuple[object, ...]) -> None:
        if event not in _CHILDREN or not self._on or os.getpid() != self._process:
            return
        if self._lines.compiler_is_running():
            return
        line = self._lines.here(2)
        found = NotHandled("a sub-process", "what it runs is not captured, and not changed", line)
        if line is not None and found not in self.not_handled:
            self.not_handled.append(found)


def graph_breaks(lines: Lines) -> list[NotHandled]:
    """Where `torch.compile` had to leave a compiled region, as far as torch tells."""
    utils = sys.modules.get("torch._dynamo.utils")
    found: dict[NotHandled, None] = {}
    for reason in getattr(utils, "graph_break_reasons", None) or ():
        frames = [one for one in reason.user_stack if lines.name_of(one.filename) is not None]
        line = None
        if frames:
            last = frames[-1]
            line = lines.of_frame(last.filename, last.lineno or 0, last.name)
        first = str(reason.reason).strip().partition("\n")[0]
        found[NotHandled("graph break", f"{first}: the region ends there", line)] = None
    return list(found)


def _tensors(torch: Any, value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(torch, one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from _tensors(torch, one)


def others_as_often(found: Sequence[Called], chosen: Called) -> list[str]:
    """Classes of the other outermost modules that were called as often."""
    return sorted(
        {type(o.target).__name__ for o in found if o is not chosen and o.calls >= chosen.calls}
    )
