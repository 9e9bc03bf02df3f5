"""What a candidate must leave alone: global state, clocks, the checks, threads and processes."""

from __future__ import annotations

import _thread
import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from kernel_compass import library_work
from kernel_compass.records.trial import Reason
from kernel_compass.validation.process_state import more_states
from kernel_compass.validation.snapshots import (
    module_table,
    namespaces,
    of_object,
    replaced_modules,
)

_CLOCKS = (
    "time.perf_counter",
    "time.perf_counter_ns",
    "time.monotonic",
    "time.monotonic_ns",
    "time.time",
    "time.sleep",
)
_TORCH = (
    "torch.cuda.Event",
    "torch.cuda.Event.record",
    "torch.cuda.Event.elapsed_time",
    "torch.cuda.Event.synchronize",
    "torch.cuda.synchronize",
    "torch.cuda.graph",
    "torch.cuda.CUDAGraph",
    "torch.cuda.Stream",
    "torch.cuda.current_stream",
    "torch.cuda.stream",
    "torch.allclose",
    "torch.equal",
    "torch.isclose",
    "torch.isnan",
    "torch.isfinite",
    "torch.linalg.vector_norm",
    "torch.linalg.norm",
    "torch.norm",
    "torch.randn",
    "torch.rand",
    "torch.randint",
    "torch.empty",
    "torch.matmul",
    "torch.mm",
    "torch.bmm",
    "torch.Generator",
    "torch.Generator.manual_seed",
    "torch.Tensor.double",
    "torch.Tensor.to",
    "torch.Tensor.abs",
    "torch.Tensor.sum",
    "torch.Tensor.norm",
    "torch.Tensor.clone",
    "torch.Tensor.copy_",
    "torch.Tensor.__eq__",
    "torch.Tensor.__le__",
    "torch.Tensor.__lt__",
    "torch.Tensor.__gt__",
    "torch.Tensor.__ge__",
    "torch.Tensor.__sub__",
    "torch.Tensor.__truediv__",
    "torch.Tensor.all",
    "torch.Tensor.any",
    "torch.Tensor.isfinite",
    "torch.Tensor.isnan",
    "torch.Tensor.item",
    "torch.Tensor.data_ptr",
)
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
_NOT_STARTED_HERE = (threading._MainThread, threading._DummyThread)  # type: ignore[attr-defined]
_LOOKS = 3
"""Calls at each of which a library's thread has to wake until it is the candidate's: one that looks
now and then is not."""


@dataclass(frozen=True)
class Found:
    """What was found against a candidate."""

    reason: Reason
    detail: str


class Watch:
    """A picture of this process, taken before a candidate's code is loaded.

    Args:
        torch: the module.
        carve_out: bytes of L2 set aside for persisting accesses, where that can be asked.
    """

    def __init__(
        self,
        torch: Any,
        carve_out: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._torch = torch
        self._carve_out = carve_out
        _settle_pools(torch)
        self._variables = tuple(os.environ)
        self._pieces = dict(_pieces(torch))
        self._namespaces = list(namespaces(torch))
        self._modules = module_table()
        self._state = self._states()
        self._threads = _threads()
        self._nameless = _nameless()
        self._children = _children()
        library_work.attend_starts()

    def also(self, **objects: Any) -> None:
        """Objects whose attributes have to stay, by the name that reports call them."""
        for name, one in objects.items():
            self._namespaces.extend(of_object(name, one))

    def patched(self) -> Found | None:
        """A clock, a tensor operation, a check or the reference that is another one now."""
        for name, (holder, attribute, then, code) in self._pieces.items():
            now = _plain(holder, attribute)
            if now is not then or _code_of(now) is not code:
                return _patched(name)
        for one in self._namespaces:
            changed = one.changed()
            if changed:
                return _patched(changed)
        other = replaced_modules(self._modules)
        return None if other is None else _patched(other)

    def changed(self) -> Found | None:
        """Global state that is another one now; set back where that can be done."""
        now = self._states()
        for name, then in self._state.items():
            if now.get(name) != then:
                self._restore()
                return Found(Reason.CHANGES_STATE, _changed(name, then, now.get(name)))
        return None

    def running(self, patience_s: float = 1.0) -> Found | None:
        """Threads or processes that were not there before and do not end.

        Those that a library's compiler started, and that run its own code, are not the
        candidate's: see `helped`.
        """
        deadline = time.monotonic() + patience_s
        while True:
            threads = self._new_threads() - {t.native_id for t in self._librarys()}
            nameless = max(_nameless() - self._nameless, 0)
            children = {c for c in self._new_children() if not _is_compile_worker(c)}
            if not threads and not children and not nameless:
                return None
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        if threads or nameless:
            what = ", ".join(_thread_names(threads)) or "threads that nobody knows"
        else:
            what = f"{len(children)} processes"
        return Found(Reason.KEEPS_RUNNING, f"It left running when it had returned: {what}.")

    def helped(self, call: Callable[[], object]) -> Found | None:
        """Threads and processes of a compiler's that work at every call, and not once: for it.

        Args:
            call: of the candidate; all it compiles is compiled.
        """
        always: set[str] | None = None
        for _ in range(_LOOKS):
            before = self._taken()
            if not before:
                return None
            call()
            now = self._taken()
            awake = {name for name, taken in now.items() if before.get(name, 0) != taken}
            always = awake if always is None else always & awake
            if not always:
                return None
        what = ", ".join(sorted(always or ())[:4])
        return Found(Reason.KEEPS_RUNNING, f"At every call others work for it: {what}.")

    def _taken(self) -> dict[str, int]:
        """What threads and processes of libraries have taken of processors."""
        found = {f"{t.name} ({t.native_id})": library_work.cpu_time_ns(t) for t in self._librarys()}
        for pid in self._new_children():
            for one in (pid, *_children(pid)):
                found[f"process {one}"] = library_work.process_cpu_time_ns(one)
        return found

    def _librarys(self) -> list[threading.Thread]:
        new = [t for t in threading.enumerate() if t.native_id not in self._threads]
        return [t for t in new if library_work.is_compilers(t)]

    def _new_threads(self) -> set[int]:
        return {t for t in _threads() - self._threads if t not in _known_threads()}

    def _new_children(self) -> set[int]:
        return _children() - self._children

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
            torch.set_default_device(then["the default device"])
        for path in _BACKENDS:
            if f"torch.{path}" in then:
                holder, _, last = path.rpartition(".")
                setattr(_followed(torch, holder), last, then[f"torch.{path}"])


def _pieces(torch: Any) -> Iterator[tuple[str, tuple[Any, str, Any, Any]]]:
    roots = {"time": time, "torch": torch}
    for path in (*_CLOCKS, *_TORCH):
        first, _, rest = path.partition(".")
        holder_path, _, attribute = rest.rpartition(".")
        holder = _followed(roots[first], holder_path) if holder_path else roots[first]
        if holder is not None and hasattr(holder, attribute):
            piece = _plain(holder, attribute)
            yield path, (holder, attribute, piece, _code_of(piece))


def _patched(name: str) -> Found:
    return Found(Reason.PATCHED, f"{name} is not what it was before the candidate ran.")


def _plain(holder: Any, attribute: str) -> Any:
    """What is stored there, without binding it: a method looked up twice is two objects."""
    for one in getattr(holder, "__mro__", (holder,)):
        if attribute in vars(one):
            return vars(one)[attribute]
    return getattr(holder, attribute, None)


def _code_of(piece: Any) -> Any:
    return getattr(piece, "__code__", None)


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


def _settle_pools(torch: Any) -> None:
    """Let the libraries' own threads start, and torch replace parts of itself as it does."""
    import_module("torch._dynamo")
    one = torch.ones(256, 256)
    _ = (one @ one).sum().item()
    _ = torch.ones(1 << 16).sum().item()


def _threads() -> set[int]:
    try:
        return {int(entry.name) for entry in Path("/proc/self/task").iterdir()}
    except OSError:
        return {t.native_id for t in threading.enumerate() if t.native_id is not None}


def _known_threads() -> set[int]:
    """Threads of libraries' pools: they are named by their makers and wait."""
    known = set()
    for thread in _threads():
        try:
            name = Path(f"/proc/self/task/{thread}/comm").read_text().strip()
            state = Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            known.add(thread)  # it ended meanwhile
            continue
        if state in "S" and name.startswith(("pt_", "cuda", "nccl", "omp", "OMP", "jemalloc")):
            known.add(thread)
    python = {t.native_id for t in threading.enumerate() if t.native_id is not None}
    return known - python


def _nameless() -> int:
    """Threads that run Python without a `Thread`: a name of a library's hides none of them."""
    named = [t for t in threading.enumerate() if not isinstance(t, _NOT_STARTED_HERE)]
    return _thread._count() - len(named)


def _thread_names(numbers: set[int]) -> list[str]:
    known = {t.native_id: t.name for t in threading.enumerate()}
    return [known.get(number, f"thread {number}") for number in sorted(numbers)[:4]]


def _is_compile_worker(pid: int) -> bool:
    return library_work.is_compile_worker(pid, os.getpid())


def _children(of: int | str = "self") -> set[int]:
    found: set[int] = set()
    for task in Path(f"/proc/{of}/task").glob("*/children"):
        try:
            found.update(map(int, task.read_text().split()))
        except OSError:
            continue
    return found
