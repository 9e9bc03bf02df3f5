"""What is written for a shape: `bmm 128x1x128x512`, `linear 1x28672x4096`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kernel_compass.errors import UsageError, shortened
from kernel_compass.records.workload import Op, Workload

MAX_DIMENSION = 1 << 24
MAX_BYTES = 1 << 42
"""4 TiB: beyond any GPU."""
FORMS: Mapping[Op, str] = {Op.BMM: "HxMxKxN", Op.LINEAR: "MxNxK"}
"""In the order that `Workload.shape_text` writes."""
EXAMPLES: Mapping[Op, str] = {Op.BMM: "bmm 128x1x128x512", Op.LINEAR: "linear 1x28672x4096"}


def workload_of(op_text: str, shape: str | None) -> Workload:
    """The workload that two words name, e.g. `bmm 128x1x128x512`.

    Raises:
        UsageError: an unknown op, a malformed shape, or one that no GPU could hold.
    """
    op = _op(op_text)
    if shape is None:
        raise UsageError(f"{op.value} needs a shape.", _remedy(op))
    words = re.split(r"[x×*,]", shape.strip().lower())
    if len(words) != FORMS[op].count("x") + 1 or not all(re.fullmatch(r"[0-9]+", w) for w in words):
        raise UsageError(f"{shortened(shape)!r} is no shape of a {op.value}.", _remedy(op))
    if any(len(word) > 12 or not 1 <= int(word) <= MAX_DIMENSION for word in words):
        found = f"A dimension of {op.value} {shortened(shape)} is not between 1 and "
        found += f"{MAX_DIMENSION:,}."
        raise UsageError(found, _remedy(op))
    sizes = [int(word) for word in words]
    if op is Op.BMM:
        heads, tokens, reduction, columns = sizes
    else:
        heads, (tokens, columns, reduction) = 1, sizes
    workload = Workload(op, heads, tokens, reduction, columns)
    elements = workload.weights + heads * tokens * (reduction + columns)
    if 2 * elements > MAX_BYTES:
        raise UsageError(f"{workload.shape_text} does not fit on a GPU.", _remedy(op))
    return workload


def _op(text: str) -> Op:
    for op in Op:
        if op.value == text.strip().lower():
            return op
    known = ", ".join(op.value for op in Op)
    raise UsageError(f"There is no op {shortened(text)!r}.", f"Known: {known}; or --model NAME.")


def _remedy(op: Op) -> str:
    return f"Write {op.value} {FORMS[op]}, for example `kernel-compass advise {EXAMPLES[op]}`."
