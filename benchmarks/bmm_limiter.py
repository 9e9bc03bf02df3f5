"""What the 16.8 MB bmm's time depends on when its weights sit in L2: bytes, blocks, or neither.

`torch.bmm` [H,1,128] x [H,128,512] in bf16 runs the same persistent cuBLAS kernel on 132 blocks
for every H here, so H changes the bytes and leaves the blocks; a Triton kernel that reads the
same bytes with a chosen number of blocks changes the blocks and leaves the bytes. Times are
slopes between CUDA-graph replays of n and 2n launches, medians over replays, warm.

Usage: python benchmarks/bmm_limiter.py [--output FILE]
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import statistics
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def stream_sum(x, out, per_block, BLOCK: tl.constexpr):
    """Every block sums its contiguous share of x, BLOCK elements at a time."""
    pid = tl.program_id(0)
    base = pid * per_block
    acc = tl.zeros([BLOCK], tl.float32)
    for start in range(0, per_block, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        acc += tl.load(x + base + offsets, mask=offsets < per_block, other=0.0).to(tl.float32)
    tl.store(out + pid, tl.sum(acc, 0))


def slope_us(launch: Callable[[], Any], n: int = 64, replays: int = 40) -> float:
    """Marginal time of one launch in microseconds: (t(2n) - t(n)) / n, median of replays."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(5):
            launch()
    torch.cuda.synchronize()
    graphs = []
    for count in (n, 2 * n):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(count):
                launch()
        graphs.append(graph)
    times: list[list[float]] = [[], []]
    primer = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    for _ in range(replays):
        for i, graph in enumerate(graphs):
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            primer @ primer
            start.record()
            graph.replay()
            stop.record()
            torch.cuda.synchronize()
            times[i].append(start.elapsed_time(stop) * 1e3)
    return (statistics.median(times[1]) - statistics.median(times[0])) / n


def bmm_us(heads: int, n: int = 512, k: int = 128) -> float:
    a = torch.randn(heads, 1, k, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(heads, k, n, device="cuda", dtype=torch.bfloat16)
    out = torch.empty(heads, 1, n, device="cuda", dtype=torch.bfloat16)
    return slope_us(lambda: torch.bmm(a, w, out=out))


def read_us(total_bytes: int, blocks: int) -> float:
    x = torch.randn(total_bytes // 2, device="cuda", dtype=torch.bfloat16)
    out = torch.empty(blocks, device="cuda")
    per_block = math.ceil(x.numel() / blocks)
    return slope_us(
        lambda: stream_sum[(blocks,)](x, out, per_block, BLOCK=4096, num_warps=8)  # type: ignore[index]
    )


def environment() -> dict[str, str]:
    smi = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    return {
        "gpu_driver": smi,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "date": datetime.date.today().isoformat(),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    torch.manual_seed(0)
    by_bytes = {h: bmm_us(h) for h in (1, 16, 32, 64, 96, 128, 160, 192, 256)}
    total = 128 * 128 * 512 * 2
    by_blocks = {b: read_us(total, b) for b in (33, 66, 132, 264, 528, 1056)}
    read_bytes = {m: read_us(m << 20, 528) for m in (1, 2, 4, 8, 16, 32)}
    elasticity = math.log(by_bytes[160] / by_bytes[96]) / math.log(160 / 96)
    result = {
        "environment": environment(),
        "bmm_us_by_heads": by_bytes,
        "read_16_8_MB_us_by_blocks": by_blocks,
        "read_us_by_mib_528_blocks": read_bytes,
        "elasticity_of_bmm_time_to_bytes_at_128_heads": elasticity,
        "share_of_bmm_time_that_one_head_takes": by_bytes[1] / by_bytes[128],
    }
    text = json.dumps(result, indent=1)
    if args.output:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
