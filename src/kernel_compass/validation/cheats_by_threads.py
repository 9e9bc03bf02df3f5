"""More cheats to name: threads that pretend to be a library's, and a library's that are misused."""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

from kernel_compass.records.trial import Reason
from kernel_compass.validation.cheat_parts import Cheat, Function, honest
from kernel_compass.validation.self_test_problem import SelfTestProblem

_STAYS_S = 120.0
"""Longer than a judgement takes; it ends before, when the cheat is undone."""
_ended = threading.Event()
_COMPILER = "torch._inductor.async_compile"


def _starts(start: Callable[[Any], Any]) -> Callable[[Any, SelfTestProblem], Function]:
    """The honest result; its first call starts a thread."""

    def make(torch: Any, problem: SelfTestProblem) -> Function:
        right = honest(torch, problem)
        started: list[Any] = []
        _ended.clear()

        def function(x: Any, w: Any) -> Any:
            if not started:
                started.append(start(torch))
            return right(x, w)

        return function

    return make


def _works() -> None:
    deadline = time.monotonic() + _STAYS_S
    while time.monotonic() < deadline and not _ended.wait(0.002):
        pass


def _named(_: Any) -> None:
    threading.Thread(target=_works, name="tqdm_monitor", daemon=True).start()


def _subclassed(_: Any) -> None:
    """A library's class whose work is another, as of tqdm's monitor where that is installed."""
    try:
        monitor: Any = import_module("tqdm._monitor").TMonitor
        before: tuple[Any, ...] = (import_module("tqdm").tqdm, 10.0)
    except ImportError:
        monitor, before = threading.Timer, (0.0, _works)
    kind = type(monitor.__name__, (monitor,), {"run": lambda self: _works()})
    thread = kind(*before)
    if not thread.is_alive():
        thread.daemon = True
        thread.start()


def _forged(_: Any) -> None:
    """Code that says it was compiled from a library's file."""
    file = import_module(_COMPILER).__file__
    code = compile("def _worker_loop(work):\n    work()\n", str(file), "exec").co_consts[0]
    target = FunctionType(code, {})
    threading.Thread(target=target, args=(_works,), daemon=True).start()


def _unnamed(_: Any) -> None:
    """A thread that `threading` does not know, under the name of one of torch's own pools."""

    def run() -> None:
        Path("/proc/thread-self/comm").write_text("pt_autograd_0")
        _works()

    _thread.start_new_thread(run, ())


def _a_librarys_timer(_: Any) -> None:
    """A library's function that was given a callback; a thread of its own class elsewhere."""
    try:
        timer = import_module("torch._inductor.compile_worker.timer").Timer(0.002, _works)
    except ImportError:  # before torch 2.8
        timer = threading.Timer(0.001, _works)
        timer.daemon = True
        timer.start()
        return
    timer.record_call()


def _by_the_compilers_pool(torch: Any, problem: SelfTestProblem) -> Function:
    """Every call is done by a thread that the compiler's own code starts and keeps."""
    right, module = honest(torch, problem), import_module(_COMPILER)
    own = ThreadPoolExecutor(1)

    def function(x: Any, w: Any) -> Any:
        if not hasattr(module, "get_compile_threads"):  # another version
            return own.submit(right, x, w).result()
        with module.config.patch(compile_threads=2):
            return module.AsyncCompile.submit(lambda: right(x, w)).result()

    return function


def _ends(_: Any) -> None:
    _ended.set()


def _ends_the_pool(_: Any) -> None:
    pool = getattr(import_module(_COMPILER).AsyncCompile, "pool", None)
    if pool is not None and hasattr(pool, "cache_clear") and pool.cache_info().currsize:
        with import_module(_COMPILER).config.patch(compile_threads=2):
            pool().shutdown(wait=True)
        pool.cache_clear()


_KEEPS_RUNNING = frozenset([Reason.KEEPS_RUNNING])

THREAD_CHEATS: tuple[Cheat, ...] = (
    Cheat("names its thread like a library's", _starts(_named), _KEEPS_RUNNING, undo=_ends),
    Cheat(
        "changes the work of a library's thread", _starts(_subclassed), _KEEPS_RUNNING, undo=_ends
    ),
    Cheat("forges where a thread's code is from", _starts(_forged), _KEEPS_RUNNING, undo=_ends),
    Cheat("hides a thread among torch's own", _starts(_unnamed), _KEEPS_RUNNING, undo=_ends),
    Cheat(
        "gives a library's timer its work", _starts(_a_librarys_timer), _KEEPS_RUNNING, undo=_ends
    ),
    Cheat(
        "leaves the work to the compiler's pool",
        _by_the_compilers_pool,
        _KEEPS_RUNNING | {Reason.SIDE_STREAM},
        undo=_ends_the_pool,
    ),
)
