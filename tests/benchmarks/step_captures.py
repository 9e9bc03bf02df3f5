"""Holds steps of `benchmarks/steps` at small sizes, in one process; prints what each does."""

from __future__ import annotations

import json
import sys

import torch

from kernel_compass.analysis.step_runs import is_view
from kernel_compass.api.step_program import Program, ProgramKind, open_step


def seen(kind, target, words):
    step = open_step(Program(ProgramKind(kind), target, tuple(words)))
    found = step.first
    return {
        "step": step.name,
        "operators": [op.name for op in found.ops if not is_view(op)],
        "launches": {one.kernel: dict(one.config) for one in found.launches},
        "choices": {one.kernel: len(one.choices) for one in found.launches},
        "tied": {one.kernel: sorted(one.tied) for one in found.launches},
        "not_handled": [one.what for one in found.not_handled],
        "errors": errors(step, target),
    }


def errors(step, target):
    """Largest differences of what Triton's kernels give from what torch computes."""
    if "served" in target:
        block = step.roots()[""]
        found, _ = step.call()
        block.a.interpreted = False
        return {"paged_decode": float((found - step.call()[0]).abs().max() / found.abs().max())}
    if "poor_triton" not in target:
        return {}
    made = sys.modules["poor_triton"]
    x = made.X
    right = {
        "softmax": torch.softmax(x, -1),
        "rms_norm": x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * made.GAIN,
        "matmul": made.A @ made.B,
        "row_sum": x.sum(-1),
    }
    found = made.step()
    return {name: float((found[name] - right[name]).abs().max()) for name in right}


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    print(json.dumps({name: seen(*one) for name, one in asked.items()}))
