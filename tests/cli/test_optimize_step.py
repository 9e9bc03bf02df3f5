"""`optimize` over a program's step as a command, on recordings and captures; what follows it."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from optimizer.step_samples import (
    ENVIRONMENT,
    FakeBench,
    decode_capture,
    study,
)

from kernel_compass.cli.exit_codes import ExitCode
from kernel_compass.cli.main import main
from kernel_compass.codec import step_recording
from kernel_compass.codec.step_capture_document import packed
from kernel_compass.codec.study_document import decode
from kernel_compass.optimizer.dispatch_file import read_table
from kernel_compass.optimizer.ledger import Ledger
from kernel_compass.optimizer.step_answers import RecordingBench
from kernel_compass.optimizer.step_loop import StepLoop
from kernel_compass.records.step_loop import StepOptions, StepRecording

GOLDEN = Path(__file__).parents[1] / "golden"
TRACE = GOLDEN / "kineto" / "decoder_block_decode_eager.json.gz"
RECORDED_ON_A_CPU = (
    Path(__file__).parents[2] / "benchmarks/results/cpu/steps/small_model.recording.json.gz"
)


@pytest.fixture
def say(capfd, monkeypatch, tmp_path):
    monkeypatch.setenv("KERNEL_COMPASS_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    def run(*words):
        code = main([str(word) for word in words])
        out, err = capfd.readouterr()
        return code, out, err

    return run


@pytest.fixture
def captured(tmp_path):
    path = tmp_path / "capture.json.gz"
    path.write_bytes(packed(decode_capture()))
    return path


@pytest.fixture
def recording(tmp_path):
    """The answers of a step whose truth is known, to the questions that the command will ask."""
    from kernel_compass.api.step_planning import setup_of
    from kernel_compass.api.step_requests import StepAsked

    answers = {}
    bench = RecordingBench(FakeBench(), answers.__setitem__)
    asked = StepAsked(1.0, calibration="none")
    with Ledger.create(study(), tmp_path / "first") as ledger:
        setup = setup_of(decode_capture(), asked, "study-s")
        StepLoop(setup, bench, ledger, count().__next__).run()
    path = tmp_path / "study.json.gz"
    made = StepRecording(
        "step.py", 1.0, decode_capture(), ENVIRONMENT, StepOptions().kept, "none", answers
    )
    path.write_bytes(step_recording.encode(made))
    return path


def test_a_capture_is_looked_at_and_nothing_is_measured(say, captured):
    code, out, _ = say("optimize", "--captured", captured)
    assert code == ExitCode.OK
    assert "Nothing was measured here" in out
    assert "step_graph step: saves 490 us a step" in out
    assert "Once it is in a graph" in out
    assert "autograd.Function Scale (model.py:70 forward)" in out


def test_a_plan_as_json(say, captured):
    _, out, _ = say("optimize", "--captured", captured, "--json")
    found = json.loads(out)
    assert found["measured"] is False
    assert found["proposals"][0]["action"]["kind"] == "step_graph"
    assert found["in_graph"]["places"]
    assert found["not_handled"][0]["line"]["line"] == 70


def test_a_servers_trace_stands_in_for_a_run(say):
    code, out, _ = say("optimize", "--trace", TRACE, "--budget", "5%")
    assert code == ExitCode.OK
    assert "Nothing was measured here" in out
    assert "the GPU waits for the CPU" in out
    assert "product linear 16x14336x4096: saves" in out  # by the shipped calibration of its GPU


def test_formats_that_are_named_limit_what_is_foretold_of_products(say):
    """16-bit weights alone: 8-bit ones are neither a product's floor nor its prediction."""
    words = ("optimize", "--trace", TRACE, "--budget", "5%", "--json")
    free, bf16, eight = (
        _products(say(*words, *more)[1])
        for more in ((), ("--formats", "bf16"), ("--formats", "w8a16_fp8,bf16"))
    )
    down = "linear 16x14336x4096"
    assert free[down]["saves_us"] > 1 and eight[down]["saves_us"] > 1
    assert bf16[down]["saves_us"] == 0 and bf16[down]["part_speedup"] == 1.0
    assert any("of bf16 alone" in one for one in bf16[down]["evidence"])
    floors = [
        next(one for one in found[down]["evidence"] if "a step; floor" in one)
        for found in (free, bf16, eight)
    ]
    assert floors[0] == floors[2] != floors[1]


def _products(out):
    found = json.loads(out)
    proposals = [*found["proposals"], *found["in_graph"]["proposals"]]
    return {
        one["action"]["target"]["what"]: one
        for one in proposals
        if one["action"]["kind"] == "product"
    }


@pytest.mark.parametrize(
    ("formats", "said"), [("int3", "Use one of: bf16, fp16, w8a16_fp8"), (",", "names no format")]
)
def test_formats_that_are_none_are_refused(say, captured, tmp_path, formats, said):
    model = tmp_path / "model.py"
    model.write_text("def f():\n    open('ran', 'w').close()\n    return lambda: None\n")
    for source in (["--captured", captured], ["--entry", f"{model}:f", "--yes"]):
        code, _, err = say("optimize", *source, "--formats", formats)
        assert code == ExitCode.USAGE and said in err
    assert not (tmp_path / "ran").exists()


def test_a_recording_in_some_formats_is_run_shown_and_exported_with_them(say, recording):
    known = step_recording.read(recording)
    recording.write_bytes(step_recording.encode(replace(known, formats=("bf16",))))
    code, out, err = say("optimize", "--captured", recording)
    assert code == ExitCode.OK, err
    assert "products in bf16 alone" in out
    study = decode(say("export", "last")[1])
    assert study.study.request.formats == ("bf16",)
    formats = {
        one.proposal.action.candidate.format
        for one in study.step.steps
        if one.proposal.action.candidate is not None
    }
    assert formats == set()  # its study knew a faster one in 8 bits alone
    assert "formats bf16" in say("show", "last")[1]
    code, _, err = say("optimize", "--resume", "last", "--formats", "w8a16_fp8")
    assert code == ExitCode.USAGE and "--formats cannot be named beside it" in err
    code, out, _ = say("optimize", "--resume", "last")
    assert code == ExitCode.OK and "products in bf16 alone" in out


def test_a_recording_without_formats_says_nothing_of_them_as_those_of_before(recording):
    for path in (recording, RECORDED_ON_A_CPU):
        found = step_recording.read(path)
        assert found.formats == ()
        assert b'"formats"' not in gzip.decompress(path.read_bytes())
        again = step_recording.encode(found)
        assert b'"formats"' not in gzip.decompress(again)
        assert step_recording.encode(step_recording.decode(again)) == again


def test_the_whole_loop_runs_on_a_recording_and_everything_follows_it(say, recording, tmp_path):
    table = tmp_path / "compass.json"
    code, out, err = say("optimize", "--captured", recording, "--table", table)
    assert code == ExitCode.OK, err
    assert "Accepted" in out and "Kept, each on top of those before it" in out
    assert "kept, " in err  # as it happened
    steps = read_table(table).steps
    assert {one.action.kind.value for one in steps} >= {"step_graph", "compile_region"}

    _, shown, _ = say("show", "last")
    assert "the whole step" in shown and "Tried and taken back" in shown
    _, document, _ = say("show", "last", "--json")
    assert decode(document).step.final.accepted
    _, listed, _ = say("history")
    assert "finished" in listed and "step.py" in listed
    code, exported, _ = say("export", "last")
    again = decode(exported)
    assert again.step.entries and again.step.entries[0].study == "exported"
    code, replayed, _ = say("replay", "last", "--quiet")
    assert code == ExitCode.OK and "in_situ" in replayed

    code, out, _ = say("revert", "last", "--table", table)
    assert code == ExitCode.OK and not table.exists()


def test_one_change_can_be_taken_out_by_its_trial(say, recording, tmp_path):
    table = tmp_path / "compass.json"
    say("optimize", "--captured", recording, "--table", table)
    before = read_table(table).steps
    code, _, _ = say("revert", f"last:{before[0].trial}", "--table", table)
    assert code == ExitCode.OK
    assert read_table(table).steps == before[1:]


@pytest.mark.parametrize("words", [("--budget", "3%"), ("--formats", "bf16")])
def test_a_recording_has_the_budget_and_formats_of_its_study(say, recording, words):
    code, _, err = say("optimize", "--captured", recording, *words)
    assert code == ExitCode.USAGE and f"{words[0]}: a recording has that of its study" in err


def test_two_runs_of_a_recording_export_the_same_bytes(say, recording):
    found = []
    for _ in range(2):
        say("optimize", "--captured", recording, "--quiet")
        found.append(say("export", "last")[1])
    assert found[0] == found[1]


def test_a_finished_study_of_a_recording_is_resumed_and_told_again(say, recording, tmp_path):
    say("optimize", "--captured", recording, "--quiet")
    table = tmp_path / "compass.json"
    code, out, err = say("optimize", "--resume", "last", "--table", table)
    assert code == ExitCode.OK, err
    assert "Accepted" in out and read_table(table).steps


def test_json_lines_are_json(say, recording):
    _, out, _ = say("optimize", "--captured", recording, "--json-lines")
    rows = [json.loads(row) for row in out.splitlines() if row.startswith("{")]
    assert rows[0]["stage"] == "select" and rows[-1]["stage"] == "ended"


def test_what_was_recorded_on_a_cpu_runs_again_here(say):
    code, out, _ = say("optimize", "--captured", RECORDED_ON_A_CPU)
    assert code == ExitCode.OK
    assert "compile_region" in out and "Accepted" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--script", "none.py"], "There is no file none.py"),
        (["--entry", "model.py"], "names no function"),
        (["--captured", "none.json.gz"], "There is no file none.json.gz"),
        (["--module", "a", "--script", "b.py"], "Several programs"),
        (["--module", "a", "--resume", "last"], "Both a program and a study"),
        (["--captured", "x", "--script", "b.py"], "stand in for a run"),
        (["--script", "b.py", "--json", "--quiet"], "exclude each other"),
        (["linear:1x2x3", "linear:1x2x3"], "one word too many"),
        (["--script", "b.py", "--regime", "cold", "--seed", "1"], "--regime, --seed: not of a"),
        (["--entry", "b.py:f", "--static", "off", "--sanitize"], "--static, --sanitize: not of a"),
        (
            ["linear:1x2x3", "--record", "f", "--calibration", "h200"],
            "--record, --calibration",
        ),
        (["--captured", "x", "--minutes", "1"], "nothing is measured of what was captured"),
    ],
)
def test_what_does_not_fit_together_is_said(say, words, said):
    code, _, err = say("optimize", *words)
    assert code == ExitCode.USAGE
    assert said in err


def test_a_program_is_not_run_for_the_first_time_without_being_agreed_to(say, tmp_path):
    script = tmp_path / "step.py"
    script.write_text("open('ran', 'w').close()\n")
    code, _, err = say("optimize", "--script", script, "--device", "cpu")
    assert code == ExitCode.USAGE and "was never run here" in err
    assert not (tmp_path / "ran").exists()


def test_a_file_that_is_no_capture_is_refused(say, tmp_path):
    path = tmp_path / "other.json"
    path.write_text('{"schema": "something/1"}')
    code, _, err = say("optimize", "--captured", path)
    assert code != ExitCode.OK and "step-capture" in err
