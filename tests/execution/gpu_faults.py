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
    flag = torch.zeros(1, dtype=torch.int32, device="cuda")
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    tell({"phase": "run"})
    spin[(1,)](flag, out)
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
    @triton.jit
    def large(a, out, SIZE: tl.constexpr):  # noqa: N803
        rows = tl.arange(0, SIZE)
        x = tl.load(a + rows[:, None] * SIZE + rows[None, :])
        tl.store(out + rows[:, None] * SIZE + rows[None, :], tl.dot(x, x))

    a = torch.zeros(256, 256, device="cuda")
    large[(1,)](
        a, a, 256, num_warps=8
    )  # 512 KiB of shared memory; a larger one compiles for minutes
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
