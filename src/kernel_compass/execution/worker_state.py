"""What a task may leave in its process: global state it changed, threads, pending signals."""

from __future__ import annotations

import _thread
import builtins
import contextlib
import gc
import locale
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from kernel_compass.library_work import is_librarys, waits, waits_in_a_pool

_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_TIME = ("time", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time")
_TORCH_FLAGS = (
    "get_default_dtype()",
    "get_default_device()",
    "is_grad_enabled()",
    "get_float32_matmul_precision()",
    "are_deterministic_algorithms_enabled()",
    "get_num_threads()",
    "backends.cuda.matmul.allow_tf32",
    "backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
    "backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
    "backends.cudnn.enabled",
    "backends.cudnn.allow_tf32",
    "backends.cudnn.benchmark",
    "backends.cudnn.deterministic",
)
_TORCH_FUNCTIONS = (
    "cuda.Event",
    "cuda.Event.record",
    "cuda.Event.elapsed_time",
    "cuda.Event.synchronize",
    "cuda.Stream",
    "cuda.CUDAGraph",
    "cuda.graph",
    "cuda.synchronize",
    "cuda.current_stream",
    "Tensor.__eq__",
    "Tensor.to",
    "Tensor.double",
    "allclose",
    "isclose",
    "isfinite",
    "equal",
    "matmul",
    "bmm",
    "empty",
    "randn",
    "manual_seed",
)
_OF_LIBRARIES = ("TORCHINDUCTOR_", "_TORCHINDUCTOR_", "CUDA_MODULE_LOADING")
"""Variables that a compiler sets for itself, and torch when it first uses a GPU."""

_TICK_S = 0.01


def state() -> dict[str, object]:
    """Names and values of what is compared; a task that changed none of it left it as it was."""
    found: dict[str, object] = {
        "the umask": _umask(),
        "the locale": locale.setlocale(locale.LC_ALL),
        "the CPUs it may use": frozenset(os.sched_getaffinity(0)),
        "its priority": os.getpriority(os.PRIO_PROCESS, 0),
        "the trace function": sys.gettrace(),
        "the profile function": sys.getprofile(),
        "the recursion limit": sys.getrecursionlimit(),
        "sys.stdout": id(sys.stdout),
        "sys.stderr": id(sys.stderr),
    }
    for number in range(3):
        found[f"file descriptor {number}"] = _file(number)
    for signal_number in signal.valid_signals():
        found[f"the handler of signal {signal_number:d}"] = signal.getsignal(signal_number)
    for number in _LIMITS:
        found[f"resource limit {number}"] = resource.getrlimit(number)
    for name in _TIME:
        found[f"time.{name}"] = id(getattr(time, name))
    for name, value in vars(builtins).items():
        if name != "_":
            found[f"builtins.{name}"] = id(value)
    for name, text in os.environ.items():
        if not name.startswith(_OF_LIBRARIES):
            found[f"variable {name}"] = text
    return found | _state_of_torch() | _state_of_numpy()


def changes(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """What a task changed, by name; a library that it was the first to import is no change."""
    names = sorted(before.keys() | after.keys())
    return [
        name
        for name in names
        if before.get(name) != after.get(name)
        and not (name.startswith(("torch", "numpy")) and name not in before)
    ]


def disarm() -> None:
    """Nothing that a task asked to happen later happens to the next one."""
    signal.alarm(0)
    for timer in _TIMERS:
        signal.setitimer(timer, 0)


def threads_known() -> tuple[int, frozenset[threading.Thread]]:
    """Of this process; the number counts those that Python's `threading` does not know as well."""
    return _thread._count(), frozenset(threading.enumerate())


def threads_left(
    before: tuple[int, frozenset[threading.Thread]], within_s: float
) -> tuple[list[str], list[str]]:
    """Threads of Python that a task left working, and those that an installed library keeps.

    Those of a pool that waits for work are neither.

    Args:
        before: what `threads_known` said before the task.
        within_s: seconds in which they may end.
    """
    deadline = time.monotonic() + within_s
    while True:
        working, kept = _left(*before)
        if not (working or kept) or time.monotonic() > deadline:
            return working, kept
        gc.collect()  # a pool that nobody holds ends its threads
        time.sleep(_TICK_S)


def _left(count: int, known: frozenset[threading.Thread]) -> tuple[list[str], list[str]]:
    if _thread._count() <= count:
        return [], []
    new = set(threading.enumerate()) - known
    kept = {thread for thread in new if is_librarys(thread)}
    kept = kept if waits(kept) else set()
    idle = {thread for thread in new if waits_in_a_pool(thread)}
    working = [thread.name for thread in new - idle - kept]
    unknown = _thread._count() - count - len(new)
    working += ["a thread without a name"] * max(unknown, 0)
    return working, [thread.name for thread in kept]


def wait_for_gpu() -> None:
    """Until all that was launched has run: its errors belong to the task that launched it.

    Raises:
        Exception: what CUDA says of it.
    """
    torch = sys.modules.get("torch")
    if torch is None or not getattr(torch.cuda, "is_initialized", lambda: False)():
        return
    torch._C._cuda_synchronize()


def free_memory() -> None:
    """Give back what the task no longer holds."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        with contextlib.suppress(Exception):  # of a dead context; the task has its error already
            torch.cuda.empty_cache()


def _state_of_torch() -> dict[str, object]:
    torch = sys.modules.get("torch")
    found: dict[str, object] = {}
    if torch is None or not hasattr(torch, "get_default_dtype"):  # half imported
        return found
    for name in _TORCH_FLAGS:
        with contextlib.suppress(AttributeError):  # not in this version
            found[f"torch.{name}"] = _flag(torch, name)
    for name in _TORCH_FUNCTIONS:
        with contextlib.suppress(AttributeError):
            found[f"torch.{name}"] = _function(attrgetter(name)(torch))
    return found


def _flag(torch: Any, name: str) -> object:
    try:
        value = attrgetter(name.removesuffix("()"))(torch)
        return value() if name.endswith("()") else value
    except RuntimeError as error:  # set through a newer switch, TF32's are not read through this
        return type(error).__name__


def _function(found: Any) -> int:
    return id(getattr(found, "__func__", found))


def _state_of_numpy() -> dict[str, object]:
    geterr = getattr(sys.modules.get("numpy"), "geterr", None)
    return {} if geterr is None else {"numpy.geterr()": geterr()}


def _file(number: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(number)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _umask() -> int:
    now = os.umask(0o77)
    os.umask(now)
    return now
