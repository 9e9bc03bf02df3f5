"""A dispatch table as a `kernel-compass/dispatch-table/2` document, and back.

A table without changes to steps is written as version 1, as it always was: what was merged into it
can be taken out again to the byte, and older versions read it. `entries` are in force; `outdone`
wait behind a better one and come back when that is reverted; `steps` holds both of its kind.
Tokens are written `16` or `[65, 128]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import msgspec

from kernel_compass.codec.calibration_document import EnvironmentDocument
from kernel_compass.codec.canonical import (
    Part,
    Upgrade,
    indented,
    plain,
    reshaped,
    versioned,
)
from kernel_compass.codec.step_entry import GpuDocument, StepEntryDocument, step_of, step_part
from kernel_compass.codec.trial_document import (
    CandidateDocument,
    IntervalDocument,
    check_interval,
)
from kernel_compass.errors import StudyError, UsageError
from kernel_compass.records.dispatch import (
    DispatchEntry,
    DispatchTable,
    GpuModel,
    RegimeWin,
    TokenRange,
    WorkloadPattern,
    ordered,
    token_objection,
)
from kernel_compass.records.environment import Environment
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.trial import Candidate
from kernel_compass.records.workload import Op

NAME = "kernel-compass/dispatch-table"
VERSION = 2
SCHEMA = f"{NAME}/{VERSION}"
SCHEMA_OF_PRODUCTS = f"{NAME}/1"
"""Of a table without changes to steps."""
_REMEDY = "Name a table that kernel-compass wrote; this file was left as it is."
_AGAIN = (
    "Make it again from its studies: `kernel-compass apply STUDY --table FILE`, in another file; "
    "this one was left as it is."
)


class PatternDocument(Part):
    """`entries[].workload`."""

    op: str
    heads: int
    reduction: int
    columns: int
    tokens: list[int | tuple[int, int]]


class WinDocument(Part):
    """One of `entries[].wins`."""

    regime: str
    speedup: IntervalDocument


class EntryDocument(Part):
    """One of `entries`."""

    workload: PatternDocument
    gpu: GpuDocument
    wins: list[WinDocument]
    candidate: CandidateDocument
    study: str
    trial: int
    trial_sha256: str | None
    fidelity_error_pct: float | None
    format_error_pct: float | None
    added_bytes: int | None
    files: dict[str, str]


class TableDocument(Part):
    """The whole document."""

    schema: str
    studies: dict[str, EnvironmentDocument]
    entries: list[EntryDocument]
    outdone: list[EntryDocument]
    steps: list[StepEntryDocument]


def _with_steps(found: dict[str, Any]) -> dict[str, Any]:
    if "steps" in found:
        raise ValueError("version 1 has no field `steps`")
    return {**found, "steps": []}


UPGRADES: Mapping[int, Upgrade] = {1: _with_steps}


def encode(table: DispatchTable) -> bytes:
    """A table as an indented JSON object with a final newline; the same bytes for the same table.

    Raises:
        StudyError: an entry contradicts itself.
    """
    try:
        studies = {name: plain(one) for name, one in table.environments.items()}
        steps = [step_part(one) for one in table.step_contributions]
        found = {
            "schema": SCHEMA if steps else SCHEMA_OF_PRODUCTS,
            "studies": plain(reshaped(studies, dict[str, EnvironmentDocument])),
            "entries": [entry_part(one) for one in table.entries],
            "outdone": [entry_part(one) for one in table.outdone],
            **({"steps": steps} if steps else {}),
        }
        return indented(found)
    except ValueError as error:
        raise StudyError(
            f"The dispatch table contradicts itself: {error}.", "Nothing was written."
        ) from None


def decode(data: bytes | str, label: str = "This") -> DispatchTable:
    """The table that a document of this or an older version holds.

    Raises:
        StudyError: it is no such document, or a newer version's.
    """
    document = versioned(data, NAME, VERSION, TableDocument, label, UPGRADES, _REMEDY, _AGAIN)
    try:
        return _table(document)
    except ValueError as error:
        raise StudyError(f"{label} is not a {SCHEMA} document: {error}.", _REMEDY) from None


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of the documents of version 2."""
    path = files("kernel_compass.codec").joinpath("schemas/dispatch-table-2.schema.json")
    result: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    return result


def entry_part(entry: DispatchEntry) -> Any:
    """An entry in plain values, as other documents hold it too.

    Raises:
        ValueError: it contradicts itself.
    """
    found = plain(entry)
    found["workload"] = found.pop("pattern")
    found["workload"]["tokens"] = [_tokens(one) for one in entry.pattern.tokens]
    found = plain(reshaped(found, EntryDocument))
    entry_of(found)
    return found


def entry_of(found: Any) -> DispatchEntry:
    """The entry in such a part.

    Raises:
        ValueError: it is none, or contradicts itself.
    """
    document = reshaped(found, EntryDocument)
    entry = DispatchEntry(
        pattern=_pattern(document.workload),
        gpu=reshaped(plain(document.gpu), GpuModel),
        wins=reshaped(plain(document.wins), tuple[RegimeWin, ...]),
        candidate=reshaped(plain(document.candidate), Candidate),
        study=document.study,
        trial=document.trial,
        trial_sha256=document.trial_sha256,
        fidelity_error_pct=document.fidelity_error_pct,
        format_error_pct=document.format_error_pct,
        added_bytes=document.added_bytes,
        files=document.files,
    )
    _check(entry)
    return entry


def _table(document: TableDocument) -> DispatchTable:
    found = [entry_of(plain(one)) for one in (*document.entries, *document.outdone)]
    environments = reshaped(plain(document.studies), dict[str, Environment])
    steps = [step_of(plain(one)) for one in document.steps]
    for of in (found, steps):
        names = [(one.reference, one.place) for one in of]
        if len(set(names)) < len(names):
            raise ValueError("two of its entries are of one trial and for the same product")
    table = ordered(found, environments, steps)
    if len(table.entries) != len(document.entries):
        raise ValueError("an entry in force is for the same product as a better one")
    if set(environments) != {one.study for one in table.all_entries}:
        raise ValueError("its studies are not those of its entries")
    return table


def _pattern(document: PatternDocument) -> WorkloadPattern:
    tokens = tuple(
        TokenRange(one, one) if isinstance(one, int) else TokenRange(*one)
        for one in document.tokens
    )
    op = Op(document.op)
    return WorkloadPattern(op, document.heads, document.reduction, document.columns, tokens)


def _tokens(one: TokenRange) -> int | list[int]:
    return one.low if one.low == one.high else [one.low, one.high]


def _check(entry: DispatchEntry) -> None:
    p = entry.pattern
    if min(p.heads, p.reduction, p.columns) < 1 or (p.op is Op.LINEAR and p.heads != 1):
        raise ValueError(f"the sizes of {p.text} are none")
    objection = token_objection(p.tokens)
    if objection:
        raise ValueError(f"{p.text}: {objection}")
    if not entry.wins:
        raise ValueError(f"{entry.reference} has won in no regime")
    for win in entry.wins:
        check_interval(win.speedup)
    if entry.candidate.format is not None:
        try:
            NumberFormat.parse(entry.candidate.format)
        except UsageError as error:
            raise ValueError(error.found.rstrip(".")) from None
    if entry.trial < 1 or not entry.study:
        raise ValueError(f"{entry.reference!r} names no trial of a study")
