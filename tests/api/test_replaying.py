"""A study replayed: claims that hold, claims that do not, and which machine was asked."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from optimizer.loop_samples import COLD, WARM, everything, family, recording, workload

pytest.importorskip("torch", reason="needs torch")

from kernel_compass.api import optimize, study_request
from kernel_compass.api.replaying import replay_study
from kernel_compass.cli.exit_codes import ExitCode
from kernel_compass.cli.main import main
from kernel_compass.codec import loop_recording
from kernel_compass.errors import StudyError, UsageError
from kernel_compass.optimizer.ledger import read_study
from kernel_compass.records.trial import Reason


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    """A study on a recording of one workload; its folder."""
    folder = tmp_path_factory.mktemp("studied")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNEL_COMPASS_HOME", str(folder / "home"))
        found = optimize(
            study_request("mla:deepseek-v3", tokens=(1,), trials=60, minutes=None),
            f"recorded:{kept(folder, recording(workload(1)))}",
        )
    assert len(found.recorded.accepted) == 1
    assert found.recorded.accepted[0].proposal.candidate.implementation == "fast"
    return found.folder


def kept(folder, what, name="recording.json"):
    path = folder / name
    path.write_bytes(loop_recording.encode(what))
    return path


def replayed_on(studied, tmp_path, candidates, **fields):
    path = kept(tmp_path, recording(workload(1, candidates), **fields))
    return replay_study(str(studied), f"recorded:{path}", seed=5)


def others():
    return [one for one in everything() if one.implementation != "fast"]


def test_on_the_same_machine_the_claim_holds(studied, tmp_path):
    found = replay_study(str(studied), seed=5)
    (claim,) = found.claims
    assert (found.holds, claim.holds, claim.reason) == (True, True, None)
    assert {one.regime: one.asked for one in claim.regimes} == {COLD: True, WARM: True}
    for one in claim.regimes:
        assert one.found.speedup.estimate == pytest.approx(one.claimed.estimate, rel=0.03)
        assert one.found.processes == 5
    assert found.now.device.name == "recorded GPU"


def test_where_it_is_no_faster_it_does_not(studied, tmp_path):
    even = family("fast", "w8a16_fp8", 10.0, 8.0)
    found = replayed_on(studied, tmp_path, [*others(), *even])
    (claim,) = found.claims
    assert (claim.holds, claim.reason) == (False, Reason.HOLD_OUT)
    # ... nor where it wins in one of the two regimes that were asked for
    cold_only = family("fast", "w8a16_fp8", 10 / 1.6, 8.4)
    (claim,) = replayed_on(studied, tmp_path, [*others(), *cold_only]).claims
    decided = {one.regime: one.found.speedup.estimate for one in claim.regimes}
    assert not claim.holds
    assert decided[COLD] > 1.5
    assert decided[WARM] < 1.0


@pytest.mark.parametrize("reason", [Reason.WRONG_RESULT, Reason.CRASHED])
def test_where_it_is_wrong_or_dies_its_reason_is_said(studied, tmp_path, reason):
    wrong = family("fast", "w8a16_fp8", 5.0, 4.0, reason=reason, detail="as recorded")
    found = replayed_on(studied, tmp_path, [*others(), *wrong])
    assert [(one.holds, one.reason) for one in found.claims] == [(False, reason)]
    assert found.now is None
    assert not found.holds


def test_nothing_is_recorded(studied, tmp_path):
    before = read_study(studied)
    replay_study(str(studied), seed=1)
    assert read_study(studied) == before


def test_other_problems_are_refused(studied, tmp_path):
    other = kept(tmp_path, recording(workload(1), target="bmm:1x1x1x1"))
    with pytest.raises(UsageError, match="recording is of bmm:1x1x1x1"):
        replay_study(str(studied), f"recorded:{other}")
    elsewhere = kept(tmp_path, recording(workload(7)), "elsewhere.json")
    with pytest.raises(StudyError, match="no workload"):
        replay_study(str(studied), f"recorded:{elsewhere}")
    with pytest.raises(StudyError, match="no study"):
        replay_study("no-such-study")


def test_the_command_says_what_holds_in_text_and_json(studied, tmp_path, capsys):
    assert main(["replay", str(studied), "--seed", "5"]) == ExitCode.OK
    told = capsys.readouterr()
    assert "holds" in told.out
    assert "1 of 1 hold (seed 5)" in told.out
    assert "claimed" in told.out
    assert "hold-out: process 5 of 5" in told.err
    slow = kept(tmp_path, recording(workload(1, [*others(), *family("fast", "w8a16_fp8", 10, 8)])))
    words = ["replay", str(studied), "--device", f"recorded:{slow}", "--json", "--seed", "5"]
    assert main(words) == ExitCode.DOES_NOT_HOLD
    document = json.loads(capsys.readouterr().out)
    assert document["holds"] is False
    assert document["claims"][0]["reason"] == "hold_out"
    assert {one["regime"] for one in document["claims"][0]["regimes"]} == {"cold", "warm"}


def test_a_study_that_accepted_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("KERNEL_COMPASS_HOME", str(tmp_path / "home"))
    nothing = replace(recording(workload(1, family("even", "bf16", 10.0, 8.0))))
    path = kept(tmp_path, nothing)
    request = study_request("mla:deepseek-v3", tokens=(1,), trials=5, minutes=None)
    found = optimize(request, f"recorded:{path}")
    assert not found.recorded.accepted
    assert main(["replay", str(found.folder)]) == ExitCode.OK
    assert "Nothing was accepted" in capsys.readouterr().out


@pytest.fixture(scope="module")
def of_three(tmp_path_factory):
    """A study of three workloads with a claim each; its folder."""
    folder = tmp_path_factory.mktemp("of_three")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNEL_COMPASS_HOME", str(folder / "home"))
        path = kept(folder, recording(*map(workload, (1, 4, 16))))
        request = study_request("mla:deepseek-v3", tokens=(1, 4, 16), trials=180, minutes=None)
        found = optimize(request, f"recorded:{path}")
    assert len(found.recorded.accepted) == 3
    return found.folder


def test_several_claims_share_the_chance_of_an_error(of_three, capsys):
    found = replay_study(str(of_three), seed=5)
    assert found.holds
    assert (found.timed, found.alpha) == (3, 0.05)
    for claim in found.claims:  # all of them clear what the strictest would have to
        for one in claim.regimes:
            assert one.found.speedup.confidence == pytest.approx(1 - 0.05 / 3)
    assert main(["replay", str(of_three), "--seed", "5"]) == ExitCode.OK
    assert "3 claims were timed" in capsys.readouterr().out
    assert main(["replay", str(of_three), "--seed", "5", "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert document["correction"] == {"method": "holm", "claims": 3, "alpha": 0.05}


def test_claims_that_hold_make_room_for_the_others(of_three, tmp_path):
    """What does not hold is looked at again at the level that is left, and is wider no more."""
    even = [*others(), *family("fast", "w8a16_fp8", 10.0, 8.0)]
    path = kept(tmp_path, recording(workload(1), workload(4, even), workload(16)))
    found = replay_study(str(of_three), f"recorded:{path}", seed=5)
    levels = {one.holds: {r.found.speedup.confidence for r in one.regimes} for one in found.claims}
    assert [one.holds for one in found.claims].count(True) == 2
    assert levels[True] == {1 - 0.05 / 3}
    assert levels[False] == {0.95}


def test_one_claim_alone_has_all_of_it(studied):
    (claim,) = replay_study(str(studied), seed=5).claims
    assert {one.found.speedup.confidence for one in claim.regimes} == {0.95}


def test_the_doors_are_open():
    from kernel_compass import api
    from kernel_compass.api import replaying, validating

    assert api.replay_study is replaying.replay_study
    assert (api.validate, api.validate_candidate) == (
        validating.validate,
        validating.validate_candidate,
    )
