"""Launches of the user's own Triton kernels: seen where they happen, with what they were given."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from kernel_compass.profiling.triton_source import stuck
from kernel_compass.records.contracts import Config
from kernel_compass.records.step_capture import LAUNCH_OPTIONS


@dataclass(frozen=True)
class TritonLaunch:
    """One launch."""

    function: Any
    """The Python function under the decorators."""
    grid: tuple[int, ...]
    config: Config
    arguments: Mapping[str, Any]
    choices: tuple[Config, ...] = ()
    tied: tuple[str, ...] = ()
    """Meta-parameters that its grid does not follow, and would have to."""


def function_of(kernel: Any) -> Any:
    """The Python function under `@triton.jit`, `@triton.autotune`, `@triton.heuristics`."""
    while not inspect.isfunction(kernel):
        inner = getattr(kernel, "fn", None)
        if inner is None:
            return kernel
        kernel = inner
    return kernel


def source_sha256(kernel: Any) -> str:
    """Of a kernel's source text and, by their names, that of the jit functions it calls."""
    digest = hashlib.sha256()
    for name, text in sorted(_sources(function_of(kernel), {}).items()):
        digest.update(f"{name}\0{text}\0".encode())
    return digest.hexdigest()


def _sources(function: Any, found: dict[str, str]) -> dict[str, str]:
    name = getattr(function, "__qualname__", str(function))
    if name in found:
        return found
    try:
        found[name] = inspect.getsource(function)
    except (OSError, TypeError):  # typed into a prompt
        found[name] = name
    code = getattr(function, "__code__", None)
    for called in code.co_names if code else ():
        value = getattr(function, "__globals__", {}).get(called)
        if type(value).__name__ in ("JITFunction", "InterpretedFunction"):
            _sources(function_of(value), found)
    return found


@dataclass
class _Tuning:
    """What an autotuner's call launched last."""

    choices: tuple[Config, ...]
    last: TritonLaunch | None = None


@dataclass
class _Depth:
    tunings: list[_Tuning] = field(default_factory=list)


@contextmanager
def launches_seen(around: Callable[[TritonLaunch, Callable[[], Any]], Any]) -> Iterator[None]:
    """Call `around(launch, go)` in place of each launch; it answers what `go()` answers.

    Of an autotuned kernel the whole call is one launch. Nothing happens where Triton was not
    imported: then nothing of it can be launched.
    """
    jit, tuner = (sys.modules.get(f"triton.runtime.{name}") for name in ("jit", "autotuner"))
    interpreter = sys.modules.get("triton.runtime.interpreter")
    kinds = [getattr(jit, "JITFunction", None), getattr(interpreter, "InterpretedFunction", None)]
    depth = _Depth()
    undo: list[tuple[Any, Any]] = []
    for kind in filter(None, kinds):
        undo.append((kind, kind.run))
        kind.run = _plain(kind.run, around, depth)
    autotuner = getattr(tuner, "Autotuner", None)
    if autotuner is not None:
        undo.append((autotuner, autotuner.run))
        autotuner.run = _tuned(autotuner.run, around, depth)
    try:
        yield
    finally:
        for kind, run in undo:
            kind.run = run


def _plain(run: Any, around: Callable[..., Any], depth: _Depth) -> Any:
    def launched(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        def go() -> Any:
            return run(self, *args, grid=grid, warmup=warmup, **kwargs)

        if warmup:
            return go()
        launch = _launch(self, args, kwargs, grid)
        if depth.tunings:
            depth.tunings[-1].last = launch
            return go()
        return around(launch, go)

    return launched


def _tuned(run: Any, around: Callable[..., Any], depth: _Depth) -> Any:
    def launched(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("warmup"):
            return run(self, *args, **kwargs)
        tuning = _Tuning(tuple(dict(one.all_kwargs()) for one in self.configs))

        def go() -> Any:
            depth.tunings.append(tuning)
            try:
                return run(self, *args, **kwargs)
            finally:
                depth.tunings.pop()

        grid = kwargs.get("grid")
        given = {name: value for name, value in kwargs.items() if name not in ("grid", "warmup")}

        def told() -> TritonLaunch:
            """Known once it ran: which configuration was chosen."""
            last = tuning.last or _launch(self, args, given, grid)
            return replace(last, choices=tuning.choices)

        return around(_Later(_launch(self, args, given, grid), told), go)

    return launched


class _Later:
    """A launch whose configuration is chosen while it runs."""

    def __init__(self, before: TritonLaunch, after: Callable[[], TritonLaunch]) -> None:
        self.before, self.after = before, after


def settled(launch: TritonLaunch | _Later) -> TritonLaunch:
    """A launch as it was, once it ran."""
    return launch.after() if isinstance(launch, _Later) else launch


def foreseen(launch: TritonLaunch | _Later) -> TritonLaunch:
    """A launch as far as it is known before it runs."""
    return launch.before if isinstance(launch, _Later) else launch


def _launch(kernel: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], grid: Any) -> Any:
    function = function_of(kernel)
    parameters = inspect.signature(function).parameters
    bound = dict(zip(parameters, args, strict=False))
    bound |= {name: value for name, value in kwargs.items() if name in parameters}
    for name, parameter in parameters.items():
        if name not in bound and parameter.default is not parameter.empty:
            bound[name] = parameter.default
    meta = {name for name, one in parameters.items() if "constexpr" in str(one.annotation)}
    config = {name: _plain_value(bound[name]) for name in parameters if name in meta & set(bound)}
    config |= {name: kwargs[name] for name in LAUNCH_OPTIONS if kwargs.get(name) is not None}
    return TritonLaunch(
        function=function,
        grid=_grid(grid, bound),
        config=config,
        arguments={name: value for name, value in bound.items() if name not in meta},
        tied=tuple(sorted(stuck(function, grid, bound) & config.keys())),
    )


def _grid(grid: Any, bound: Mapping[str, Any]) -> tuple[int, ...]:
    if callable(grid):
        try:
            grid = grid(dict(bound))
        except Exception:  # it needs what an autotuner has not chosen yet
            return ()
    return tuple(int(size) for size in (grid if isinstance(grid, tuple | list) else (grid,)))


def _plain_value(value: Any) -> Any:
    """A meta-parameter as a record holds it: a number, a truth value or a text."""
    value = getattr(value, "value", value)
    return value if isinstance(value, bool | int | str) else str(value)
