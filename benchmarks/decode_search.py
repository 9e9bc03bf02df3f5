"""Time configurations of the decode kernels on every shape that matters, to choose the table from.

    python benchmarks/decode_search.py --output FILE.json [--sections gate,mla,linear] [--limit S]

Each configuration is checked against float64 on a poisoned output first. Times are slopes between
replays of n and 2n launches, warm and rotated over 1 GiB; they rank configurations, and are not
results: `kernels_bench.py` measures the chosen ones again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from kernel_compass.kernels.decode import (
    DecodeConfig,
    configuration,
    counters_of,
    launch,
    legal,
)
from kernel_compass.kernels.fragments import PackedWeight, pack, padded
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.records.number_format import Code, NumberFormat
from kernel_compass.records.workload import Op, Workload

GIB = 1 << 30
LAUNCHES = 128
REPLAYS = 5
LINEAR = (
    (6144, 4096),
    (4096, 4096),
    (28672, 4096),
    (4096, 14336),
    (2112, 7168),
    (24576, 1536),
    (7168, 16384),
)


def cells(section: str, formats: list[str]) -> Iterator[tuple[Workload, str]]:
    """Shapes of a section."""
    if section == "gate":
        for n, m, f in product((512, 1024, 2048, 4096), (1, 16, 64), formats):
            yield Workload(Op.BMM, 128, m, 128, n), f
    if section == "mla":
        shapes = ((128, 512), (512, 128))
        for h, (k, n), m, f in product((128, 32, 16), shapes, (1, 16, 64), formats):
            if (h, n) != (128, 512) or f == "bf16":
                yield Workload(Op.BMM, h, m, k, n), f
    if section == "linear":
        for (n, k), m, f in product(LINEAR, (1, 16, 64), formats):
            yield Workload(Op.LINEAR, 1, m, k, n), f


def candidates(w: Workload, f: NumberFormat) -> list[DecodeConfig]:
    """A coarse part of the space."""
    found: list[DecodeConfig] = []
    mp_ = min(64, max(8, 1 << (w.tokens - 1).bit_length()))
    run = 2 if f.weight is Code.INT4 else 1
    tiles = (1, 2, 4) if w.columns < 2048 else (1, 4, 8)
    shapes = ((1, 1), (1, 4), (2, 1), (2, 4)) if run == 1 else ((2, 1), (2, 4), (4, 1), (4, 4))
    if w.reduction <= 128:
        for (r, wn), t, hold in product(shapes, tiles, (False, True)):
            if r * wn > 1 or f.weight.bits == 16:
                found.append(DecodeConfig("mma", r, wn, 1, 1, 128, mp_, t, hold=hold))
        found += [DecodeConfig("mma", run, 4, 1, 2, 64, mp_, 1)]
        found += [DecodeConfig("mma", run, 2, 2, 1, 64, mp_, 1, hold=True)]
    else:
        small = w.reduction <= 1024
        shapes = ((1, 1), (1, 2), (2, 1), (2, 2)) if small else ((1, 1), (2, 1), (1, 2))
        wks = (1, 2, 4) if small else (2, 4, 8, 16)
        for (r, wn), wk, ks in product(shapes, wks, (1, 2, 4)):
            rows = 64 if mp_ > 16 else 128
            once = wk * ks * rows >= w.reduction
            for hold in (False, True) if once and small else (once,):
                found.append(DecodeConfig("mma", r, wn, wk, ks, rows, mp_, 1, hold=hold))
    if w.tokens > 4:
        for r, wn, t, rows in product((1, 2), (4, 8), tiles, (128, 512)):
            found.append(DecodeConfig("wgmma", r, wn, rows=rows, tokens=max(mp_, 16), tiles=t))
    found = [c for c in found if legal(c, w, f)]
    return [c for c in found if sensible(c, w, f)]


def near(w: Workload, f: NumberFormat, name: str, before: list[dict[str, Any]], top: int) -> Any:
    """The best of an earlier search and what stands beside them; all if there is none."""
    shape = [w.op.value, w.heads, w.tokens, w.reduction, w.columns]
    rows = [r for r in before if r["workload"] == shape and r["format"] == name]
    rows.sort(key=lambda r: r["warm_us"] * r["cold_us"])
    found = [configuration(r["config"]) for r in rows[:top]] or candidates(w, f)
    if w.op is Op.LINEAR:
        found += deeper(w, f)
        found += [replace(c, load="cg") for c in found[:2]]
    else:
        found += warpgroups(w, f)
        stores = [replace(c, store="evict_first") for c in found[:2]]
        found += [*stores, *(replace(c, load="evict_first") for c in stores if big(w))]
    run = 2 if f.weight is Code.INT4 else 1
    if w.tokens >= 64 and w.op is Op.BMM:  # for the invariant variant, which has no wgmma
        wk = 1 if w.reduction <= 128 else 4
        for r, t, tiles in product((run, 2 * run), (16, 32), (1, 4) if wk == 1 else (1,)):
            found.append(DecodeConfig("mma", r, 4 // wk, wk, 1, 128, t, tiles))
    return [c for c in dict.fromkeys(found) if legal(c, w, f)]


def big(w: Workload) -> bool:
    """Whether neither 8-bit weights nor outputs stay in L2 for the next launch."""
    return w.weights >= 32 << 20


def warpgroups(w: Workload, f: NumberFormat) -> Iterator[DecodeConfig]:
    """The warpgroup kernel, tokens of a program down to a quarter."""
    if w.tokens <= 4 or w.reduction > 1024:
        return
    sizes = [t for t in (16, 32, 64) if t < 2 * max(w.tokens, 16)][-2:]
    fragments = (2,) if f.weight is Code.INT4 else (1, 2)
    if w.reduction <= 128:
        tiles = (1, 2, 4) if w.columns < 2048 else (1, 4, 8)
        for r, wn, t, m in product(fragments, (4, 8), tiles, sizes):
            found = DecodeConfig("wgmma", r, wn, rows=128, tokens=m, tiles=t)
            yield found
            if m == 64 and t > 1:
                yield replace(found, registers=128 if r == 1 else 168)
    else:
        for r, wn, rows, m in product(fragments, (4, 8), (64, 128), sizes):
            yield DecodeConfig("wgmma", r, wn, rows=rows, tokens=m)
        for r, wn, wk, rows, m in product(fragments, (1, 2), (4, 8), (64, 128), (16, 32)):
            if wk * rows == 512 and w.heads * m <= 1024:
                yield DecodeConfig("mma", r, wn, wk, 1, rows, m)
                yield DecodeConfig("mma", r, wn, wk, 1, rows, m, hold=True)


def deeper(w: Workload, f: NumberFormat) -> Iterator[DecodeConfig]:
    """More of K in flight; tokens that warps share; programs that share K."""
    run = 2 if f.weight is Code.INT4 else 1
    m = min(64, max(8, 1 << (w.tokens - 1).bit_length()))
    if w.tokens <= 4:
        for r, wk, ahead in product((run, 2 * run), (4, 8, 16), (1, 2, 3)):
            yield DecodeConfig("mma", r, 1, wk, 1, 128, m, ahead=ahead)
    steps = -(-w.reduction // 128)
    for r, wn in ((run, 4), (run, 8), (2 * run, 4)):
        tiles = -(-w.columns // (16 * r * wn))
        for split in (1, 2, 3, 4, 8, 16):
            fill = tiles * split * wn / 4 / 132
            least, most = (0.9, 4.5) if split > 1 else (0.7, 99)
            if least <= fill <= most and split * 2 <= steps:
                yield DecodeConfig("wgmma", r, wn, rows=128, tokens=max(m, 8), split=split)


def sensible(c: DecodeConfig, w: Workload, f: NumberFormat) -> bool:
    """Enough programs and warps to fill the card at all."""
    fragments = -(-w.columns // 16) * w.heads
    programs = -(-fragments // (c.fragments * c.warps_n * c.tiles))
    warps = programs * c.warps
    least = min(fragments // (4 if w.tokens < 64 else 8), 264)
    per_sm = warps / 132
    if f.weight is Code.INT4 and c.fragments == 4 and w.tokens > 8:
        return False
    if c.kernel == "mma" and w.tokens >= 64 and w.op is Op.BMM:
        return False
    return programs >= min(least, 100) and (per_sm < 200 or c.tiles > 1 or w.tokens < 16)


def weight_of(w: Workload, name: str) -> tuple[QuantizedWeight, Any]:
    """Random codes and scales on the GPU, and their float32 values."""
    import torch

    f = NumberFormat.parse(name)
    shape, dev = (w.heads, w.reduction, w.columns), "cuda"
    full = torch.randn(shape, device=dev) / w.reduction**0.5
    if f.weight.bits == 16:
        codes = full.to(torch.bfloat16)
        return QuantizedWeight(f, codes, None), codes.float()
    top = {Code.FP8: 448.0, Code.INT8: 127.0, Code.INT4: 7.0}[f.weight]
    group = f.group or w.reduction
    amax = full.abs().unflatten(1, (-1, group)).amax(2)
    scales = (amax / top).to(torch.bfloat16)
    wide = scales.float().repeat_interleave(group, 1)
    if f.weight is Code.FP8:
        codes = (full / wide).clamp(-448, 448).to(torch.float8_e4m3fn)
        return QuantizedWeight(f, codes, scales), codes.float() * wide
    rounded = (full / wide).round()
    if f.weight is Code.INT8:
        codes = rounded.clamp(-127, 127).to(torch.int8)
        return QuantizedWeight(f, codes, scales), codes.float() * wide
    codes = (rounded.clamp(-8, 7) + 8).to(torch.uint8)
    return QuantizedWeight(f, codes, scales), (codes.float() - 8) * wide


def slope(calls: list[Callable[[], Any]], big: Any) -> float:
    """Microseconds a launch."""
    import torch

    calls[0]()
    torch.cuda.synchronize()
    graphs = []
    for n in (LAUNCHES, 2 * LAUNCHES):
        g = torch.cuda.CUDAGraph()
        with torch.cuda.stream(torch.cuda.Stream()):  # without torch.cuda.graph's collection
            g.capture_begin()
            for i in range(n):
                calls[i % len(calls)]()
            g.capture_end()
        g.replay()
        graphs.append(g)
    torch.cuda.synchronize()
    times: list[list[float]] = [[], []]
    for _ in range(REPLAYS):
        for k, g in enumerate(graphs):
            a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.mm(big, big)
            a.record()
            g.replay()
            b.record()
            torch.cuda.synchronize()
            times[k].append(a.elapsed_time(b) * 1e3)
    return (median(times[1]) - median(times[0])) / LAUNCHES


def copies(tensors: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Sets that total 1 GiB."""
    size = sum(t.numel() * t.element_size() for t in tensors)
    count = max(2, min(LAUNCHES, GIB // size))
    return [tensors] + [tuple(t.clone() for t in tensors) for _ in range(count - 1)]


def precompile(job: tuple[str, dict[str, Any], tuple[int, int, int, int]]) -> str | None:
    """Compile one configuration into the cache on disk, in a process of its own."""
    import torch
    from triton.runtime.jit import MockTensor

    name, config, (h, m, k, n) = job
    f = NumberFormat.parse(name)

    class Mock(MockTensor):  # what `launch` asks of a tensor
        def __init__(self, dtype: Any, *shape: int):
            super().__init__(dtype)
            self.shape = shape
            self.dims = shape
            self.device = "meta"

        def stride(self, d: int) -> int:
            size = 1
            for s in self.dims[d + 1 :]:
                size *= s
            return size

        def numel(self) -> int:
            return 1

        def view(self, dtype: Any) -> Mock:
            return Mock(dtype, *self.dims[:-1], self.dims[-1] // 2)

    rows, columns = padded(f.weight, k, n)
    chunk = 256 // f.weight.bits
    words = Mock(torch.int32, h, columns // 16, rows // chunk, 32, 4)
    scales = None if f.weight.bits == 16 else Mock(torch.bfloat16, h, f.groups(k), n)
    packed = PackedWeight(f, h, k, n, words, scales, None)
    a, out = Mock(torch.bfloat16, h, m, k), Mock(torch.bfloat16, h, m, n)
    try:
        given = configuration(config)
        launch(packed, a, out, given, counters=Mock(torch.int32, 1), warmup=True)
    except Exception as error:
        return f"{name} {config}: {type(error).__name__} {str(error)[:300]}"
    return None


def compile_all(jobs: list[Any]) -> None:
    begin = time.time()
    unique = {json.dumps([j[0], j[1], key(j)]): j for j in jobs}
    with ProcessPoolExecutor(15, mp_context=mp.get_context("spawn")) as pool:
        for said in pool.map(precompile, unique.values(), chunksize=2):
            if said:
                print("COMPILE", said, flush=True)
    print(f"compiled {len(unique)} in {time.time() - begin:.0f} s", flush=True)


def key(job: Any) -> Any:
    """What a kernel is compiled for beside its configuration."""
    _, config, (_, _, k, n) = job
    c = configuration(config)
    return [k <= c.depth, k % c.depth == 0, n % 16 == 0]


def search(
    w: Workload,
    name: str,
    wanted_: list[DecodeConfig],
    until: float,
    rows: list[dict[str, Any]],
    big: Any,
) -> None:
    import torch

    f = NumberFormat.parse(name)
    weight, values = weight_of(w, name)
    a = torch.randn(w.heads, w.tokens, w.reduction, device="cuda").to(torch.bfloat16)
    out = torch.empty(w.heads, w.tokens, w.columns, device="cuda", dtype=torch.bfloat16)
    reference = torch.bmm(a.double(), values.double()) if w.weights < 1 << 27 else None
    if reference is None:
        reference = torch.bmm(a.float(), values).double()
    packed = pack(weight)
    sets = copies(packed.streamed)
    found = []
    for c in wanted_:
        if time.time() > until:
            break
        try:
            out.fill_(float("nan"))
            counters = counters_of(packed, c)
            launch(packed, a, out, c, counters=counters)
            torch.cuda.synchronize()
            error = ((out - reference).norm() / reference.norm()).item()
            if not error < 2.5e-3:
                print("WRONG", w.shape_text, name, c, error, flush=True)
                continue
            views = [PackedWeight(f, w.heads, w.reduction, w.columns, *fill(s)) for s in sets]
            calls = [partial(launch, v, a, out, c, counters=counters) for v in (packed, *views)]
            warm, cold = slope(calls[:1], big), slope(calls[1:], big)
        except Exception as failure:
            print("FAIL", w.shape_text, name, c, type(failure).__name__, str(failure)[:200])
            continue
        found.append((warm, cold, c))
        rows.append(
            {"workload": [w.op.value, w.heads, w.tokens, w.reduction, w.columns], "format": name}
            | {"config": dict(c.as_config()), "warm_us": warm, "cold_us": cold, "error": error}
        )
    found.sort(key=lambda r: r[0] * r[1])
    for warm, cold, c in found[:2]:
        print(f"   {name:10s} {warm:6.2f} {cold:6.2f}  {short(c)}", flush=True)
    for label, index in (("warm", 0), ("cold", 1)):
        best = min(found, key=lambda r: r[index], default=None)
        if best:
            print(f"     {label} {best[0]:6.2f} {best[1]:6.2f}  {short(best[2])}")


def fill(s: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*s, *([None] * (3 - len(s))))


def short(c: DecodeConfig) -> str:
    text = f"{c.kernel} R{c.fragments} WN{c.warps_n} WK{c.warps_k} KS{c.chains} rows{c.rows}"
    more = [word for word in (c.load, c.store and f"store {c.store}") if word]
    more += [f"ahead{c.ahead}"] * (c.ahead > 1) + [f"split{c.split}"] * (c.split > 1)
    more += [f"registers{c.registers}"] * (c.registers > 0) + ["hold"] * c.hold
    return " ".join((f"{text} MP{c.tokens} T{c.tiles}", *more))


def baseline(w: Workload, big: Any) -> str:
    import torch

    a = torch.randn(w.heads, w.tokens, w.reduction, device="cuda").to(torch.bfloat16)
    weight = torch.randn(w.heads, w.reduction, w.columns, device="cuda").to(torch.bfloat16)
    if w.op is Op.LINEAR:
        weight = torch.randn(1, w.columns, w.reduction, device="cuda").to(torch.bfloat16)
        weight = weight.transpose(1, 2)
    out = torch.empty(w.heads, w.tokens, w.columns, device="cuda", dtype=torch.bfloat16)
    if w.op is Op.LINEAR:

        def run(x: Any) -> Any:
            return torch.mm(a[0], x[0], out=out[0])
    else:

        def run(x: Any) -> Any:
            return torch.bmm(a, x, out=out)

    sets = copies((weight,))
    warm = slope([lambda: run(weight)], big)
    return f"cublas {warm:6.2f} {slope([lambda s=s: run(s[0]) for s in sets], big):6.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--sections", default="gate,mla,linear")
    parser.add_argument("--formats", default="w8a16_fp8,w4a16_gk,bf16")
    parser.add_argument("--limit", type=float, default=400)
    parser.add_argument("--near", type=Path, help="an earlier search: its best, and beside them")
    parser.add_argument("--top", type=int, default=5)
    parser.add_argument("--least-tokens", type=int, default=1)
    parser.add_argument(
        "--only", help="shapes as they are printed, e.g. 16x64x512x128,1x24576x1536"
    )
    parser.add_argument("--compile-only", action="store_true")
    args = parser.parse_args()
    import torch

    before = json.loads(args.near.read_text()) if args.near else []
    sections = args.sections.split(",")
    plan = [c for s in sections for c in cells(s, args.formats.split(","))]
    plan = [(w, f) for w, f in plan if wanted(w, f) and w.tokens >= args.least_tokens]
    if args.only:
        plan = [(w, f) for w, f in plan if w.shape_text.split()[1] in args.only.split(",")]
    shapes = [(w, f, (w.heads, w.tokens, w.reduction, w.columns)) for w, f in plan]
    compile_all(
        [
            (f, dict(c.as_config()), shape)
            for w, f, shape in shapes
            for c in near(w, NumberFormat.parse(f), f, before, args.top)
        ]
    )
    if args.compile_only:
        return
    until = time.time() + args.limit
    big = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
    rows: list[dict[str, Any]] = []
    seen = None
    for w, f in plan:
        if time.time() > until:
            print("time is up before", w.shape_text, f)
            break
        if w != seen:
            left = until - time.time()
            print(f"{w.shape_text}  {baseline(w, big)}   ({left:.0f} s left)", flush=True)
            seen = w
        search(w, f, near(w, NumberFormat.parse(f), f, before, args.top), until, rows, big)
        args.output.write_text(json.dumps(rows) + "\n")
        torch.cuda.empty_cache()


def wanted(w: Workload, f: str) -> bool:
    """bf16 is asked for where it is shipped: the MLA products, and linear layers of up to 16
    tokens."""
    small = w.heads * w.reduction * w.columns <= 128 * 128 * 512
    if f == "w4a16_gk" and (w.op is Op.LINEAR or w.columns == 128 or w.heads < 128):
        return False
    if f == "bf16":
        return small if w.op is Op.BMM else w.tokens <= 16
    return True


if __name__ == "__main__":
    main()
