"""Targets of `optimize` that are products: their workloads."""

from __future__ import annotations

import re

from kernel_compass.api.kernel_requests import mla_items
from kernel_compass.api.product_problem import of_product
from kernel_compass.errors import UsageError, shortened
from kernel_compass.records.problem import ProblemDescription, ProblemSource
from kernel_compass.records.workload import Op, Workload

ERROR_BUDGET_PCT = 3.0
"""Where none is asked for."""
TOKENS = "1,16,64"
_MODEL = "mla:"
_SIZES = re.compile(r"(bmm|linear):([1-9][0-9]{0,8}(?:x[1-9][0-9]{0,8})+)")


def product_target(source: ProblemSource) -> ProblemDescription:
    """The problem that a target names.

    Raises:
        UsageError: it names no product.
    """
    if source.target.startswith(_MODEL):
        return _described(source.target, _of_model(source))
    found = _SIZES.fullmatch(source.target)
    sizes = [] if found is None else [int(size) for size in found[2].split("x")]
    if found is None or len(sizes) != (4 if found[1] == "bmm" else 3):
        raise UsageError(
            f"{shortened(source.target)!r} is no target.",
            "Name mla:MODEL, bmm:HxMxKxN or linear:MxNxK.",
        )
    if found[1] == "bmm":
        heads, tokens, reduction, columns = sizes
        return _described(source.target, [Workload(Op.BMM, heads, tokens, reduction, columns)])
    tokens, columns, reduction = sizes
    return _described(source.target, [Workload(Op.LINEAR, 1, tokens, reduction, columns)])


def _of_model(source: ProblemSource) -> list[Workload]:
    tokens = [int(word) for word in str(source.arguments.get("tokens", TOKENS)).split(",")]
    tp = int(source.arguments.get("tp", 1))
    items = mla_items(source.target.removeprefix(_MODEL), tokens, tp)
    return [item.workload for item in items]


def _described(name: str, workloads: list[Workload]) -> ProblemDescription:
    found = tuple(of_product(one) for one in workloads)
    return ProblemDescription(name, found, ("weight",), ERROR_BUDGET_PCT)
