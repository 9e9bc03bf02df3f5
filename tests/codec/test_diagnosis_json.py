"""The JSON contract."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import jsonschema
import pytest
from report import samples
from report.golden import FOLDER, assert_golden

from kernel_compass.codec.diagnosis_document import REQUIRED_METRICS
from kernel_compass.codec.diagnosis_json import decode, encode, encode_list, schema
from kernel_compass.errors import CaptureError
from kernel_compass.records.diagnosis import Evidence, Flag, Headroom, Limiter, Reuse
from kernel_compass.records.profile import DurationStats, Regime, SourceFormat
from kernel_compass.report.formats import Format
from kernel_compass.report.render import render, render_many

VALIDATOR = jsonschema.Draft202012Validator(schema())


def document(report):
    data = json.loads(encode(report), parse_constant=lambda word: pytest.fail(f"JSON has {word}"))
    VALIDATOR.validate(data)
    return data


def with_kernel(**changes):
    """The decode sample with its first kernel changed."""
    report = samples.decode()
    first, *others = report.kernels
    return replace(report, kernels=(replace(first, **changes), *others))


def test_the_schema_is_valid():
    jsonschema.Draft202012Validator.check_schema(schema())


def test_the_schema_knows_the_words_of_the_records():
    defs = schema()["$defs"]
    diagnosis, source = defs["diagnosis"]["properties"], defs["source"]["properties"]
    assert diagnosis["limiter"]["enum"] == [word.value for word in Limiter]
    assert diagnosis["flags"]["items"]["enum"] == [word.value for word in Flag]
    assert diagnosis["reuse"]["enum"] == [*(word.value for word in Reuse), None]
    assert source["format"]["enum"] == [word.value for word in SourceFormat]
    assert source["regime"]["enum"] == [word.value for word in Regime]
    assert defs["metrics"]["required"] == list(REQUIRED_METRICS)


@pytest.mark.parametrize("name", samples.ALL)
def test_every_report_keeps_the_contract_and_comes_back(name):
    report = samples.ALL[name]()
    document(report)
    assert decode(encode(report)) == report


def test_the_keys_of_one_capture():
    data = document(samples.decode())
    assert list(data) == ["schema", "label", "warnings", "device", "sources", "kernels"]
    assert data["schema"] == "kernel-compass/diagnosis/1"
    assert list(data["device"]) == ["name", "compute_capability", "sm_count", "l2_bytes"]
    assert list(data["sources"][0]) == [
        "path",
        "format",
        "regime",
        "cache_control",
        "clock_control",
        "replay_mode",
        "ncu_version",
    ]
    kernel = data["kernels"][0]
    assert list(kernel) == [
        "name",
        "grid",
        "block",
        "launches",
        "share_of_time",
        "duration_us",
        "metrics",
        "diagnosis",
    ]
    assert list(kernel["duration_us"]) == ["mean", "median", "min", "max", "total"]
    assert list(kernel["diagnosis"]) == [
        "limiter",
        "pipe",
        "confidence",
        "evidence",
        "flags",
        "reuse",
        "headroom",
        "advice",
    ]


def test_metrics_carry_all_keys_of_the_contract_and_the_others():
    metrics = document(samples.decode())["kernels"][1]["metrics"]
    assert set(REQUIRED_METRICS) <= set(metrics)
    assert metrics["l2_hit_rate_pct"] is None
    assert metrics["stall_long_scoreboard"] == 4.5


def test_regimes_of_several_captures():
    data = document(samples.bmm_regimes())
    large, small, tiny = data["kernels"]
    assert list(small["regimes"]) == ["warm", "in_situ", "cold"]
    assert tiny["regimes"]["cold"] is None
    assert list(small["regimes"]["cold"]) == ["launches", "duration_us", "metrics", "diagnosis"]
    assert small["launches"] == small["regimes"]["warm"]["launches"] == 2
    for key in ("duration_us", "metrics", "diagnosis"):
        assert large[key] == large["regimes"]["warm"][key]


def test_a_capture_without_the_kernel_is_null_even_if_the_record_leaves_it_out():
    report = samples.bmm_regimes()
    *others, last = report.kernels
    views = {Regime.WARM: (last.regimes or {})[Regime.WARM]}
    report = replace(report, kernels=(*others, replace(last, regimes=views)))
    assert list(document(report)["kernels"][2]["regimes"]) == ["warm", "in_situ", "cold"]


def test_one_source_has_no_regimes():
    report = samples.bmm_regimes()
    data = document(replace(report, sources=report.sources[:1]))
    assert not any("regimes" in kernel for kernel in data["kernels"])


def test_two_gpus_keep_their_index():
    kernels = samples.ranked(
        samples.kernel("k", samples.DRAM, 2.0, device=0),
        samples.kernel("k", samples.DRAM, 1.0, device=1),
    )
    report = replace(samples.decode(), kernels=kernels)
    assert [k["device"] for k in document(report)["kernels"]] == [0, 1]
    assert decode(encode(report)) == report


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_no_number_that_is_not_finite_leaves(bad):
    diagnosis = replace(
        samples.DRAM,
        confidence=bad,
        headroom=Headroom(bad, "traffic"),
        evidence=(
            Evidence("a", bad, "%", ""),
            Evidence("b", 1.0, "%", "", threshold=bad),
        ),
    )
    kernel = replace(
        samples.kernel("k", diagnosis, metrics={"sm_throughput_pct": bad, "odd": bad}),
        duration_stats=DurationStats(bad, 1.0, 1.0, 1.0, 1.0),
    )
    out = document(with_kernel(kernel=kernel, share_of_time=bad))["kernels"][0]
    assert out["metrics"]["sm_throughput_pct"] is out["metrics"]["odd"] is None
    assert out["duration_us"] is out["share_of_time"] is out["diagnosis"]["headroom"] is None
    assert [e["metric"] for e in out["diagnosis"]["evidence"]] == ["b"]
    assert "threshold" not in out["diagnosis"]["evidence"][0]


def test_shares_that_rounding_pushed_over_one():
    assert (
        document(with_kernel(share_of_time=1.0000000000000002))["kernels"][0]["share_of_time"] == 1
    )


def test_several_reports_are_an_array():
    several = json.loads(encode_list([samples.decode(), samples.sparse()]))
    assert [item["label"] for item in several] == [samples.decode().label, samples.sparse().label]
    assert json.loads(render_many([samples.decode()], Format.JSON, as_list=True))[0] == several[0]
    assert json.loads(render(samples.decode(), Format.JSON)) == several[0]


def test_golden_documents_of_version_1_still_load():
    assert_golden("diagnosis-1.json", encode(samples.bmm_regimes()).decode())
    assert decode((FOLDER / "diagnosis-1.json").read_bytes()) == samples.bmm_regimes()


def test_words_of_the_first_design_are_understood():
    text = encode(samples.decode()).decode()
    text = text.replace('"dram_bound"', '"memory_bound"').replace(
        '"launch_bound"', '"occupancy_limited"'
    )
    limiters = [k.kernel.diagnosis.limiter for k in decode(text).kernels]
    assert limiters[1:4] == [Limiter.DRAM_BOUND, Limiter.DRAM_BOUND, Limiter.LATENCY_BOUND]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"schema": "kernel-compass/diagnosis/1"}',
        encode(samples.decode()).replace(b"diagnosis/1", b"diagnosis/9"),
        encode(samples.decode()).replace(b'"compute_bound"', b'"bound_by_magic"'),
        encode(samples.decode())[:-200],
        '{"x": ' + "[" * 5000 + "]" * 5000 + "}",
        b'{"schema": "kernel-compass/diagnosis/1", "x": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        encode(samples.decode()).replace(b'"launches": ', b'"launches": ' + b"1" * 400),
        "\udc80",
    ],
)
def test_what_is_no_document_is_refused(data):
    with pytest.raises(CaptureError, match="kernel-compass/diagnosis/1"):
        decode(data)
