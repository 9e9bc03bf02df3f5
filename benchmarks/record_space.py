"""Measure every configuration of `own_decode` for a shape: recorded spaces that search is tried on.

    python benchmarks/record_space.py --folder benchmarks/results/h200/spaces \
        --shapes bmm:128x64x128x512:w8a16_fp8 [--more registers,split] [--minutes 9]
    python benchmarks/record_space.py --shapes ... --list      how many configurations, nothing run

Every configuration is compiled first (in parallel; its static figures are recorded), checked
against float64 on a poisoned output, and timed warm and cold by the slope between graph replays of
n and of 2n launches, as `decode_search.py` does. The recording is written as it goes and gone on
with when it is called again; what failed is recorded with the reason.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from kernel_compass.api.static_pruning import StaticRequest, compile_space, limits_of
from kernel_compass.codec import recorded_space as codec
from kernel_compass.errors import UsageError
from kernel_compass.kernels.decode import configuration, legal, space
from kernel_compass.optimizer.search.prune import Compiled, Dropped, features, prune
from kernel_compass.records.contracts import Config
from kernel_compass.records.environment import Environment
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.recorded_space import PointFailure, RecordedPoint, RecordedSpace
from kernel_compass.records.workload import Op, Workload

IMPLEMENTATION = "own_decode"
HOPPER = (9, 0)
EVERY_S = 10.0
"""How much time of a recording a kill may cost."""
GATE = 2.5e-3
"""Relative Frobenius error against float64 on the same operands."""
LAUNCHES, REPLAYS, FEW_REPLAYS = 64, 5, 2
SLOW = 3.0
"""Times the best so far: a slower one is timed by fewer replays of as many launches."""
METHOD = (
    "slope between CUDA-graph replays of 64 and of 128 launches, median of 5 (of 2 where the first "
    "says three times the best), queue primed by a product of 2048^2; cold rotates as many copies "
    "of the packed weights as there are launches, at most 1 GiB"
)
MORE = ("registers", "split", "load", "store")


class Measurer(Protocol):
    """Times one configuration; raises what went wrong."""

    def environment(self) -> Environment: ...

    def measure(self, config: Config) -> tuple[float, float, float]:
        """Warm and cold microseconds, and the error; raises `Wrong` where the result is."""


class Wrong(Exception):
    """The result is outside the gate; the argument is the error."""


@dataclass(frozen=True)
class Plan:
    """One recording."""

    workload: Workload
    format: NumberFormat
    configs: tuple[Config, ...]

    @property
    def file_name(self) -> str:
        w = self.workload
        sizes = "x".join(map(str, (w.heads, w.tokens, w.reduction, w.columns)))
        return f"{w.op.value}_{sizes}_{self.format.name}.json.gz"


def plan_of(text: str, more: Sequence[str] = ()) -> Plan:
    """`bmm:HxMxKxN:FORMAT` or `linear:MxNxK:FORMAT`."""
    try:
        op, sizes, name = text.split(":")
        numbers = [int(n) for n in sizes.split("x")]
        if op == "linear":
            tokens, columns, reduction = numbers
            numbers = [1, tokens, reduction, columns]
        workload = Workload(Op(op), *numbers)
    except (ValueError, TypeError):
        raise UsageError(
            f"{text!r} is no shape.", "Write bmm:HxMxKxN:FORMAT or linear:MxNxK:FORMAT."
        ) from None
    number_format = NumberFormat.parse(name)
    return Plan(workload, number_format, tuple(enumerated(workload, number_format, more)))


def enumerated(workload: Workload, f: NumberFormat, more: Sequence[str]) -> Iterator[Config]:
    """The implementation's space, and further dimensions of it where asked for."""
    base = space(workload, f, hopper=True)
    found = list(base)
    if "split" in more:
        found += [
            replace(c, split=split)
            for c in base
            if c.kernel == "wgmma" and c.tiles == 1
            for split in (2, 4, 8)
        ]
    if "registers" in more:
        found += [
            replace(c, registers=most)
            for c in list(found)
            if c.kernel == "wgmma"
            for most in (96, 128, 168)
            if most * 32 * c.warps <= 65536
        ]
    if "load" in more:
        found += [replace(c, load="cg") for c in list(found) if c.kernel != "plain"]
    if "store" in more:
        found += [replace(c, store="evict_first") for c in list(found) if c.kernel != "plain"]
    kept = [c for c in dict.fromkeys(found) if legal(c, workload, f)]
    return (c.as_config() for c in kept)


def record(
    plan: Plan,
    file: Path,
    measurer: Callable[[], Measurer],
    compiled: Sequence[Compiled],
    until: float = float("inf"),
    say: Callable[[str], None] = print,
) -> RecordedSpace:
    """Measure what a recording lacks, and write it; the recording as far as it came.

    Args:
        plan: what is measured.
        file: the recording; gone on with where it is one of this plan.
        measurer: made when there is something to measure.
        compiled: of each configuration.
        until: `time.monotonic()` after which nothing is begun.
        say: told a line now and then.
    """
    before = codec.read(file) if file.exists() else None
    known = _known(plan, file, before)
    points: dict[int, RecordedPoint] = {}
    for index, config in enumerate(plan.configs):
        if _key(config) in known:
            points[index] = known[_key(config)]
    verdicts = prune(compiled, [str(c["kernel"]) for c in plan.configs], limits_of(HOPPER))
    for index, verdict in enumerate(verdicts):
        if index not in points and verdict.dropped in _NEVER_RUNS:
            points[index] = RecordedPoint(
                plan.configs[index], failure=PointFailure.COMPILE, detail=verdict.detail,
                static=compiled[index].figures or {},
            )  # fmt: skip
    left = [i for i in range(len(plan.configs)) if i not in points]
    device = measurer() if left or before is None else None
    environment = before.environment if before else device.environment()  # type: ignore[union-attr]
    if device is not None and before is not None:
        _same_machine(file, before.environment, device.environment())

    def so_far() -> RecordedSpace:
        done = tuple(points[i] for i in sorted(points))
        return RecordedSpace(
            plan.workload, plan.format, IMPLEMENTATION, environment, done, METHOD, len(plan.configs)
        )

    begin = written = time.monotonic()
    try:
        for count, index in enumerate(left, 1):
            if time.monotonic() >= until:
                say(f"{file.name}: time is up, {len(left) - count + 1} configurations are left")
                break
            assert device is not None
            static = features(compiled[index], limits_of(HOPPER)) or {}
            points[index] = point = measured(device, plan.configs[index], static)
            if any(words in (point.detail or "") for words in CONTEXT_LOST):
                raise ContextLost(f"{point.detail}: call again, it goes on after this one")
            if time.monotonic() - written >= EVERY_S:
                codec.write(file, so_far())
                written = time.monotonic()
                each = (written - begin) / count
                say(f"{file.name}: {count} of {len(left)}, {each:.2f} s each")
    finally:
        codec.write(file, so_far())
    return so_far()


CONTEXT_LOST = ("illegal", "unspecified launch failure", "misaligned")
"""In what CUDA says: nothing runs in this process any more."""


class ContextLost(Exception):
    """A configuration took the process's CUDA context with it; it is recorded as failed."""


_NEVER_RUNS = frozenset(
    (Dropped.DOES_NOT_COMPILE, Dropped.SHARED_MEMORY, Dropped.REGISTERS, Dropped.THREADS)
)


def measured(device: Measurer, config: Config, static: Mapping[str, float]) -> RecordedPoint:
    """A point, or why it has no times."""
    try:
        warm, cold, error = device.measure(config)
    except Wrong as wrong:
        return RecordedPoint(
            config, failure=PointFailure.WRONG, detail=f"error {wrong}", static=static
        )
    except Exception as failure:
        words = f"{type(failure).__name__}: {' '.join(str(failure).split())[:200]}"
        return RecordedPoint(config, failure=PointFailure.LAUNCH, detail=words, static=static)
    return RecordedPoint(config, warm, cold, error=error, static=static)


def _known(plan: Plan, file: Path, before: RecordedSpace | None) -> dict[Any, RecordedPoint]:
    if before is None:
        return {}
    if (before.workload, before.format) != (plan.workload, plan.format):
        raise UsageError(f"{file} is a recording of another shape.", "Name another --folder.")
    return {_key(point.config): point for point in before.points}


def _same_machine(file: Path, before: Environment, now: Environment) -> None:
    pairs = [(before.device.name, now.device.name), (before.triton, now.triton)]
    if any(a != b for a, b in pairs):
        raise UsageError(
            f"{file} was begun on {before.device.name} with Triton {before.triton}.",
            f"This is {now.device.name} with Triton {now.triton}: name another --folder.",
        )


def _key(config: Config) -> tuple[tuple[str, object], ...]:
    return tuple(sorted(config.items()))


class OnGpu:
    """The measurer of a machine with a GPU."""

    def __init__(self, plan: Plan) -> None:
        import torch
        from decode_search import GIB, weight_of

        from kernel_compass.kernels.fragments import pack

        w = plan.workload
        self.workload, self.format = w, plan.format
        torch.manual_seed(0)
        weight, values = weight_of(w, plan.format.name)
        self.a = torch.randn(w.heads, w.tokens, w.reduction, device="cuda").to(torch.bfloat16)
        self.out = torch.empty(w.heads, w.tokens, w.columns, device="cuda", dtype=torch.bfloat16)
        if w.weights < 1 << 27:
            self.reference = torch.bmm(self.a.double(), values.double())
        else:
            self.reference = torch.bmm(self.a.float(), values).double()
        self.norm = self.reference.norm()
        self.packed = pack(weight)
        size = sum(t.numel() * t.element_size() for t in self.packed.streamed)
        count = max(2, min(LAUNCHES, GIB // size))
        if count * size < 8 * (60 << 20):
            print(f"cold rotates {count * size >> 20} MiB only: it may be warm", flush=True)
        clones = [tuple(t.clone() for t in self.packed.streamed) for _ in range(count - 1)]
        self.sets = [self.packed.streamed, *clones]
        self.best = [float("inf")] * 2
        self.primer = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)

    def environment(self) -> Environment:
        from kernel_compass.measurement.torch_device import TorchDevice

        return TorchDevice().environment()

    def measure(self, config: Config) -> tuple[float, float, float]:
        import torch
        from decode_search import fill

        from kernel_compass.kernels.decode import counters_of, launch
        from kernel_compass.kernels.fragments import PackedWeight

        c, w = configuration(config), self.workload
        self.out.fill_(float("nan"))
        counters = counters_of(self.packed, c)
        launch(self.packed, self.a, self.out, c, counters=counters)
        torch.cuda.synchronize()
        error = ((self.out - self.reference).norm() / self.norm).item()
        if not error < GATE:
            raise Wrong(error)
        sizes = (self.format, w.heads, w.reduction, w.columns)
        views = [PackedWeight(*sizes, *fill(s)) for s in self.sets]
        calls = [
            partial(launch, v, self.a, self.out, c, counters=counters)
            for v in (self.packed, *views)
        ]
        times = []
        for which, mine in enumerate((calls[:1], calls[1:])):
            times.append(slope(mine, self.primer, SLOW * self.best[which]))
            self.best[which] = min(self.best[which], times[-1])
        return times[0], times[1], error


def slope(calls: Sequence[Callable[[], object]], primer: Any, slow: float) -> float:
    """Microseconds a launch; of one that takes more than `slow`, by fewer replays."""
    import torch

    graphs = []
    for n in (LAUNCHES, 2 * LAUNCHES):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(torch.cuda.Stream()):  # without torch.cuda.graph's collection
            graph.capture_begin()
            for i in range(n):
                calls[i % len(calls)]()
            graph.capture_end()
        graph.replay()
        graphs.append(graph)
    torch.cuda.synchronize()
    times: list[list[float]] = [[], []]
    for done in range(REPLAYS):
        for k, graph in enumerate(graphs):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.mm(primer, primer)
            start.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            times[k].append(start.elapsed_time(end) * 1e3)
        found = (median(times[1]) - median(times[0])) / LAUNCHES
        if done + 1 >= FEW_REPLAYS and found > slow:
            break
    if not found > 0:
        raise RuntimeError(f"the slope is {found} us")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", required=True, help="separated by commas")
    parser.add_argument("--folder", type=Path, default=Path("benchmarks/results/h200/spaces"))
    parser.add_argument("--more", default="", help=f"of {', '.join(MORE)}")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin nothing after that")
    parser.add_argument("--processes", type=int, default=max((os.cpu_count() or 2) - 1, 1))
    parser.add_argument("--statics", type=Path, help="folder of what was compiled before")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--compile-only", action="store_true")
    args = parser.parse_args(arguments)
    until = time.monotonic() + 60 * args.minutes
    more = [word for word in args.more.split(",") if word]
    if set(more) - set(MORE):
        parser.error(f"--more takes {', '.join(MORE)}")
    try:
        plans = [plan_of(text, more) for text in args.shapes.split(",")]
        for plan in plans:
            print(f"{plan.file_name}: {len(plan.configs)} configurations", flush=True)
            if not args.list:
                _record(plan, args, until)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _record(plan: Plan, args: argparse.Namespace, until: float) -> None:
    begin = time.monotonic()
    compiled = compile_space(
        StaticRequest(IMPLEMENTATION, plan.workload, plan.format, HOPPER),
        plan.configs,
        processes=args.processes,
        timeout_s=120,
        folder=args.statics,
    )
    failed = sum(c.figures is None for c in compiled)
    took = time.monotonic() - begin
    print(f"compiled in {took:.0f} s, {failed} cannot be", flush=True)
    if args.compile_only:
        return
    say = partial(print, flush=True)
    done = record(plan, args.folder / plan.file_name, lambda: OnGpu(plan), compiled, until, say)
    print(summary(done), flush=True)


def summary(done: RecordedSpace) -> str:
    """How many points, and how many are near the best in each regime."""
    warm = [p.warm_us for p in done.points if p.warm_us is not None]
    cold = [p.cold_us for p in done.points if p.cold_us is not None]
    words = [f"{len(done.points)} of {done.total} points, {len(warm)} with times"]
    for name, times in (("warm", warm), ("cold", cold)):
        if times:
            share = sum(t <= 1.03 * min(times) for t in times)
            words.append(f"{name} best {min(times):.2f} us, {share} within 3 %")
    return "; ".join(words)


if __name__ == "__main__":
    raise SystemExit(main())
