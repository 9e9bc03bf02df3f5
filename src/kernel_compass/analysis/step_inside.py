"""What compiled regions compute: products and attention, which stay kernels of their own in there.

A compiled region's kernels are joined to the region, not to operators. Its operators are known from
a call without compiling. What it takes is divided among them by the bytes that they move: small
ones are fused and move less than that, so large ones get a little less than their part.
"""

from __future__ import annotations

from dataclasses import replace

from kernel_compass.analysis.step_runs import is_heavy, is_view, op_bytes
from kernel_compass.records.step_capture import RegionKind, StepCapture, StepKernel, StepOp


def opened(capture: StepCapture) -> StepCapture:
    """The capture with the heavy operators of compiled regions as its own, behind all others.

    Each takes its part of the region's time away from the region's kernels; places of kernels and
    operators that were there before stay.
    """
    if not capture.inside:
        return capture
    kernels, ops = list(capture.kernels), list(capture.ops)
    for region in capture.regions:
        inside = [op for op in capture.inside if op.region == region.index and not is_view(op)]
        total = sum(map(op_bytes, inside))
        heavy = [op for op in inside if is_heavy(op)]
        if region.kind is not RegionKind.COMPILED or not heavy or not total:
            continue
        its = [at for at, one in enumerate(kernels) if one.region == region.index]
        time_us = sum(kernels[at].time_us for at in its)
        left = 1 - sum(map(op_bytes, heavy)) / total
        for at in its:
            kernels[at] = replace(kernels[at], time_us=left * kernels[at].time_us, floor_us=None)
        for op in heavy:
            ops.append(replace(op, index=len(ops), region=None))
            if its:
                kernels.append(_kernel(op, time_us * op_bytes(op) / total, len(ops) - 1))
    return replace(capture, ops=tuple(ops), kernels=tuple(kernels), inside=())


def _kernel(op: StepOp, time_us: float, index: int) -> StepKernel:
    return StepKernel(op.name, time_us, 1.0, op=index, line=op.line, gap_us=0.0)
