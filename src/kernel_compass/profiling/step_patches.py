"""What is put around torch's own doors while a step is watched, and taken off again.

Everything put on answers what the original answers; under `torch.compile`'s tracing it is not
there.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Around = Callable[[Any, Callable[[], Any]], Any]
"""Gets what is called and how to call it; answers what the call answers."""


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """An attribute with another value; afterwards it is as it was."""
    own = name in vars(owner)
    before = vars(owner).get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)


@contextmanager
def module_calls(torch: Any, around: Callable[[Any, Any, Any, Callable[[], Any]], Any]) -> Any:
    """Call `around(module, args, kwargs, go)` in place of every call of a module."""
    original = torch.nn.Module.__call__
    compiling = torch.compiler.is_compiling

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if compiling():
            return original(self, *args, **kwargs)
        return around(self, args, kwargs, lambda: original(self, *args, **kwargs))

    with replaced(torch.nn.Module, "__call__", call):
        yield


class CompiledFunctions:
    """Functions that the program put under `torch.compile`; their calls are told to `around`.

    A module under it is told as any other module (`torch._dynamo.OptimizedModule`).
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.around: Callable[[Any, Any, Any, Any, Callable[[], Any]], Any] | None = None
        """Gets the original function, what the program calls in its place, arguments, and how to
        call the compiled one."""

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Functions compiled inside are seen for as long as they live."""
        original = self._torch.compile

        @functools.wraps(original)
        def compile(model: Any = None, *args: Any, **kwargs: Any) -> Any:
            made = original(model, *args, **kwargs)
            if model is None or isinstance(model, self._torch.nn.Module) or made is model:
                return made
            return self._seen(model, made)

        with replaced(self._torch, "compile", compile):
            yield

    def _seen(self, function: Any, made: Any) -> Any:
        compiling = self._torch.compiler.is_compiling

        @functools.wraps(made)
        def call(*args: Any, **kwargs: Any) -> Any:
            around = self.around
            if around is None or compiling():
                return made(*args, **kwargs)
            return around(function, call, args, kwargs, lambda: made(*args, **kwargs))

        return call


@contextmanager
def graph_replays(torch: Any, around: Around) -> Iterator[None]:
    """Call `around(graph, go)` in place of every replay of a CUDA graph."""
    kind = torch.cuda.CUDAGraph
    original = kind.replay

    def replay(self: Any) -> Any:
        return around(self, lambda: original(self))

    with replaced(kind, "replay", replay):
        yield


@contextmanager
def custom_autograd(torch: Any, told: Callable[[Any], None]) -> Iterator[None]:
    """Tell each class of the user's own whose `apply` is called."""
    kind = torch.autograd.Function
    original = kind.__dict__["apply"].__func__
    compiling = torch.compiler.is_compiling

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if not compiling() and cls.__module__.partition(".")[0] != "torch":
            told(cls)
        return original(cls, *args, **kwargs)

    with replaced(kind, "apply", classmethod(apply)):
        yield


@contextmanager
def thread_starts(inside: Callable[[str], Any]) -> Iterator[None]:
    """Let what threads started from now on, and what pools are handed, run in `inside(name)`."""
    from concurrent.futures import ThreadPoolExecutor

    start, submit = threading.Thread.start, ThreadPoolExecutor.submit

    def started(self: threading.Thread) -> None:
        run, context = self.run, inside(_target(self))

        def run_inside() -> None:
            with context:
                run()

        if getattr(self, "_target", None) is not _worker():
            self.run = run_inside  # type: ignore[method-assign]
        start(self)

    def submitted(self: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        context = inside(getattr(function, "__qualname__", repr(function)))

        def call() -> Any:
            with context:
                return function(*args, **kwargs)

        return submit(self, call)

    with (
        replaced(threading.Thread, "start", started),
        replaced(ThreadPoolExecutor, "submit", submitted),
    ):
        yield


def _worker() -> Any:
    """What a pool's threads run: it outlives a step, so nothing is put around it."""
    from concurrent.futures import thread

    return thread._worker


def _target(thread: threading.Thread) -> str:
    target = getattr(thread, "_target", None)
    return getattr(target, "__qualname__", None) or type(thread).__qualname__
