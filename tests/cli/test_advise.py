"""`advise` as a user types it, over the real analysis and the shipped calibrations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from analysis.machines import h200

from kernel_compass.cli.main import main
from kernel_compass.codec.advice_json import decode
from kernel_compass.codec.calibration_json import encode as encode_calibration
from kernel_compass.records.profile import Regime

BMM = ("advise", "bmm", "128x1x128x512")


@pytest.fixture
def say(capfd, monkeypatch, tmp_path):
    """Run a command line with an empty store; returns exit code, standard output and error."""
    monkeypatch.setenv("KERNEL_COMPASS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))  # no nvidia-smi

    def run(*words):
        code = main([str(word) for word in words])
        out, err = capfd.readouterr()
        return code, out, err

    return run


def test_one_shape_on_a_shipped_machine(say):
    code, out, _ = say(*BMM, "--gpu", "h100")
    assert code == 0
    assert "NVIDIA H100 80GB HBM3 (calibration h100)" in out
    assert out.index("\nwarm\n") < out.index("\ncold\n")
    for word in ("bf16", "w8a16", "w8a8", "w4a16", "cannot tell without a probe"):
        assert word in out


@pytest.mark.parametrize("gpu", ["a100", "h100", "b200", "b300", "H100"])
def test_every_shipped_machine_answers(say, gpu):
    code, out, _ = say(*BMM, "--gpu", gpu, "--json")
    assert code == 0
    advice = decode(out)
    assert advice.calibration == gpu.lower()
    assert all(f.estimate for r in advice.workloads[0].regimes for f in r.formats)


def test_a_linear_names_tokens_columns_reduction(say):
    code, out, _ = say("advise", "linear", "16x28672x4096", "--gpu", "h100", "--json")
    assert code == 0
    workload = decode(out).workloads[0].workload
    assert (workload.tokens, workload.columns, workload.reduction) == (16, 28672, 4096)


def test_a_calibration_file_and_the_regimes_asked_for(say, tmp_path):
    file = tmp_path / "mine.json"
    file.write_bytes(encode_calibration(h200()))
    words = ("--gpu", file, "--regime", "in-situ", "--regime", "cold", "--regime", "cold")
    code, out, _ = say(*BMM, *words, "--json")
    assert code == 0
    advice = decode(out)
    assert advice.device.name == "NVIDIA H200"
    assert [r.regime for r in advice.workloads[0].regimes] == [Regime.IN_SITU, Regime.COLD]


def test_a_model_in_several_batches(say):
    words = ("--model", "deepseek-v3", "--tokens", "1,16,64", "--tp", "8", "--gpu", "h100")
    code, out, _ = say("advise", *words)
    assert code == 0
    assert "deepseek-v3 over 8 GPUs" in out
    for heading in ("1 token, warm", "16 tokens, cold", "64 tokens, warm"):
        assert heading in out
    assert "q_absorb" in out
    assert "16x64x128x512" in out
    assert "within a step they come from DRAM" in " ".join(out.split())


@pytest.mark.parametrize("columns", ["80", None])
def test_a_models_table_fits_a_terminal_and_a_pipe(say, monkeypatch, columns):
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    code, out, _ = say(
        "advise", "--model", "deepseek-v3", "--tokens", "1", "--tp", "8", "--gpu", "h200"
    )
    assert code == 0
    assert max(map(len, out.splitlines())) <= int(columns or 100)
    heads = [line for line in out.splitlines() if line.startswith("product")]
    assert len(heads) == 2
    assert all(line.endswith("w4a16") for line in heads)


def test_the_budget_is_a_percentage(say):
    code, out, _ = say(*BMM, "--gpu", "h100", "--budget", "3%", "--json")
    assert code == 0
    advice = decode(out)
    assert advice.budget_pct == 3.0
    assert [f.within_budget for f in advice.workloads[0].regimes[0].formats][-1] is False


def test_output_and_its_suffix(say, tmp_path):
    file = tmp_path / "deep" / "advice.md"
    code, out, _ = say(*BMM, "--gpu", "h100", "--output", file)
    assert (code, out) == (0, "")
    assert file.read_text().startswith("## advice on NVIDIA H100")
    table = tmp_path / "advice.csv"
    assert say(*BMM, "--gpu", "h100", "-o", table)[0] == 0
    assert table.read_text().startswith("calibration,device,")


def test_without_a_gpu_the_machines_own_is_missing(say):
    code, out, err = say(*BMM)
    assert (code, out) == (10, "")
    assert "no calibration of its own" in err
    assert "a100" in err
    assert say(*BMM, "--gpu", "this")[0] == 10


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("bmm",),
        ("bmm", "128x1x128"),
        ("bmm", "128x1x128x512x2"),
        ("bmm", "0x1x128x512"),
        ("bmm", "-1x1x128x512"),
        ("bmm", "1.5x1x128x512"),
        ("bmm", "axbxcxd"),
        ("bmm", ""),
        ("bmm", "99999999999999999999x1x1x1"),
        ("bmm", "1048576x1048576x1048576x1048576"),
        ("bmm", "١x1x1x1"),
        ("linear", "1x2x3x4"),
        ("conv", "1x2x3x4"),
        ("bmm", "1x1x1x1", "--regime", "hot"),
        ("bmm", "1x1x1x1", "--budget", "3"),
        ("bmm", "1x1x1x1", "--budget", "0%"),
        ("bmm", "1x1x1x1", "--budget", "101%"),
        ("bmm", "1x1x1x1", "--budget", "nan%"),
        ("bmm", "1x1x1x1", "--budget", "-1%"),
        ("bmm", "1x1x1x1", "--tokens", "1"),
        ("bmm", "1x1x1x1", "--tp", "2"),
        ("bmm", "1x1x1x1", "--model", "deepseek-v3"),
        ("--model", "gpt-2"),
        ("--model", "deepseek-v3", "--tokens", "0"),
        ("--model", "deepseek-v3", "--tokens", "1,,2"),
        ("--model", "deepseek-v3", "--tokens", "1e3"),
        ("--model", "deepseek-v3", "--tokens", "99999999999"),
        ("--model", "deepseek-v3", "--tp", "0"),
        ("--model", "deepseek-v3", "--tp", "3"),
        ("--model", "deepseek-v3", "--tp", "99999999999"),
        ("bmm", "1x1x1x1", "--format", "pdf"),
        ("bmm", "1x1x1x1", "extra"),
    ],
)
def test_nonsense_is_refused_with_a_remedy(say, words):
    code, out, err = say("advise", *words, "--gpu", "h100")
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert "\nnext: " in err
    assert "bug" not in err


@pytest.mark.parametrize(
    "gpu", ["h1000", "/nowhere/x.json", "", "../h100", "~nobody-of-this-name/x.json", "x" * 100_000]
)
def test_unknown_machines_are_refused(say, gpu):
    code, out, err = say(*BMM, "--gpu", gpu)
    assert (code, out) == (10, "")
    assert "next: " in err
    assert len(err) < 1000


def test_a_shape_of_a_million_characters_is_not_repeated(say):
    code, _, err = say("advise", "bmm", "1x" * 500_000, "--gpu", "h100")
    assert code == 2
    assert len(err) < 1000


def test_a_broken_calibration_file_is_refused(say, tmp_path):
    file = tmp_path / "broken.json"
    file.write_text(json.dumps({"schema": "kernel-compass/calibration/99"}))
    assert say(*BMM, "--gpu", file)[0] == 10


def test_the_machines_own_is_the_default(say, tmp_path, monkeypatch):
    smi = tmp_path / "nvidia-smi"
    smi.write_text('#!/bin/sh\necho "NVIDIA H200, GPU-1, 9.0, 580"\n')
    smi.chmod(0o755)
    own = h200()
    import kernel_compass.api.calibration_choice as choice

    monkeypatch.setattr(choice, "machine_calibration", lambda *_: own)
    code, out, _ = say(*BMM, "--json")
    assert code == 0
    assert decode(out).calibration == "h200"


def test_diagnose_takes_the_calibration_of_the_captures_gpu(say, tmp_path, monkeypatch):
    import kernel_compass.api.calibration_choice as choice

    store = tmp_path / "cache" / "calibrations"
    store.mkdir(parents=True)
    (store / "nvidia-h200-580.json").write_bytes(encode_calibration(h200()))
    asked = []

    def own(name=None):
        asked.append(name)
        return h200() if name == "NVIDIA H200" else None

    monkeypatch.setattr(choice, "machine_calibration", own)
    capture = Path(choice.__file__).parents[1] / "profiling/captures/h200/two_bmms"
    code, out, _ = say("diagnose", capture, "--json")
    assert code == 0
    assert asked == ["NVIDIA H200"]
    data = json.loads(out)
    assert data["calibration"] == "h200"
    assert data["kernels"][0]["diagnosis"]["headroom"]["basis"] == "traffic"


def test_diagnose_without_a_calibration_is_as_before(say):
    import kernel_compass

    capture = Path(kernel_compass.__file__).parent / "profiling/captures/h200/two_bmms"
    code, out, _ = say("diagnose", capture, "--json", "--calibration", "none")
    assert code == 0
    data = json.loads(out)
    assert "calibration" not in data
    assert data["kernels"][0]["diagnosis"]["headroom"] is None


def test_diagnose_refuses_an_unknown_calibration(say):
    import kernel_compass

    capture = Path(kernel_compass.__file__).parent / "profiling/captures/h200/two_bmms"
    code, out, err = say("diagnose", capture, "--calibration", "h1000")
    assert (code, out) == (10, "")
    assert "h1000" in err


MEASURED = [
    ("bf16", 512, 6.56),
    ("bf16", 4096, 35.7),
    ("w8a16", 512, 4.11),
    ("w8a16", 4096, 18.66),
]
"""cuBLAS bf16 and a fp8 kernel on an H200, cold, one token: microseconds by columns."""


def probes_file(folder, **changes):
    rows = [
        {
            "workload": f"bmm 128x1x128x{columns}",
            "precision": precision,
            "regime": "cold",
            "time_us": us,
        }
        for precision, columns, us in MEASURED
    ]
    rows[0] |= changes
    file = folder / "probes.json"
    file.write_text(json.dumps(rows))
    return file


def test_probes_narrow_the_band_and_decide(say, tmp_path):
    words = ("advise", "bmm", "128x1x128x2048", "--gpu", "h200", "--regime", "cold", "--json")
    _, before, _ = say(*words)
    code, after, _ = say(*words, "--probes", probes_file(tmp_path))
    assert code == 0
    wide, narrow = (decode(text).workloads[0].regimes[0].formats[1] for text in (before, after))
    assert (wide.precision, wide.verdict) == ("w8a16", "cannot_tell")
    assert (narrow.precision, narrow.verdict) == ("w8a16", "pays")
    assert narrow.estimate.high_us < wide.estimate.high_us
    # That kernel takes 16 MiB more a column doubled: 10.0 us lie between its neighbours.
    assert narrow.estimate.low_us < 10.0 < narrow.estimate.high_us
    assert any("w8a16: fitted to 2 probes" in note for note in decode(after).notes)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"workload": "bmm 0x1x1x1"}, "row 1"),
        ({"workload": "conv 3x3"}, "row 1"),
        ({"precision": "int3"}, "no precision"),
        ({"regime": "in_situ"}, "in_situ"),
        ({"regime": "tepid"}, "no regime"),
        ({"time_us": 0}, "no time"),
        ({"time_us": -1}, "no time"),
        ({"time_us": "fast"}, "time_us"),
        ({"tokens": 3}, "unknown field"),
    ],
)
def test_a_probe_that_is_none_is_refused_by_its_row(say, tmp_path, changes, found):
    code, out, err = say(*BMM, "--gpu", "h200", "--probes", probes_file(tmp_path, **changes))
    assert (code, out) == (2, "")
    assert found in err


NESTED = '[{"x": ' + "[" * 5000 + "]" * 5000 + "}]"


@pytest.mark.parametrize("content", [None, "", "[", "{}", '[{"workload": 1}]', NESTED])
def test_a_probes_file_that_is_none(say, tmp_path, content):
    file = tmp_path / "none.json"
    if content is not None:
        file.write_text(content)
    code, _, err = say(*BMM, "--gpu", "h200", "--probes", file)
    assert code == 2
    assert "--probes" in err


def test_no_probes_change_nothing(say, tmp_path):
    file = tmp_path / "empty.json"
    file.write_text("[]")
    assert say(*BMM, "--gpu", "h200", "--probes", file) == say(*BMM, "--gpu", "h200")


def test_the_intensity_of_each_level(say):
    words = ("advise", "bmm", "128x16x128x512", "--gpu", "h200", "--json")
    _, out, _ = say(*words)
    warm, cold = decode(out).workloads[0].regimes
    flops, weights = 2 * 128 * 16 * 128 * 512, 128 * 128 * 512 * 2
    moved = weights + 128 * 16 * (128 + 512) * 2
    assert warm.formats[0].l2_flops_per_byte == pytest.approx(flops / moved)
    assert warm.formats[0].dram_flops_per_byte is None
    assert cold.formats[0].dram_flops_per_byte == pytest.approx(flops / weights)
    _, out, _ = say(
        "advise", "bmm", "128x16x128x4096", "--gpu", "h200", "--regime", "warm", "--json"
    )
    (spilled,) = decode(out).workloads[0].regimes
    assert spilled.formats[0].dram_flops_per_byte == spilled.formats[0].l2_flops_per_byte
