"""The loop's tools on a real GPU: compilers beforehand, counters for the rules, the sanitizer."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kernel_compass import api
from kernel_compass.records.loop import Stage
from kernel_compass.records.trial import Outcome, Reason

TARGET = "bmm:128x1x128x512"
pytestmark = [pytest.mark.gpu, pytest.mark.ncu]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study of three minutes with all that a GPU has by itself; its events, and what it found."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNEL_COMPASS_HOME", str(home))
        patch.setenv("XDG_CACHE_HOME", str(home / "cache"))
        events = []
        request = api.study_request(TARGET, formats=("w8a16_fp8", "w8a16_int8"), minutes=3.0)
        sanitizer = shutil.which("compute-sanitizer") or Path("/usr/local/cuda/bin").exists()
        options = api.loop_options("cuda:0", static=8, sanitize=bool(sanitizer))
        found = api.optimize(request, "cuda:0", events.append, options)
    return events, found


def lines(events, stage):
    return [e.text for e in events if e.stage is stage]


def test_heads_are_compiled_for_this_gpu_before_any_screen(study):
    events, _ = study
    said = lines(events, Stage.STATIC)
    assert any("compiling" in line for line in said)
    assert any("configurations compiled; dropped" in line for line in said), said
    stages = [e.stage for e in events]
    assert stages.index(Stage.STATIC) < stages.index(Stage.SCREEN)


def test_baseline_and_best_are_diagnosed_by_counters(study):
    events, found = study
    said = lines(events, Stage.DIAGNOSE)
    assert any("the baseline is" in line for line in said), said
    assert any("trial" in line and " is " in line for line in said), said
    rules = [t.proposal for t in found.recorded.trials if t.proposal.proposer == "rules"]
    assert any("by counters" in text for one in rules for text in one.evidence)


def test_no_honest_finalist_is_rejected_by_the_sanitizer(study):
    _, found = study
    finals = [t for t in found.recorded.trials if t.proposal.proposer == "finals"]
    assert finals
    assert Reason.SANITIZER not in {t.reason for t in finals}, [t.detail for t in finals]
    assert any(t.outcome is Outcome.ACCEPTED for t in finals)
