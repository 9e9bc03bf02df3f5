"""Kernels and libraries over the shapes that matter, each ratio and floor from one run.

    python benchmarks/kernels_bench.py --output FILE.json [--sections mla,gate,linear]
        [--formats bf16,w8a16_fp8,w4a16_gk] [--implementations own_decode,gemlite_w8a16]
        [--time-limit S] [--compile | --compile-only] [--jobs 12]

Sections: `mla`, both reconstruction products at 16, 32 and 128 heads; `gate`, H = K = 128 across
L2's capacity; `linear`, dense projections of Llama-8B and DeepSeek-V3. Every kernel is checked
against float64, then timed warm and cold beside cuBLAS bf16 and a kernel that streams the same
bytes, all with the same number of launches. FILE is written as rows come in, and the same command
goes on from it. `--compile` first launches and checks every kernel once, in parallel processes:
Triton's cache on disk is then warm, and the device idles less while it is measured.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_compass.api.kernel_requests import Item, TableRequest
from kernel_compass.cli.table_file import TableFile
from kernel_compass.codec.kernel_table import merged
from kernel_compass.errors import (
    KernelCompassError,
    MeasurementCause,
    MeasurementError,
    UsageError,
)
from kernel_compass.measurement.timing import TimingOptions
from kernel_compass.records.kernel_table import BASELINE, KernelRow, RowStatus
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import Op, Workload
from kernel_compass.report.formats import Format

if TYPE_CHECKING:
    from kernel_compass.api.kernels import OpenTable

FORMATS = "bf16,w8a16_fp8,w8a16_int8,w4a16_gk"
TUNED_IN_PROCESS = ("gemlite",)
"""Providers whose tuning a process forgets; what they compiled for it is kept, so they are launched
ahead only where they are asked for by name."""
WRITE_EVERY_S = 0.5
"""Writing the file takes milliseconds in which the GPU idles."""
LINEARS = (
    (6144, 4096),
    (4096, 4096),
    (28672, 4096),
    (4096, 14336),
    (2112, 7168),
    (24576, 1536),
    (7168, 16384),
)
"""N, K: Llama-8B's qkv, o, gate_up, down; DeepSeek-V3's qkv_a, q_b, o."""


def bmm(heads: int, k: int, n: int, name: str | None = None) -> Workload:
    return Workload(Op.BMM, heads, 1, k, n, name)


SHAPES: dict[str, tuple[tuple[Workload, ...], tuple[int, ...]]] = {
    "mla": (
        tuple(
            shape
            for heads in (16, 32, 128)
            for shape in (bmm(heads, 128, 512, "q_absorb"), bmm(heads, 512, 128, "v_up"))
        ),
        (1, 4, 16, 64),
    ),
    "gate": (tuple(bmm(128, 128, n) for n in (512, 1024, 2048, 4096)), (1, 16, 64)),
    "linear": (tuple(Workload(Op.LINEAR, 1, 1, k, n) for n, k in LINEARS), (1, 4, 16, 64)),
}


@dataclass(frozen=True)
class Plan:
    """What the command line asks for."""

    sections: tuple[str, ...]
    formats: tuple[NumberFormat, ...]
    implementations: tuple[str, ...] | None
    tokens: tuple[int, ...] | None
    regimes: tuple[Regime, ...]
    options: TimingOptions
    floor_activations: bool
    """Whether floors read the activations too."""

    def items(self, section: str) -> tuple[Item, ...]:
        shapes, batches = SHAPES[section]
        wanted = self.tokens or batches
        return tuple(Item(replace(s, tokens=m)) for s in shapes for m in wanted)

    def request(self, section: str) -> TableRequest:
        return TableRequest(self.items(section), self.formats, self.regimes, self.implementations)

    def jobs(self) -> list[TableRequest]:
        """Parts that can be compiled apart: a shape in a format; the baseline compiles nothing."""
        made = []
        for section in self.sections:
            items = self.items(section)
            for shape in dict.fromkeys(replace(i.workload, tokens=1) for i in items):
                own = tuple(i for i in items if replace(i.workload, tokens=1) == shape)
                made += [
                    TableRequest(own, (one,), self.regimes, self.implementations)
                    for one in self.formats
                ]
        return made


def main(argv: Sequence[str] | None = None) -> int:
    plan, args = parsed(argv)
    started = time.monotonic()
    left = (lambda: math.inf) if args.time_limit is None else _clock(started, args.time_limit)
    file = TableFile(args.output, Format.JSON)
    from kernel_compass.api.kernels import open_table

    check_device(args.device)
    if args.compile or args.compile_only:
        compile_all(plan, args.jobs, left)
        if args.compile_only:
            return 0

    def opened(section: str, known: Iterable[KernelRow]) -> OpenTable:
        return open_table(
            plan.request(section),
            device=args.device,
            known=known,
            options=plan.options,
            streamed_floors=True,
            floor_activations=plan.floor_activations,
        )

    rows = measure_sections(plan.sections, opened, file, left, args.again)
    print("\n".join(summary(rows)))
    return 0 if any(r.status is RowStatus.MEASURED for r in rows) else 1


def check_device(index: int) -> None:
    """One message where there is no GPU, before any process is started for it.

    Raises:
        MissingDependency: torch is not installed.
        MeasurementError: there is no GPU of this index.
    """
    from kernel_compass.measurement.torch_device import TorchDevice

    try:
        TorchDevice(index)
    except MeasurementError as error:
        if error.cause is not MeasurementCause.NO_GPU:
            raise
        remedy = "Run this where PyTorch sees the GPU: kernels are compiled for it and timed on it."
        raise MeasurementError(error.cause, error.found, remedy) from None


def measure_sections(
    sections: Sequence[str],
    opened: Callable[[str, Iterable[KernelRow]], OpenTable],
    file: TableFile,
    left: Callable[[], float],
    again: bool = False,
) -> list[KernelRow]:
    """Measure until all is done or no time is left; the file is never a second behind."""
    rows: list[KernelRow] = []
    written = 0.0
    for section in sections:
        table = opened(section, () if again else file.rows)
        rows += table.run.kept
        begin, first = time.monotonic(), len(rows)
        print(f"{section}: {table.run.total} kernels to measure", flush=True)
        try:
            for row in table.rows():
                rows.append(row)
                now = time.monotonic()
                print(line_of(row, (now - begin) / (len(rows) - first)), flush=True)
                if now - written >= WRITE_EVERY_S:
                    file.write(table.table(rows), rows)
                    written = now
                if left() <= 0:
                    print("stopped: the time limit is reached; the same command goes on")
                    return rows
        finally:
            file.write(table.table(rows), rows)
    return rows


def parsed(argv: Sequence[str] | None) -> tuple[Plan, argparse.Namespace]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, help="FILE.json")
    parser.add_argument("--sections", default="mla,gate,linear")
    parser.add_argument("--formats", default=FORMATS)
    parser.add_argument("--implementations", help="default: all that can")
    parser.add_argument("--tokens", help="instead of the section's own, e.g. 1,16")
    parser.add_argument("--regimes", default="warm,cold")
    parser.add_argument("--samples", type=int, default=9)
    parser.add_argument("--rotation-mib", type=int, default=512, help="at least 8 x L2 is taken")
    parser.add_argument("--time-limit", type=float, metavar="S")
    parser.add_argument("--compile", action="store_true", help="compile in parallel first")
    parser.add_argument("--compile-only", action="store_true")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    parser.add_argument("--floor-without-activations", action="store_true")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--again", action="store_true", help="measure also what FILE holds")
    args = parser.parse_args(argv)
    special = args.output.exists() and not args.output.is_file()
    if args.output.suffix.lower() != ".json" and not special:
        parser.error(f"--output {args.output} must be a .json file: it is read again to go on")
    sections = words(args.sections)
    unknown = [name for name in sections if name not in SHAPES]
    if unknown:
        parser.error(f"there is no section {unknown[0]!r}; there are {', '.join(SHAPES)}")
    try:
        plan = Plan(
            sections,
            tuple(NumberFormat.parse(name) for name in words(args.formats)),
            words(args.implementations) if args.implementations else None,
            tuple(map(int, words(args.tokens))) if args.tokens else None,
            tuple(Regime(name) for name in words(args.regimes)),
            TimingOptions(
                samples=args.samples,
                rotation_bytes=args.rotation_mib << 20,
                settle_us=2_000.0,
                check=False,
            ),
            not args.floor_without_activations,
        )
        for section in sections:
            plan.request(section)
    except (UsageError, ValueError) as error:
        parser.error(str(error))
    return plan, args


def words(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(w.strip() for w in text.split(",") if w.strip()))


def _clock(started: float, limit_s: float) -> Callable[[], float]:
    return lambda: limit_s - (time.monotonic() - started)


def compile_all(plan: Plan, jobs: int, left: Callable[[], float]) -> None:
    """Launch and check everything once, in processes of their own; says what failed."""
    work, begin = plan.jobs(), time.monotonic()
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        futures = {
            pool.submit(compile_part, part, plan.options, plan.floor_activations): part
            for part in work
        }
        for done, future in enumerate(as_completed(futures), 1):
            part = futures[future]
            what = f"{part.items[0].workload.shape_text} {part.formats[0].name}"
            try:
                launched, failed, seconds = future.result()
            except Exception as error:  # a process that died costs its part alone
                launched, failed, seconds = 0, [f"{what}: {error!r}"], 0.0
            spent = time.monotonic() - begin
            print(
                f"compiled {done}/{len(work)} in {spent:.0f} s: {what}, {launched} kernels "
                f"({seconds:.1f} s)",
                flush=True,
            )
            for text in failed:
                print(f"  ! {text}", flush=True)
            if left() <= 0:
                pool.shutdown(wait=False, cancel_futures=True)
                print("compiling stopped: no time is left")
                return


def compile_part(
    part: TableRequest, options: TimingOptions, floor_activations: bool
) -> tuple[int, list[str], float]:
    from kernel_compass.api.kernel_cells import Bench
    from kernel_compass.api.kernel_operands import TorchOperands
    from kernel_compass.api.kernel_tables import TableRun
    from kernel_compass.api.kernels import packed_shape
    from kernel_compass.kernels.providers import registry
    from kernel_compass.measurement.floors import StreamingFloors
    from kernel_compass.measurement.torch_device import TorchDevice

    begin = time.monotonic()
    device = TorchDevice()
    small = replace(options, rotation_bytes=64 << 20)
    floors = StreamingFloors(device, small)
    for item in part.items:
        floors.compile(packed_shape(item.workload, part.formats[0], floor_activations))
    names = tuple(
        one.name
        for one in registry.all_implementations()
        if (
            one.provider not in TUNED_IN_PROCESS
            if part.implementations is None
            else one.name in part.implementations
        )
    )
    part = replace(part, implementations=names)
    run = TableRun(part, Bench(device, TorchOperands("cuda:0"), registry))
    named, failed = run.marked(lambda _: nullcontext(), 1)
    device.release()
    return len(named), failed, time.monotonic() - begin


def line_of(row: KernelRow, seconds: float) -> str:
    what = f"{row.workload.name or ''} {row.workload.shape_text}".strip()
    head = f"{what:34} {row.format.name:12} {row.implementation or '-':18} {row.regime.value:4}"
    if row.time_us is None:
        return f"{head} {row.status.value}: {row.reason}"
    speedup = f"{row.speedup:.2f}x" if row.speedup else "-"
    room = f"{row.headroom:.2f}" if row.headroom else "-"
    return (
        f"{head} {row.time_us:8.2f} us  {speedup:>6}  floor x {room}  "
        f"error {row.format_error_pct or 0:.2f} %  ({seconds:.2f} s a row)"
    )


def summary(rows: Iterable[KernelRow]) -> Iterator[str]:
    """A line a section, regime, format and kernel: geometric means, and the farthest from the
    floor; then every cell's ratios."""
    timed = [row for row in merged((), rows) if row.time_us is not None]
    yield ""
    yield "x bf16 and time/floor: geometric means; worst: the farthest from its floor"
    groups: dict[tuple[str, str, str, str], list[KernelRow]] = {}
    for row in timed:
        key = (section_of(row.workload), row.regime.value, row.format.name, row.implementation)
        groups.setdefault(key, []).append(row)
    for key, group in groups.items():
        ratios = [row.speedup for row in group if row.speedup]
        rooms = [row for row in group if row.headroom]
        worst = max(rooms, key=lambda row: row.headroom, default=None)
        at = f"worst {worst.headroom:.2f} at {worst.workload.shape_text}" if worst else ""
        yield (
            f"{key[0]:7} {key[1]:4} {key[2]:13} {key[3]:18} {len(group):3} cells  "
            f"x {geomean(ratios)}  floor x {geomean([r.headroom for r in rooms])}  {at}"
        )
    yield ""
    yield "x bf16 (time/floor) a cell"
    for regime in (Regime.WARM, Regime.COLD):
        yield from _cells([row for row in timed if row.regime is regime], regime)


def _cells(rows: Sequence[KernelRow], regime: Regime) -> Iterator[str]:
    kernels = list(
        dict.fromkeys((r.format.name, r.implementation) for r in rows if not _is_base(r))
    )
    if not rows:
        return
    yield f"{regime.value}: bf16 us | " + " | ".join(f"{f} {i}" for f, i in kernels)
    shapes: dict[Workload, dict[tuple[str, str | None], KernelRow]] = {}
    for row in rows:
        shapes.setdefault(row.workload, {})[row.format.name, row.implementation] = row
    for workload, cells in shapes.items():
        base = cells.get(("bf16", BASELINE))
        first = f"{base.time_us:8.2f}" if base else "       -"
        parts = [_ratio(cells.get(kernel)) for kernel in kernels]
        yield f"{workload.shape_text:26} {first} | " + " | ".join(parts)


def _ratio(row: KernelRow | None) -> str:
    if row is None:
        return "-"
    room = f"{row.headroom:.2f}" if row.headroom else "-"
    return f"{row.speedup:.2f} ({room})" if row.speedup else f"{row.time_us:.2f} us"


def _is_base(row: KernelRow) -> bool:
    return row.implementation == BASELINE and row.format.name == "bf16"


def section_of(workload: Workload) -> str:
    if workload.op is Op.LINEAR:
        return "linear"
    return "mla" if workload.name else "gate"


def geomean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value]
    if not known:
        return "   -"
    return f"{math.exp(sum(map(math.log, known)) / len(known)):.2f}"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KernelCompassError as error:
        sys.exit(f"error: {error}")
