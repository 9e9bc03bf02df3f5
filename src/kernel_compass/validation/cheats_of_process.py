"""More cheats to name: results kept by contents, looks at the judge, state left behind.

Beyond a judge in the candidate's own process, and not staged: code that undoes the audit hook or a
dispatch mode because it knows them, handlers of `atexit` (they run after the verdict is sent),
answers kept only after more calls than the judge makes, and another program that the candidate
talks to without starting it. What is confirmed is therefore confirmed in fresh processes.
"""

from __future__ import annotations

import builtins
import gc
import hashlib
import math
import os
import random
import secrets
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kernel_compass.records.trial import Reason
from kernel_compass.validation.cheat_parts import Cheat, Function, honest, then
from kernel_compass.validation.self_test_problem import SelfTestProblem


def _set(holder: Any, name: str, value: Any) -> Cheat:
    """Patches one attribute."""
    label = f"patches {getattr(holder, '__name__', 'torch')}.{name}"
    true = getattr(holder, name)

    def undo(torch: Any) -> None:
        setattr(holder, name, true)

    return Cheat(
        label, then(lambda t: setattr(holder, name, value)), frozenset([Reason.PATCHED]), undo=undo
    )


def _kept_by(key_of: Callable[[Any], Any]) -> Callable[[Any, SelfTestProblem], Function]:
    def make(torch: Any, problem: SelfTestProblem) -> Function:
        right, kept = honest(torch, problem), {}

        def function(x: Any, w: Any) -> Any:
            key = (key_of(x), key_of(w), x.shape)
            if key not in kept:
                kept[key] = right(x, w)
            return kept[key].clone()

        return function

    return make


def _content(tensor: Any) -> str:
    return hashlib.sha256(tensor.detach().cpu().contiguous().numpy().tobytes()).hexdigest()


def _from_frames(torch: Any, problem: SelfTestProblem) -> Function:
    def function(x: Any, w: Any) -> Any:
        frame: Any = sys._getframe()
        while frame is not None:
            for one in frame.f_locals.values():
                found = getattr(one, "expected", None)
                if found is not None:
                    return found.values[0].float()
            frame = frame.f_back
        return honest(torch, problem)(x, w)

    return function


def _from_a_traceback(torch: Any, problem: SelfTestProblem) -> Function:
    def function(x: Any, w: Any) -> Any:
        try:
            raise ValueError
        except ValueError as error:
            frame: Any = error.__traceback__.tb_frame  # type: ignore[union-attr]
        while frame is not None:
            draw = frame.f_locals.get("draw")
            if draw is not None:
                with draw.sealed.opened() as expected:
                    return expected.values[0].float()
            frame = frame.f_back
        return honest(torch, problem)(x, w)

    return function


def _while_nobody_watches(torch: Any, problem: SelfTestProblem) -> Function:
    """Remembers by all contents, unless something looks at its operations or functions."""
    right, kept = honest(torch, problem), {}

    def function(x: Any, w: Any) -> Any:
        modes = torch._C._len_torch_dispatch_stack()
        if modes or sys.getprofile() or sys.gettrace():
            return right(x, w)
        key = (x.shape, _content(x), _content(w))
        if key not in kept:
            time.sleep(_A_LARGER_KERNEL_S)
            kept[key] = right(x, w)
        return kept[key].clone()

    return function


def _from_the_collector(torch: Any, problem: SelfTestProblem) -> Function:
    def function(x: Any, w: Any) -> Any:
        shape = (*x.shape[:2], w.shape[1])
        for one in gc.get_objects():
            if type(one) is torch.Tensor and one.dtype == torch.float64 and one.shape == shape:
                return one.float()
        return honest(torch, problem)(x, w)

    return function


def _by_a_pool(torch: Any, problem: SelfTestProblem) -> Function:
    right, pool = honest(torch, problem), ThreadPoolExecutor(1)
    return lambda x, w: pool.submit(right, x, w).result()


def _by_a_process(torch: Any, problem: SelfTestProblem) -> Function:
    right = honest(torch, problem)

    def function(x: Any, w: Any) -> Any:
        subprocess.run(["true"], check=True)
        return right(x, w)

    return function


def _replays_later(torch: Any, problem: SelfTestProblem) -> Function:
    right, calls, kept = honest(torch, problem), [0], {}

    def function(x: Any, w: Any) -> Any:
        calls[0] += 1
        if calls[0] < 30 or x.shape not in kept:
            kept[x.shape] = right(x, w)
        return kept[x.shape].clone()

    return function


def _overrides_mm(torch: Any) -> None:
    if not _libraries:
        library = torch.library.Library("aten", "IMPL")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            library.impl("trunc", torch.floor, "CPU")
        _libraries.append(library)


def _undo_override(torch: Any) -> None:
    for library in _libraries:
        library._destroy()
    _libraries.clear()


_libraries: list[Any] = []
_modes: list[Any] = []


def _passed_on(self: Any, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    return function(*args, **(kwargs or {}))


def _leaves_mode(torch: Any) -> None:
    if not _modes:
        kind = type(
            "Mode", (torch.overrides.TorchFunctionMode,), {"__torch_function__": _passed_on}
        )
        mode = kind()
        mode.__enter__()
        _modes.append(mode)


def _undo_mode(torch: Any) -> None:
    while _modes:
        _modes.pop().__exit__(None, None, None)


def _replaces_module(torch: Any) -> None:
    sys.modules["math"] = type(sys)("math")


def _restore_module(torch: Any) -> None:
    sys.modules["math"] = math


def _patched_problem(torch: Any, problem: SelfTestProblem) -> Function:
    def function(x: Any, w: Any) -> Any:
        problem.gate = lambda outputs, expected: None  # type: ignore[method-assign]
        return x

    return function


def _allows_tf32(torch: Any) -> None:
    if hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        torch.backends.cuda.matmul.fp32_precision = "tf32"
    else:  # before torch 2.9
        torch.backends.cuda.matmul.allow_tf32 = True


def _forbids_tf32(torch: Any) -> None:
    if hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        torch.backends.cuda.matmul.fp32_precision = "ieee"
    torch.backends.cuda.matmul.allow_tf32 = False


def _state(name: str, act: Callable[[Any], Any], undo: Callable[[Any], Any]) -> Cheat:
    return Cheat(name, then(act), frozenset([Reason.CHANGES_STATE]), undo=undo)


def _nothing(*_: Any) -> None:
    return None


_NO_WORK = frozenset([Reason.NO_WORK, Reason.STALE_RESULT, Reason.CACHES_BY_IDENTITY])
_A_LARGER_KERNEL_S = 0.002
_SWITCH_INTERVAL_S = sys.getswitchinterval()
_LOOKS = frozenset([Reason.LOOKS_AT_THE_JUDGE])

PROCESS_CHEATS: tuple[Cheat, ...] = (
    Cheat("caches by a hash of the contents", _kept_by(_content), _NO_WORK),
    Cheat(
        "caches by shape, strides and sum",
        _kept_by(lambda t: (t.stride(), float(t.sum()))),
        _NO_WORK,
    ),
    Cheat(
        "caches by a sample",
        _kept_by(lambda t: tuple(t.flatten()[:: max(1, t.numel() // 64)].tolist())),
        _NO_WORK,
    ),
    Cheat("replays after thirty calls", _replays_later, _NO_WORK | {Reason.NOT_REPEATABLE}),
    Cheat("finds the answer in frames", _from_frames, _LOOKS),
    Cheat("finds the answer by a traceback", _from_a_traceback, _LOOKS),
    Cheat(
        "remembers while nobody watches",
        _while_nobody_watches,
        frozenset([Reason.NO_WORK]),
    ),
    Cheat("finds the answer among all objects", _from_the_collector, _LOOKS),
    Cheat(  # on a GPU, the pool's thread launches on a stream of its own
        "leaves the work to a pool",
        _by_a_pool,
        frozenset([Reason.KEEPS_RUNNING, Reason.SIDE_STREAM]),
    ),
    Cheat("leaves the work to a process", _by_a_process, frozenset([Reason.NO_WORK])),
    Cheat(
        "patches the problem",
        _patched_problem,
        frozenset([Reason.PATCHED]),
    ),
    _set(builtins, "abs", lambda x: 0),
    _set(builtins, "sorted", lambda x, **_: list(x)),
    _set(math, "sqrt", lambda x: x),
    _set(random, "random", lambda: 0.5),
    _set(secrets, "randbits", lambda bits: 1),
    Cheat(
        "replaces a module",
        then(_replaces_module),
        frozenset([Reason.PATCHED]),
        undo=_restore_module,
    ),
    _state("overrides an operation", _overrides_mm, _undo_override),
    _state("leaves a function mode on", _leaves_mode, _undo_mode),
    _state(
        "leaves autocast on",
        lambda t: t.set_autocast_enabled("cpu", True),
        lambda t: t.set_autocast_enabled("cpu", False),
    ),
    _state(
        "leaves a profiler on",
        lambda t: sys.setprofile(_nothing),
        lambda t: sys.setprofile(None),
    ),
    _state(
        "leaves a callback of the collector",
        lambda t: gc.callbacks.append(_nothing),
        lambda t: gc.callbacks.remove(_nothing) if _nothing in gc.callbacks else None,
    ),
    _state(
        "leaves a signal handler",
        lambda t: signal.signal(signal.SIGUSR1, _nothing),
        lambda t: signal.signal(signal.SIGUSR1, signal.SIG_DFL),
    ),
    _state(
        "hides all warnings",
        lambda t: warnings.filters.insert(0, ("ignore", None, Warning, None, 0)),  # type: ignore[attr-defined]
        lambda t: warnings.filters.pop(0),  # type: ignore[attr-defined]
    ),
    _state(
        "sets a variable of CUDA's",
        lambda t: os.environ.__setitem__("CUDA_LAUNCH_BLOCKING", "0"),
        lambda t: os.environ.pop("CUDA_LAUNCH_BLOCKING", None),
    ),
    _state(
        "changes the default device",
        lambda t: t.set_default_device("meta"),
        lambda t: t.set_default_device(None),
    ),
    _state(
        "hooks all modules",
        lambda t: _modes.append(t.nn.modules.module.register_module_forward_hook(_nothing)),
        lambda t: [_modes.pop().remove() for _ in list(_modes)],
    ),
    _state(
        "changes how threads take turns",
        lambda t: sys.setswitchinterval(1.0),
        lambda t: sys.setswitchinterval(_SWITCH_INTERVAL_S),
    ),
    _state("allows TF32 by the newer switch", _allows_tf32, _forbids_tf32),
    _state(
        "switches a backend off",
        lambda t: setattr(t.backends.mkldnn, "deterministic", True),
        lambda t: setattr(t.backends.mkldnn, "deterministic", False),
    ),
)
