"""What the own kernels compile to, without a GPU: `tests/golden/static_kernels.json`.

    python benchmarks/static_table.py              figures as they are now, as JSON
    python benchmarks/static_table.py --write      ... into the table, after a kernel was changed
    python benchmarks/static_table.py --all        a line for every configuration that may be chosen
                                                   for a shape of the decode table; those that spill

Cases: the decode kernels' choices for Hopper that serve the most shapes of their table, their
plain fallback, and the defaults of the other kernels, each for the architectures it is for.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice, product
from pathlib import Path
from typing import Any

import torch

from kernel_compass.kernels import q_absorb_rope, v_up_group_quant
from kernel_compass.kernels.decode import DecodeConfig, counters_of, launch
from kernel_compass.kernels.decode_table import choose, rows
from kernel_compass.kernels.fragments import pack
from kernel_compass.kernels.plain_layouts import pack_plain
from kernel_compass.kernels.providers.own_wider import WIDER
from kernel_compass.kernels.quantize import quantize
from kernel_compass.kernels.static_compile import StaticFigures, compile_for, triton_version
from kernel_compass.records.contracts import Target
from kernel_compass.records.number_format import Code, NumberFormat
from kernel_compass.records.workload import Op, Workload

TABLE = Path(__file__).parents[1] / "tests" / "golden" / "static_kernels.json"
ARCHITECTURES = ((8, 0), (9, 0), (10, 0))
HOPPER = (9, 0)
DECODE_FORMATS = ("bf16", "w8a16_fp8", "w8a16_int8", "w4a16_gk", "w4a16_g128", "w4a16_g32_asym")
PLAIN_FORMATS = ("w8a16_fp8", "w4a16_g128")
CHOICES_A_FORMAT = 2
WIDER_FORMATS = ("w8a8_int8", "w8a8_fp8", "w8a8_fp8_block", "w4a16_g128")
Q_ABSORB = Workload(Op.BMM, 128, 4, 128, 512, "q_absorb")
V_UP = Workload(Op.BMM, 128, 4, 512, 128, "v_up")
ROTATED = 64


@dataclass(frozen=True)
class Case:
    """One launch for one architecture."""

    name: str
    capability: tuple[int, int]
    launch: Callable[[], object]

    def figures(self, listing: bool = True) -> tuple[StaticFigures, ...]:
        return compile_for(self.launch, self.capability, listing=listing)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--write", action="store_true", help="write the table")
    group.add_argument("--all", action="store_true", help="every choice of the decode table")
    parser.add_argument("--part", default="0/1", help="I/N: every Nth case from I on, from 0")
    options = parser.parse_args()
    if options.all:
        report_all()
        return
    first, step = map(int, options.part.split("/"))
    mine = islice(cases(), first, None, step)
    text = as_text({"triton": triton_version(), "rows": [row for c in mine for row in lines(c)]})
    if options.write:
        TABLE.write_text(text)
    else:
        sys.stdout.write(text)


def lines(case: Case) -> Iterator[dict[str, Any]]:
    """Table rows of a case: one a kernel that it launches."""
    for found in case.figures(listing=False):
        row = {"case": case.name, **asdict(found)}
        del row["instructions"], row["loop_instructions"]
        yield row


def as_text(table: dict[str, Any]) -> str:
    """JSON with a line for each row, so that a changed kernel shows as changed lines."""
    body = ",\n  ".join(json.dumps(row) for row in table["rows"])
    return f'{{"triton": {json.dumps(table["triton"])}, "rows": [\n  {body}\n]}}\n'


def report_all() -> None:
    for case in every_choice():
        for found in case.figures(listing=False):
            where = f"{found.registers} registers, {found.shared_bytes} B shared"
            spilled = f", {found.frame_bytes} B STACK" * bool(found.frame_bytes)
            print(f"{case.name}: {where}, {found.matrix_instruction}{spilled}", flush=True)


def cases() -> Iterator[Case]:
    """All of the table, always in the same order."""
    yield from decode_on_hopper()
    yield from plain_decode()
    yield from wider()
    yield from mla_neighbours()


def decode_on_hopper() -> Iterator[Case]:
    """The choices of each format that serve the most shapes, each at the first of them."""
    for name in DECODE_FORMATS:
        used = _choices(name)
        counts = Counter({config: len(served) for config, served in used.items()})
        for config, _ in counts.most_common(CHOICES_A_FORMAT):
            yield decode_case(name, used[config][0], config, HOPPER)


def every_choice() -> Iterator[Case]:
    """Each format's choice for each shape of the table; a configuration again where the depth
    differs, on which the code depends."""
    for name in DECODE_FORMATS:
        for config, served in _choices(name).items():
            for workload in {shape.reduction: shape for shape in served}.values():
                yield decode_case(name, workload, config, HOPPER)


def _choices(name: str) -> dict[DecodeConfig, list[Workload]]:
    """Which of the table's shapes a configuration is chosen for, in the table's order."""
    shapes = dict.fromkeys((r.heads, r.tokens, r.reduction, r.columns) for r in rows())
    used: dict[DecodeConfig, list[Workload]] = {}
    for shape in shapes:
        workload = Workload(Op.BMM, *shape)
        config = choose(workload, NumberFormat.parse(name), hopper=True)
        used.setdefault(config, []).append(workload)
    return used


def plain_decode() -> Iterator[Case]:
    for capability in ARCHITECTURES:
        for name in PLAIN_FORMATS:
            workload = Q_ABSORB if name != "w4a16_g128" else V_UP
            config = choose(workload, NumberFormat.parse(name), hopper=False)
            yield decode_case(name, workload, config, capability)


def decode_case(
    name: str, workload: Workload, config: DecodeConfig, capability: tuple[int, int]
) -> Case:
    weight = meta_weight(name, workload)
    packed, a = pack(weight), activations(weight.format, workload)
    out = a.new_empty((*a.shape[:2], workload.columns))
    label = " ".join(f"{k}={v}" for k, v in asdict(config).items() if v != _PLAINEST[k])
    sizes = _sizes(workload)
    return Case(
        f"decode {name} {sizes} {label}",
        capability,
        lambda: launch(packed, a, out, config, counters=counters_of(packed, config)),
    )


_PLAINEST = asdict(DecodeConfig("", 0, 0))


def wider() -> Iterator[Case]:
    """8-bit products and the study's kernels where they are supported, by their defaults."""
    for implementation, name in product(WIDER, WIDER_FORMATS):
        studied = implementation.name.startswith("study")  # of Ampere and Hopper
        for capability in ARCHITECTURES[: 2 if studied else 3]:
            target, kind = Target("cuda", capability), NumberFormat.parse(name)
            if implementation.supports(Q_ABSORB, kind, target) is None:
                yield wider_case(implementation, name, Q_ABSORB, target)


def wider_case(implementation: Any, name: str, workload: Workload, target: Target) -> Case:
    weight = meta_weight(name, workload)
    config = implementation.space(workload, weight.format, target)[0]
    prepared = implementation.prepare(weight, workload, config)
    a = activations(weight.format, workload)
    assert target.capability is not None
    return Case(
        f"{implementation.name} {name} {_sizes(workload)}",
        target.capability,
        lambda: implementation.run(prepared, prepared.streamed, a),
    )


def mla_neighbours() -> Iterator[Case]:
    for module, case in ((q_absorb_rope, _query), (v_up_group_quant, _value)):
        for name in ("bf16", "w8a16_fp8"):
            oldest = module.CAPABILITIES[NumberFormat.parse(name).weight]
            yield from (case(name, each) for each in ARCHITECTURES if each >= oldest)


def _query(name: str, capability: tuple[int, int]) -> Case:
    weight = meta_weight(name, Q_ABSORB)
    plain, a = pack_plain(weight), activations(weight.format, Q_ABSORB).transpose(0, 1)
    rotated = a.new_empty((*a.shape[:2], ROTATED))
    angles = a.new_empty((4096, ROTATED), dtype=torch.float32)
    positions = a.new_empty((a.shape[0],), dtype=torch.int64)
    config = q_absorb_rope.default_config(Q_ABSORB, capability)
    return Case(
        f"q_absorb_rope {name} {_sizes(Q_ABSORB)}",
        capability,
        lambda: q_absorb_rope.q_absorb_rope(a, rotated, plain, angles, positions, config=config),
    )


def _value(name: str, capability: tuple[int, int]) -> Case:
    weight = meta_weight(name, V_UP)
    plain, x = pack_plain(weight), activations(weight.format, V_UP).transpose(0, 1)
    config = v_up_group_quant.default_config(V_UP, capability)
    return Case(
        f"v_up_group_quant {name} {_sizes(V_UP)}",
        capability,
        lambda: v_up_group_quant.v_up_group_quant(x, plain, config=config),
    )


def meta_weight(name: str, workload: Workload) -> Any:
    """A quantized weight of these sizes without memory, its types as the quantizer makes them."""
    few = quantize(torch.ones(1, workload.reduction, 128), NumberFormat.parse(name))
    return replace(few, codes=_wide(few.codes, workload), scales=_wide(few.scales, workload),
                   zeros=_wide(few.zeros, workload))  # fmt: skip


def _wide(few: Any, workload: Workload) -> Any:
    if few is None:
        return None
    across = -(-workload.columns * few.shape[2] // 128)
    return few.new_empty((workload.heads, few.shape[1], across), device="meta")


def activations(number_format: NumberFormat, workload: Workload) -> Any:
    kind = torch.float16 if number_format.weight is Code.FP16 else torch.bfloat16
    sizes = (workload.heads, workload.tokens, workload.reduction)
    return torch.empty(sizes, dtype=kind, device="meta")


def _sizes(workload: Workload) -> str:
    sizes = (workload.heads, workload.tokens, workload.reduction, workload.columns)
    return "x".join(map(str, sizes))


if __name__ == "__main__":
    main()
