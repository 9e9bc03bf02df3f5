"""Triton kernels whose fixed configurations are poor, and one that tunes itself among poor ones.

A softmax, an RMSNorm and a matrix product, each launched as its author once found it good enough;
and a row sum under `@triton.autotune`. All tensors are the module's.

    python benchmarks/steps/poor_triton.py
    kernel-compass optimize --entry benchmarks/steps/poor_triton.py:step
"""

import argparse
import time

import torch
import triton
import triton.language as tl


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--columns", type=int, default=8192)
    parser.add_argument("--size", type=int, default=4096, help="of the matrices")
    return parser.parse_known_args()[0]


ARGS = arguments()
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPE = torch.bfloat16 if DEVICE == "cuda" else torch.float32
torch.manual_seed(0)
X = torch.randn(ARGS.rows, ARGS.columns, device=DEVICE, dtype=DTYPE)
GAIN = torch.rand(ARGS.columns, device=DEVICE, dtype=DTYPE) + 0.5
A = torch.randn(ARGS.size, ARGS.size, device=DEVICE, dtype=DTYPE)
B = torch.randn(ARGS.size, ARGS.size, device=DEVICE, dtype=DTYPE) * ARGS.size**-0.5


def seconds(call, quantiles):
    """What the autotuner compares in Triton's interpreter."""
    start = time.perf_counter()
    call()
    return [time.perf_counter() - start] * len(quantiles)


@triton.jit
def softmax_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    top = -float("inf")
    total = 0.0
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=-float("inf"))
        x = x.to(tl.float32)
        higher = tl.maximum(top, tl.max(x, 0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher), 0)
        top = higher
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
        y = tl.exp(x - top) / total
        tl.store(out_ptr + row * columns + at, y.to(out_ptr.dtype.element_ty), mask=at < columns)


@triton.jit
def rms_norm_kernel(x_ptr, gain_ptr, out_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
        squares += x * x
    scale = 1.0 / tl.sqrt(tl.sum(squares, 0) / columns + eps)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
        gain = tl.load(gain_ptr + at, mask=at < columns, other=0.0).to(tl.float32)
        y = x * scale * gain
        tl.store(out_ptr + row * columns + at, y.to(out_ptr.dtype.element_ty), mask=at < columns)


@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    out_ptr,
    m,
    n,
    k,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        deep = start + inner
        a_mask = (row[:, None] < m) & (deep[None, :] < k)
        b_mask = (deep[:, None] < k) & (column[None, :] < n)
        a = tl.load(a_ptr + row[:, None] * k + deep[None, :], mask=a_mask, other=0.0)
        b = tl.load(b_ptr + deep[:, None] * n + column[None, :], mask=b_mask, other=0.0)
        total += tl.dot(a, b, input_precision="ieee")
    out = out_ptr + row[:, None] * n + column[None, :]
    mask = (row[:, None] < m) & (column[None, :] < n)
    tl.store(out, total.to(out_ptr.dtype.element_ty), mask=mask)


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 64}, num_warps=1),
        triton.Config({"BLOCK": 128}, num_warps=16),
        triton.Config({"BLOCK": 256}, num_warps=16),
    ],
    key=["columns"],
    do_bench=None if DEVICE == "cuda" else seconds,  # Triton's own needs a GPU
)
@triton.jit
def row_sum_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
        total += x.to(tl.float32)
    tl.store(out_ptr + row, tl.sum(total, 0))


def softmax():
    out = torch.empty_like(X)
    softmax_kernel[(X.shape[0],)](X, out, X.shape[1], BLOCK=128, num_warps=1)
    return out


def rms_norm():
    out = torch.empty_like(X)
    rms_norm_kernel[(X.shape[0],)](X, GAIN, out, X.shape[1], 1e-6, BLOCK=256, num_warps=16)
    return out


def matmul():
    out = torch.empty_like(A)
    n = ARGS.size

    def grid(meta):
        return triton.cdiv(n, meta["BLOCK_M"]), triton.cdiv(n, meta["BLOCK_N"])

    matmul_kernel[grid](A, B, out, n, n, n, BLOCK_M=32, BLOCK_N=32, BLOCK_K=32, num_warps=8)
    return out


def row_sum():
    out = torch.empty(X.shape[0], device=DEVICE)
    row_sum_kernel[(X.shape[0],)](X, out, X.shape[1])
    return out


def step():
    return {
        "softmax": softmax(),
        "rms_norm": rms_norm(),
        "matmul": matmul(),
        "row_sum": row_sum(),
    }


if __name__ == "__main__":
    for name, value in step().items():
        print(f"{name}: norm {value.float().norm().item():.4f}")
