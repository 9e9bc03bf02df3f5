"""The driver of `benchmarks/steps_h200.py`: what it sums up, goes on with, and runs in full."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import steps_h200
import torch
from steps import kernelbench_runs, studying, triton_space
from steps.studying import part_of, summed, table_text

from kernel_compass.api.problem_models import is_model_source
from kernel_compass.records.comparison import Interval
from kernel_compass.records.step_action import (
    StepAction,
    StepActionKind,
    StepProposal,
    StepTarget,
    StepTrial,
)
from kernel_compass.records.step_study import StepFinal, StepStudy
from kernel_compass.records.trial import Outcome, Reason

GIB = 1 << 30
ATTENTION = """
import torch
import torch.nn.functional as F
from torch import nn

tokens = 4096


class Model(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v)


def get_inputs():
    return [torch.randn(1, 2, min(tokens, 64), 16) for _ in range(3)]


def get_init_inputs():
    return []
"""


def study(accepted=True):
    proposal = StepProposal(
        StepAction(StepActionKind.STEP_GRAPH, StepTarget("step")), "", (), 0.5, None, 100.0
    )
    kept = StepTrial(1, proposal, Outcome.SCREENED, before_us=200.0, after_us=110.0)
    back = StepTrial(2, proposal, Outcome.REJECTED, Reason.NOT_FASTER, "not shown")
    final = StepFinal(
        accepted, "faster", Interval(estimate=1.7, low=1.6, high=1.8, confidence=0.95), 200.0, 118.0
    )
    return StepStudy(steps=(kept, back), final=final, step_us=205.0)


FORETOLD = {
    "by_budget": {"1": {"ratio": 2.0, "changes": []}, "5": {"ratio": 4.0, "changes": []}},
    "reason": "",
}


SUMMED = {**summed(study(), 1.0, FORETOLD), "replay": None}


def test_what_was_obtained_is_the_part_of_the_time_that_was_to_be_saved():
    assert part_of(2.0, 2.0) == pytest.approx(1.0)
    assert part_of(4 / 3, 2.0) == pytest.approx(0.5)  # a quarter saved of a half
    assert part_of(0.8, 2.0) < 0
    assert part_of(1.0, 1.0) is None


@pytest.mark.parametrize(("budget", "ratio"), [(0.5, 2.0), (1.0, 2.0), (4.9, 2.0), (5.0, 4.0)])
def test_a_result_is_put_beside_what_was_foretold_at_its_budget(budget, ratio):
    found = summed(study(), budget, FORETOLD)
    assert found["predicted"]["ratio"] == ratio
    assert found["obtained"] == 1.7
    assert found["part_obtained"] == pytest.approx((1 - 1 / 1.7) / (1 - 1 / ratio))


def test_what_did_not_hold_in_fresh_processes_obtained_nothing():
    found = summed(study(accepted=False), 1.0, FORETOLD)
    assert (found["obtained"], found["part_obtained"]) == (1.0, 0.0)


def test_a_table_says_what_was_kept_and_where_little_was_what_was_not():
    row = {"program": "mla", "budget_pct": 1.0, "replay": {"holds": True, "claims": [{}]}}
    text = table_text([{**row, **summed(study(), 1.0, FORETOLD)}])
    assert "2.00x" in text and "1.700x" in text and "82%" in text and "holds" in text
    assert "kept: step_graph step (foretold 100 us, saved 90 us)" in text and "not:" not in text
    text = table_text([{**row, **summed(study(accepted=False), 1.0, FORETOLD)}])
    assert "not: step_graph step: not_faster" in text
    for replay, word in (
        (None, "not yet"),
        ({"holds": True, "claims": []}, "untouched"),
        ({"holds": False, "claims": [{}]}, "DOES NOT HOLD"),
    ):
        text = table_text([{**row, "replay": replay, **summed(study(), 1.0, FORETOLD)}])
        assert text.splitlines()[1].endswith(word)


@pytest.mark.parametrize("path", kernelbench_runs.problem_files(), ids=lambda path: path.stem)
def test_a_problems_file_runs_as_it_is_written(path, tmp_path):
    assert is_model_source(path)
    whole, small = {}, {}
    exec(path.read_text(), whole)
    with torch.device("meta"):
        given = whole["get_inputs"]()
    assert 8 << 20 < sum(one.nbytes for one in given) < 4 * GIB
    copy = kernelbench_runs.copied(path, tmp_path, 16)
    exec(copy.read_text(), small)
    with torch.no_grad():
        model = small["Model"](*small["get_init_inputs"]()).eval()
        inputs = small["get_inputs"]()
        found = model(*inputs)
        if any(not one.is_floating_point() for one in inputs):
            right = model(*(one.double() if one.is_floating_point() else one for one in inputs))
        else:
            right = model.double()(*(one.double() for one in inputs))
    assert sum(one.nbytes for one in inputs) < 4 << 20
    torch.testing.assert_close(found.double(), right, rtol=1e-3, atol=1e-4)


def test_there_are_ten_of_them():
    assert len(kernelbench_runs.problem_files()) == 10


@pytest.mark.slow
def test_a_file_goes_through_the_command_and_is_not_run_again(tmp_path):
    path = tmp_path / "attention.py"
    path.write_text(ATTENTION)
    said = []
    words = ["--device", "cpu", "--trials", "1"]
    began = time.monotonic()
    found = kernelbench_runs.optimized(path, tmp_path / "kept", 5.0, words, said.append)
    took = time.monotonic() - began
    assert found["exit_code"] == 0, "\n".join(said)
    (trial,) = found["trials"]
    assert trial["change"].startswith("sdpa_backend") and found["never_slower"]
    assert path.read_text() == ATTENTION
    began = time.monotonic()
    again = kernelbench_runs.optimized(path, tmp_path / "kept", 5.0, words, said.append)
    assert again == found and time.monotonic() - began < took / 2


def test_a_command_that_fails_is_no_result(tmp_path):
    missing = tmp_path / "missing.py"
    found = kernelbench_runs.optimized(missing, tmp_path / "kept", 1.0, (), lambda _: None)
    assert found["exit_code"] != 0 and not found["never_slower"]
    assert not (tmp_path / "kept" / "result.json").exists()  # the next call tries again


def row(block, time_us):
    return {"config": {"BLOCK": block, "num_warps": 1}, "time_us": time_us, "why": ""}


def test_a_choice_is_compared_with_the_best_of_its_space():
    rows = [row(64, 50.0), row(128, 20.0), row(256, 21.0), row(512, None)]
    found = triton_space.summed(rows, 4, {"BLOCK": 256, "num_warps": 1})
    assert found["best"] == {"BLOCK": 128, "num_warps": 1}
    assert found["behind"] == pytest.approx(1.05) and found["within"] and found["complete"]
    kept_as_it_was = triton_space.summed(rows[:3], 4, None)
    assert kept_as_it_was["behind"] == 2.5 and not kept_as_it_was["within"]
    assert not kept_as_it_was["complete"]
    assert triton_space.summed([], 4, None)["behind"] is None


def test_a_space_is_measured_and_gone_on_with(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    space = [{"BLOCK": 128, "num_warps": 1}, {"BLOCK": 512, "num_warps": 4}, {"NONE": 1}]
    rows = tmp_path / "softmax_kernel.jsonl"
    words = ["--rows", "2", "--columns", "300", "--size", "16"]
    rows.write_text(json.dumps({"config": space[0], "time_us": 1.0, "why": ""}) + '\n{"config": ')
    found = triton_space.measured(
        "softmax_kernel", space, rows, words, time.monotonic() + 300, lambda _: None
    )
    assert [one["config"] for one in found] == space
    assert found[0]["time_us"] == 1.0 and found[1]["time_us"] > 0
    assert found[2]["time_us"] is None and "NONE" in found[2]["why"]


def test_a_run_in_some_formats_is_asked_for_kept_and_foretold_apart(tmp_path, monkeypatch):
    """Without weights of 8 bits, what they would save at 5 % is not foretold."""
    asked, begun = [], []

    def optimize_step(program, given, tell, folder, record, name):
        asked.append((given.formats, folder, name))
        raise KeyboardInterrupt

    def optimized(path, folder, minutes, words, say):
        begun.append((folder, list(words)))
        return {"program": path.name, "never_slower": True, "budget_pct": 1.0, **SUMMED}

    monkeypatch.setattr(studying, "optimize_step", optimize_step)
    monkeypatch.setattr(kernelbench_runs, "optimized", optimized)
    words = ["--budget", "5", "--folder", str(tmp_path), "--device", "cpu"]
    for more in ([], ["--formats", "bf16"]):
        assert steps_h200.main(["mla", *words, *more]) == 130
    assert asked == [
        ((), tmp_path / "mla-5" / "study", "mla-5"),
        (("bf16",), tmp_path / "mla-5-bf16" / "study", "mla-5-bf16"),
    ]
    steps_h200.main(["kernelbench", "--files", "1", *words, "--formats", "bf16"])
    ((folder, given),) = begun
    assert folder.parent == tmp_path / "kernelbench-bf16"
    assert given[-2:] == ["--formats", "bf16"]
    run = studying.Run(None, tmp_path, 5.0, 1.0, formats=("bf16",))
    assert summed(study(), run.foretold_pct, FORETOLD)["predicted"]["ratio"] == 2.0
    assert replace(run, formats=("bf16", "w8a16_fp8")).foretold_pct == 5.0
    assert replace(run, formats=()).foretold_pct == 5.0


def test_with_no_minutes_left_nothing_is_begun(tmp_path, capsys):
    assert steps_h200.main(["all", "--minutes", "0", "--folder", str(tmp_path)]) == 1
    assert "call again to go on" in capsys.readouterr().err
    assert not list(Path(tmp_path).iterdir())


def test_what_is_kept_is_shown_without_a_run(tmp_path, capsys):
    kept = {"program": "mla_decode.py", "budget_pct": 1.0, "replay": None}
    (tmp_path / "mla-1").mkdir()
    document = {**kept, **summed(study(), 1.0, FORETOLD)}
    (tmp_path / "mla-1" / "result.json").write_text(json.dumps(document))
    assert steps_h200.main(["table", "--folder", str(tmp_path)]) == 0
    assert "mla_decode.py" in capsys.readouterr().out
