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


def test_cheats_are_shown_as_they_are_judged(capsys, monkeypatch):
    """`tests/validation/test_self_test.py` lets the judge prove itself."""
    results = tuple(
        CheatResult(name, (Reason.WRONG_RESULT,), found, "off")
        for name, found in (("zeros", Reason.WRONG_RESULT), ("the mean", None))
    )

    def run(device, show, outcome):
        assert device == "cpu"
        for one in outcome.results:
            show(one)
        return outcome

    for honest, status in ((None, ExitCode.OK), ("raised: no", ExitCode.JUDGE)):
        outcome = SelfTest(results[:1], ("side stream",), honest)
        monkeypatch.setattr(api, "run_self_test", lambda d, s, o=outcome: run(d, s, o))
        assert main(["validate", "--self-test", "--device", "cpu"]) == status
        said = capsys.readouterr().out
        assert "ok   zeros" in said and "wrong_result" in said
        assert "not tested: needs a GPU" in said
        assert ("MISS" in said) == (honest is not None)
    monkeypatch.setattr(api, "run_self_test", lambda d, s: run(d, s, SelfTest(results, (), None)))
    assert main(["validate", "--self-test", "--device", "cpu"]) == ExitCode.JUDGE
    assert "MISS the mean" in capsys.readouterr().out


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
