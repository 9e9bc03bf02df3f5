"""Run the truth suite: warm-ups, then the launches a profiler sees; or --check every case."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from cases import CASES, Case

HERE = Path(__file__).resolve().parent
KIB, MI = 1024, 1 << 20
SM = 132
Buffer = tuple[str, int] | None


@dataclass(frozen=True)
class L:
    """A launch: grid, block, scalars n and m, dynamic shared bytes, buffers (kind, elements)."""

    grid: int
    block: int
    n: int = 0
    m: int = 0
    smem: int = 0
    a: Buffer = ("f32", 1 << 20)
    b: Buffer = ("f32", 1 << 14)
    c: Buffer = ("f32", 1 << 12)


def _chase(grid: int, block: int, lines: int, steps: int) -> L:
    return L(grid, block, lines, steps, a=("chase", lines))


def _bank(ways: int, grid: int, block: int, m: int | None = None) -> L:
    return L(grid, block, 0, m or 128 // ways, smem=(8192 + 32) * 4, a=("f32", 1 << 18))


def _peak(m: int, grid: int = SM * 2, block: int = 1024, kind: str = "f32") -> L:
    return L(grid, block, 0, m, a=(kind, 1 << 14), b=(kind, 1 << 10))


def _live(grid: int, block: int, m: int) -> L:
    return L(grid, block, 1 << 22, m, a=("f32", 1 << 22), b=("f32", 64), c=("f32", 1 << 22))


def _stream(
    grid: int,
    block: int,
    n: int,
    width: int,
    reads: int = 1,
    writes: int = 1,
    m: int = 0,
    smem: int = 0,
) -> L:
    e = n * width // 4
    return L(
        grid,
        block,
        n,
        m,
        smem,
        ("f32", e) if reads else ("f32", 64),
        ("f32", e if reads > 1 else 1 << 14),
        ("f32", e if writes else 1 << 12),
    )


CUDA: dict[str, L] = {
    "k_chase_1thread_l2": _chase(1, 1, 1 << 16, 1000),
    "k_chase_1thread_dram": _chase(1, 1, 1 << 23, 400),
    "k_chase_1warp_sm_l2": _chase(SM, 32, 1 << 17, 500),
    "k_chase_1warp_sm_dram": _chase(SM, 32, 1 << 23, 300),
    "k_chase_lanes_sm_dram": _chase(SM, 32, 1 << 23, 200),
    "k_chase_8warps_l2": _chase(SM, 256, 1 << 16, 400),
    "k_chase_full_occ_l2": _chase(SM * 2, 1024, 1 << 16, 300),
    "k_chase_full_occ_dram": _chase(SM * 4, 512, 1 << 23, 150),
    "k_tail_chase_plus4": _chase(SM * 8 + 4, 256, 1 << 16, 250),
    "k_chase_smem": L(SM, 32, 0, 4000, 4096 * 4),
    "k_dep_fma_2warps": L(SM, 64, 0, 25000),
    "k_bank2_load": _bank(2, SM * 2, 1024),
    "k_bank4_load": _bank(4, SM * 6, 256, 43),
    "k_bank8_load": _bank(8, SM * 4, 512),
    "k_bank16_load": _bank(16, SM * 6, 128, 22),
    "k_bank32_load": _bank(32, SM * 6, 256, 5),
    "k_bank32_load_lowocc": _bank(32, SM, 128, 64),
    "k_bank8_store": _bank(8, SM * 2, 1024),
    "k_bank32_store": _bank(32, SM * 6, 256, 5),
    "k_bank_clean_load": _bank(1, SM * 2, 1024),
    "k_bank_clean_stride33": _bank(33, SM * 4, 512, 128),
    "k_bank_clean_store": _bank(1, SM * 6, 256, 170),
    "k_transpose_unpadded": L(SM * 8, 256, 0, 30, a=("f32", 2 * MI), c=("f32", 2 * MI)),
    "k_transpose_padded": L(SM * 8, 256, 0, 200, a=("f32", 2 * MI), c=("f32", 2 * MI)),
    "k_atomic_red_f32_hot": L(SM * 8, 256, 0, 1),
    "k_atomic_ret_f32_hot": L(SM * 2, 256, 0, 4),
    "k_atomic_red_i32_hot": L(SM * 8, 256, 0, 32, a=("u32", 4096)),
    "k_atomic_ret_i32_hot": L(SM * 4, 256, 0, 16),
    "k_atomic_fewblocks_f32": L(8, 256, 0, 64),
    "k_atomic_cas_hot": L(8, 128, 0, 1),
    "k_atomic_cas_warps": L(SM, 128, 0, 1),
    "k_hist_4bins": L(SM * 4, 512, 1 << 19, a=("u32", 1 << 19)),
    "k_hist_64bins": L(SM * 2, 1024, 1 << 20, a=("u32", 1 << 20)),
    "k_atomic_spread": L(SM * 8, 256, 1 << 26, c=("f32", 1 << 26)),
    "k_barrier_128": L(SM * 16, 128, 0, 2000),
    "k_barrier_512": L(SM * 4, 512, 0, 2000),
    "k_barrier_1024": L(SM, 1024, 0, 2000),
    "k_barrier_unbal_256": L(SM * 2, 256, 0, 500),
    "k_barrier_unbal_1024": L(SM * 2, 1024, 0, 400),
    "k_barrier_reduce": L(SM * 4, 256, 0, 150),
    "k_spill_high_32regs": _live(SM * 2, 1024, 20),
    "k_spill_mid_64regs": _live(SM * 2, 512, 30),
    "k_spill_low_64regs": _live(SM * 4, 256, 100),
    "k_spill_255regs": _live(SM * 2, 128, 100),
    "k_nospill_twin": _live(SM * 3, 256, 400),
    "k_local_dynidx_16": L(SM * 8, 256, 0, 256, b=("u32", 4096)),
    "k_local_dynidx_128": L(SM * 4, 512, 0, 128, b=("u32", 4096)),
    "k_div2": L(SM * 8, 256, 0, 100),
    "k_div8": L(SM * 16, 128, 0, 20),
    "k_div32": L(SM * 2, 1024, 0, 8),
    "k_div_looplen": L(SM * 8, 256, 0, 64, b=("u32", 4096)),
    "k_nodiv_warp": L(SM * 8, 256, 0, 100),
    "k_xu_sin": _peak(100),
    "k_xu_exp": _peak(100, SM * 4, 512),
    "k_xu_rsqrt": _peak(100, SM * 8, 256),
    "k_xu_log_lowocc": _peak(400, SM, 256),
    "k_fma32_peak": _peak(400),
    "k_fma32_lowocc_peak": _peak(3000, SM, 128),
    "k_fma64_peak": _peak(400, SM * 4, 512, "f64"),
    "k_half2_peak": _peak(400, SM * 8, 256, "f16x2"),
    "k_imad_peak": _peak(200, kind="u32"),
    "k_lop3_peak": _peak(200, SM * 8, 256, "u32"),
    "k_shf_peak": _peak(200, SM * 4, 512, "u32"),
    "k_stride32_dram": L(SM * 8, 256, 1 << 25, 8, a=("f32", 1 << 28)),
    "k_stride64_dram": L(SM * 16, 128, 1 << 24, 16, a=("f32", 1 << 28)),
    "k_stride128_dram": L(SM * 4, 512, 1 << 23, 32, a=("f32", 1 << 28)),
    "k_stride32_l2": L(SM * 8, 256, 1 << 19, 8, a=("f32", 1 << 22)),
    "k_gather_dram": L(
        SM * 8, 256, 1 << 28, 1 << 22, a=("f32", 1 << 28), b=("u32", 1 << 22), c=("f32", 1 << 22)
    ),
    "k_gather_l2": L(
        SM * 4, 512, 1 << 21, 1 << 22, a=("f32", 1 << 21), b=("u32", 1 << 22), c=("f32", 1 << 22)
    ),
    "k_aos_field": L(SM * 8, 256, 1 << 23, a=("f32", 12 << 23)),
    "k_scatter_store": L(SM * 8, 256, 1 << 22, 32, c=("f32", 1 << 27)),
    "k_transpose_naive": L(128 * 128, 256, 4096, a=("f32", 1 << 24), c=("f32", 1 << 24)),
    "k_tail_1blk_plus1": L(SM + 1, 1024, 0, 4000, 120 * KIB),
    "k_tail_2blk_plus1": L(SM * 2 + 1, 1024, 0, 2000),
    "k_tail_2waves_plus2": L(SM * 2 + 2, 512, 0, 4000, 120 * KIB),
    "k_notail_4waves_plus1": L(SM * 8 * 4 + 1, 256, 0, 500),
    "k_notail_16waves_plus1": L(SM * 8 * 16 + 1, 256, 0, 150),
    "k_tail_stream_plus4": L(SM + 4, 1024, 0, 1 << 17, 120 * KIB, a=("f32", (SM + 4) << 19)),
    "k_smem_hog_64t": _stream(SM, 64, 1 << 22, 4, smem=200 * KIB),
    "k_smem_hog_128t": _stream(SM * 2, 128, 1 << 23, 4, smem=100 * KIB),
    "k_blocks32_stream": _stream(SM * 32 * 4, 32, 1 << 24, 4),
    "k_reg_hog_stream": _stream(SM, 256, 1 << 22, 4),
    "k_copy_1g": _stream(SM * 8, 256, 1 << 26, 16),
    "k_read_512m": _stream(SM * 4, 512, 1 << 25, 16, writes=0),
    "k_write_256m": _stream(SM * 8, 256, 1 << 24, 16, reads=0),
    "k_triad_128m": _stream(SM * 2, 1024, 1 << 23, 16, reads=2),
    "k_scale_half2_96m": _stream(12 * MI // 256, 256, 12 * MI, 8),
    "k_l2_reread_8m": _stream(SM * 8, 256, 1 << 19, 16, writes=0, m=40),
    "k_l2_reread_16m": _stream(SM * 4, 512, 1 << 20, 16, writes=0, m=40),
    "k_l2_reread_32m": _stream(SM * 2, 1024, 1 << 21, 16, writes=0, m=16),
    "k_l2_between_4m": _stream(SM * 8, 256, 1 << 18, 16, writes=0, m=1),
    "k_l2_between_16m": _stream(SM * 8, 256, 1 << 20, 16, writes=0, m=1),
    "k_l2_between_32m": _stream(SM * 4, 512, 1 << 21, 16, writes=0, m=1),
    "k_l1_table_16k": L(SM * 2, 1024, 1024, 24),
    "k_l1_table_64k": L(SM * 8, 256, 4096, 6),
    "k_empty": L(1, 32),
    "k_tiny_64": L(1, 64),
}


def build(lib: Path) -> None:
    """Compile kernels.cu into a shared object for sm_90."""
    cmd = [
        "nvcc",
        "-O3",
        "-std=c++17",
        "-ftz=true",
        "-Xcompiler",
        "-fPIC",
        "-shared",
        "-gencode=arch=compute_90,code=sm_90",
        str(HERE / "kernels.cu"),
        "-o",
        str(lib),
    ]
    done = subprocess.run(cmd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"nvcc failed:\n{done.stderr}")


def _buffer(spec: Buffer) -> Any:
    import torch

    assert spec is not None
    kind, n = spec
    if kind == "chase":  # one random cycle over n lines of 128 bytes
        perm = torch.randperm(n, device="cuda", dtype=torch.int32)
        t = torch.zeros((n, 32), device="cuda", dtype=torch.int32)
        t[perm.long(), 0] = perm.roll(-1)
        return t
    if kind == "u32":
        return torch.randint(0, 2**31 - 1, (n,), device="cuda", dtype=torch.int32)
    dtype = {"f32": torch.float32, "f64": torch.float64, "f16x2": torch.float16}[kind]
    return torch.rand(n * 2 if kind == "f16x2" else n, device="cuda", dtype=dtype)


def _cuda_case(name: str, lib: ctypes.CDLL) -> Callable[[], None]:
    import torch

    spec = CUDA[name]
    fn = getattr(lib, f"launch_{name}")
    fn.restype = ctypes.c_int
    ptr, i32 = ctypes.c_void_p, ctypes.c_int
    fn.argtypes = [ptr, ptr, ptr, ctypes.c_longlong, i32, i32, i32, i32, ptr]
    bufs = [_buffer(x) for x in (spec.a, spec.b, spec.c)]

    def go() -> None:
        rc = fn(
            *(t.data_ptr() for t in bufs),
            spec.n,
            spec.m,
            spec.grid,
            spec.block,
            spec.smem,
            torch.cuda.current_stream().cuda_stream,
        )
        if rc:
            raise RuntimeError(f"launch returned CUDA error {rc}")

    return go


def _torch_case(name: str) -> Callable[[], object]:
    import torch
    import torch.nn.functional as F

    bf16, f16, f32 = torch.bfloat16, torch.float16, torch.float32

    def r(*shape: int, dtype: torch.dtype = bf16) -> torch.Tensor:
        return torch.randn(shape, device="cuda", dtype=dtype)

    if name.startswith("torch_bmm_n"):
        x, w = r(128, 1, 128), r(128, 128, int(name[11:]))
        return lambda: torch.bmm(x, w)
    if name in ("torch_mm_4096", "torch_mm_8192", "torch_mm_512_fp16"):
        size = int(name.split("_")[2])
        dtype = f16 if name.endswith("fp16") else bf16
        x, w = r(size, size, dtype=dtype), r(size, size, dtype=dtype)
        return lambda: torch.mm(x, w)
    if name == "torch_linear_16x4096":
        x, w = r(16, 4096), r(4096, 4096)
        return lambda: F.linear(x, w)
    if name == "torch_layernorm":
        x, w = r(16384, 4096), r(4096)
        return lambda: F.layer_norm(x, (4096,), w, w)
    if name == "torch_sum_rows":
        x = r(64, MI, dtype=f32)
        return lambda: x.sum(dim=1)
    if name == "torch_add_256m":
        x, y, z = (r(64 * MI, dtype=f32) for _ in range(3))
        return lambda: torch.add(x, y, out=z)
    if name == "torch_relu_1024":
        x = r(1024, dtype=f32)
        return lambda: torch.relu(x)
    if name == "torch_add_64":
        x, y = r(64, dtype=f32), r(64, dtype=f32)
        return lambda: torch.add(x, y)
    raise KeyError(name)


def prepare(name: str, lib: ctypes.CDLL) -> Callable[[], object]:
    """Allocate a case's operands; the returned function launches it once."""
    if name.startswith("k_"):
        return _cuda_case(name, lib)
    if name.startswith("t_"):
        import triton_kernels

        return triton_kernels.launcher(name)
    return _torch_case(name)


def ordered(cases: Sequence[Case]) -> list[Case]:
    """Round-robin over the kinds, so that a run cut short still has some of each."""
    kinds: dict[str, list[Case]] = {}
    for case in cases:
        kinds.setdefault(case.kind, []).append(case)
    return [c for c in chain.from_iterable(zip_longest(*kinds.values())) if c is not None]


def _measure(go: Callable[[], object]) -> dict[str, Any]:
    """Event-timed duration and the kernels one call launches (None where that fails)."""
    import torch

    times: list[float] = []
    for _ in range(5):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        go()
        stop.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(stop) * 1e3)
    return {"event_us": round(sorted(times)[len(times) // 2], 2)}


def _kernels(go: Callable[[], object]) -> list[str] | None:
    import torch
    from torch.profiler import ProfilerActivity, profile

    with contextlib.suppress(Exception):
        with profile(activities=[ProfilerActivity.CUDA]) as prof:
            go()
            torch.cuda.synchronize()
        events = sorted(prof.events(), key=lambda e: e.time_range.start)
        other = re.compile(r"cuda[A-Z]|cu[A-Z]|Mem(cpy|set)|Activity|Buffer|Lazy|Context|Instrum")
        return [e.name for e in events if not other.match(e.name)]
    return None


def run_case(case: Case, lib: ctypes.CDLL, args: argparse.Namespace) -> dict[str, Any]:
    """One case: operands, warm-ups, then either the measured launches or the check's timing."""
    import torch

    torch.manual_seed(0)
    go = prepare(case.name, lib)
    for _ in range(args.warmups):
        go()
    torch.cuda.synchronize()
    info: dict[str, Any] = {"case": case.name, "launches": args.launches}
    if args.check:
        info |= _measure(go)
        if not case.name.startswith("k_"):
            info["kernels"] = _kernels(go)
    else:
        torch.cuda.profiler.start()
        try:
            for _ in range(args.launches):
                go()
            torch.cuda.synchronize()
        finally:
            torch.cuda.profiler.stop()
    return info


def run(args: argparse.Namespace, cases: Sequence[Case], lib_path: Path) -> int:
    """Run the cases in this process. Exit status 3: the context is lost, the rest was not tried."""
    import torch

    began, failed = time.monotonic(), 0
    lib = ctypes.CDLL(str(lib_path))
    wanted = args.launches
    for index, case in enumerate(cases):
        spent = time.monotonic() - began
        late = args.stop_after_s and spent / args.stop_after_s > 0.05 + index / len(cases)
        args.launches = 1 if late else wanted  # behind schedule: every case once is worth more
        if args.stop_after_s and spent > args.stop_after_s:
            print(f"SKIPPED {case.name}: time is up", flush=True)
            continue
        start = time.monotonic()
        try:
            info = run_case(case, lib, args)
            info["wall_s"] = round(time.monotonic() - start, 2)
            print("CASE " + json.dumps(info), flush=True)
        except Exception as error:  # report, go on with the next case
            failed += 1
            line = (str(error).strip().splitlines() or [""])[0]
            print(f"FAILED {case.name}: {type(error).__name__}: {line}", flush=True)
        try:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        except Exception:
            print(f"LOST {case.name}: CUDA context unusable", flush=True)
            return 3
    return 1 if failed else 0


def check(args: argparse.Namespace, cases: Sequence[Case], lib_path: Path) -> int:
    """Run the cases in child processes: a lost context costs one case, a new child goes on."""
    left, status, began = list(cases), 0, time.monotonic()
    while left:
        limit = max(args.stop_after_s - (time.monotonic() - began), 1.0) if args.stop_after_s else 0
        cmd = [
            sys.executable,
            str(HERE / "suite.py"),
            "--check",
            "--child",
            "--lib",
            str(lib_path),
            "--warmups",
            str(args.warmups),
            "--stop-after-s",
            str(limit),
            "--only",
            "^(" + "|".join(c.name for c in left) + ")$",
        ]
        child = subprocess.Popen(cmd, stdout=subprocess.PIPE, text=True)
        seen: set[str] = set()
        assert child.stdout is not None
        for line in child.stdout:
            print(line, end="", flush=True)
            if match := re.match(r'(?:CASE \{"case": "|FAILED |SKIPPED )(\w+)', line):
                seen.add(match[1])
        code = child.wait()
        status = max(status, 1 if code else 0)
        rest = [c for c in left if c.name not in seen]
        if code in (0, 1) or (args.stop_after_s and time.monotonic() - began > args.stop_after_s):
            break
        if code != 3 and rest:  # died without a word: blame the first case not reported
            print(f"FAILED {rest[0].name}: process ended with status {code}", flush=True)
            rest = rest[1:]
        if len(rest) == len(left):
            break
        left = rest
    return status


def main(argv: Sequence[str] | None = None) -> int:
    """Command line."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--list", action="store_true", help="print the cases and stop")
    p.add_argument("--only", default="", metavar="REGEX")
    p.add_argument("--skip", default="", metavar="REGEX")
    p.add_argument("--launches", type=int, default=2)
    p.add_argument("--warmups", type=int, default=3)
    p.add_argument("--lib", type=Path, help="shared object built before (default: build one)")
    p.add_argument("--build-only", action="store_true", help="build --lib and stop")
    p.add_argument("--check", action="store_true", help="run and time every case, no profiler")
    p.add_argument("--stop-after-s", type=float, default=0.0, help="start no case after this")
    p.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = p.parse_args(argv)
    cases = [c for c in ordered(CASES) if re.search(args.only, c.name)]
    cases = [c for c in cases if not (args.skip and re.search(args.skip, c.name))]
    if args.list:
        for c in cases:
            print(
                f"{c.name:28} {c.kind:11} {'/'.join(sorted(c.limiters)):40} "
                f"{' '.join(sorted(c.flags))}  # {c.note}"
            )
        return 0
    with tempfile.TemporaryDirectory() as tmp:
        lib = args.lib or Path(tmp) / "libtruth.so"
        if args.build_only or not lib.exists():
            build(lib)
        if args.build_only:
            return 0
        return check(args, cases, lib) if args.check and not args.child else run(args, cases, lib)


if __name__ == "__main__":
    sys.exit(main())
