"""What could be won on each program of this folder on an H200, from bytes, operations and launches.

    python benchmarks/steps_h200.py predictions            # as a table
    python benchmarks/steps_h200.py predictions --write    # renews predictions.json

Written before anything was measured on these programs; `steps_h200.py` puts beside it what was
obtained. Bytes and operations come from the programs' own sizes, all else from `formulas.py`. Of
the decoder block it was known what it takes eager and compiled: `EAGER_US`, `SMALL_US` are of it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from steps import encoder as encoder_block
from steps import mla_decode, served_block
from steps import moe as experts
from steps.formulas import (
    EAGER_US,
    ELEMENT,
    FLASH_TFLOPS,
    FLOORS,
    MACHINE,
    OVER_FLOOR_US,
    PEAK_REACHED,
    SMALL_US,
    Change,
    Part,
    Prediction,
    cold_us,
    predicted,
    product,
    small,
    wide,
)
from steps.predicted_decoder import decode, prefill
from steps.predicted_files import FILES

from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import Traffic

PREDICTIONS = Path(__file__).resolve().with_name("predictions.json")
SPLIT_REACHED = 0.75
"""Of its floor, by a Triton kernel that streams a paged cache, not tuned."""
TUNED_REACHED = 0.85
"""The same once its configuration is chosen by measurement."""
GUARD_US = 30.0
"""What the CPU spends on a call of a compiled function."""
LANES, THREADS, BLOCKS = 32, 2048, 32
"""Of a warp; of a multiprocessor at most; blocks on it at most."""
TRITON = argparse.Namespace(rows=8192, columns=8192, size=4096)
"""The sizes of `poor_triton.py`, which makes its tensors when it is imported."""


def served() -> Prediction:
    """Compiled, in a graph: the cache's kernel is not tuned, weights have 16 bits."""
    a = served_block.arguments([])
    head = a.hidden // a.heads
    cache = 2 * a.tokens * a.context * a.kv_heads * head * ELEMENT
    floor = cold_us(cache)
    parts = (
        product("query, key, value", a.tokens, a.hidden, (a.heads + 2 * a.kv_heads) * head),
        product("output", a.tokens, a.hidden, a.hidden),
        product("gate and up", a.tokens, a.hidden, 2 * a.ffn),
        product("down", a.tokens, a.ffn, a.hidden),
        Part("paged attention", 1, floor / SPLIT_REACHED, floor),
        # two norms, rotation and writing keys and values, parts joined, SiLU
        Part("compiled kernels", 6, SMALL_US, SMALL_US),
    )
    tuned = floor / SPLIT_REACHED - floor / TUNED_REACHED
    return predicted("served", a, parts, True, Change("triton_config", "paged_decode", tuned))


def mla() -> Prediction:
    """Eager: the GPU waits; five products with weights, scores in memory."""
    a = mla_decode.arguments([])
    latent = a.tokens * a.context * a.rank * ELEMENT
    scores = a.tokens * a.heads * a.context * ELEMENT
    rope = a.tokens * a.context * a.rope * ELEMENT
    per_head = a.nope + a.rope
    flops = 2 * a.tokens * a.heads * a.context * a.rank

    def streamed(name: str, read: int, work: float) -> Part:
        """A batched product with the cache, scores on one side."""
        floor = cold_us(read, scores, work)
        return Part(name, 1, floor + OVER_FLOOR_US, cold_us(read))

    parts = (
        product("q_a", a.tokens, a.hidden, a.q_rank),
        product("kv_a", a.tokens, a.hidden, a.rank + a.rope),
        product("q_b", a.tokens, a.q_rank, a.heads * per_head),
        product("q_absorb", a.tokens, a.nope, a.rank, a.heads),
        product("v_up", a.tokens, a.rank, a.v_head, a.heads),
        product("output", a.tokens, a.heads * a.v_head, a.hidden),
        streamed("scores of latent values", latent, flops),
        streamed("scores of rotated values", rope, flops * a.rope / a.rank),
        streamed("mix of latent values", latent, flops),
        small("norms", 12, 2),
        small("rotations", 10, 2),
        small("copies into the caches and out of the heads", 3, 2),
        small("casts", 4, 1),
        # add, scale, softmax to float32, back to bf16: what is left reads two, writes one
        wide("passes over scores", 2.75 * scores, 3 * scores, 4),
    )
    return predicted("mla", a, parts, False)


def encoder() -> Prediction:
    """Products with many rows: the GPU is busy, and with arithmetic."""
    a = encoder_block.arguments([])
    rows = a.batch * a.length
    one = rows * a.hidden * ELEMENT
    inner = rows * a.ffn * ELEMENT
    flops = 4 * a.batch * a.length * a.length * a.hidden
    attention = flops / (FLASH_TFLOPS * 1e6)
    parts = (
        product("query, key, value, output", rows, a.hidden, a.hidden, count=4),
        product("to the wide", rows, a.hidden, a.ffn),
        product("to the narrow", rows, a.ffn, a.hidden),
        Part("attention", 1, attention, attention),
        wide("sums and norms", 2.5 * one, 6 * one, 4),
        Part("GELU", 1, cold_us(2 * inner), 0.0),
    )
    return predicted("encoder", a, parts, False)


def moe() -> Prediction:
    """Eager, and each expert waits for the GPU: no graph and no region can hold it."""
    a = experts.arguments([])
    rows = max(a.tokens * a.chosen // a.experts, 1)
    one = product("an expert's", rows, a.hidden, a.ffn)
    parts = (
        product("router", a.tokens, a.hidden, a.experts),
        small("choice", 5, 1),
        Part("experts' products", 3 * a.experts, one.each_us, one.floor_us),
        Part("experts' indices, SiLU and sums", 8 * a.experts, SMALL_US, 0.0),
    )
    why = (
        f"each of {a.experts} experts looks up its tokens and waits: neither a graph nor one "
        "region holds both sides, and a call of an expert compiled by itself saves the CPU one "
        f"launch, {EAGER_US:g} us, and costs it {GUARD_US:g}"
    )
    return predicted("moe", a, parts, False, reason=why)


def triton() -> Prediction:
    """By bytes in flight, and for the product by what its tiles read again."""
    moved = TRITON.rows * TRITON.columns * ELEMENT
    both = cold_us(2 * moved)
    sum_us = cold_us(moved)
    tuned = min(sum_us / in_flight(b, w) for b, w in ((64, 1), (128, 16), (256, 16)))
    parts = (
        Part("softmax_kernel", 1, both / in_flight(128, 1), both),
        Part("rms_norm_kernel", 1, both / in_flight(256, 16), both),
        Part("matmul_kernel", 1, tiles_us(TRITON.size, 32), tiles_us(TRITON.size, 128)),
        Part("row_sum_kernel", 1, tuned, tuned),
    )
    changes = [
        Change("triton_config", one.name, one.now_us - best)
        for one, best in zip(
            parts[:3],
            (both / in_flight(512, 1), both / in_flight(1024, 4), parts[2].floor_us),
            strict=True,
        )
    ]
    return predicted("triton", TRITON, parts, False, *changes)


def in_flight(block: int, warps: int) -> float:
    """Of the bytes that have to be asked for at once to use all of DRAM, the part that one load
    of each resident block makes: at most 1."""
    needed = MACHINE.bytes_in_flight["dram"].value
    assert needed, "the shipped calibration has it"
    resident = min(THREADS // (LANES * warps), BLOCKS)
    count = MACHINE.environment.device.sm_count or 132
    return min(resident * count * block * ELEMENT / needed, 1.0)


def tiles_us(size: int, tile: int) -> float:
    """A product of square matrices by square tiles: what they read from L2 again and again, or the
    arithmetic."""
    read = 2 * size**3 * ELEMENT / tile
    streams = FLOORS.of(Traffic(0, int(MACHINE.c_eff_bytes.value or 0), 0, 0), Regime.WARM)
    peak = MACHINE.peak_tflops["bf16"].value
    assert streams is not None and peak and MACHINE.c_eff_bytes.value
    l2 = read * streams.time_us / MACHINE.c_eff_bytes.value
    return max(l2, 2 * size**3 / (PEAK_REACHED * peak * 1e6))


PROGRAMS = {
    **{one.__name__: one for one in (served, mla, encoder, moe, triton, decode, prefill)},
    **FILES,
}


def document() -> dict[str, Any]:
    """All of them, as written to `predictions.json`."""
    return {
        "schema": "kernel-compass/step-predictions/1",
        "machine": MACHINE.environment.device.name,
        "programs": {name: _rounded(asdict(make())) for name, make in PROGRAMS.items()},
    }


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value


def read(program: str, device: str | None, words: Sequence[str]) -> dict[str, Any] | None:
    """What was foretold of a program; `None` = not of these sizes, or of another machine."""
    known = json.loads(PREDICTIONS.read_text())
    found: dict[str, Any] | None = known["programs"].get(program)
    return found if device == known["machine"] and not words else None


def write() -> None:
    """Renew what was foretold."""
    PREDICTIONS.write_text(json.dumps(document(), indent=1) + "\n")


def text(one: dict[str, Any]) -> str:
    """A program's prediction in a few lines."""
    rows = [
        f"{one['program']}: {one['launches']} launches, {one['begins_as']} {one['now_us']:.0f} us; "
        f"every part at its floor {one['bound_us']:.0f} us"
    ]
    for budget, found in one["by_budget"].items():
        kinds: dict[str, float] = {}
        for change in found["changes"]:
            kinds[change["kind"]] = kinds.get(change["kind"], 0.0) + change["saves_us"]
        said = ", ".join(f"{kind} {us:.0f} us" for kind, us in kinds.items()) or "nothing"
        rows.append(f"  at {budget} %: {found['ratio']:.2f}x, {found['after_us']:.0f} us ({said})")
    return "\n".join([*rows, *([f"  {one['reason']}"] if one["reason"] else [])])
