"""The product that an operator of a timeline computes, from its name and input shapes."""

from __future__ import annotations

import re

from kernel_compass.records.workload import Op, Workload

_SHAPES = re.compile(r"aten::(?P<name>mm|bmm) \[(?P<a>[0-9, ]+)\] x \[(?P<b>[0-9, ]+)\]", re.ASCII)


def product_of(op: str | None) -> Workload | None:
    """`aten::mm [16, 4096] x [4096, 14336]` as the linear 16x14336x4096; `None` = no product.

    Operators that do more (`aten::addmm` adds a bias) are none. Which of the two operands is the
    weight is not in a name: the second is taken for it, as layers have it.
    """
    matched = _SHAPES.fullmatch(op or "")
    if matched is None:
        return None
    a, b = ([int(size) for size in matched[part].split(",")] for part in ("a", "b"))
    if min(a + b, default=0) < 1:
        return None
    if matched["name"] == "mm" and len(a) == len(b) == 2 and a[1] == b[0]:
        return Workload(Op.LINEAR, 1, a[0], a[1], b[1])
    if matched["name"] == "bmm" and len(a) == len(b) == 3 and (a[0], a[2]) == (b[0], b[1]):
        return Workload(Op.BMM, a[0], a[1], a[2], b[2])
    return None


def target_of(workload: Workload) -> str:
    """`linear:16x14336x4096`: as a problem is named."""
    return workload.shape_text.replace(" ", ":")
