"""The calibration's JSON contract."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import calibration_samples as samples
import jsonschema
import pytest
from report.golden import FOLDER, assert_golden

from kernel_compass.codec import calibration_document as doc
from kernel_compass.codec.calibration_json import decode, encode, schema
from kernel_compass.errors import CalibrationError
from kernel_compass.records.calibration import Access, Basis, CurvePoint, Quantity
from kernel_compass.records.measurement import LaunchMode

ODD = {"basis": "measured", "source": "a test"}
VALIDATOR = jsonschema.Draft202012Validator(schema())


def document(calibration):
    data = json.loads(encode(calibration), parse_constant=pytest.fail)
    VALIDATOR.validate(data)
    return data


def changed(*path_and_value):
    """The complete sample as JSON with one value replaced."""
    *path, last, value = path_and_value
    data = json.loads(encode(samples.complete()))
    place = data
    for key in path:
        place = place[key]
    place[last] = value
    return json.dumps(data)


def test_the_schema_is_valid_and_knows_the_words_of_the_records():
    jsonschema.Draft202012Validator.check_schema(schema())
    defs = schema()["$defs"]
    assert defs["quantity"]["properties"]["basis"]["enum"] == [b.value for b in Basis]
    assert defs["curve"]["properties"]["access"]["enum"] == [a.value for a in Access]
    assert schema()["properties"]["launch_mode"]["enum"] == [m.value for m in LaunchMode]
    assert schema()["required"] == list(doc.Document.__struct_fields__)


def test_a_calibration_comes_back_as_it_was():
    calibration = samples.complete()
    document(calibration)
    assert decode(encode(calibration)) == calibration


def test_golden_documents_of_version_1_still_load():
    assert_golden("calibration-1.json", encode(samples.complete()).decode())
    assert decode((FOLDER / "calibration-1.json").read_bytes()) == samples.complete()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_no_number_that_is_not_finite_leaves(bad):
    calibration = samples.complete()
    first, *others = calibration.curves
    first = replace(first, points=(*first.points, CurvePoint(1 << 30, bad)))
    calibration = replace(
        calibration,
        c_eff_bytes=Quantity(bad, Basis.MEASURED, "a probe"),
        t0_graph_us=Quantity(1.0, Basis.MEASURED, "a probe", bad, bad),
        curves=(first, *others),
    )
    out = document(calibration)
    assert out["c_eff_bytes"]["value"] is None
    assert out["c_eff_bytes"]["basis"] == "absent"
    assert "not a finite number" in out["c_eff_bytes"]["source"]
    assert out["t0_graph_us"]["low"] is out["t0_graph_us"]["high"] is None
    assert len(out["curves"][0]["points"]) == len(samples.WARM_US)
    assert any("left out" in note for note in out["notes"])
    decode(json.dumps(out))


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"c_eff_bytes": Quantity(5.0, Basis.MEASURED, "", 6.0, 7.0)}, "c_eff_bytes lies outside"),
        ({"t0_graph_us": Quantity(-0.1, Basis.MEASURED, "")}, "t0_graph_us has a negative"),
        ({"name": ""}, "no name"),
        ({"curves": samples.complete().curves[:1] * 2}, "same access and regime"),
    ],
)
def test_what_could_not_be_read_again_is_not_written(changes, word):
    with pytest.raises(CalibrationError, match=word):
        encode(replace(samples.complete(), **changes))


def test_a_version_of_thousands_of_digits_is_newer_too():
    with pytest.raises(CalibrationError, match="newer") as caught:
        decode(changed("schema", "kernel-compass/calibration/" + "9" * 5000))
    assert len(caught.value.found) < 500


def test_a_byte_order_mark_is_skipped():
    assert decode(b"\xef\xbb\xbf" + encode(samples.complete())) == samples.complete()
    assert decode("\ufeff" + encode(samples.complete()).decode()) == samples.complete()


@pytest.mark.parametrize("version", ["2", "17"])
def test_a_newer_version_is_refused_by_name(version):
    text = changed("schema", f"kernel-compass/calibration/{version}")
    with pytest.raises(CalibrationError, match=f"newer.*calibration/{version}.*Upgrade"):
        decode(text, "h300.json")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "not a kernel-compass/calibration/1"),
        ("\x00", "malformed"),
        ("[]", "Expected `object`"),
        ("{}", "schema"),
        ('{"schema": "kernel-compass/diagnosis/1"}', "diagnosis/1"),
        ('{"schema": "kernel-compass/calibration/0"}', "calibration/0"),
        ('{"schema": "kernel-compass/calibration/x"}', "calibration/x"),
        ('{"schema": "kernel-compass/calibration/1"}', "name"),
        (encode(samples.complete())[:-300], "trunc"),
        (b"\xff\xfe" + encode(samples.complete()), "malformed"),
        (changed("t0_graf_us", 1), "t0_graf_us"),
        (changed("name", " "), "no name"),
        (changed("launch_mode", "slow"), "slow"),
        (changed("c_eff_bytes", "value", None), "c_eff_bytes has the value None"),
        (changed("c_eff_bytes", "basis", "absent"), "c_eff_bytes"),
        (changed("c_eff_bytes", "basis", "guessed"), "guessed"),
        (changed("c_eff_bytes", "value", "46"), "Expected `float | null`"),
        (changed("c_eff_bytes", "value", -1), "negative"),
        (changed("c_eff_bytes", "low", 1e12), "outside its interval"),
        (changed("peak_tflops", "bf16", "high", 1.0), "peak_tflops.bf16 lies outside"),
        (changed("bytes_in_flight", "l2", "low", 1.0), "absent and has an interval"),
        (changed("curves", 0, "points", 1, "bytes", 1), "ascending"),
        (changed("curves", 0, "points", 1, "duration_us", 0), "not positive"),
        (changed("curves", 0, "points", 1, "bytes", 1.5), "Expected `int`"),
        (changed("curves", 0, "points", 1, "basis", "absent"), "absent"),
        (changed("curves", 1, "regime", "warm"), "same access and regime"),
        (changed("curves", 1, "regime", "in_situ"), "no regime that is calibrated"),
        (encode(samples.complete()).replace(b"1.08", b"NaN"), "malformed"),
        (encode(samples.complete()).replace(b"1.08", b"1e999"), "range"),
        ("[" * 100_000, "Expected `object`"),
        ('{"schema": ' + "[" * 100_000, "Expected `str`"),
        ('{"x": ' + "[" * 5000 + "]" * 5000 + "}", "nested too deeply"),
        (changed("curves", 0, "points", -1, "bytes", 10**400), "no machine holds that"),
        (changed("curves", 0, "points", -1, "bytes", 1 << 63), "no machine holds that"),
        (changed("curves", 0, "points", 1, "duration_us", 5e-324), "4.94066e-324 us"),
        (changed("curves", 0, "points", 1, "duration_us", 1e308), "1e+308 us"),
        (changed("peak_tflops", "bf16", {**ODD, "value": 5e-324}), "peak_tflops.bf16 is 4.9"),
        (changed("t0_graph_us", {**ODD, "value": 1e308}), "t0_graph_us is 1e+308"),
        (changed("t0_graph_us", {**ODD, "value": 1.0, "high": 1e308}), "t0_graph_us is 1 "),
        (changed("c_eff_bytes", {**ODD, "value": 1e300}), "c_eff_bytes is 1e+300"),
        (changed("noise", "within_process_pct", {**ODD, "value": 1e308}), "within_process_pct"),
        (changed("datasheet", "dram_tbs", {**ODD, "value": 1e308}), "datasheet.dram_tbs"),
        (changed("environment", "device", "sm_count", 0), "sm_count is 0"),
        (changed("environment", "device", "sm_count", 10**30), "sm_count is more than 2^64"),
        (changed("environment", "device", "l2_bytes", -1), "l2_bytes is -1"),
        (changed("environment", "device", "l2_bytes", 1 << 60), "l2_bytes"),
        (changed("name", "x").replace('"name": "x"', '"name": "x", "name": "y"'), "twice"),
        (changed("x" * 3_000_000, 1), "unknown field"),
    ],
)
def test_what_is_no_document_is_refused_with_the_reason(text, word):
    with pytest.raises(CalibrationError) as caught:
        decode(text, "odd.json")
    assert "odd.json is not" in caught.value.found
    assert word in caught.value.found
    assert "kernel-compass calibrate" in caught.value.remedy
    assert len(str(caught.value)) < 5000


def test_an_integer_value_is_a_number():
    assert decode(changed("t0_eager_us", "value", 24)).t0_eager_us.value == 24.0
