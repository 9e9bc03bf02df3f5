"""`kernel-compass capture`: what it shows and keeps, what it refuses, when it asks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernel_compass.analysis.step_groups import groups_of
from kernel_compass.cli.exit_codes import ExitCode
from kernel_compass.cli.main import main
from kernel_compass.codec.step_capture_document import decode
from kernel_compass.records.step_capture import NotHandled, RegionKind, SourceLine, StepRegion
from kernel_compass.report.step_capture import text_of

GOLDEN = Path(__file__).parents[1] / "golden"
TRACE = str(GOLDEN / "kineto" / "decoder_block_decode_eager.json.gz")


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL_COMPASS_HOME", str(tmp_path / "home"))


def test_a_trace_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "--trace", TRACE]) == ExitCode.OK
    said = capsys.readouterr().out
    assert "a step is ProfilerStep, on NVIDIA H200" in said
    assert "_cudnn_attention_forward" in said
    assert "Runs of launch-bound kernels" in said


def test_a_trace_as_json_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "folder" / "c.json.gz"
    assert main(["capture", "--trace", TRACE, "--json", "-o", str(kept)]) == ExitCode.OK
    said = capsys.readouterr().out
    assert json.loads(said)["schema"] == "kernel-compass/step-capture/1"
    assert decode(kept.read_bytes()) == decode(said.encode())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "No program is named"),
        (["--trace", TRACE, "--script", "a.py"], "stands in for a run"),
        (["--script", "nowhere.py"], "no file nowhere.py"),
        (["--entry", "nowhere.py"], "names no function"),
        (["--module", "no.such"], "no module no.such"),
    ],
)
def test_what_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", *words]) == ExitCode.USAGE
    assert said in capsys.readouterr().err


def test_code_that_nobody_agreed_to_does_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "step.py"
    file.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    assert main(["capture", "--script", str(file)]) == ExitCode.USAGE
    assert "was never run here" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()


STEPS_OF_NOTHING = {
    "empty": "",
    "prints": "print('hello')\n",
    "starts another": "import subprocess\nsubprocess.run(['true'])\n",
    "makes nothing": "def step():\n    return lambda: None\n",
}


@pytest.mark.parametrize("command", ["capture", "optimize"])
@pytest.mark.parametrize("name", STEPS_OF_NOTHING)
def test_a_program_without_a_step_is_said_to_have_none(
    name: str,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("torch", reason="needs torch")
    monkeypatch.setenv("KERNEL_COMPASS_HOME", str(tmp_path / "home"))
    file = tmp_path / "program.py"
    file.write_text(STEPS_OF_NOTHING[name])
    entry = ["--entry", f"{file}:step"] if "step" in STEPS_OF_NOTHING[name] else None
    words = [command, *(entry or ["--script", str(file)]), "--yes"]
    code = main([*words, *(["--device", "cpu"] if command == "optimize" else [])])
    said = capfd.readouterr()
    assert code == ExitCode.NOTHING_PROFILED
    assert "has no step" in said.err
    assert "no operator of torch" in said.err
    assert "next: Name a function" in said.err
    assert "--entry FILE.py:FUNCTION" in said.err
    assert not (tmp_path / "home" / "studies").exists(), "no study was begun"
    if name == "starts another":
        assert "sub-process" in said.err


def test_a_capture_without_a_gpu_shows_operators_and_what_is_not_handled() -> None:
    from dataclasses import replace

    found = decode((GOLDEN / "step_decoder_block_cpu.json.gz").read_bytes())
    line = SourceLine("m.py", 3, "f")
    found = replace(
        found,
        regions=(StepRegion(0, RegionKind.COMPILED, "norm", line, 2),),
        not_handled=(NotHandled("graph break", "print", line),),
    )
    text = text_of(found, groups_of(found))
    rows = [" ".join(row.split()) for row in text.splitlines()]
    assert "mm 1 linear 16x64x128 decoder_block.py:100 DecoderBlock._feed_forward" in rows
    assert "mm 2 linear 16x128x64 decoder_block.py:100 DecoderBlock._feed_forward" in rows
    assert "compiled norm, m.py:3 f, 2 calls" in rows
    assert "m.py:3 f: graph break: print" in rows
    assert "launch-bound" not in text
