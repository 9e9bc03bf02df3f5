"""An accepted change to a step, as dispatch tables and logs hold it."""

from __future__ import annotations

from typing import Any

import msgspec

from kernel_compass.codec.canonical import Part, part, record_in
from kernel_compass.codec.trial_document import (
    CandidateDocument,
    ConfigDocument,
    IntervalDocument,
    check_interval,
)
from kernel_compass.errors import UsageError
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.step_action import StepAction, StepActionKind, StepEntry
from kernel_compass.records.workload import Op

_NEEDS = {
    StepActionKind.PRODUCT: "workload",
    StepActionKind.TRITON_CONFIG: "kernel",
}
"""What a target of some kinds has to name."""


class GpuDocument(Part):
    """`entries[].gpu`."""

    name: str
    capability: str
    sm_count: int


class WorkloadDocument(Part):
    """`action.target.workload`."""

    op: str
    heads: int
    tokens: int
    reduction: int
    columns: int
    name: str | None


class TargetDocument(Part, omit_defaults=True):
    """`action.target`."""

    what: str
    module: str | None
    module_class: str | None
    function: str | None
    kernel: str | None
    kernel_sha256: str | None
    workload: WorkloadDocument | None
    shapes: list[list[int]]
    parts: list[int] = msgspec.field(default_factory=list)


class ActionDocument(Part):
    """`steps[].action`."""

    kind: str
    target: TargetDocument
    candidate: CandidateDocument | None
    config: ConfigDocument
    settings: dict[str, int | float | str | bool]


class OutputErrorDocument(Part):
    """One of `steps[].outputs`."""

    name: str
    relative_pct: float
    top1_agreement_pct: float | None
    kl: float | None


class StepEntryDocument(Part, omit_defaults=True):
    """One of `steps`."""

    action: ActionDocument
    gpu: GpuDocument
    program: str
    files: dict[str, str]
    study: str
    trial: int
    speedup: IntervalDocument
    outputs: list[OutputErrorDocument]
    added_bytes: int
    packages: dict[str, str] = msgspec.field(default_factory=dict)


def step_part(entry: StepEntry) -> Any:
    """An entry in plain values, as other documents hold it too.

    Raises:
        ValueError: it contradicts itself.
    """
    return part(entry, StepEntryDocument, step_of)


def step_of(found: Any) -> StepEntry:
    """The entry in such a part.

    Raises:
        ValueError: it is none, or contradicts itself.
    """
    entry = record_in(found, StepEntryDocument, StepEntry)
    _check(entry)
    return entry


def _check(entry: StepEntry) -> None:
    if entry.trial < 1 or not entry.study:
        raise ValueError(f"{entry.reference!r} names no trial of a study")
    if entry.added_bytes < 0:
        raise ValueError(f"{entry.reference} adds {entry.added_bytes} bytes")
    check_interval(entry.speedup)
    _check_action(entry.action)


def _check_action(action: StepAction) -> None:
    needed = _NEEDS.get(action.kind)
    if needed is not None and getattr(action.target, needed) is None:
        raise ValueError(f"the target of {action.kind.value} names no {needed}")
    if action.kind is not StepActionKind.PRODUCT:
        return
    if action.candidate is None or action.candidate.format is None:
        raise ValueError("a product names no implementation with its number format")
    work, parts = action.target.workload, action.target.parts
    if parts and (work is None or work.op is not Op.LINEAR or sum(parts) != work.columns):
        raise ValueError(f"parts of {parts} columns do not make up the product")
    try:
        NumberFormat.parse(action.candidate.format)
    except UsageError as error:
        raise ValueError(error.found.rstrip(".")) from None
