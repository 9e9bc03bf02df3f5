"""What applied actions cost a call in eager code: microseconds on the CPU's clock.

    python benchmarks/applied_overhead.py [--device cuda] [--json FILE]

Each row is one call of a program, with and without actions on, in turns. In a CUDA graph the cost
is nil: what is replayed has no Python in it. `untouched` are calls that no action is for: what a
mode costs the rest of the program.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F

from kernel_compass.api.actions.context import machine_model
from kernel_compass.api.applying import Applied, applied_actions
from kernel_compass.records.step_action import StepAction, StepActionKind, StepTarget
from kernel_compass.records.trial import Candidate
from kernel_compass.records.workload import Op, Workload

CALLS, ROUNDS = 300, 15
SIZE = 64


def product(batched: bool) -> StepAction:
    """A product that is computed as before, by torch's own library: what is left is dispatch."""
    work = Workload(Op.BMM if batched else Op.LINEAR, 4 if batched else 1, 4, SIZE, SIZE)
    target = StepTarget(work.shape_text, workload=work)
    return StepAction(
        StepActionKind.PRODUCT, target, Candidate("cublas_bf16", {"layout": "nk"}, "bf16")
    )


def action(kind: StepActionKind, **settings: str) -> StepAction:
    return StepAction(kind, StepTarget("it"), settings=settings)


def us_of(call: Callable[[], object], device: str) -> float:
    """Of one call, until the CPU goes on."""
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - start) / CALLS * 1e6


def compared(call: Callable[[], object], actions: Applied, device: str) -> tuple[float, float]:
    """Medians without and with, taken in turns."""
    without, with_them = [], []
    for _ in range(ROUNDS):
        without.append(us_of(call, device))
        with actions:
            call()
            call()
            with_them.append(us_of(call, device))
    return statistics.median(without), statistics.median(with_them)


def rows(device: str) -> dict[str, tuple[Callable[[], object], list[StepAction]]]:
    make = {"device": device, "dtype": torch.bfloat16}
    w, x = torch.nn.Parameter(torch.randn(SIZE, SIZE, **make), False), torch.randn(4, SIZE, **make)
    batched = torch.nn.Parameter(torch.randn(4, SIZE, SIZE, **make), False)
    a, q = torch.randn(4, 4, SIZE, **make), torch.randn(1, 2, 16, 16, **make)
    other = torch.randn(4, 32, **make)
    linear, bmm = [product(False)], [product(True)]
    attention = [action(StepActionKind.SDPA_BACKEND, backend="math")]
    return {
        "F.linear, replaced": (lambda: F.linear(x, w), linear),
        "x @ w.t(), replaced": (lambda: x @ w.t(), linear),
        "torch.bmm, replaced": (lambda: torch.bmm(a, batched), bmm),
        "einsum, replaced": (lambda: torch.einsum("hmk,hkn->hmn", a, batched), bmm),
        "F.linear, no entry for its tokens": (lambda: F.linear(x[:3], w), linear),
        "x + x, untouched": (lambda: x + x, linear),
        "x.shape, untouched": (lambda: x.shape, linear),
        "other.sum(), untouched": (other.sum, linear),
        "attention, math": (lambda: F.scaled_dot_product_attention(q, q, q), attention),
        "x + x, only precision set": (
            lambda: x + x,
            [action(StepActionKind.MATMUL_PRECISION, precision="high")],
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    print(f"{machine_model().text}, torch {torch.__version__}, {given.device}")
    print(f"{'a call':36}{'without':>10}{'with':>10}{'added us':>10}")
    with torch.no_grad():
        for name, (call, actions) in rows(given.device).items():
            before, after = compared(call, applied_actions(actions), given.device)
            found[name] = {"without_us": before, "with_us": after}
            print(f"{name:36}{before:10.2f}{after:10.2f}{after - before:10.2f}")
    if given.json:
        machine = {"machine": machine_model().text, "torch": torch.__version__}
        given.json.write_text(json.dumps({**machine, "calls": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
