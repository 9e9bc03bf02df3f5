"""One configuration of an implementation, compiled without a GPU, as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kernel_compass.errors import UsageError
from kernel_compass.kernels.decode import configuration, counters_of, launch
from kernel_compass.kernels.fragments import pack
from kernel_compass.kernels.library import torch_library
from kernel_compass.kernels.providers.registry import implementation as implementation_named
from kernel_compass.kernels.quantize import quantize
from kernel_compass.kernels.static_compile import StaticFigures, compile_for
from kernel_compass.records.contracts import Config
from kernel_compass.records.number_format import Code, NumberFormat
from kernel_compass.records.workload import Op, Workload

_DECODE = frozenset(("own_decode", "own_decode_invariant"))
"""Launched directly: preparing them looks at the codes, of which there are none."""
_FEW_COLUMNS = 128


def compile_point(
    implementation: str,
    workload: Workload,
    number_format: NumberFormat,
    config: Config,
    capability: tuple[int, int],
) -> tuple[dict[str, float], ...]:
    """`figures_of` each kernel that the configuration launches.

    Raises:
        Exception: Triton's own, where it cannot be compiled.
    """
    weight = _meta_weight(workload, number_format)
    a = _activations(workload, number_format)
    if implementation in _DECODE:
        chosen, packed = configuration(config), pack(weight)
        out = a.new_empty((*a.shape[:2], workload.columns))

        def call() -> None:
            launch(packed, a, out, chosen, counters=counters_of(packed, chosen))
    else:
        own = implementation_named(implementation)
        prepared = own.prepare(weight, workload, config)
        given = a[0] if workload.op is Op.LINEAR else a

        def call() -> None:
            own.run(prepared, prepared.streamed, given)

    return figures_of(compile_for(call, capability))


def figures_of(kernels: tuple[StaticFigures, ...]) -> tuple[dict[str, float], ...]:
    """What each kernel needs and what its code is made of.

    `registers` of a thread, `threads` and `shared_bytes` of a program, `spills` and `loop_spills`
    (loads and stores of local memory in the code and in its loops), and the instructions in loops,
    or in all of the code where it has none: `hgmma`, `hmma`, `loads_128`, `loads_narrow`,
    `barriers`, `all`.

    Raises:
        UsageError: there is no kernel.
    """
    if not kernels:
        raise UsageError("Nothing was compiled.", "Give a configuration that launches a kernel.")
    return tuple(map(_figures, kernels))


def _figures(kernel: StaticFigures) -> dict[str, float]:
    loops = kernel.loop_instructions or {}
    mix = loops if sum(loops.values()) else kernel.instructions or {}
    return {
        "registers": float(kernel.registers),
        "threads": 32.0 * kernel.warps,
        "shared_bytes": float(kernel.shared_bytes),
        "spills": float(kernel.spills or 0),
        "loop_spills": _count(loops, "LDL", "STL"),
        "hgmma": _count(mix, "HGMMA", "QGMMA", "IGMMA"),
        "hmma": _count(mix, "HMMA", "IMMA", "QMMA"),
        "loads_128": _count(mix, "LDG.128", "LDGSTS.128"),
        "loads_narrow": _count(mix, "LDG.64", "LDG.32", "LDG.16", "LDG.8"),
        "barriers": _count(mix, "BAR"),
        "all": float(sum(mix.values())),
    }


def _count(mix: Mapping[str, int], *names: str) -> float:
    return float(sum(n for name, n in mix.items() if name.startswith(names)))


def _meta_weight(workload: Workload, number_format: NumberFormat) -> Any:
    """A quantized weight of these sizes without memory, its types as the quantizer makes them."""
    ones = torch_library().ones(1, workload.reduction, _FEW_COLUMNS)
    few = quantize(ones, number_format)
    wide = [_wide(t, workload) for t in (few.codes, few.scales, few.zeros)]
    return replace(few, codes=wide[0], scales=wide[1], zeros=wide[2])


def _wide(few: Any, workload: Workload) -> Any:
    if few is None:
        return None
    across = -(-workload.columns * few.shape[2] // _FEW_COLUMNS)
    return few.new_empty((workload.heads, few.shape[1], across), device="meta")


def _activations(workload: Workload, number_format: NumberFormat) -> Any:
    torch = torch_library()
    kind = torch.float16 if number_format.weight is Code.FP16 else torch.bfloat16
    sizes = (workload.heads, workload.tokens, workload.reduction)
    return torch.empty(sizes, dtype=kind, device="meta")
