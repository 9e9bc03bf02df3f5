"""A held step's calls, recorded and timed: what a capture is made of, in the program's process."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from kernel_compass import __version__
from kernel_compass.analysis.step_shares import workload_of
from kernel_compass.errors import ProfilingCause, ProfilingError, shortened
from kernel_compass.profiling.step_held import HeldStep
from kernel_compass.profiling.step_recording import Recording
from kernel_compass.profiling.step_running import silenced
from kernel_compass.records.device import Device
from kernel_compass.records.environment import Environment
from kernel_compass.records.step_capture import (
    NotHandled,
    RegionKind,
    StepCapture,
    StepLaunch,
    StepOp,
    StepTensor,
)

TIMED = 20
"""Calls that are timed at most."""
TIMED_S = 5.0
"""And for how long at most."""
LEAST = 3
TRACED = 5
"""Calls under the profiler, without anything of ours in them."""
RANGE = "kernel_compass_step"
"""The step under ncu; a start/end range, which holds for all threads (autograd's too)."""
TIMES, MARKS = "times.json", "marks.json"
"""Traces: of the step as it is, and of the step with a range around every operator."""


_WHY_UNVERSIONED = (
    "torch counts no changes of it, so what is packed of it could go stale unseen: its product "
    "stays torch's; make the weights outside of torch.inference_mode()"
)


@dataclass(frozen=True)
class Times:
    """Of the step, called again and again."""

    step_us: float | None
    steps: int


def captured(step: HeldStep, program: str, folder: Path) -> StepCapture:
    """The step's capture without its kernels; traces for those lie in the folder, on a GPU.

    Raises:
        ProfilingError: the step fails.
    """
    torch = step.torch
    on_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
    recorder = step.recorder()
    with silenced():
        step.reset()
        second = recorder.record(step.call)
        step.reset()
        times = _timed_on_gpu(step) if on_gpu else _timed_on_cpu(step)
        if on_gpu:
            _trace(step, folder)
        inside = _inside(step, second)
    constant = _constants(step, step.first, second)
    differs = _differences(step.first, second)
    ops = tuple(_with_constants(op, constant) for op in second.ops)
    known = {**constant, **inside.constant}
    hidden = tuple(_with_constants(op, known) for op in inside.ops)
    modules = _classes(step)  # their files are the step's
    lost = [*step.not_handled, *second.not_handled, *differs, *_unversioned([*ops, *hidden])]
    notes = [*step.notes, *inside.notes]
    if not on_gpu:
        notes.append("no GPU was used: operators and lines, but no kernels and no times of them")
    return StepCapture(
        program=program,
        step=step.name,
        environment=environment(torch, on_gpu),
        ops=ops,
        launches=tuple(_launch_with_constants(one, constant) for one in second.launches),
        regions=tuple(second.regions),
        inside=hidden,
        steps=times.steps,
        step_us=times.step_us,
        in_graph=step.graph is not None or any(r.kind == "graph" for r in second.regions),
        not_handled=tuple(dict.fromkeys(lost)),
        notes=tuple(notes),
        files=dict(step.files),
        packages=dict(step.packages),
        modules=modules,
    )


@dataclass(frozen=True)
class _Inside:
    """What compiled regions compute."""

    ops: tuple[StepOp, ...] = ()
    constant: Mapping[int, int | None] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def _inside(step: HeldStep, second: Recording) -> _Inside:
    """Their operators, by a call without compiling; nothing where nothing is compiled."""
    compiled = {one.index for one in second.regions if one.kind is RegionKind.COMPILED}
    if not compiled:
        return _Inside()
    calls, why = step.inside()
    if not calls:
        text = shortened(why, 200)
        return _Inside(notes=(f"what its compiled regions compute is not known: {text}",))
    first, found = calls
    if found.regions != second.regions:
        return _Inside(notes=("without compiling it runs other regions: they stay closed",))
    ops = tuple(op for op in found.ops if op.region in compiled)
    kept = _constants(step, first, found)
    return _Inside(ops, {at: kept[at] for at in kept.keys() - second.written})


def _classes(step: HeldStep) -> dict[str, str]:
    """The class of each module, where it is one of the user's: torch's own are no targets."""
    found = {}
    for name, module in step.modules.items():
        code = getattr(getattr(type(module), "forward", None), "__code__", None)
        line = None if code is None else step.lines.of_frame(code.co_filename, 0, "")
        if line is not None:
            found[name] = f"{line.file}:{type(module).__qualname__}"
    return found


def _constants(step: HeldStep, first: Recording, second: Recording) -> dict[int, int | None]:
    """Storages that both calls found with the same contents, and that neither wrote, each with
    its version."""
    written = first.written | second.written
    return {
        storage: version
        for storage, version in second.read_first.items()
        if storage not in written
        and first.read_first.get(storage, -1) == version
        and storage not in _inputs(step)
    }


def _inputs(step: HeldStep) -> set[int]:
    """Storages of what the step is given: another call is given something else."""
    torch = step.torch
    parameters = {
        step.storages.number(one) for module in step.modules.values() for one in module.parameters()
    }
    given = [*step.args, *step.kwargs.values()]
    found: set[int] = set()
    while given:
        one = given.pop()
        if isinstance(one, torch.Tensor):
            found.add(step.storages.number(one))
        elif isinstance(one, list | tuple):
            given += one
        elif isinstance(one, dict):
            given += one.values()
    return found - parameters


def _with_constants(op: StepOp, constant: Mapping[int, int | None]) -> StepOp:
    return replace(
        op,
        inputs=tuple(_marked(one, constant) for one in op.inputs),
        outputs=tuple(_marked(one, constant) for one in op.outputs),
    )


def _launch_with_constants(launch: StepLaunch, constant: Mapping[int, int | None]) -> StepLaunch:
    found = {
        name: _marked(value, constant) if isinstance(value, StepTensor) else value
        for name, value in launch.arguments.items()
    }
    return replace(launch, arguments=found)


def _marked(tensor: StepTensor, constant: Mapping[int, int | None]) -> StepTensor:
    if tensor.storage not in constant:
        return tensor
    return replace(tensor, constant=True, unversioned=constant[tensor.storage] is None)


def _unversioned(ops: Sequence[StepOp]) -> list[NotHandled]:
    """Products whose weight may change unseen: nothing that was made of it can be kept."""
    found = []
    for op in ops:
        weight = op.inputs[-1] if op.inputs and workload_of(op) is not None else None
        if weight is not None and weight.unversioned:
            what = f"weight {weight.name or list(weight.shape)} made in inference mode"
            found.append(NotHandled(what, _WHY_UNVERSIONED, op.line))
    return found


def _differences(first: Recording, second: Recording) -> list[NotHandled]:
    """Where two calls with the same inputs were not the same: state in Python, or random paths."""
    one, other = first.signature, second.signature
    if one == other:
        return []
    at = next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )
    ops = second.ops if at < len(second.ops) else first.ops
    line = ops[min(at, len(ops) - 1)].line if ops else None
    same_ops = [name for name, *_ in one] == [name for name, *_ in other]
    what = "dynamic shapes between steps" if same_ops else "other operators at every step"
    why = (
        "called twice with the same inputs, the step did not do the same: it keeps state in Python "
        "or decides at random; what is here is the second call's"
    )
    return [NotHandled(what, why, line)]


def _timed_on_cpu(step: HeldStep) -> Times:
    taken: list[float] = []
    end = time.monotonic() + TIMED_S
    while len(taken) < TIMED and (len(taken) < LEAST or time.monotonic() < end):
        start = time.perf_counter()
        step.call()
        taken.append((time.perf_counter() - start) * 1e6)
    step.reset()
    return Times(median(taken), len(taken))


def _timed_on_gpu(step: HeldStep) -> Times:
    """Calls one after the other, an event between them; of a graph its replays."""
    torch = step.torch
    call: Callable[[], Any] = step.call if step.graph is None else step.graph.replay
    for _ in range(LEAST):
        call()
    torch.cuda.synchronize()
    start = time.monotonic()
    call()
    torch.cuda.synchronize()
    one_s = max(time.monotonic() - start, 1e-6)
    count = max(LEAST, min(TIMED, int(TIMED_S / one_s)))
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    for event in events[:-1]:
        event.record()
        call()
    events[-1].record()
    torch.cuda.synchronize()
    taken = [a.elapsed_time(b) * 1e3 for a, b in pairwise(events)]
    step.reset()
    return Times(median(taken), count)


def _trace(step: HeldStep, folder: Path) -> None:
    """The two traces; a step is what lies in a range `kc:N:`."""
    torch = step.torch
    activity = torch.profiler.ProfilerActivity
    both = [activity.CPU, activity.CUDA]
    mark = torch.autograd.profiler.record_function
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=both) as profiler:
        for number in range(TRACED):
            step.reset()
            with mark(f"kc:{number}:"):
                step.call()
        torch.cuda.synchronize()
    profiler.export_chrome_trace(str(folder / TIMES))
    recorder = step.recorder()
    step.reset()
    with torch.profiler.profile(activities=both, record_shapes=True) as profiler:
        with mark("kc:0:"):
            recorder.record(step.call, ranges="kc:0:")
        torch.cuda.synchronize()
    profiler.export_chrome_trace(str(folder / MARKS))
    step.reset()


def counted(step: HeldStep) -> None:
    """One step, in a range that ncu knows by its name, whatever thread launches in it.

    Raises:
        ProfilingError: the program used no GPU.
    """
    torch = step.torch
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        raise ProfilingError(
            ProfilingCause.NOTHING_PROFILED,
            "The program used no GPU.",
            "Counters are those of GPUs: capture it without --ncu.",
        )
    call: Callable[[], Any] = step.call if step.graph is None else step.graph.replay
    with silenced():
        for _ in range(LEAST):
            step.reset()
            call()
        step.reset()
        torch.cuda.synchronize()
        number = torch.cuda.nvtx.range_start(RANGE)
        try:
            call()
            torch.cuda.synchronize()
        finally:
            torch.cuda.nvtx.range_end(number)
        step.reset()


def environment(torch: Any, on_gpu: bool) -> Environment:
    """GPU, versions, now."""
    device = Device()
    if on_gpu:
        p = torch.cuda.get_device_properties(torch.cuda.current_device())
        device = Device(
            p.name, f"{p.major}.{p.minor}", p.multi_processor_count, int(p.L2_cache_size)
        )
    return Environment(
        device=device,
        torch=str(torch.__version__),
        triton=_version("triton"),
        python=platform.python_version(),
        kernel_compass=__version__,
        date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
