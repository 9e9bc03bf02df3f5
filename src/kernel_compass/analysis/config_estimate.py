"""What a configuration of the decode kernels will take, before it is built: for ordering alone.

    t = t0 + |chain, memory, L1, tensor, conversion|_p + meeting

with the p-norm as a soft maximum over a launch's resources (hierarchical roofline, each level with
its own bytes: Yang, Kurth and Williams, Hierarchical Roofline analysis for GPUs, Concurrency and
Computation 32, 2020) and

    memory      bytes / BW(b): BW(b) = BW (1 - exp(-b / (BW latency))), b the bytes that all
                resident programs have in flight (Little's law, saturating)
    chain       waves * (latency + steps * step), what one program after another waits for
    L1          tokens as every warp reads them
    tensor      FLOP of whole tiles by the unit's rate; conversion: weights once a tile of tokens
    meeting     sums that warps or programs along K add up at the end

each of the busiest multiprocessor where the programs do not divide evenly. Constants:
`config_constants.py`, with what they were fitted on and how well they order what they were not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from kernel_compass.records.contracts import Config
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.workload import Workload

Array = npt.NDArray[Any]
WIDTH, ROWS = 16, 128
"""Columns of a fragment; K is padded to a multiple of so many rows."""
REGISTERS, THREADS, PROGRAMS, SHARED = 65536, 2048, 32, 227 * 1024
"""Of a multiprocessor."""
ADDRESSES = 40
"""Registers of a thread beside operands and sums; compared with static compilations."""


@dataclass(frozen=True)
class Geometry:
    """What a launch consists of; counts of the whole launch unless said otherwise."""

    kernel: str
    wide: bool
    """16-bit weights."""
    narrow: bool
    """4-bit weights."""
    programs: float
    warps: float
    """Of a program."""
    resident: float
    """Programs on a multiprocessor at a time."""
    busiest: float
    """Programs of the busiest multiprocessor over their mean, 1 or more."""
    waves: float
    steps: float
    """Along K and over tiles, of one program."""
    ahead: float
    """Share of a program's loads that are issued before any of it is used, 0 to 1."""
    weight_bytes: float
    """As they lie in memory."""
    requested_bytes: float
    """Weights as programs ask L2 for them, and tokens, once a program."""
    in_flight_bytes: float
    l1_bytes: float
    flops: float
    """Of whole tiles."""
    converted: float
    """Weights, once a tile of tokens."""
    meeting: float
    """Bytes of partial sums that warps of a program exchange, of all programs."""
    broad: bool
    """Whether a warp holds several fragments."""
    split: float
    output_bytes: float
    spilled: float
    """Registers of a thread beyond what it may have."""
    held: bool
    load: str
    store: str


def geometry(
    config: Config,
    workload: Workload,
    number_format: NumberFormat,
    multiprocessors: int,
    compiled: Mapping[str, float] | None = None,
) -> Geometry:
    """What a configuration of `own_decode` launches.

    Args:
        config: kernel, fragments, warps_n, ...: the names of the decode kernels.
        workload: the product.
        number_format: of the weight.
        multiprocessors: of the GPU.
        compiled: `registers` and `shared_bytes` of a static compilation, where there is one.
    """
    c = _Config.of(config)
    bits, w = number_format.weight.bits, workload
    deep = ceil(w.reduction / ROWS) * ROWS
    fragments = ceil(w.columns / WIDTH)
    across = ceil(fragments / (c.fragments * c.warps_n * c.tiles))
    token_tiles = ceil(w.tokens / c.tokens)
    programs = across * w.heads * token_tiles * c.split
    steps = ceil(deep / (c.depth * c.split))
    warps = c.warps
    own = _registers(c, bits, steps)
    registers = (compiled or {}).get("registers", min(own + ADDRESSES, c.registers or 255))
    shared = (compiled or {}).get("shared_bytes", _shared(c))
    resident = _resident(registers, 32 * warps, shared)
    each = programs / multiprocessors
    step_bytes = c.fragments * c.warps_n * WIDTH * c.depth * bits / 8
    early = min(steps, c.ahead + (steps > 1))
    weights = w.heads * deep * fragments * WIDTH
    tokens_read = programs * c.tokens * deep / c.split * 2
    return Geometry(
        kernel=c.kernel,
        wide=bits == 16,
        narrow=bits == 4,
        programs=programs,
        warps=warps,
        resident=min(resident, each) if each > 1 else 1.0,
        busiest=ceil(each) / each,
        waves=ceil(each / resident) if each > 1 else 1.0,
        steps=steps * c.tiles,
        ahead=early / steps,
        weight_bytes=weights * bits / 8,
        requested_bytes=weights * bits / 8 * token_tiles + tokens_read,
        in_flight_bytes=step_bytes * early * min(programs, resident * multiprocessors),
        l1_bytes=tokens_read * (c.warps_n if c.kernel == "mma" else c.warps_n / 4 + 1),
        flops=2.0 * w.heads * across * c.fragments * c.warps_n * c.tiles * WIDTH * deep
        * token_tiles * max(c.tokens, 8),
        converted=float(weights * token_tiles),
        meeting=(c.warps_k > 1) * warps * c.fragments * WIDTH * c.tokens * 4.0
        * programs * c.tiles,
        broad=c.fragments > 1,
        split=c.split - 1.0,
        output_bytes=w.heads * w.tokens * w.columns * 2.0,
        spilled=max(own + ADDRESSES - (c.registers or 255), 0),
        held=c.hold,
        load=c.load,
        store=c.store,
    )  # fmt: skip


@dataclass(frozen=True)
class _Config:
    """The decode kernels' configuration, as far as it decides a time."""

    kernel: str
    fragments: int
    warps_n: int
    warps_k: int = 1
    chains: int = 1
    rows: int = 128
    tokens: int = 8
    tiles: int = 1
    load: str = ""
    store: str = ""
    hold: bool = False
    ahead: int = 1
    split: int = 1
    registers: int = 0

    @classmethod
    def of(cls, config: Config) -> _Config:
        known = {field.name for field in fields(cls)}
        return cls(**{k: v for k, v in config.items() if k in known})  # type: ignore[arg-type]

    @property
    def warps(self) -> int:
        return self.warps_n * self.warps_k

    @property
    def depth(self) -> int:
        return self.rows * self.chains * self.warps_k


def _registers(c: _Config, bits: int, steps: int) -> int:
    """About what a thread holds: codes of the steps that are loaded, tokens, and sums."""
    share = c.warps_n if c.kernel == "plain" else 1
    held = 1 if steps == 1 else 1 + c.ahead
    weights = c.fragments * c.rows * bits // 64
    tokens = c.tokens * c.rows // 64 if c.kernel == "mma" else 0
    sums = c.fragments * c.tokens // 2
    operand = c.fragments * c.rows // 4 if c.kernel == "wgmma" else 0
    more = weights if c.tiles > 1 else 0
    return (c.chains * (held * (weights + tokens) + sums) + operand + more) // share


def _shared(c: _Config) -> float:
    if c.kernel == "wgmma":
        return c.rows * c.tokens * 2.0
    if c.kernel == "plain":
        return (c.tokens + WIDTH * c.fragments) * c.rows * 2.0
    return (c.warps_k > 1) * c.warps * c.fragments * WIDTH * c.tokens * 4.0


def _resident(registers: float, threads: int, shared: float) -> int:
    """Programs of a multiprocessor; at least one, for what does not fit is no matter of time."""
    by_registers = REGISTERS // (8 * ceil(max(registers, 16) / 8) * threads)
    by_shared = int(SHARED // (shared + 1024))
    return int(max(1, min(by_registers, by_shared, THREADS // threads, PROGRAMS)))


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
    g = _columns(launches)
    k = constants
    stretch = g["busiest"]
    dram, l2 = (
        _bandwidth(g, k["dram_tb_s"], k["dram_latency_us"]),
        _bandwidth(g, k["l2_tb_s"], k["l2_latency_us"]),
    )
    hint = np.where(g["load evict_first"] | g["load cg"], k["load_hint"], 1.0)
    dram, l2 = dram * hint, l2 * hint
    written = g["output_bytes"] * np.where(g["store evict_first"], k["store_hint"], 1.0)
    memory = stretch * g["requested_bytes"] / l2 + written / (k["store_tb_s"] * 1e6)
    if cold:
        memory = (memory**4 + (g["weight_bytes"] / dram) ** 4) ** 0.25
    latency = k["dram_latency_us"] if cold else k["l2_latency_us"]
    waits = np.maximum(g["steps"] * (1.0 - k["overlap"] * g["ahead"]), 1.0)
    step = np.where(g["wgmma"], k["step_wgmma_us"], k["step_us"])
    step = step * np.where(g["held"], k["held"], 1.0)
    chain = g["waves"] * (latency * waits ** k["wait_power"] + g["steps"] * step)
    l1 = stretch * g["l1_bytes"] / (multiprocessors * k["l1_gb_s"] * 1e3)
    tensor = g["flops"] / (np.where(g["wgmma"], k["wgmma_tflops"], k["mma_tflops"]) * 1e6)
    rate = np.where(
        g["narrow"], k["convert_4"], np.where(g["wide"], k["convert_16"], k["convert_8"])
    )
    convert = g["converted"] / (rate * 1e6)
    few = np.minimum(g["resident"] * g["warps"] / k["warps_wanted"], 1.0)
    work = stretch * (tensor + convert) / few ** k["few_warps_power"]
    work = work * np.where(g["broad"] & g["wgmma"], k["wgmma_broad"], 1.0)
    p = k["norm"]
    busy = (memory**p + chain**p + l1**p + work**p) ** (1 / p)
    busy = busy * np.where(g["plain"], k["plain"], 1.0) * (1.0 + k["spill"] * g["spilled"] / 32)
    met = stretch * g["meeting"] / multiprocessors / 1024
    meeting = met * k["meeting_us_kib"] + k["split_us"] * np.sqrt(g["split"])
    found: Array = k["t0_us"] + busy + meeting
    return found


def _columns(launches: Sequence[Geometry]) -> dict[str, Array]:
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


_FLAGS = frozenset(("wide", "narrow", "held", "broad"))


def _bandwidth(g: Mapping[str, Array], tb_s: float, latency_us: float) -> Array:
    """Bytes a microsecond with so many in flight."""
    most = tb_s * 1e6
    found: Array = most * -np.expm1(-g["in_flight_bytes"] / (most * latency_us))
    return np.maximum(found, 1.0)
