"""A machine and kernels with round numbers, and times that a formula written apart gives."""

from __future__ import annotations

import math
from dataclasses import replace

from kernel_compass.analysis.ceilings import Ceilings
from kernel_compass.analysis.kernel_terms import PRIOR, KernelTerms, Term
from kernel_compass.analysis.traffic import traffic
from kernel_compass.records.workload import Op, Precision, Traffic, Workload
from kernel_compass.units import MIB

MACHINE = Ceilings(
    c_eff_bytes=40 * MIB,
    t0_us=2.0,
    bw_l2_tbs=6.0,
    bw_dram_tbs=3.0,
    peak_tflops={"bf16": 800.0, "int8": 1600.0},
    dequantization_tweights_s={"int4": 1.2},
    sm_count=100,
)


def exactly(precision: Precision, **values: float) -> KernelTerms:
    """The prior's terms with these values, each known exactly."""
    terms = PRIOR[precision]
    for name, term in terms.items():
        known = Term(values.get(name, term.value), 0.0)
        terms = replace(terms, **{name: known})  # type: ignore[arg-type]
    return terms


def planted(precision: Precision, **values: float) -> KernelTerms:
    """The prior's terms with these medians, as uncertain as the prior."""
    terms = PRIOR[precision]
    for name, value in values.items():
        term = Term(value, getattr(terms, name).log_sd)
        terms = replace(terms, **{name: term})  # type: ignore[arg-type]
    return terms


def bmm(mib: float, tokens: int, precision: Precision = Precision.BF16) -> Traffic:
    """H = K = 128; `mib` of weights at 16 bits."""
    return traffic(Workload(Op.BMM, 128, tokens, 128, round(32 * mib)), precision)


def grid(precision: Precision = Precision.BF16) -> list[Traffic]:
    """Weights on both sides of the capacity, few and many tokens."""
    sizes = (8, 12, 16, 24, 32, 48, 64, 96, 128)
    return [bmm(mib, tokens, precision) for mib in sizes for tokens in (1, 16, 64, 256)]


def by_hand_us(moved: Traffic, launches: float, l2: float, dram: float, math_share: float) -> float:
    """A warm bf16 launch on MACHINE by plain arithmetic, capacity ratio 1."""
    ws = moved.total_bytes
    hit = 1 / (1 + math.exp(math.log(ws / (40 * MIB)) / 0.08))
    from_l2 = ws / (6e6 * l2)
    from_dram = max(ws / (3e6 * dram), from_l2)
    tokens = moved.tokens or 16
    flops = moved.flops * math.ceil(tokens / 16) * 16 / tokens
    compute = flops / (800e6 * math_share)
    memory = hit * from_l2 + (1 - hit) * from_dram
    return 2.0 * launches + (memory**3 + compute**3) ** (1 / 3)
