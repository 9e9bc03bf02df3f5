"""What a configuration of the decode kernels launches, before it is built.

Counts by the kernels' own layout (`kernels/decode.py`); registers, where nothing was compiled, from
what compilations of whole spaces held.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from kernel_compass.records.contracts import Config
from kernel_compass.records.decode_config import DecodeConfig
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.workload import Workload

WIDTH, ROWS = 16, 128
"""Columns of a fragment; K is padded to a multiple of so many rows."""
REGISTERS, THREADS, PROGRAMS, SHARED = 65536, 2048, 32, 227 * 1024
"""Of a multiprocessor."""
WARPS = THREADS // 32
HELD_BYTES, MOST_HELD = 96 * 1024, 8
"""Up to so many bytes of tokens and steps, `wgmma` asks for all of K before it begins."""
ADDRESSES, OTHER_ADDRESSES = 17, 40
"""Registers of a thread beside operands and sums, in `mma` and in the other kernels."""
COPIES: Mapping[str, tuple[float, float, float]] = {
    "unfenced": (0.25, 0.5, 0.5),
    "fenced": (1.1, 1.0, 0.3),
    "tiles": (2.1, 1.3, 0.5),
    "loop": (2.1, 2.1, 1.3),
    "ahead": (2.5, 2.5, 1.2),
}
"""How often `mma` holds a step's weights, tokens and sums at a time; of 4,932 compilations of the
recorded spaces, whose registers they give within 5 to 25 % (standard deviation)."""


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
    busiest: float
    """Programs of the busiest multiprocessor."""
    stretch: float
    """Those over the mean, 1 or more."""
    resident: float
    """Of them at a time."""
    occupancy: float
    """Share of a multiprocessor's warps that would fit, if there were programs enough."""
    steps: float
    """Along K and over tiles, of one program."""
    ahead: float
    """Of them that are loaded before the first is used."""
    unfenced: bool
    """K in one step whose loads the compiler places as it likes."""
    fenced: bool
    """K in one step, all loads before any arithmetic, and one tile."""
    chains: float
    weight_bytes: float
    """As they lie in memory."""
    requested_bytes: float
    """Weights as programs ask L2 for them, and tokens, once a program."""
    step_bytes: float
    """Of weights, of a warp's step."""
    l1_bytes: float
    """Of tokens, as warps read them."""
    flops: float
    """Of whole tiles."""
    converted: float
    """Weights, once a tile of tokens."""
    converted_warp: float
    """Weights that one warp converts."""
    warps_k: float
    meeting: float
    """Bytes of partial sums that warps of a program exchange, of all programs."""
    split: float
    output_bytes: float
    spilled: float
    """Accesses to spilled registers where that was compiled, else registers beyond the limit."""
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
        compiled: `registers`, `shared_bytes` and `spills` of a static compilation, where there is
            one.
    """
    c = DecodeConfig.among(config)
    bits, w = number_format.weight.bits, workload
    deep = ceil(w.reduction / ROWS) * ROWS
    fragments = ceil(w.columns / WIDTH)
    across = ceil(fragments / (c.fragments * c.warps_n * c.tiles))
    token_tiles = ceil(w.tokens / c.tokens)
    programs = across * w.heads * token_tiles * c.split
    steps = ceil(deep / (c.depth * c.split))
    one = steps == 1 and c.kernel == "mma"
    figures = compiled or {}
    own = _registers(c, bits, steps)
    registers = figures.get("registers", min(own, c.registers or 255))
    fits = _resident(registers, 32 * c.warps, figures.get("shared_bytes", _shared(c)))
    each = programs / multiprocessors
    busiest = ceil(each)
    alone = c.warps_n if c.kernel == "plain" else 1  # there warps share a fragment
    weights = w.heads * deep * fragments * WIDTH
    tokens_read = programs * min(c.tokens, w.tokens) * deep / c.split * 2
    step_weights = c.fragments * WIDTH * c.rows * c.chains / alone
    return Geometry(
        kernel=c.kernel,
        wide=bits == 16,
        narrow=bits == 4,
        programs=programs,
        warps=c.warps,
        busiest=busiest,
        stretch=busiest / each,
        resident=min(fits, busiest),
        occupancy=min(fits * c.warps / WARPS, 1.0),
        steps=steps * c.tiles,
        ahead=steps if _held(c, steps) else c.ahead,
        unfenced=one and not c.hold,
        fenced=one and c.hold and c.tiles == 1,
        chains=c.chains,
        weight_bytes=weights * bits / 8,
        requested_bytes=weights * bits / 8 * token_tiles + tokens_read,
        step_bytes=step_weights * bits / 8,
        l1_bytes=tokens_read * (c.warps_n / 4 + 1 if c.kernel == "wgmma" else c.warps_n),
        flops=2.0 * w.heads * across * c.fragments * c.warps_n * c.tiles * WIDTH * deep
        * token_tiles * max(c.tokens, 8),
        converted=float(weights * token_tiles),
        converted_warp=step_weights * steps * c.tiles,
        warps_k=c.warps_k,
        meeting=(c.warps_k > 1) * c.warps * c.fragments * WIDTH * c.tokens * 4.0
        * programs * c.tiles,
        split=c.split - 1.0,
        output_bytes=w.heads * w.tokens * w.columns * 2.0,
        spilled=figures.get("spills", max(own - (c.registers or 255), 0)),
        load=c.load,
        store=c.store,
    )  # fmt: skip


def _held(c: DecodeConfig, steps: int) -> bool:
    """Whether `wgmma` asks for all of K at once."""
    small = steps * c.rows * c.tokens * 2 <= HELD_BYTES
    return c.kernel == "wgmma" and 1 < steps <= MOST_HELD and small


def _registers(c: DecodeConfig, bits: int, steps: int) -> float:
    """About what a thread holds: addresses, codes of the steps that are loaded, tokens, sums."""
    weights = c.fragments * c.rows * bits // 64
    sums = c.fragments * c.tokens // 2
    if c.kernel == "mma":
        tokens = c.tokens * c.rows // 64
        of_weights, of_tokens, of_sums = COPIES[_kind(c, steps)]
        held = of_weights * weights + of_tokens * tokens + of_sums * sums
        return ADDRESSES + c.chains * held
    held = 1 if steps == 1 else 1 + c.ahead
    operand = c.fragments * c.rows // 4 if c.kernel == "wgmma" else 0
    more = weights if c.tiles > 1 else 0
    share = c.warps_n if c.kernel == "plain" else 1
    return OTHER_ADDRESSES + (held * weights + sums + operand + more) // share


def _kind(c: DecodeConfig, steps: int) -> str:
    """Which of `COPIES` holds for `mma`."""
    if steps > 1:
        return "ahead" if c.ahead > 1 else "loop"
    if c.tiles > 1:
        return "tiles"
    return "fenced" if c.hold else "unfenced"


def _shared(c: DecodeConfig) -> float:
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
