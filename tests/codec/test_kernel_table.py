"""The kernel table's documents: schema, CSV, the way back, and what is refused."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace

import jsonschema
import msgspec
import pytest
from report.kernel_samples import TABLE, planned, row

from kernel_compass.codec.kernel_table import (
    COLUMNS,
    decode,
    decode_csv,
    encode,
    encode_csv,
    merged,
    schema,
)
from kernel_compass.codec.kernel_table_document import RowDocument
from kernel_compass.errors import UsageError
from kernel_compass.records.advice import CacheFit
from kernel_compass.records.kernel_table import KernelRow, KernelTable, Layout, RowStatus
from kernel_compass.records.workload import Op

VALIDATOR = jsonschema.Draft202012Validator(schema())


def document(table):
    data = json.loads(encode(table), parse_constant=lambda word: pytest.fail(f"JSON has {word}"))
    VALIDATOR.validate(data)
    return data


def test_the_schema_says_what_the_documents_say():
    jsonschema.Draft202012Validator.check_schema(schema())
    properties = schema()["$defs"]["row"]["properties"]
    assert list(properties) == list(COLUMNS)
    assert schema()["$defs"]["row"]["required"] == list(COLUMNS)
    for name, words in (
        ("status", RowStatus),
        ("layout", Layout),
        ("cache_fit", CacheFit),
        ("op", Op),
    ):
        assert properties[name]["enum"] == [word.value for word in words]
    for field in msgspec.structs.fields(RowDocument):
        if "type" in properties[field.name]:
            nullable = "null" in properties[field.name]["type"]
            assert nullable is (field.default is None), field.name


def test_a_table_comes_back_from_json_whole():
    assert decode(encode(TABLE)) == TABLE
    data = document(TABLE)
    first = data["rows"][0]
    assert first["headroom"] == pytest.approx(first["time_us"] / first["floor_us"])
    assert first["speedup"] == pytest.approx(first["baseline_us"] / first["time_us"])


def test_its_rows_come_back_from_csv():
    assert decode_csv(encode_csv(TABLE)).rows == TABLE.rows
    assert encode_csv(KernelTable(())).strip() == ",".join(COLUMNS)
    assert decode_csv("\ufeff" + encode_csv(TABLE)).rows == TABLE.rows


def test_a_reason_with_commas_quotes_and_line_ends_survives():
    odd = row(status=RowStatus.FAILED, time_us=None, reason='a "b", c\nd = e; f')
    table = KernelTable((odd,))
    assert decode_csv(encode_csv(table)).rows == table.rows
    assert decode(encode(table)) == table


@pytest.mark.parametrize("read", [decode, decode_csv])
@pytest.mark.parametrize("text", ["", "[]", "{}", "a,b\n1,2\n", '{"schema": "x"}', "\x00"])
def test_what_is_no_table_is_refused(read, text):
    with pytest.raises(UsageError, match="This is not"):
        read(text)


@pytest.mark.parametrize(
    ("field", "value", "word"),
    [
        ("op", "conv", "conv"),
        ("format", "w3a16", "w3a16"),
        ("regime", "tepid", "tepid"),
        ("heads", 0, "dimension"),
        ("time_us", None, "contradict"),
        ("time_us", -1.0, "no time"),
        ("format_error_pct", None, "without its error"),
        ("heads", "many", "int"),
    ],
)
def test_rows_that_cannot_be_are_refused(field, value, word):
    data = document(KernelTable((row(),)))
    data["rows"][0][field] = value
    with pytest.raises(UsageError, match=word):
        decode(json.dumps(data))


def test_another_version_is_refused_by_its_name():
    data = document(TABLE)
    with pytest.raises(UsageError, match="kernel-table/2"):
        decode(json.dumps({**data, "schema": "kernel-compass/kernel-table/2"}))


def test_a_csv_line_with_a_cell_too_many_or_a_wild_number_is_refused():
    head, line, *_ = encode_csv(TABLE).splitlines()
    for broken in (line + ",1", line.rsplit(",", 1)[0]):
        with pytest.raises(UsageError, match="cells"):
            decode_csv(f"{head}\n{broken}\n")
    for word in ("nan", "inf", "1e999"):
        cells = dict(zip(COLUMNS, line.split(","), strict=True)) | {"time_us": word}
        with pytest.raises(UsageError):
            decode_csv(f"{head}\n{','.join(cells.values())}\n")


def test_numbers_that_are_not_finite_never_leave():
    data = document(KernelTable((replace(planned(), floor_us=math.nan),), c_eff_bytes=math.inf))
    assert data["rows"][0]["floor_us"] is None
    assert data["c_eff_bytes"] is None


def test_a_new_row_takes_the_place_of_the_same_measurement_alone():
    old, other = row(), row(launches=7, implementation="other")
    newer = replace(old, time_us=1.0)
    elsewhere = replace(old, environment=replace(old.environment, driver="1"))
    assert merged([old, other], [newer, elsewhere]) == (newer, other, elsewhere)


def test_a_4_bit_time_without_its_error_cannot_be():
    with pytest.raises(ValueError, match="without its error"):
        row(format_error_pct=None)
    assert {f.name for f in fields(KernelRow)} >= {"format_error_pct", "fidelity_error_pct"}
