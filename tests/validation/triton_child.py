"""Judges Triton kernels in their interpreter; prints what the judge said, one line a kernel."""

from __future__ import annotations

import json
import sys

import torch
import triton
import triton.language as tl
from trying import tried

from kernel_compass.validation.cheat_parts import FunctionRunner
from kernel_compass.validation.judge_contracts import Effort


@triton.jit
def _softmax(x, out, n, width: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, width)
    inside = columns < n
    y = tl.load(x + row * n + columns, mask=inside, other=-float("inf"))
    e = tl.exp(y - tl.max(y, 0))
    tl.store(out + row * n + columns, e / tl.sum(e, 0), mask=inside)


@triton.jit
def _relu(x, b, out, n, total, block: tl.constexpr, limit: tl.constexpr):
    place = tl.program_id(0) * block + tl.arange(0, block)
    inside = place < total - limit
    y = tl.load(x + place, mask=inside).to(tl.float32)
    y += tl.load(b + place % n, mask=inside).to(tl.float32)
    bits = tl.maximum(y, 0.0).to(tl.int32, bitcast=True)
    bits += 0x7FFF + ((bits >> 16) & 1)  # the interpreter cuts where a GPU rounds
    nearest = bits.to(tl.float32, bitcast=True)
    tl.store(out + place, nearest.to(out.dtype.element_ty), mask=inside)


def softmax(x):
    out = torch.empty_like(x)
    _softmax[(x.shape[0],)](x, out, x.shape[1], triton.next_power_of_2(x.shape[1]))
    return out


def relu(x, b, limit=0):
    out = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 1024),)
    _relu[grid](x, b, out, x.shape[1], x.numel(), 1024, limit)
    return out


def relu_without_the_last(x, b):
    return relu(x, b, 1)


def relu_and_one_more(x, b):
    return relu(x, b, -1)


EFFORT = Effort(seeds=2, repeats=2, repeat_s=0.1, settle_s=0.0)
"""A call takes a millisecond a program here."""
CASES = [
    ("softmax", softmax),
    ("relu_add", relu),
    ("relu_add", relu_without_the_last),
    ("relu_add", relu_and_one_more),
]
for problem, function in CASES:
    said = tried(problem, lambda one=function: FunctionRunner(one), 2, EFFORT)
    reason = said.reason and said.reason.value
    sys.stdout.write(json.dumps([function.__name__, reason, said.detail]) + "\n")
