"""Switches of torch and of this process that outlive a candidate: as they were, and set back."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernel_compass.validation.process_state import more_states

_FLAGS: tuple[tuple[str, str], ...] = (
    ("the default dtype", "get_default_dtype"),
    ("the default device", "get_default_device"),
    ("float32 matmul precision", "get_float32_matmul_precision"),
    ("the number of threads", "get_num_threads"),
    ("deterministic algorithms", "are_deterministic_algorithms_enabled"),
    ("grad mode", "is_grad_enabled"),
    ("inference mode", "is_inference_mode_enabled"),
)
_BACKENDS = (
    "backends.cuda.matmul.allow_tf32",
    "backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
    "backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
    "backends.cudnn.allow_tf32",
    "backends.cudnn.enabled",
    "backends.cudnn.benchmark",
    "backends.cudnn.deterministic",
)
_RECURSION_LIMIT = 2000
"""Inductor raises it up to here at its first compilation, and so may anything."""


_OF_LIBRARIES = frozenset(["_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"])
"""Variables by which Inductor tells its compiled code an address: of each process another, and
inherited from one that compiled before."""


class Switches:
    """All states by the name that reports call them, when this was made.

    Args:
        torch: the module.
        carve_out: bytes of L2 set aside for persisting accesses, where that can be asked.
    """

    def __init__(self, torch: Any, carve_out: Callable[[], int | None]) -> None:
        self._torch = torch
        self._carve_out = carve_out
        self._variables = tuple(name for name in os.environ if name not in _OF_LIBRARIES)
        self._state = self._states()

    def changed(self) -> str | None:
        """What is another one now, in a sentence; set back where that can be done."""
        now = self._states()
        for name, then in self._state.items():
            if now.get(name) != then:
                self._restore()
                return _changed(name, then, now.get(name))
        return None

    def _states(self) -> dict[str, Any]:
        torch = self._torch
        found: dict[str, Any] = {}
        for name, function in _FLAGS:
            if hasattr(torch, function):
                found[name] = _read(torch, function, call=True)
        for path in _BACKENDS:
            value = _read(torch, path)
            if value is not None:
                found[f"torch.{path}"] = value
        found["denormal flushing"] = _flushes(torch)
        found["the default generator's seed"] = torch.initial_seed()
        for name in self._variables:
            found[f"the variable {name}"] = os.environ.get(name)
        found["the working directory"] = _cwd()
        found["the recursion limit"] = max(sys.getrecursionlimit(), _RECURSION_LIMIT)
        found["garbage collection"] = gc.isenabled()
        found["tracing"] = (sys.gettrace(), sys.getprofile())
        found["the L2 carve-out"] = self._carve_out()
        found.update(more_states(torch))
        return found

    def _restore(self) -> None:
        torch, then = self._torch, self._state
        torch.set_default_dtype(then["the default dtype"])
        torch.set_float32_matmul_precision(then["float32 matmul precision"])
        torch.set_num_threads(then["the number of threads"])
        torch.use_deterministic_algorithms(then["deterministic algorithms"])
        torch.set_grad_enabled(then["grad mode"])
        torch.set_flush_denormal(then["denormal flushing"])
        if "the default device" in then:
            device = then["the default device"]  # the CPU is what is there without one
            torch.set_default_device(None if device == torch.device("cpu") else device)
        for path in _BACKENDS:
            if f"torch.{path}" in then:
                holder, _, last = path.rpartition(".")
                setattr(_followed(torch, holder), last, then[f"torch.{path}"])


def _followed(root: Any, path: str) -> Any:
    for name in path.split("."):
        root = getattr(root, name, None)
    return root


def _read(torch: Any, path: str, call: bool = False) -> Any:
    """A switch; torch refuses to read one that was set through its newer name."""
    try:
        found = _followed(torch, path)
        return found() if call else found
    except RuntimeError:
        return "unreadable"


def _changed(name: str, then: Any, now: Any) -> str:
    """In a sentence; states that have no short text are not told apart by one."""
    before, after = _text(then), _text(now)
    how = f" from {before} to {after}" if before != after else ""
    return f"It changed {name}{how}, for all that runs after it."


def _text(value: Any) -> str:
    if isinstance(value, bool | float | str | None) or (
        isinstance(value, int) and abs(value) < 1 << 31
    ):
        return str(value)
    return str(value) if type(value).__module__ == "torch" else "another state"


def _cwd() -> str | None:
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return None


def _flushes(torch: Any) -> bool:
    """Whether this thread's arithmetic flushes denormals: asked by an addition."""
    tiny = torch.tensor(1e-40, dtype=torch.float32, device="cpu")
    return bool((tiny * 1.0).item() == 0.0)
