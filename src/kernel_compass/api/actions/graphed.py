"""A callable that is captured in a CUDA graph once for each sort of arguments, and replayed.

Of a sort, the first call runs as it is and is watched: what it writes, whether it waits for the
GPU, what it leaves in Python. Where nothing speaks against it, the second call is captured: warmed
up on a side stream with everything that a step writes put back afterwards, captured, and replayed
for its result. A sort that failed runs as it did before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, Protocol
from weakref import ref

from kernel_compass.api.actions import module_state
from kernel_compass.api.actions.step_watch import (
    Watched,
    memory_of,
    modes_active,
    torch_flags,
    watching,
)
from kernel_compass.errors import shortened
from kernel_compass.kernels.library import torch_library
from kernel_compass.records.contracts import Tensor

WARM_UP = 2
MOST_SORTS = 16
"""Graphs of one step; further sorts of arguments run as they are."""
MOST_CAPTURES = 3
"""Of one sort, because what it reads moved."""


class Graphs(Protocol):
    """What captures and replays: CUDA graphs, or a stand-in for tests."""

    device: str
    """The type of device that the step's tensors lie on."""

    def busy(self) -> bool:
        """Whether a capture is going on already."""

    def warm_up(self) -> AbstractContextManager[Any]:
        """Around calls before the capture."""

    def capture(self, call: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        """Capture a call: what replays it, and its outputs."""


@dataclass
class _Sort:
    """Arguments of one sort."""

    calls: int = 0
    captures: int = 0
    watched: Watched = field(default_factory=Watched)
    fresh: tuple[bool, ...] = ()
    """Of each tensor of the result: whether the step made it."""
    written: set[int] = field(default_factory=set)
    """Arguments that the step writes: they have to be the same tensors at every call."""
    pinned: list[Any] = field(default_factory=list)
    """Weak: the tensors of the last call."""
    copied: set[int] = field(default_factory=set)
    """Arguments that are another tensor at every call: copied in before a replay."""
    graph: _Graph | None = None
    failed: str | None = None


@dataclass
class _Graph:
    replay: Callable[[], None]
    statics: Sequence[Tensor]
    outputs: list[Any]
    spec: Any
    places: tuple[int, ...]


class Graphed:
    """The callable.

    Args:
        below: the step.
        graphs: what captures.
        modules: that the step reads, each with those in it.
        copies: whether each call gets outputs of its own; without, the next call overwrites them.
        say: told why a sort of arguments is not captured.
    """

    def __init__(
        self,
        below: Callable[..., Any],
        graphs: Graphs,
        modules: Sequence[Any],
        copies: bool,
        say: Callable[[str], None],
    ) -> None:
        self._below, self._graphs, self._modules = below, graphs, tuple(modules)
        self._copies, self._say = copies, say
        self._sorts: dict[Any, _Sort] = {}
        self._lock = threading.RLock()
        self.replays = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The step, by a replay where one holds."""
        with ExitStack() as stack:
            stack.enter_context(torch_library()._C.DisableTorchFunction())
            leaves, spec = _tree().tree_flatten((args, kwargs))
            sort, tensors = self._sort(leaves, spec)
        if sort is None or sort.failed is not None or self._graphs.busy():
            return self._below(*args, **kwargs)
        if not self._lock.acquire(blocking=False):  # a replay is one at a time
            return self._below(*args, **kwargs)
        try:
            return self._one(sort, tensors, leaves, spec, lambda: self._below(*args, **kwargs))
        finally:
            self._lock.release()

    def forget(self) -> None:
        """Let go of all graphs and their memory."""
        with self._lock:
            self._sorts.clear()

    def _sort(self, leaves: list[Any], spec: Any) -> tuple[_Sort | None, list[Tensor]]:
        torch = torch_library()
        plain = (torch.Tensor, torch.nn.Parameter)
        tensors = [one for one in leaves if isinstance(one, torch.Tensor)]
        if any(type(one) not in plain for one in tensors) or modes_active()():
            return None, tensors
        if torch.is_grad_enabled() and any(one.requires_grad for one in self._reads(tensors)):
            return None, tensors
        try:
            key = (str(spec), tuple(map(_key, leaves)), torch_flags())
            found = self._sorts.get(key)
        except TypeError:  # an argument that has no hash
            return None, tensors
        if found is None:
            if len(self._sorts) >= MOST_SORTS:
                return None, tensors
            found = self._sorts[key] = _Sort()
            found.failed = self._never(tensors)
        return found, tensors

    def _reads(self, tensors: list[Tensor]) -> list[Tensor]:
        return [*tensors, *(p for one in self._modules for p in one.parameters())]

    def _never(self, tensors: list[Tensor]) -> str | None:
        elsewhere = {one.device.type for one in tensors} - {self._graphs.device}
        if elsewhere:
            return self._told(f"an argument lies on {' and '.join(sorted(elsewhere))}")
        return None

    def _one(
        self,
        sort: _Sort,
        tensors: list[Tensor],
        leaves: list[Any],
        spec: Any,
        call: Callable[[], Any],
    ) -> Any:
        sort.calls += 1
        if sort.calls == 1:
            return self._watched(sort, tensors, call)
        graph = sort.graph
        if graph is None or not self._holds(sort, graph, tensors):
            graph = self._captured(sort, tensors, leaves, spec)
        if graph is None:
            return call()
        return self._replayed(sort, graph, tensors)

    def _watched(self, sort: _Sort, tensors: list[Tensor], call: Callable[[], Any]) -> Any:
        before = [module_state.state_of(one) for one in self._modules]
        with watching(sort.watched):
            result = call()
        objections = list(dict.fromkeys(sort.watched.objections))
        for one, was in zip(self._modules, before, strict=True):
            names = module_state.changed(was, module_state.state_of(one))
            objections += [f"it changes {name}, which a graph would not" for name in names]
        with torch_library()._C.DisableTorchFunction():
            objections += self._outputs(sort, tensors, result)
        if objections:
            sort.failed = self._told(objections[0])
        memories = {place[0] for place in sort.watched.written}
        sort.written = {at for at, one in enumerate(tensors) if memory_of(one) in memories}
        sort.pinned = [ref(one) for one in tensors]
        return result

    def _outputs(self, sort: _Sort, tensors: list[Tensor], result: Any) -> list[str]:
        """Which outputs are new, and what is wrong with one."""
        torch = torch_library()
        leaves, _ = _tree().tree_flatten(result)
        found = [one for one in leaves if isinstance(one, torch.Tensor)]
        others = {type(one).__name__ for one in leaves if not isinstance(one, torch.Tensor)}
        wrong = [f"it returns a {name}" for name in sorted(others - {"NoneType"})]
        if any(one.device.type != self._graphs.device for one in found):
            wrong.append("it returns a tensor on the CPU")
        if any(one.requires_grad for one in found):
            wrong.append("a gradient of what it returns may be asked for")
        inputs = {memory_of(one) for one in tensors}
        if any(memory_of(one) in inputs for one in found):
            wrong.append("it returns an argument, or a view of one")
        sort.fresh = tuple(memory_of(one) in sort.watched.made for one in found)
        return wrong

    def _places(self) -> tuple[int, ...]:
        return tuple(at for one in self._modules for at in module_state.fingerprint(one))

    def _holds(self, sort: _Sort, graph: _Graph, tensors: list[Tensor]) -> bool:
        """Whether what was captured reads what this call would."""
        if self._places() != graph.places:
            return False
        for at, (static, one) in enumerate(zip(graph.statics, tensors, strict=True)):
            if at not in sort.copied and static is not one:
                sort.copied.add(at)
                return False
        return True

    def _captured(
        self,
        sort: _Sort,
        tensors: list[Tensor],
        leaves: list[Any],
        spec: Any,
    ) -> _Graph | None:
        torch = torch_library()
        if sort.captures >= MOST_CAPTURES:
            sort.failed = self._told("what it reads moves at every call")
            return None
        sort.captures += 1
        sort.graph = None
        same = [one() is tensor for one, tensor in zip(sort.pinned, tensors, strict=True)]
        sort.copied |= {at for at, it_is in enumerate(same) if not it_is}
        if sort.copied & sort.written:
            sort.failed = self._told("it writes to an argument that is another one at every call")
            return None
        statics = [one.clone() if at in sort.copied else one for at, one in enumerate(tensors)]
        place = iter(statics)
        filled = [next(place) if isinstance(one, torch.Tensor) else one for one in leaves]
        args, kwargs = _tree().tree_unflatten(filled, spec)
        saved = [(one, one.clone()) for one in sort.watched.written.values()]
        random = _random_states()
        try:
            with self._graphs.warm_up():
                for _ in range(WARM_UP):
                    self._below(*args, **kwargs)
            replay, result = self._graphs.capture(lambda: self._below(*args, **kwargs))
        except Exception as error:
            reason = f"{type(error).__name__}: {shortened(str(error).splitlines()[0], 200)}"
            sort.failed = self._told(f"it cannot be captured: {reason}")
            return None
        finally:
            for one, before in saved:
                one.copy_(before)
            for restore, state in random:
                restore(state)
        outputs, result_spec = _tree().tree_flatten(result)
        sort.graph = _Graph(replay, statics, outputs, result_spec, self._places())
        return sort.graph

    def _replayed(self, sort: _Sort, graph: _Graph, tensors: list[Tensor]) -> Any:
        torch = torch_library()
        with torch._C.DisableTorchFunction(), torch.no_grad():
            for at in sort.copied:
                graph.statics[at].copy_(tensors[at])
        graph.replay()
        self.replays += 1
        with torch._C.DisableTorchFunction(), torch.no_grad():
            found = list(graph.outputs)
            if self._copies:
                fresh = iter(sort.fresh)
                found = [
                    one.clone() if isinstance(one, torch.Tensor) and next(fresh, True) else one
                    for one in found
                ]
        return _tree().tree_unflatten(found, graph.spec)

    def _told(self, why: str) -> str:
        self._say(why)
        return why


class CudaGraphs:
    """torch's CUDA graphs."""

    device = "cuda"

    def busy(self) -> bool:
        """Whether the program captures a graph of its own."""
        return bool(torch_library().cuda.is_current_stream_capturing())

    def warm_up(self) -> AbstractContextManager[Any]:
        """On a side stream, as capturing asks for."""
        return _SideStream()

    def capture(self, call: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        """In a memory pool of its own; other threads may go on using the GPU."""
        torch = torch_library()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            result = call()
        return graph.replay, result


class _SideStream(AbstractContextManager[None]):
    def __enter__(self) -> None:
        cuda = torch_library().cuda
        self._stack = ExitStack()
        self._side = _side_stream(cuda.current_device())
        self._side.wait_stream(cuda.current_stream())
        self._stack.enter_context(cuda.stream(self._side))

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        torch_library().cuda.current_stream().wait_stream(self._side)


@cache
def _side_stream(device: int) -> Any:
    """One for all: cuBLAS keeps a workspace for every stream that it was used on."""
    return torch_library().cuda.Stream(device)


def _random_states() -> list[tuple[Callable[[Any], None], Any]]:
    torch = torch_library()
    found = [(torch.set_rng_state, torch.get_rng_state())]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        found.append((torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
    return found


def _key(leaf: Any) -> Any:
    torch = torch_library()
    if isinstance(leaf, torch.Tensor):
        inference = leaf.is_inference()
        return (tuple(leaf.shape), leaf.stride(), leaf.dtype, leaf.device, inference)
    hash(leaf)
    return (type(leaf), leaf)


def _tree() -> Any:
    return import_module("torch.utils._pytree")
