"""A step that can be called again: after the program ended, any number of times."""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kernel_compass.errors import (
    MissingDependency,
    ProfilingCause,
    ProfilingError,
    UsageError,
    shortened,
)
from kernel_compass.profiling import step_running as running
from kernel_compass.profiling.step_inputs import CallState, StepInput, drawn, yielded
from kernel_compass.profiling.step_lines import Lines, own_files, touched
from kernel_compass.profiling.step_model import is_model, model_and_draw
from kernel_compass.profiling.step_patches import CompiledFunctions
from kernel_compass.profiling.step_recording import Recorder, Recording
from kernel_compass.profiling.step_tensors import Snapshots, Storages, named_tensors, version_of
from kernel_compass.profiling.step_watching import (
    Called,
    Watcher,
    graph_breaks,
    others_as_often,
)
from kernel_compass.records.step_capture import NotHandled
from kernel_compass.records.step_program import Program, ProgramKind


@dataclass
class HeldStep:
    """One step of a program, with the inputs of its last call there, and with others."""

    name: str
    """`DecoderBlock.forward`, `decode()`, `step.py`."""
    torch: Any
    lines: Lines
    functions: CompiledFunctions
    function: Callable[..., Any]
    modules: Mapping[str, Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    state: CallState | None = None
    called_with: str = "the inputs of its last call"
    others: list[StepInput] = field(default_factory=list)
    """What its outputs are compared on besides."""
    exit_code: int = 0
    """The program's."""
    was_called: bool = True
    """Whether the program has called it."""
    own: tuple[str, ...] = ()
    """The file that the program was started with."""
    apart: frozenset[str] = frozenset()
    """Files that only its inputs were made with: they are none of the program's."""
    graph: Any = None
    """The CUDA graph that the program replays in place of the step."""
    not_handled: list[NotHandled] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    first: Recording = field(default_factory=Recording)
    """What its first call under this package did."""

    def __post_init__(self) -> None:
        self.storages = Storages(self.torch)
        self._snapshots = Snapshots(self.torch)
        self._random: list[tuple[Callable[[Any], None], Any]] = []

    @property
    def files(self) -> Mapping[str, str]:
        """SHA-256 of the program's own files, and of those elsewhere that the step goes through."""
        own = own_files(self.lines, self.apart, *self.own)
        found = {**own, **touched(self.lines, own, self.apart).files}
        return {n: hashlib.sha256(Path(p).read_bytes()).hexdigest() for n, p in found.items()}

    @property
    def packages(self) -> Mapping[str, str]:
        """Versions of the installed packages that the step goes through, but torch and Triton."""
        return touched(self.lines, (), self.apart).packages

    def call(self) -> Any:
        """One step with its inputs."""
        if self.state is None:
            return self.function(*self.args, **self.kwargs)
        with self.state.restored(self.torch):
            return self.function(*self.args, **self.kwargs)

    @contextmanager
    def given(self, one: StepInput) -> Iterator[None]:
        """Called with other inputs, for as long as the block lasts."""
        before = (self.args, self.kwargs, self.state)
        self.args, self.kwargs, self.state = one.args, one.kwargs, one.state
        try:
            yield
        finally:
            self.args, self.kwargs, self.state = before

    def reset(self) -> None:
        """Put back what the step writes, and the state of random numbers."""
        self._snapshots.restore()
        for restore, state in self._random:
            restore(state)

    def roots(self) -> Mapping[str, Any]:
        """The step's modules by qualified name; that of the step itself is empty."""
        return self.modules

    def recorder(self) -> Recorder:
        """What records its calls."""
        return Recorder(
            self.torch, self.lines, self.storages, self.tensors(), self.modules, self.functions
        )

    def tensors(self) -> dict[str, Any]:
        """Tensors of the modules by name."""
        return named_tensors(self.torch, self.modules)

    def settle(self) -> None:
        """Call it once and find out what it writes, so that `reset` can put it back.

        Raises:
            ProfilingError: it cannot be called again.
        """
        torch = self.torch
        self._random = [(torch.set_rng_state, torch.get_rng_state())]
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            self._random.append((torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
        try:
            with running.silenced():
                if not self.was_called:  # what compiles or tunes does so as it does without us
                    self.call()
                self.first = self._looked_at()
        except Exception as error:
            raise _cannot_be_called(self.name, error, self.called_with) from error
        self.others = [one for one in self.others if self._settled(one)]

    def _settled(self, one: StepInput) -> bool:
        """Whether it can be called with other inputs; what it writes then is put back as well."""
        try:
            with running.silenced(), self.given(one):
                self.first.written |= self._looked_at().written
        except Exception as error:
            if not self.was_called:
                raise _cannot_be_called(self.name, error, one.name) from error
            said = shortened(f"{type(error).__name__}: {error}", 200)
            self.notes.append(f"outputs are not compared on {one.name}, which fails now: {said}")
            self.reset()
            return False
        return True

    def _looked_at(self) -> Recording:
        """One call, and what it wrote saved as it was before, and put back."""
        before = {name: version_of(one) for name, one in self.tensors().items()}
        found = self.recorder().record(self.call, self._snapshots)
        for name, tensor in self.tensors().items():
            storage = self.storages.number(tensor)
            changed = name in before and version_of(tensor) != before[name]
            if changed and storage not in found.written:
                # Written where nothing is seen, in a compiled region: as it is now is as good.
                found.written.add(storage)
                self._snapshots.save(tensor, storage)
        self.reset()
        return found

    def inside(self) -> tuple[tuple[Recording, ...], str]:
        """Two calls without compiling, for what compiled regions compute; or why there are none."""
        found = []
        try:
            for _ in range(2):
                self.reset()
                recorder = self.recorder()
                found.append(recorder.record(self.call, self._snapshots, compiles=False))
        except Exception as error:  # memory that only fusing saves, a kernel that has no eager form
            return (), f"{type(error).__name__}: {error}"
        finally:
            self.reset()
        return tuple(found), ""


def _cannot_be_called(name: str, error: BaseException, given: str) -> ProfilingError:
    where = ""
    last = error.__traceback__
    while last is not None:
        where = f"{last.tb_frame.f_code.co_filename}:{last.tb_lineno}"
        last = last.tb_next
    found = f"{name} cannot be called once more with {given}: "
    found += f"{type(error).__name__}: {error} ({where})."
    return ProfilingError(
        ProfilingCause.TARGET_FAILED,
        found,
        "Write a function that makes the inputs and returns the step, and name it: "
        "--entry FILE.py:FUNCTION. Of a step that takes arguments name also what yields them: "
        "--inputs FILE.py:FUNCTION.",
    )


def hold_step(program: Program) -> HeldStep:
    """Run a program in this process and hold its step.

    Its output, its exit code and its results are its own; after its end the step is called once
    more, in silence.

    Raises:
        MissingDependency: there is no torch.
        UsageError: there is no such file or function.
        ProfilingError: it failed before there was a step, or its step cannot be called again.
        KeyboardInterrupt: it was interrupted.
    """
    try:
        torch = importlib.import_module("torch")
        importlib.import_module("torch.utils._python_dispatch")
    except ImportError as error:
        from kernel_compass.errors import INSTALL_TORCH

        raise MissingDependency(f"torch cannot be imported: {error}.", INSTALL_TORCH) from None
    lines = Lines(running.folder_of(program))
    functions = CompiledFunctions(torch)
    watcher = Watcher(torch, lines, functions, program.own_inputs - 1)
    running.prepare(program)
    with functions.installed():
        held = _run(program, torch, lines, functions, watcher)
    held.was_called = program.kind is not ProgramKind.ENTRY
    held.own = (running.file_of(program),)
    held.not_handled += [*watcher.not_handled, *graph_breaks(lines)]
    held.settle()
    if held.others:
        named = ", ".join(one.name for one in held.others)
        held.notes.append(f"outputs are compared on {1 + len(held.others)} inputs: also on {named}")
    return held


def _run(
    program: Program, torch: Any, lines: Lines, functions: CompiledFunctions, watcher: Watcher
) -> HeldStep:
    if program.kind is ProgramKind.ENTRY:
        with watcher.watching():
            function = running.entry_of(program)
            try:
                if is_model(torch, function):
                    return _model(torch, program, function, lines, functions)
                step = function()
            except Exception as error:
                running.print_error(error)
                raise running.failed(program.target, error) from error
        chosen = step if callable(step) else function
        name = f"{program.function}()"
        held = HeldStep(name, torch, lines, functions, chosen, _reachable(torch, chosen, watcher))
        if program.inputs:
            _give(held, program)
        return held
    with watcher.watching():
        code = running.run(program)
    found = watcher.most_called()
    if found is None and code:
        raise ProfilingError(
            ProfilingCause.TARGET_FAILED,
            f"{program.target} ended with exit code {code} before it called a module.",
            "Its own messages stand above; run it by itself first.",
        )
    held = (
        _whole(program, torch, lines, functions)
        if found is None
        else _of(found, torch, lines, functions, watcher)
    )
    held.exit_code = code
    if code:
        held.notes.append(f"the program ended with exit code {code}")
    return held


def _give(held: HeldStep, program: Program) -> None:
    """The user's inputs: the first is captured and timed, and outputs are compared on all."""
    if program.inputs_file is None:
        found = f"{program.target} is called without arguments: there are no other calls of it."
        raise UsageError(found, "Write --inputs FILE.py:FUNCTION, which yields arguments.")
    before = set(sys.modules)
    first, *held.others = yielded(held.torch, program)
    held.args, held.kwargs, held.called_with = first.args, first.kwargs, first.name
    files = (getattr(sys.modules[one], "__file__", None) for one in sys.modules.keys() - before)
    held.apart = frozenset(one for one in files if isinstance(one, str))


def _model(
    torch: Any, program: Program, kind: Any, lines: Lines, functions: CompiledFunctions
) -> HeldStep:
    """A forward pass of the model of a problem's file."""
    model, draw = model_and_draw(torch, kind)
    inputs = draw()
    with torch.no_grad():
        state = CallState.now(torch)
    name = f"{kind.__qualname__}.forward"
    modules = dict(model.named_modules())
    held = HeldStep(name, torch, lines, functions, model, modules, inputs, state=state)
    held.others = [replace(one, state=state) for one in drawn(draw, program.own_inputs)]
    return held


def _whole(program: Program, torch: Any, lines: Lines, functions: CompiledFunctions) -> HeldStep:
    """The whole program as the step: it is run again for each call."""

    @functools.wraps(running.run_once)
    def again() -> None:
        try:
            running.run_once(program)
        except SystemExit:
            return

    held = HeldStep(Path(program.target).name, torch, lines, functions, again, {})
    held.notes.append("no module and no compiled function is called: the whole program is the step")
    return held


def _of(
    found: Called, torch: Any, lines: Lines, functions: CompiledFunctions, watcher: Watcher
) -> HeldStep:
    """The step is a call of a module or of a compiled function."""
    original = getattr(found.target, "_orig_mod", found.target)
    if found.is_module:
        name = f"{type(original).__qualname__.rpartition('<locals>.')[2]}.forward"
        modules = dict(original.named_modules())
    else:
        name = f"{getattr(original, '__qualname__', 'step').rpartition('<locals>.')[2]}()"
        modules = _reachable(torch, original, watcher)
    held = HeldStep(
        name, torch, lines, functions, found.call, modules, found.args, found.kwargs, found.state
    )
    held.others = found.earlier.before(found.calls - 1)
    held.notes += found.notes
    held.notes.append(f"the program called it {found.calls:,} times")
    if found.in_graph and watcher.replays:
        held.graph = watcher.graph
        held.notes.append(f"the program replays it as a CUDA graph, {watcher.replays:,} times")
    others = others_as_often(watcher.modules, found)
    if others:
        held.notes.append(f"called as often and not the step: {', '.join(others)}")
    return held


def _reachable(torch: Any, function: Any, watcher: Watcher) -> dict[str, Any]:
    """The modules that a function can reach, by the names that it has for them."""
    found: dict[str, Any] = {}
    for name, value in _values(function, 3):
        if isinstance(value, torch.nn.Module) and all(value is not one for one in found.values()):
            found[name] = getattr(value, "_orig_mod", value)
    for called in watcher.modules:
        module = getattr(called.target, "_orig_mod", called.target)
        if all(module is not one for one in found.values()):
            name = type(module).__name__
            found[name if name not in found else f"{name}{len(found)}"] = module
    return {
        f"{root}.{name}" if name else root: module
        for root, top in found.items()
        for name, module in top.named_modules()
    }


def _values(function: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """What a function holds: its globals, its closure, what it is bound to, a partial's parts."""
    if depth == 0:
        return
    if isinstance(function, functools.partial):
        for at, one in enumerate((function.func, *function.args, *function.keywords.values())):
            yield f"argument{at}", one
            yield from _values(one, depth - 1)
        return
    function = inspect.unwrap(function) if callable(function) else function
    bound = getattr(function, "__self__", None)
    if bound is not None:
        yield "self", bound
        for name, value in getattr(bound, "__dict__", {}).items():
            yield name, value
    code = getattr(function, "__code__", None)
    if code is None:
        if not inspect.isclass(function) and hasattr(function, "__dict__"):
            yield "self", function
        return
    scope = inspect.getclosurevars(function)
    for name, value in {**scope.globals, **scope.nonlocals}.items():
        yield name, value
        if inspect.isfunction(value) or isinstance(value, functools.partial):
            yield from _values(value, depth - 1)
