"""`kernel-compass validate --self-test`: as text, as JSON, and what it refuses."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch", reason="needs torch")

from kernel_compass import api
from kernel_compass.cli.exit_codes import ExitCode
from kernel_compass.cli.main import main
from kernel_compass.records.trial import Reason
from kernel_compass.validation.self_test import CheatResult, SelfTest


def test_each_cheat_is_a_line_and_what_a_gpu_needs_is_said(capsys, monkeypatch):
    """The real one, in its own process, is in tests/validation/test_self_test.py."""
    caught = CheatResult("zeros", (Reason.WRONG_RESULT,), Reason.WRONG_RESULT, "off")

    def run(device, show):
        assert device == "cpu"
        show(caught)
        return SelfTest((caught,), ("side stream",), None)

    monkeypatch.setattr(api, "run_self_test", run)
    assert main(["validate", "--self-test", "--device", "cpu"]) == ExitCode.OK
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["ok", "zeros", "wrong_result"],
        ["-", "side", "stream", "not", "tested:", "needs", "a", "GPU"],
        ["ok", "the", "honest", "one", "accepted"],
    ]


def test_json_says_what_was_found(capsys, monkeypatch):
    caught = CheatResult("zeros", (Reason.WRONG_RESULT,), Reason.WRONG_RESULT, "off")
    missed = CheatResult("races", (Reason.NOT_REPEATABLE,), None, "fine")
    outcome = SelfTest((caught, missed), ("side stream",), None)
    monkeypatch.setattr(api, "run_self_test", lambda *_: outcome)
    assert main(["validate", "--self-test", "--json"]) == ExitCode.JUDGE
    told = capsys.readouterr()
    document = json.loads(told.out)
    assert document["passed"] is False
    assert [one["caught"] for one in document["results"]] == [True, False]
    assert "missed 1 of 2" in told.err


def test_it_needs_something_to_judge(capsys):
    assert main(["validate"]) == ExitCode.USAGE
    assert "--self-test" in capsys.readouterr().err


def test_a_device_that_is_none(capsys):
    assert main(["validate", "--self-test", "--device", "tpu"]) == ExitCode.USAGE
    assert "cuda:0" in capsys.readouterr().err
