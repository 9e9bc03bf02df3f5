"""`mla` and `sweep` as a user types them: plans from shipped calibrations, and no GPU here."""

from __future__ import annotations

import csv
import json
import sys
from importlib.util import find_spec
from io import StringIO

import pytest

from kernel_compass.cli.main import main
from kernel_compass.codec.kernel_table import decode, decode_csv
from kernel_compass.records.kernel_table import RowStatus
from kernel_compass.records.profile import Regime

PLAN = ("mla", "--dry-run", "--gpu", "h200", "--tokens", "1,16")


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


@pytest.fixture
def without_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)


def test_a_plan_shows_both_products_in_every_format_and_regime(say, without_torch):
    code, out, err = say(*PLAN)
    assert (code, err) == (0, "")
    assert "calibration h200" in out and "nothing was measured" in out
    for title in ("q_absorb bmm 128 x M x 128 x 512, 61 layers, warm", "v_up bmm 128 x M x 512"):
        assert title in out
    for name in ("bf16", "w8a16_fp8", "w8a16_int8", "w4a16_gk", "16.0 MiB", "4.12 MiB"):
        assert name in out
    assert "TFLOP/s" not in out


def test_a_plan_has_the_floors_that_advise_has(say, without_torch):
    _, out, _ = say(*PLAN, "--precisions", "bf16", "--json")
    rows = {(r.workload.name, r.workload.tokens, r.regime): r for r in decode(out).rows}
    _, out, _ = say("advise", "bmm", "128x16x128x512", "--gpu", "h200", "--json")
    for regime in json.loads(out)["workloads"][0]["regimes"]:
        bf16 = next(f for f in regime["formats"] if f["precision"] == "bf16")
        mine = rows["q_absorb", 16, Regime(regime["regime"])]
        assert mine.floor_us == pytest.approx(bf16["floor"]["time_us"])
        assert mine.weight_bytes == bf16["weight_bytes"]


def test_bytes_of_formats_are_those_of_codes_scales_and_zero_points(say, without_torch):
    names = "bf16,w8a16_int8,w8a8_fp8_block,w4a16_g32,w4a16_g32_asym,w4a16_gk"
    _, out, _ = say(*PLAN, "--precisions", names, "--regime", "warm", "--json")
    found = {r.format.name: r.weight_bytes for r in decode(out).rows if r.workload.name == "v_up"}
    h, k, n = 128, 512, 128
    weights = h * k * n
    assert found == {
        "bf16": 2 * weights,
        "w8a16_int8": weights + 2 * h * n,
        "w8a8_fp8_block": weights + 4 * h * (k // 128) * (n // 128),
        "w4a16_g32": weights // 2 + 2 * h * (k // 32) * n,
        "w4a16_g32_asym": weights // 2 + 2 * h * (k // 32) * n + h * (k // 32) * n // 2,
        "w4a16_gk": weights // 2 + 2 * h * n,
    }


def test_tensor_parallel_splits_heads(say, without_torch):
    _, out, _ = say(*PLAN, "--tp", "8", "--json")
    assert {row.workload.heads for row in decode(out).rows} == {16}


@pytest.mark.parametrize("suffix", [".json", ".csv", ".md"])
def test_a_plan_goes_to_a_file(say, without_torch, tmp_path, suffix):
    file = tmp_path / "new" / f"plan{suffix}"
    code, out, _ = say(*PLAN, "--output", file)
    assert (code, out) == (0, "")
    text = file.read_text()
    if suffix == ".md":
        assert "| M | format |" in text
        return
    rows = (decode if suffix == ".json" else decode_csv)(text).rows
    assert len(rows) == 2 * 2 * 4 * 2
    assert all(row.status is RowStatus.PLANNED and row.floor_us for row in rows)


def test_csv_has_one_line_a_row_with_units_in_the_heads(say, without_torch):
    _, out, _ = say(*PLAN, "--format", "csv", "--precisions", "bf16")
    lines = list(csv.DictReader(StringIO(out)))
    assert len(lines) == 8
    assert {"time_us", "floor_us", "weight_bytes", "format_error_pct"} <= set(lines[0])
    assert {line["time_us"] for line in lines} == {""}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("mla", "--model", "gpt-9", "--dry-run"), 2, "There is no model 'gpt-9'"),
        (("mla", "--model", "llama-3.1-8b", "--dry-run"), 2, "no latent attention"),
        (("mla", "--tp", "3", "--dry-run"), 2, "cannot be split over 3"),
        (("mla", "--tp", "0", "--dry-run"), 2, "--tp"),
        (("mla", "--tokens", "1,x", "--dry-run"), 2, "no list of batch sizes"),
        (("mla", "--tokens", "0", "--dry-run"), 2, "no list of batch sizes"),
        (("mla", "--precisions", "w3a16", "--dry-run"), 2, "'w3a16' is not a number format"),
        (("mla", "--precisions", "w4a16_g00", "--dry-run"), 2, "is not a number format"),
        (("mla", "--precisions", "w4a16_g032", "--dry-run"), 2, "is not a number format"),
        (("mla", "--precisions", "w4a16_g\u0663", "--dry-run"), 2, "is not a number format"),
        (("mla", "--precisions", "w4a16_g" + "9" * 5000, "--dry-run"), 2, "is not a number format"),
        (("mla", "--precisions", ",", "--dry-run"), 2, "names no format"),
        (("mla", "--regime", "in_situ", "--dry-run"), 2, "no regime in_situ"),
        (("mla", "--regime", "warm,hot", "--dry-run"), 2, "no regime 'hot'"),
        (("mla", "--regime", "hot"), 2, "Name one of warm, cold."),
        (
            ("mla", "--model", "llama"),
            2,
            "models: deepseek-v2-lite, deepseek-v2, deepseek-v3.",
        ),
        (("mla", "--output", "foo.txt"), 2, "does not say in which form"),
        (("sweep", "--output", "foo"), 2, "Name a .json or .csv file"),
        (("mla", "--dry-run", "--gpu", "nosuch"), 10, "nosuch"),
        (("mla", "--dry-run"), 10, "no calibration of its own"),
        (("mla", "--dry-run", "--implementations", "nosuch", "--gpu", "h200"), 2, "'nosuch'"),
        (("mla", "--ncu-mode", "--json"), 2, "--json cannot go with it"),
        (("mla", "--ncu-mode", "--dry-run"), 2, "--dry-run cannot go with it"),
        (("sweep", "--n", "4096..256", "--dry-run"), 2, "names no sizes"),
        (("sweep", "--n", "256..", "--dry-run"), 2, "no list of sizes"),
        (("sweep", "--n", "1..100000:1", "--dry-run"), 2, "more than 200 sizes"),
        (("sweep", "--n", "256..512:0", "--dry-run"), 2, "names no sizes"),
        (("sweep", "--n", "0", "--dry-run"), 2, "is not between 1"),
        (("sweep", "--n", "99999999", "--dry-run"), 2, "is not between 1"),
        (("sweep", "--n", "9" * 400, "--dry-run"), 2, "no list of sizes"),
        (("sweep", "--heads", "1,2", "--dry-run"), 2, "names several"),
        (("sweep", "--heads", "16000000", "--k", "16000000", "--dry-run"), 2, "does not fit"),
        (("sweep", "--dry-run", "--gpu", "h200", "--plot", "x.png"), 2, "is no SVG file"),
    ],
)
def test_wrong_words_say_what_is_wrong_and_what_to_write(say, without_torch, words, code, message):
    found, out, err = say(*words)
    assert (found, out) == (code, "")
    assert message in err
    assert "next: " in err
    assert len(err) < 1500


@pytest.mark.parametrize("command", ["mla", "sweep"])
def test_without_torch_it_says_what_works(say, without_torch, command):
    code, out, err = say(command)
    assert (code, out) == (8, "")
    assert "PyTorch" in err
    assert "--dry-run --gpu h200" in err


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.parametrize("words", [("mla",), ("sweep",), ("mla", "--ncu-mode")])
def test_without_a_gpu_it_says_what_works(say, words):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    code, out, err = say(*words)
    assert (code, out) == (9, "")
    assert "finds no CUDA GPU" in err
    assert "--dry-run --gpu h200" in err


def test_a_file_that_is_something_else_is_left_alone(say, without_torch, tmp_path):
    for name, text in (("a.json", '{"mine": 1}'), ("b.csv", "x,y\n1,2\n"), ("c.json", "\xff{")):
        file = tmp_path / name
        file.write_bytes(text.encode("latin-1"))
        for words in (("mla",), ("sweep", "--dry-run", "--gpu", "h200")):
            code, _, err = say(*words, "--output", file)
            assert code == 2
            assert "exists and cannot be continued" in err
            assert file.read_bytes() == text.encode("latin-1")


def test_an_output_that_cannot_be_written_is_said_before_anything_runs(say, tmp_path):
    code, _, err = say("mla", "--output", tmp_path)
    assert code == 2 and "is a folder" in err
    (tmp_path / "file").write_text("")
    code, _, err = say("sweep", "--output", tmp_path / "file" / "t.json")
    assert code == 2 and "cannot be written" in err


def test_a_range_is_both_ends_and_halves_of_powers_of_two(say, without_torch):
    words = (
        "sweep",
        "--dry-run",
        "--gpu",
        "h200",
        "--precisions",
        "bf16",
        "--tokens",
        "1",
        "--json",
    )
    _, out, _ = say(*words, "--n", "250..1100")
    widths = list(dict.fromkeys(r.workload.columns for r in decode(out).rows))
    assert widths == [250, 256, 384, 512, 768, 1024, 1100]
    _, out, _ = say(*words, "--n", "256..1024:256,4096")
    widths = list(dict.fromkeys(r.workload.columns for r in decode(out).rows))
    assert widths == [256, 512, 768, 1024, 4096]


def test_a_sweep_says_where_the_working_set_leaves_l2(say, without_torch):
    _, out, _ = say(
        "sweep",
        "--dry-run",
        "--gpu",
        "h200",
        "--precisions",
        "bf16,w4a16_gk",
        "--json",
        "--tokens",
        "1",
    )
    rows = decode(out).rows
    fits = {(r.format.name, r.workload.columns): r.cache_fit.value for r in rows}
    assert fits["bf16", 1024] == "fits"
    assert fits["bf16", 2048] == "spills"
    assert fits["w4a16_gk", 4096] == "fits"


def test_a_sweep_is_drawn(say, without_torch, tmp_path):
    from xml.etree import ElementTree as ET

    file = tmp_path / "sweep.svg"
    code, _, err = say("sweep", "--dry-run", "--gpu", "h200", "--plot", file)
    assert code == 0 and "plot in" in err
    root = ET.fromstring(file.read_text())
    assert root.tag.endswith("svg")
    lines = [e for e in root.iter() if e.tag.endswith("polyline")]
    assert len(lines) == 2 * 2 * 3  # regimes, batch sizes, formats
    assert any("effective L2" in (e.text or "") for e in root.iter())


UNABLE = ("--implementations", "gemlite_w4a16,own_decode", "--precisions", "bf16,w4a16_gk,w8a8_fp8")


def test_a_plan_says_of_each_that_was_named_what_it_cannot(say, without_torch):
    code, out, _ = say(*PLAN, *UNABLE, "--json")
    assert code == 0
    rows = decode(out).rows
    planned = {r.format.name for r in rows if r.status is RowStatus.PLANNED}
    assert planned == {"bf16", "w4a16_gk"}  # own_decode can both
    why = {(r.implementation, r.format.name): r.reason for r in rows if r.reason}
    assert why["gemlite_w4a16", "w4a16_gk"] == "multiplies one matrix a launch, and bmm has H = 128"
    assert why["gemlite_w4a16", "w8a8_fp8"] == "computes w4a16_*, not w8a8_fp8"
    assert "that is own_w8a8" in why["own_decode", "w8a8_fp8"]
    assert all(r.floor_us is None for r in rows if r.status is RowStatus.UNSUPPORTED)
    _, out, _ = say(*PLAN, *UNABLE)
    assert "unsupported: gemlite_w4a16 in w4a16_gk, bmm 128x1x128x512 warm and 7 more: m" in out


def test_a_plan_of_which_nothing_can_be_is_refused(say, without_torch):
    words = ("--implementations", "gemlite_w4a16", "--precisions", "w4a16_gk")
    code, out, err = say(*PLAN, *words)
    assert (code, out) == (2, "")
    assert "bmm 128x1x128x512 in w4a16_gk by gemlite_w4a16 cannot: multiplies" in err


def test_a_format_that_none_can_at_a_shape_has_no_floor(say, without_torch):
    sweep = ("sweep", "--dry-run", "--gpu", "h200", "--heads", "70000", "--n", "128")
    code, out, _ = say(*sweep, "--precisions", "bf16,w4a16_gk", "--tokens", "1")
    assert code == 0
    text = " ".join(out.split())
    assert "unsupported: all in w4a16_gk, bmm 70000x1x128x128 warm and 1 more: no impl" in text
    assert "own_decode: H = 70000 is over the grid's 65535" in text
    assert "cublas" not in text
    code, _, err = say(*sweep, "--precisions", "w4a16_gk", "--tokens", "1")
    assert code == 2 and "bmm 70000x1x128x128 in w4a16_gk cannot: no implementation" in err


def test_a_plan_says_where_only_a_kernel_of_the_study_computes(say, without_torch):
    _, out, _ = say(*PLAN, "--precisions", "w4a16_g64,w4a16_g1")
    assert "8 plans: w4a16_g1 is computed by study_w4a16 alone" in " ".join(out.split())


def test_refusals_of_a_plan_make_room_as_its_rows_do(say, without_torch, tmp_path):
    for suffix in (".json", ".csv"):
        file = tmp_path / f"plan{suffix}"
        for _ in range(2):
            code, _, err = say(*PLAN, *UNABLE, "--output", file)
            assert code == 0, err
