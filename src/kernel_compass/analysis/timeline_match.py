"""Kernels of a capture in a timeline of the same program, whose names are spelled otherwise.

ncu and CUPTI print template arguments and namespaces differently. So what is the same is looked
for: the function's base name, grid and block, and the words of the whole name, of which one
spelling may have more than the other but not each its own. (In a recorded block base name, grid
and block alone would take a multiplication for a negation.) What fits several is not told.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from kernel_compass.analysis.launch_verdict import LaunchEvidence
from kernel_compass.analysis.timeline_runs import TYPICAL, FixedCost
from kernel_compass.records.diagnosis import Limiter
from kernel_compass.records.profile import Dim3, KernelProfile
from kernel_compass.records.report import Report, ReportKernel

Seen = Callable[[KernelProfile], LaunchEvidence | None]
"""What a timeline shows of a kernel of a capture; `None` where it does not tell."""

_UNNAMED = re.compile(r"\(anonymous namespace\)|<unnamed>|\{anonymous\}")
_INNERMOST = re.compile(r"<[^<>]*>")
_WORD = re.compile(r"[A-Za-z_]\w{3,}")
_NOISE = frozenset(
    {
        *("native", "unnamed", "anonymous", "namespace", "instance", "lambda", "operator"),
        *("const", "void", "true", "false", "bool", "long", "unsigned"),
    }
)
"""Words that one spelling has and the other has not."""

_Item = TypeVar("_Item")
_Key = tuple[str, Dim3 | None, Dim3 | None]


def base_name(name: str) -> str:
    """`vectorized_elementwise_kernel` of `void at::native::vectorized_elementwise_kernel<4,
    ...>(int, ...)`."""
    text, before = _UNNAMED.sub("unnamed", name).replace("->", ""), ""
    while text != before:
        text, before = _INNERMOST.sub("", text), text
    head = re.split(r"[(<]", text, maxsplit=1)[0].strip()
    return head.split()[-1].rpartition("::")[2] if head else name


def alike(one: str, other: str) -> bool:
    """Whether two spellings can be of one kernel."""
    first, second = (frozenset(_WORD.findall(name)) - _NOISE for name in (one, other))
    return first <= second or second <= first


def seen_in(timeline: Report, kernels: Iterable[KernelProfile], fixed: FixedCost = TYPICAL) -> Seen:
    """What the timeline shows of each kernel of a capture, where it is one kernel in both.

    Args:
        timeline: the report of a trace.
        kernels: all of the capture's.
        fixed: what a launch costs on this GPU.
    """
    mine = _by_key((kernel, kernel) for kernel in kernels)
    theirs = _by_key((item.kernel, item) for item in timeline.kernels if item.timeline)

    def seen(kernel: KernelProfile) -> LaunchEvidence | None:
        known = theirs.get(_key(kernel), [])
        same = [item for item in known if item.kernel.name == kernel.name]
        same = same or [item for item in known if alike(item.kernel.name, kernel.name)]
        if len(same) != 1:
            return None
        rivals = [one for one in mine.get(_key(kernel), []) if alike(one.name, same[0].kernel.name)]
        exact = same[0].kernel.name == kernel.name
        return _evidence(same[0], fixed) if exact or len(rivals) <= 1 else None

    return seen


def with_notes(report: Report, path: str) -> Report:
    """A report that a timeline was read for, with what that did not tell."""
    suspected = [
        item.kernel.diagnosis
        for item in report.kernels
        if item.kernel.diagnosis and item.kernel.diagnosis.limiter is Limiter.LAUNCH_BOUND
    ]
    silent = sum(
        all(e.metric != "timeline_duration_us" for e in found.evidence) for found in suspected
    )
    if not silent:
        return report
    note = (
        f"{silent:,} of {len(suspected):,} launch_bound kernels are as counters alone suspect: in "
        f"the timeline {path} no kernel, or more than one, has their name, grid and block."
    )
    return replace(report, warnings=(*report.warnings, note))


def _key(kernel: KernelProfile) -> _Key:
    return base_name(kernel.name), kernel.grid, kernel.block


def _by_key(pairs: Iterable[tuple[KernelProfile, _Item]]) -> dict[_Key, list[_Item]]:
    found: dict[_Key, list[_Item]] = {}
    for kernel, item in pairs:
        found.setdefault(_key(kernel), []).append(item)
    return found


def _evidence(item: ReportKernel, fixed: FixedCost) -> LaunchEvidence | None:
    stats = item.kernel.duration_stats
    if stats is None or item.timeline is None:
        return None
    return LaunchEvidence.of(stats.median, item.kernel.launches, item.timeline, fixed)
