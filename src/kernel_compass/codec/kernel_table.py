"""Kernel tables as `kernel-compass/kernel-table/1` documents and as CSV, and back."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from importlib.resources import files
from io import StringIO
from math import isfinite
from typing import Any

import msgspec

from kernel_compass.codec.finite import finite
from kernel_compass.codec.json_reading import read_json
from kernel_compass.codec.kernel_table_document import (
    DERIVED,
    SCHEMA,
    RowDocument,
    TableDocument,
)
from kernel_compass.errors import UsageError
from kernel_compass.records.advice import CacheFit
from kernel_compass.records.device import Device
from kernel_compass.records.environment import Environment
from kernel_compass.records.kernel_table import KernelRow, KernelTable, Layout, RowStatus
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import Op, Workload

COLUMNS = RowDocument.__struct_fields__
"""Of the CSV form, in order; an empty cell is an unknown value."""
_JOINED = "; "
_WRITE = "Write one with `kernel-compass mla --output FILE.json` (or .csv)."


def encode(table: KernelTable) -> bytes:
    """A table as an indented UTF-8 JSON object with a final newline; all numbers finite."""
    document = TableDocument(
        schema=SCHEMA,
        calibration=table.calibration,
        c_eff_bytes=finite(table.c_eff_bytes),
        notes=list(table.notes),
        rows=[_document(row) for row in table.rows],
    )
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def decode(data: bytes | str) -> KernelTable:
    """The table that a document holds.

    Raises:
        UsageError: it is no such document.
    """
    try:
        document = read_json(data, TableDocument)
        if document.schema != SCHEMA:
            raise ValueError(f"its schema is {document.schema!r}")
        rows = tuple(map(_row, document.rows))
    except (ValueError, UsageError) as error:
        raise UsageError(f"This is not a {SCHEMA} document: {error}.", _WRITE) from None
    return KernelTable(rows, document.calibration, document.c_eff_bytes, tuple(document.notes))


def encode_csv(table: KernelTable) -> str:
    """The rows as CSV with a header; what holds for the whole table is only in the JSON form."""
    stream = StringIO()
    writer = csv.DictWriter(stream, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for row in table.rows:
        writer.writerow(
            {k: v for k, v in msgspec.to_builtins(_document(row)).items() if v is not None}
        )
    return stream.getvalue()


def decode_csv(text: str) -> KernelTable:
    """The rows of the CSV form.

    Raises:
        UsageError: it is no such table.
    """
    try:
        reader = csv.DictReader(StringIO(text.removeprefix("\ufeff")), strict=True)
        if list(reader.fieldnames or ()) != list(COLUMNS):
            raise ValueError("its columns are others")
        return KernelTable(tuple(map(_csv_row, reader)))
    except (ValueError, UsageError, csv.Error, msgspec.MsgspecError) as error:
        raise UsageError(f"This is not the CSV of a kernel table: {error}.", _WRITE) from None


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of the documents."""
    text = files("kernel_compass.codec").joinpath("schemas/kernel-table-1.schema.json").read_bytes()
    result: dict[str, Any] = msgspec.json.decode(text)
    return result


def _csv_row(cells: Mapping[str | Any, Any]) -> KernelRow:
    if None in cells or None in cells.values():
        raise ValueError("a line has too many or too few cells")
    known = {name: cell for name, cell in cells.items() if cell != ""}
    return _row(msgspec.convert(known, RowDocument, strict=False))


def _document(row: KernelRow) -> RowDocument:
    w, e = row.workload, row.environment or Environment(Device())
    d = e.device
    return RowDocument(
        op=w.op.value,
        heads=w.heads,
        tokens=w.tokens,
        reduction=w.reduction,
        columns=w.columns,
        format=row.format.name,
        regime=row.regime.value,
        status=row.status.value,
        weight_bytes=row.weight_bytes,
        moved_bytes=row.moved_bytes,
        flops=w.flops,
        model=row.model,
        name=w.name,
        layers=row.layers,
        implementation=row.implementation,
        layout=row.layout.value,
        cache_fit=row.cache_fit.value,
        floor_us=finite(row.floor_us),
        floor_basis=row.floor_basis,
        time_us=finite(row.time_us),
        spread_pct=finite(row.spread_pct),
        launches=row.launches,
        tflops=finite(row.tflops),
        gb_s=finite(row.gb_s),
        headroom=finite(row.headroom),
        model_us=finite(row.model_us),
        baseline_us=finite(row.baseline_us),
        speedup=finite(row.speedup),
        fidelity_error_pct=finite(row.fidelity_error_pct),
        format_error_pct=finite(row.format_error_pct),
        reason=row.reason,
        warnings=_JOINED.join(row.warnings) or None,
        device=d.name,
        compute_capability=d.compute_capability,
        sm_count=d.sm_count,
        l2_bytes=d.l2_bytes,
        driver=e.driver,
        torch=e.torch,
        triton=e.triton,
        python=e.python,
        kernel_compass=e.kernel_compass,
        date=e.date,
    )


def _row(document: RowDocument) -> KernelRow:
    numbers = {k: v for k, v in msgspec.structs.asdict(document).items() if isinstance(v, float)}
    wild = [name for name, value in numbers.items() if not isfinite(value) and name not in DERIVED]
    if wild:
        raise ValueError(f"{wild[0]} is {numbers[wild[0]]}")
    d = document
    sizes = (d.heads, d.tokens, d.reduction, d.columns)
    if min(sizes) < 1:
        raise ValueError(f"a dimension is {min(sizes)}")
    return KernelRow(
        workload=Workload(Op(d.op), *sizes, d.name),
        format=NumberFormat.parse(d.format),
        implementation=d.implementation,
        regime=Regime(d.regime),
        status=RowStatus(d.status),
        weight_bytes=d.weight_bytes,
        moved_bytes=d.moved_bytes,
        layout=Layout(d.layout),
        model=d.model,
        layers=d.layers,
        cache_fit=CacheFit(d.cache_fit),
        floor_us=d.floor_us,
        floor_basis=d.floor_basis,
        time_us=d.time_us,
        spread_pct=d.spread_pct,
        launches=d.launches,
        fidelity_error_pct=d.fidelity_error_pct,
        format_error_pct=d.format_error_pct,
        baseline_us=d.baseline_us,
        reason=d.reason,
        warnings=tuple(d.warnings.split(_JOINED)) if d.warnings else (),
        environment=_environment(d),
    )


def _environment(d: RowDocument) -> Environment | None:
    device = Device(d.device, d.compute_capability, d.sm_count, d.l2_bytes)
    found = Environment(device, d.driver, d.torch, d.triton, d.python, d.kernel_compass, d.date)
    return None if found == Environment(Device()) else found


def merged(old: Iterable[KernelRow], new: Iterable[KernelRow]) -> tuple[KernelRow, ...]:
    """Rows of two tables: a new row takes the place of an old one with its key and machine."""
    rows = {(row.key, row.machine): row for row in old}
    rows |= {(row.key, row.machine): row for row in new}
    return tuple(rows.values())
