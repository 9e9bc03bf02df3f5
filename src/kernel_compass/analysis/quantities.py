"""The numbers that the rules look at, derived from one kernel's metrics.

`utilization` says how busy the levels and pipes are and what warps wait for, `footprint` what
moved and how well it was packed, `launch_shape` how the grid fills the GPU. What a capture does
not carry is absent; a missing level is never taken for an idle one.
"""

from __future__ import annotations

import re
from dataclasses import replace
from math import isfinite

from kernel_compass.analysis.footprint import footprint
from kernel_compass.analysis.launch_shape import launch_shape
from kernel_compass.analysis.ncu_rules import rule_quantities
from kernel_compass.analysis.utilization import utilization
from kernel_compass.records.profile import KernelProfile

_LOW_BIT_NAME = re.compile(
    r"w[48]a\d|woq|gptq|awq|marlin|machete|dequant|_u?int[48](?![\d])|u?int[48]_|nf4|fp4"
    r"|(?<![a-z])q[48](?![a-z\d])",
    re.IGNORECASE,
)
"""Names of low-bit weight kernels; CUDA's vector type `int4` alone is none."""
_ATTENTION_NAME = re.compile(r"att(?:entio)?n|flash|fmha|sdpa|softmax", re.IGNORECASE)


def quantities(kernel: KernelProfile) -> dict[str, float]:
    """All derived quantities that this kernel's metrics allow; what is unknown is absent.

    Percentages are 0-100 of the elapsed time unless named `_active_pct` or `_share_pct`.
    """
    if not all(map(isfinite, kernel.metrics.values())):
        finite = {key: value for key, value in kernel.metrics.items() if isfinite(value)}
        kernel = replace(kernel, metrics=finite)
    rules = rule_quantities(kernel.rules)
    q = utilization(kernel.metrics, rules)
    if kernel.duration_stats is not None:
        q["duration_us"] = kernel.duration_stats.mean
    q |= launch_shape(kernel, q.get("sm_active_share"))
    q |= footprint(kernel.metrics, rules, q)
    q["low_bit_name"] = float(bool(_LOW_BIT_NAME.search(kernel.name)))
    q["attention_name"] = float(bool(_ATTENTION_NAME.search(kernel.name)))
    return q
