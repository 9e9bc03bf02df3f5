"""The advice document: schema, words, and the way back."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import jsonschema
import pytest
from report import advice_samples as samples
from report.golden import FOLDER, assert_golden

from kernel_compass.codec.advice_json import decode, encode, schema
from kernel_compass.errors import UsageError
from kernel_compass.records.advice import CacheFit, Verdict
from kernel_compass.records.workload import Op, Precision

VALIDATOR = jsonschema.Draft202012Validator(schema())


def document(advice):
    data = json.loads(encode(advice), parse_constant=lambda word: pytest.fail(f"JSON has {word}"))
    VALIDATOR.validate(data)
    return data


def test_the_schema_is_valid_and_knows_the_words_of_the_records():
    jsonschema.Draft202012Validator.check_schema(schema())
    defs = schema()["$defs"]
    row = defs["format"]["properties"]
    assert row["verdict"]["enum"] == [*(word.value for word in Verdict), None]
    assert row["cache_fit"]["enum"] == [word.value for word in CacheFit]
    assert row["precision"]["enum"] == [word.value for word in Precision]
    assert defs["workload"]["properties"]["op"]["enum"] == [word.value for word in Op]


@pytest.mark.parametrize(
    ("data", "word"),
    [
        ('{"x": ' + "[" * 5000 + "]" * 5000 + "}", "nested too deeply"),
        (b'{"tp": 1' + b"0" * 400 + b"}", "int"),
        ("\udc80", "utf-8"),
    ],
)
def test_hostile_text_is_refused(data, word):
    with pytest.raises(UsageError, match=word):
        decode(data)


@pytest.mark.parametrize("name", samples.ALL)
def test_every_advice_keeps_the_contract_and_comes_back(name):
    advice = samples.ALL[name]()
    document(advice)
    assert decode(encode(advice)) == advice


def test_a_document_of_this_version_still_loads():
    assert_golden("advice-1.json", encode(samples.model()).decode())
    assert decode((FOLDER / "advice-1.json").read_bytes()) == samples.model()


def test_numbers_that_are_not_finite_never_leave():
    advice = samples.one()
    item = advice.workloads[0]
    first = item.regimes[0].formats[0]
    wild = replace(first, at_most=math.inf, estimate=replace(first.estimate, high_us=math.nan))
    regime = replace(item.regimes[0], formats=(wild,))
    data = document(replace(advice, workloads=(replace(item, regimes=(regime,)),)))
    row = data["workloads"][0]["regimes"][0]["formats"][0]
    assert row["at_most"] is None
    assert row["estimate"] is None


@pytest.mark.parametrize("broken", [b"", b"[]", b'{"schema": "kernel-compass/advice/1"}', b"\xff"])
def test_what_is_no_document_is_refused(broken):
    with pytest.raises(UsageError, match="not a kernel-compass/advice/1 document"):
        decode(broken)


def test_another_version_and_unknown_words_are_refused_by_name():
    data = document(samples.one())
    with pytest.raises(UsageError, match="advice/2"):
        decode(json.dumps({**data, "schema": "kernel-compass/advice/2"}))
    with pytest.raises(UsageError, match="sometimes"):
        decode(json.dumps({**data, "launch_mode": "sometimes"}))
