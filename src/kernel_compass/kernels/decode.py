"""The decode product: its configurations, which one is chosen, and the launch.

`out[h, m, n] = sum over k of a[h, m, k] * weight[h, k, n]` with packed weights (`fragments.py`) of
16, 8 or 4 bits and 16-bit activations. Kernels: `decode_gluon.py` on Hopper, `decode_plain.py`
elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cache
from itertools import product
from typing import Any

from kernel_compass.errors import UsageError
from kernel_compass.kernels.fragments import COLUMNS, PADDED_ROWS, PackedWeight, run_length
from kernel_compass.kernels.library import torch_library
from kernel_compass.records.contracts import Config
from kernel_compass.records.decode_config import DecodeConfig
from kernel_compass.records.number_format import Code, NumberFormat
from kernel_compass.records.workload import Workload

__all__ = ["DecodeConfig", "configuration", "counters_of", "launch", "legal", "space"]

MOST_WARPS = 16
MOST_REGISTERS = 200
"""By `_registers`, which leaves out addresses and conversions; beyond it, the compiler spills."""
HELD_BYTES = 96 * 1024
"""Tokens in shared memory: two programs share a multiprocessor's."""
COUNTED_TILES = 32
"""Tiles of tokens of one launch where programs share K; more tokens are more launches."""
MOST_HELD = 8
"""Steps that are unrolled."""
HELD_REGISTERS = 256
"""What `decode_wgmma` may ask for at once where the tokens are held."""


def configuration(config: Config) -> DecodeConfig:
    """A configuration of its plain values.

    Raises:
        UsageError: unknown or missing names.
    """
    try:
        return DecodeConfig(**config)  # type: ignore[arg-type]
    except TypeError:
        names = ", ".join(field.name for field in fields(DecodeConfig))
        raise UsageError(
            f"{dict(config)} is no configuration of the decode kernels.", f"Its names are {names}."
        ) from None


def legal(config: DecodeConfig, workload: Workload, number_format: NumberFormat) -> bool:
    """Whether the kernel can be built for it and no part of a program is idle by design."""
    code = number_format.weight
    run = run_length(code)
    group = number_format.group if number_format.groups(workload.reduction) > 1 else None
    deep = -(-workload.reduction // PADDED_ROWS) * PADDED_ROWS
    least = 64 if code is Code.INT4 else 32
    if config.kernel == "mma" and group == 32 and config.rows == 32:
        least = 32 if config.chains % 2 == 0 else 64
    fits = config.fragments % run == 0 and config.rows >= least
    if config.kernel == "plain":
        whole = group is None or group % config.rows == 0 or config.rows % group == 0
        return fits and whole and config.warps_k == config.chains == config.tiles == 1
    fits = fits and (group is None or group % config.rows == 0)
    wide = -(-workload.columns // COLUMNS)
    once = config.depth >= deep
    fits = fits and config.warps <= MOST_WARPS
    fits = fits and config.depth < 2 * deep and (config.tiles == 1 or once)
    fits = fits and config.fragments * config.warps_n * config.tiles < 2 * max(wide, run)
    fits = fits and _registers(config, number_format, once) <= MOST_REGISTERS
    steps = -(-deep // config.depth)
    if config.kernel == "wgmma":
        small = config.rows * config.tokens * 2 <= HELD_BYTES
        small = small and config.warps_n % 4 == 0 and config.warps_k == config.chains == 1
        shared = config.split == 1 or config.split * 2 <= steps
        own = -(-steps // config.split)
        return fits and small and shared and config.ahead == 1 and _held_fits(config, code, own)
    few = config.ahead == 1 or config.ahead < steps <= MOST_HELD
    return fits and few and config.split == 1


def _registers(config: DecodeConfig, number_format: NumberFormat, once: bool) -> int:
    """About what a thread holds: weights and tokens of a step, and of the next, and the sums."""
    steps = 1 if once else 1 + config.ahead
    weights = config.fragments * config.rows * number_format.weight.bits // 64
    tokens = config.tokens * config.rows // 64 if config.kernel == "mma" else 0
    sums = config.fragments * config.tokens // 2
    return config.chains * (steps * (weights + tokens) + sums)


def space(workload: Workload, number_format: NumberFormat, hopper: bool) -> list[DecodeConfig]:
    """All configurations worth trying for these tokens."""
    kinds = (*_mma_space(workload), *_wgmma_space(workload)) if hopper else ()
    everything = (*kinds, *_plain_space(workload))
    return [c for c in everything if legal(c, workload, number_format)]


def _mma_space(workload: Workload) -> Iterator[DecodeConfig]:
    most = min(64, max(8, 1 << (workload.tokens - 1).bit_length()))
    sizes = [size for size in (16, 32, 64) if size <= most] or [most]
    for tokens, fragments, wn, wk, chains, rows, tiles, hold in product(
        sizes,
        (1, 2, 4),
        (1, 2, 4, 8),
        (1, 2, 4, 8, 16),
        (1, 2, 4),
        (32, 64, 128),
        (1, 2, 4, 8),
        (False, True),
    ):
        found = DecodeConfig("mma", fragments, wn, wk, chains, rows, tokens, tiles, hold=hold)
        yield found
        if not hold and tiles == 1:
            yield replace(found, ahead=2)
            yield replace(found, ahead=3)


def _wgmma_space(workload: Workload) -> Iterator[DecodeConfig]:
    if workload.tokens <= 4:
        return
    sizes = [t for t in (16, 32, 64) if t < 2 * max(workload.tokens, 16)]
    for fragments, wn, rows, tokens, tiles in product(
        (1, 2), (4, 8), (64, 128, 256, 512), sizes, (1, 2, 4, 8)
    ):
        yield DecodeConfig("wgmma", fragments, wn, rows=rows, tokens=tokens, tiles=tiles)


def _plain_space(workload: Workload) -> Iterator[DecodeConfig]:
    tokens = min(64, max(16, 1 << (workload.tokens - 1).bit_length()))
    for fragments, rows, warps in product((2, 4, 8), (64, 128), (2, 4, 8)):
        yield DecodeConfig("plain", fragments, warps, rows=rows, tokens=tokens)


def launch(
    packed: PackedWeight,
    a: Any,
    out: Any,
    config: DecodeConfig,
    *,
    counters: Any = None,
    wide: bool = False,
    warmup: bool = False,
) -> None:
    """One launch; where programs share K, one for every `COUNTED_TILES` tiles of tokens.

    Args:
        packed: on the device of `a`.
        a: `(H, M, K)`, dense along K.
        out: `(H, M, N)`, dense along N; 16 bit or float32.
        config: legal for the weight's format and shape.
        counters: where programs share K, `counters_of` this weight, in no other launch meanwhile.
        wide: products in float32, for the interpreter (`plain` only).
        warmup: compile only.
    """
    tokens = a.shape[1]
    if tokens == 0 or out.numel() == 0:
        return
    most = COUNTED_TILES * config.tokens
    if config.split > 1 and tokens > most:
        for first in range(0, tokens, most):
            few = slice(first, first + most)
            launch(packed, a[:, few], out[:, few], config, counters=counters, warmup=warmup)
        return
    code = packed.format.weight
    scale = packed.words if packed.scales is None else packed.scales
    zero = packed.words if packed.zeros is None else packed.zeros
    units = packed.chunks * 128
    deep = packed.chunks * (256 // code.bits)
    steps = -(-deep // (config.depth * config.split))
    columns = config.fragments * config.tiles * (1 if config.kernel == "plain" else config.warps_n)
    tiles = -(-tokens // config.tokens)
    grid = (-(-packed.fragments // columns), packed.heads, tiles * config.split)
    pairs = _pairs(a) if config.kernel != "plain" else None
    given = a if pairs is None else pairs
    meeting: tuple[Any, ...] = ()
    if config.kernel == "wgmma":
        meeting = (out, out)
    if config.split > 1:
        size = grid[0] * grid[1] * grid[2] * columns * COLUMNS * config.tokens
        meeting = (_float32(size, out.device), counters)
    arguments = (
        given, packed.words, scale, zero, out, *meeting, tokens, packed.columns, packed.reduction,
        packed.fragments, units, given.stride(0), given.stride(1), out.stride(0), out.stride(1),
        steps,
    )  # fmt: skip
    group: int | None = 0
    if packed.format.groups(packed.reduction) > 1:
        group = packed.format.group
    elif packed.zeros is not None:
        group = deep  # one group, and a zero point to subtract
    common = {"CODE": code.value, "GROUP": group, "ZEROS": packed.zeros is not None}
    common |= {"RUN": run_length(code), "ROWS": config.rows, "MP": config.tokens}
    kernel, more = _kernel(config, code, pairs is not None)
    if config.kernel == "plain":
        more = {"FRAGMENTS": config.fragments, "WIDE": wide}
    else:
        even = deep == packed.reduction == steps * config.depth * config.split
        whole = packed.fragments % columns == 0 and packed.columns == packed.fragments * COLUMNS
        more = more | {"TILES": config.tiles, "ONE": steps == 1, "EVEN": even, "WHOLE": whole}
    if config.kernel == "wgmma":
        more["HELD"] = _held(config, steps) if group == 0 else 0
        more["AHEAD"] = _loaded_ahead(config, code, steps) if more["HELD"] else 0
        more["SPLIT"] = config.split
    if config.kernel == "mma":
        more |= {"UNROLLED": steps if config.ahead > 1 else 0, "AHEAD": config.ahead}
    options = {"num_warps": config.warps}
    if config.registers:
        options["maxnreg"] = config.registers
    if warmup:
        kernel.warmup(*arguments, **common, **more, grid=grid, **options)
    else:
        kernel[grid](*arguments, **common, **more, **options)


def _float32(count: int, device: Any) -> Any:
    torch = torch_library()
    return torch.empty(count, dtype=torch.float32, device=device)


def counters_of(packed: PackedWeight, config: DecodeConfig) -> Any:
    """What the programs that share K count by, on the weight's device; `None` where none do."""
    if config.split == 1:
        return None
    tiles = -(-packed.fragments // (config.fragments * config.warps_n))
    return packed.words.new_zeros(tiles * packed.heads * COUNTED_TILES)


def _pairs(a: Any) -> Any | None:
    """The activations as words of two neighbours, without a copy; `None` where they lie askew."""
    try:
        return a.view(torch_library().int32)
    except RuntimeError:
        return None


def _held(config: DecodeConfig, steps: int) -> int:
    """Steps whose tokens are all in shared memory at once; 0 = they are not."""
    fits = steps * config.rows * config.tokens * 2 <= HELD_BYTES
    return steps if 1 < steps <= MOST_HELD and fits else 0


def _loaded_ahead(config: DecodeConfig, code: Code, steps: int) -> int:
    """Steps of weights that are loaded beside the first, with the tokens of all."""
    tokens = config.tokens * config.rows * steps // (64 * config.warps_n)
    step = config.fragments * config.rows * code.bits // 64
    operand = config.fragments * config.rows // 4
    sums = config.fragments * config.tokens // 2
    return min(steps - 1, (HELD_REGISTERS - tokens - sums - operand) // step - 1)


def _held_fits(config: DecodeConfig, code: Code, steps: int) -> bool:
    """Whether registers hold what `decode_wgmma` loads at once."""
    return not _held(config, steps) or _loaded_ahead(config, code, steps) >= 1


@cache
def _kernel(config: DecodeConfig, code: Code, pairs: bool) -> tuple[Any, dict[str, Any]]:
    """The kernel, and what its configuration alone decides."""
    if config.kernel == "plain":
        from kernel_compass.kernels.decode_plain import decode_plain

        return decode_plain, {}
    from kernel_compass.kernels import decode_gluon as gluon

    shared: dict[str, Any] = {"R": config.fragments, "WN": config.warps_n, "FENCE": config.hold}
    shared |= {"EV": config.load, "ES": config.store, "PAIRS": pairs}
    if config.kernel == "wgmma":
        layouts = gluon.wgmma_layouts(
            code.value, config.fragments, config.warps_n, config.rows, config.tokens, pairs
        )
        return gluon.decode_wgmma, shared | layouts
    shared |= {"WK": config.warps_k, "KS": config.chains}
    layouts = gluon.mma_layouts(
        code.value,
        config.fragments,
        config.warps_n,
        config.warps_k,
        config.chains,
        config.rows,
        config.tokens,
        pairs,
    )
    return gluon.decode_mma, shared | layouts
