"""A user's Triton kernels, run by the interpreter in a process of its own; prints what happened."""

from __future__ import annotations

import json
import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
import triton.language as tl
from api.applied_stand_ins import action, put_on

from kernel_compass.api.actions.patching import layers_left
from kernel_compass.profiling.step_triton import source_sha256
from kernel_compass.profiling.triton_source import tied_to_grid

SEEN = []
HOOKED = []


@triton.jit
def add_one(x, BLOCK: tl.constexpr):  # noqa: N803
    return x + 1


@triton.jit
def scaled(x_ptr, out_ptr, n, BLOCK: tl.constexpr, note_ptr):  # noqa: N803
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at, add_one(x * 2, BLOCK), mask=at < n)
    tl.store(note_ptr + tl.program_id(0), BLOCK)


@triton.jit
def summed(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):  # noqa: N803
    row = tl.program_id(0)
    total = tl.zeros((), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0))
    tl.store(out_ptr + row, total)


@triton.jit
def normalized(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):  # noqa: N803
    row = tl.program_id(0)
    squares = tl.zeros((BLOCK,), tl.float32)
    top = 0.0
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
        higher = tl.maximum(top, tl.max(x, 0))
        squares += x * x * tl.exp(top - higher)
        top = higher
    scale = top / tl.sum(squares, 0)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
        tl.store(out_ptr + row * columns + at, x * scale, mask=at < columns)


@triton.jit
def listed(order_ptr, x_ptr, out_ptr, BLOCK: tl.constexpr):  # noqa: N803
    tile = tl.load(order_ptr + tl.program_id(0))
    at = tile * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at))


@triton.jit
def ticketed(ticket_ptr, x_ptr, out_ptr, BLOCK: tl.constexpr):  # noqa: N803
    at = tl.atomic_add(ticket_ptr, 1) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at))


@triton.jit
def in_parts(x_ptr, out_ptr, n, rows, SPLITS: tl.constexpr, BLOCK: tl.constexpr):  # noqa: N803
    row, split = tl.program_id(0), tl.program_id(1)
    each = tl.cdiv(tl.cdiv(n, SPLITS), BLOCK) * BLOCK
    begin = split * each
    end = tl.minimum(begin + each, n)
    total = tl.zeros((), tl.float32)
    for start in range(begin, end, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x_ptr + row * n + at, mask=at < end, other=0.0))
    tl.store(out_ptr + row * SPLITS + split, total)


@triton.jit
def in_other_words(x_ptr, out_ptr, n, BLOCK: tl.constexpr):  # noqa: N803
    split = tl.program_id(axis=0)
    each = BLOCK * ((n + 4 * BLOCK - 1) // (4 * BLOCK))
    total = tl.zeros((), tl.float32)
    for start in range(split * each, tl.minimum((split + 1) * each, n), BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0))
    tl.store(out_ptr + split, total)


@triton.jit
def in_blocks(x_ptr, out_ptr, n, BLOCK: tl.constexpr, WIDE: tl.constexpr):  # noqa: N803
    each = tl.cdiv(n, BLOCK) * BLOCK
    at = tl.program_id(0) * each + tl.arange(0, WIDE)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


@triton.jit
def strided(x_ptr, out_ptr, n, GRID: tl.constexpr):  # noqa: N803
    for at in range(tl.program_id(0), n, GRID):
        tl.store(out_ptr + at, tl.load(x_ptr + at))


def hook(named):
    HOOKED.append(named["BLOCK"])


tuned = triton.autotune(
    configs=[
        triton.Config({"BLOCK": b}, num_warps=w, pre_hook=hook) for b, w in ((16, 4), (32, 4))
    ],
    key=["n"],
    reset_to_zero=["out_ptr"],
)(scaled)
hinted = triton.heuristics({"BLOCK": lambda args: 16})(scaled)


def launch(kernel, x, **meta):
    """Result, blocks seen by the kernel, and programs that ran."""
    out, note = torch.zeros_like(x), torch.zeros(64, dtype=torch.int32)
    n = x.numel()
    grid = meta.pop("grid", lambda m: (triton.cdiv(n, m["BLOCK"]),))
    kernel[grid](x, out, n, note_ptr=note, **meta)
    return out, int(note.max()), int((note > 0).sum())


def launch_rows(x, block, grid=None):
    out = torch.zeros(x.shape[0])
    summed[grid or (x.shape[0],)](x, out, x.shape[1], BLOCK=block)
    return out


def parts(x, splits, programs, block):
    """Sums of the rows by parts; what no program writes is not a number."""
    out = torch.full((x.shape[0], splits), float("nan"))
    in_parts[(x.shape[0], programs)](x, out, x.shape[1], x.shape[0], SPLITS=splits, BLOCK=block)
    return out.sum(1)


def parts_right(block, splits=(2, 3, 4), columns=(1, 31, 32, 33, 100, 128, 257)):
    """Whether a size of `in_parts` is right for all of some shapes, and how often it was put in."""
    uses, right = 0, True
    for split in splits:
        for size in columns:
            x = torch.rand(2, size)
            with put_on([config("in_parts", BLOCK=block)]) as on:
                right &= torch.allclose(parts(x, split, split, 32), x.sum(1), rtol=1e-5)
                uses += on.applications[0].uses
    return bool(right), uses


def config(kernel, sha=None, **values):
    return action("triton_config", "kernel", values, kernel=kernel, kernel_sha256=sha)


def main():
    x = torch.arange(100.0)
    exact = x * 2 + 1
    found = {}
    runs = [vars(one).get("run") for one in kinds()]
    untouched = launch(scaled, x, BLOCK=16)
    with put_on([config("scaled", source_sha256(scaled), BLOCK=64, num_warps=8)]) as on:
        out, block, programs = launch(scaled, x, BLOCK=16)
        found["callable grid"] = [torch.equal(out, exact), block, programs]
        found["uses"] = on.applications[0].uses
        out, block, _ = launch(hinted, x)
        found["heuristics"] = [torch.equal(out, exact), block]
    after = launch(scaled, x, BLOCK=16)
    found["after"] = [torch.equal(after[0], untouched[0]), after[1], after[2]]
    with put_on([config("scaled", BLOCK=64)]) as on:
        out, block, programs = launch(scaled, x, BLOCK=16, grid=(7,))
        found["fixed grid"] = [torch.equal(out, exact), block, on.applications[0].objection]
    with put_on([config("scaled", num_warps=8)]) as on:
        out, block, programs = launch(scaled, x, BLOCK=16, grid=(7,))
        found["warps alone"] = [torch.equal(out, exact), block, on.applications[0].uses]
    rows = torch.rand(3, 40)
    with put_on([config("summed", BLOCK=64)]) as on:
        out = launch_rows(rows, 16)
        found["free of the grid"] = [torch.allclose(out, rows.sum(1)), on.applications[0].uses]
    with put_on([config("scaled", "00" * 32, BLOCK=64)]) as on:
        found["another source"] = [launch(scaled, x, BLOCK=16)[1], on.applications[0].objection]
    with put_on([config("scaled", MISSING=64)]) as on:
        found["no parameter"] = [launch(scaled, x, BLOCK=16)[1], on.applications[0].objection]
    with put_on([config("scaled", BLOCK=32, num_warps=4)]) as on:
        HOOKED.clear()
        out, block, _ = launch(tuned, x)
        found["autotuned"] = [torch.equal(out, exact), block, list(HOOKED), str(tuned.best_config)]
    with put_on([config("scaled", BLOCK=64, num_warps=2)]) as on:
        HOOKED.clear()
        out, block, _ = launch(tuned, x)
        found["beside its choices"] = [torch.equal(out, exact), block, list(HOOKED)]
    found["best"] = "best_config" in vars(tuned)
    with put_on([config("scaled", num_warps=2)]) as on:
        tuned.configs, kept = tuned.configs[:1], tuned.configs
        launch(tuned, x)
        tuned.configs = kept
        found["left open"] = on.applications[0].objection
    found["left"] = [layers_left(), runs == [vars(one).get("run") for one in kinds()]]
    found["parts"] = [parts_right(block) for block in (16, 32, 64, 128)]
    x = torch.rand(2, 100)
    with put_on(
        [config("in_parts", BLOCK=16)]
    ) as on:  # by its author for blocks of 64: two hold all
        parts(x, 3, 2, 64)
        found["fewer programs"] = [on.applications[0].uses, on.applications[0].objection]
    with put_on([config("in_parts", BLOCK=16)]) as on:
        out = torch.full((2, 4), float("nan"))
        grid = lambda m: (2, m["SPLITS"])  # noqa: E731
        in_parts[grid](x, out, 100, 2, SPLITS=4, BLOCK=32)
        right = torch.allclose(out.sum(1), x.sum(1), rtol=1e-5)
        found["grid that reads the parts"] = [right, on.applications[0].uses]
    block = 16
    with put_on([config("scaled", BLOCK=64)]) as on:
        x = torch.arange(100.0)
        out, seen, _ = launch(scaled, x, BLOCK=16, grid=lambda m: (triton.cdiv(100, block),))
        found["blind grid"] = [torch.equal(out, x * 2 + 1), seen, on.applications[0].objection]
    found["free"] = {
        one.fn.__name__: [sorted(tied.names), sorted(map(str, tied.parts))]
        for one in (in_parts, in_other_words, in_blocks, strided)
        for tied in [tied_to_grid(one.fn)]
    }
    found["tied"] = [sorted(tied_to_grid(one.fn).names) for one in (scaled, summed)]
    values = (normalized, listed, ticketed)
    found["tied by values"] = [sorted(tied_to_grid(one.fn).names) for one in values]
    print(json.dumps(found))


def kinds():
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    return JITFunction, InterpretedFunction, Autotuner


if __name__ == "__main__":
    sys.exit(main())
