"""Tasks that break a GPU's context, and innocent ones beside them."""

from __future__ import annotations

import os

import torch
import triton
import triton.language as tl


@triton.jit
def store_away(out, offset):
    tl.store(out + offset, 1.0)


@triton.jit
def spin(flag, out):
    value = tl.load(flag, volatile=True)
    count = 0
    while value == 0:
        value = tl.load(flag, volatile=True)
        count += 1
    tl.store(out, count)


@triton.jit
def multiply_in_steps(a, out, depth):
    rows, steps = tl.arange(0, 128), tl.arange(0, 64)
    total = tl.zeros((128, 128), tl.float32)
    for start in tl.range(0, depth, 64, num_stages=8):
        x = tl.load(a + rows[:, None] * depth + start + steps[None, :])
        y = tl.load(a + (start + steps[:, None]) * depth + rows[None, :])
        total += tl.dot(x, y)
    tl.store(out + rows[:, None] * 128 + rows[None, :], total)


def innocent(arguments, tell):
    a = torch.randn(256, 256, device="cuda")
    tell({"phase": "run"})
    error = (a @ a - (a.double() @ a.double()).float()).abs().max().item()
    return {"right": error < 1e-1, "pid": os.getpid()}


def illegal_access(arguments, tell):
    out = torch.zeros(16, device="cuda")
    tell({"phase": "run"})
    store_away[(1,)](out, 1 << 42)
    if arguments["waits"]:
        torch.cuda.synchronize()
    return {}


def illegal_access_hidden(arguments, tell):
    try:
        illegal_access({"waits": True}, tell)
    except Exception:
        raise ValueError("something else") from None


def infinite_kernel(arguments, tell):
    """Compiled by a launch that ends: what takes the time of the run is the kernel."""
    flag = torch.ones(1, dtype=torch.int32, device="cuda")
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    spin[(1,)](flag, out)
    flag.zero_()
    torch.cuda.synchronize()
    tell({"phase": "run"})
    spin[(1,)](flag, out)
    print("launched", flush=True)
    if arguments["waits"]:
        torch.cuda.synchronize()
    return {}


def out_of_memory(arguments, tell):
    kept = []
    tell({"phase": "run"})
    while True:
        kept.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda"))


def leaves_memory(arguments, tell):
    """Held by a module that stays: the next one has less."""
    free = torch.cuda.mem_get_info()[0]
    torch.kept_by_a_test = torch.empty(int(free * 0.9), dtype=torch.uint8, device="cuda")
    return {}


def takes_half(arguments, tell):
    free = torch.cuda.mem_get_info()[1]
    return {"bytes": torch.empty(free // 2, dtype=torch.uint8, device="cuda").numel()}


def does_not_fit(arguments, tell):
    """Eight stages of 64 KiB: more shared memory than a multiprocessor has."""
    a = torch.zeros(128, 128, device="cuda")
    multiply_in_steps[(1,)](a, torch.empty_like(a), 128, num_warps=8)
    return {}


def does_not_compile(arguments, tell):
    @triton.jit
    def wrong(out):
        tl.store(out, undefined_name)  # noqa: F821

    wrong[(1,)](torch.zeros(1, device="cuda"))
    return {}


def changes_flag(arguments, tell):
    torch.backends.cuda.matmul.allow_tf32 = not torch.backends.cuda.matmul.allow_tf32
    torch.set_default_dtype(torch.float64)
    return {}
