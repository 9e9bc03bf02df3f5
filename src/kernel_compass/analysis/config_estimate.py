"""What a configuration of the decode kernels will take, before it is built: for ordering alone.

    t = t0 + | |memory, work, meeting|_p + fence, chain |_q * code + sync + store

with p-norms as soft maxima over a launch's resources (hierarchical roofline, each level with its
own bytes: Yang, Kurth and Williams, Hierarchical Roofline analysis for GPUs, Concurrency and
Computation 32, 2020) and

    memory      bytes / BW(b): BW(b) = BW (1 - exp(-b / (BW latency))), b the bytes that all
                programs of a moment have in flight (Little's law, saturating)
    work        conversion, tensor unit and the tokens that every warp reads, slower where a
                multiprocessor has few warps to hide one behind another
    meeting     sums that warps along K leave in shared memory; the pipe works beside the others
    fence       where all loads are issued before any arithmetic, none of it is behind them
    chain       waves * (latency * waits + what one warp converts), what one program waits for
    code        code of few registers waits less: (warps that would fit / 64) ^ -occupancy
    sync        a barrier of the warps along K, and the adding up, a wave

each of the busiest multiprocessor where the programs do not divide evenly. Where a program takes K
in one step and nothing fences its loads, the compiler issues about `chunk_kib` of them at a time.
Constants: `config_constants.py`, with what they were fitted on and how well they order what they
were not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from kernel_compass.analysis.config_geometry import Geometry

Array = npt.NDArray[Any]


def estimates_us(
    launches: Sequence[Geometry], cold: bool, multiprocessors: int, constants: Mapping[str, float]
) -> Array:
    """Estimated times of launches, microseconds, `(N,)`.

    Args:
        launches: from `geometry`.
        cold: whether the weights come from DRAM.
        multiprocessors: of the GPU.
        constants: `config_constants.H200` or others of those names.
    """
    return times_us(columns(launches), cold, multiprocessors, constants)


def times_us(
    g: Mapping[str, Array], cold: bool, multiprocessors: int, k: Mapping[str, float]
) -> Array:
    """As `estimates_us`, of `columns` of launches: for a fit, which asks often."""
    early = np.minimum(g["ahead"] + k["loop"], g["steps"])
    chunk = np.where(g["unfenced"], np.minimum(1024 * k["chunk_kib"] / g["step_bytes"], 1.0), 1.0)
    memory = _memory(g, early * chunk, cold, multiprocessors, k)
    work = _work(g, multiprocessors, k)
    met = g["stretch"] * g["meeting"] / multiprocessors / 1024 * k["meeting_us_kib"]
    busy = _norm(k["norm"], memory, work, met)
    busy = busy + np.where(g["fenced"], k["fence"], 0.0) * np.minimum(memory, work)
    waits = g["steps"] / (early * chunk)
    waits = waits * np.where(g["unfenced"], g["chains"] ** k["chains_power"], 1.0)
    waves = np.ceil(g["busiest"] / g["resident"])
    latency = k["dram_latency_us"] if cold else k["l2_latency_us"]
    chain = waits * latency * k["wait"] + g["converted_warp"] / 2048 * k["warp_us_2048"]
    total = _norm(k["chain_norm"], busy, waves * chain)
    total = total * np.where(g["plain"], k["plain"], 1.0) * (1.0 + k["spill"] * g["spilled"] / 32)
    total = total * g["occupancy"] ** -k["occupancy"]
    sync = waves * (g["warps_k"] - 1.0) * k["sync_us"] + k["split_us"] * np.sqrt(g["split"])
    hint = np.where(g["store evict_first"], k["store_hint"], 1.0)
    store = g["output_bytes"] * hint / (k["store_tb_s"] * 1e6)
    found: Array = k["t0_us"] + total + sync + store
    return found


def _memory(
    g: Mapping[str, Array], early: Array, cold: bool, multiprocessors: int, k: Mapping[str, float]
) -> Array:
    """Of the weights and tokens, with `early` steps of each warp in flight."""
    share = np.minimum(g["programs"] / multiprocessors, 1.0)
    flight = g["resident"] * g["warps"] * g["step_bytes"] * early * share * multiprocessors
    hint = np.where(g["load evict_first"] | g["load cg"], k["load_hint"], 1.0)
    l2 = _bandwidth(flight, k["l2_tb_s"], k["l2_latency_us"]) * hint
    found: Array = g["stretch"] * g["requested_bytes"] / l2
    if cold:
        dram = _bandwidth(flight, k["dram_tb_s"], k["dram_latency_us"]) * hint
        found = _norm(4.0, found, np.sqrt(g["stretch"]) * g["weight_bytes"] / dram)
    return found


def _work(g: Mapping[str, Array], multiprocessors: int, k: Mapping[str, float]) -> Array:
    """Of the multiprocessors' pipes."""
    rate = np.where(
        g["narrow"], k["convert_4"], np.where(g["wide"], k["convert_16"], k["convert_8"])
    )
    flops = np.where(g["wgmma"], k["wgmma_tflops"], k["mma_tflops"])
    tokens = g["l1_bytes"] / (multiprocessors * k["l1_gb_s"] * 1e3)
    few = np.minimum(g["resident"] * g["warps"] / k["warps_wanted"], 1.0)
    each = g["converted"] / (rate * 1e6) + g["flops"] / (flops * 1e6) + tokens
    found: Array = g["stretch"] * each / few ** k["few_warps_power"]
    return found


def _norm(p: float, *parts: Array) -> Array:
    total: Array = sum(part**p for part in parts) ** (1 / p)
    return total


def _bandwidth(flight: Array, tb_s: float, latency_us: float) -> Array:
    """Bytes a microsecond with so many in flight."""
    most = tb_s * 1e6
    found: Array = most * -np.expm1(-flight / (most * latency_us))
    return np.maximum(found, 1.0)


def columns(launches: Sequence[Geometry]) -> dict[str, Array]:
    """Launches as arrays `(N,)` by field; of words one of booleans each, `load cg`, `wgmma`, ..."""
    table: dict[str, Array] = {}
    for field in fields(Geometry):
        values = [getattr(launch, field.name) for launch in launches]
        if field.name in ("kernel", "load", "store"):
            prefix = "" if field.name == "kernel" else f"{field.name} "
            words = ("mma", "wgmma", "plain") if field.name == "kernel" else ("evict_first", "cg")
            table |= {prefix + word: np.array([v == word for v in values]) for word in words}
        else:
            table[field.name] = np.array(values, dtype=bool if field.name in _FLAGS else float)
    return table


_FLAGS = frozenset(("wide", "narrow", "unfenced", "fenced"))
