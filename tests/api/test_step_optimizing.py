"""`optimize` over a program on this very machine: the CPU, with inductor's C++."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch")
if shutil.which("g++") is None:
    pytest.skip("inductor needs g++", allow_module_level=True)

from kernel_compass import api
from kernel_compass.api.actions.context import machine_model
from kernel_compass.api.step_optimizing import optimize_step, replay_step_recording
from kernel_compass.api.step_planning import plan_capture
from kernel_compass.api.step_program import program_of
from kernel_compass.api.step_requests import StepAsked
from kernel_compass.codec.study_document import canonical
from kernel_compass.optimizer.dispatch_file import read_table
from kernel_compass.records.step_action import StepActionKind
from kernel_compass.records.step_loop import StepOptions
from kernel_compass.records.study import StudyLimits
from kernel_compass.report.step_study import step_study_text

PROGRAM = Path(__file__).parent / "step_programs" / "small_model.py"
SMALL = StepOptions(pairs=12, processes=3, final_pairs=12)


def test_a_region_compiled_on_the_cpu_is_found_tried_confirmed_and_recorded(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNEL_COMPASS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    program = program_of(entry=f"{PROGRAM}:step")
    asked = StepAsked(limits=StudyLimits(trials=1), device="cpu", options=SMALL)
    recording = tmp_path / "recording.json.gz"
    said = []
    for _ in range(3):  # it is timed for real: where others use the cores, the bound may be too low
        found = optimize_step(
            program, asked, lambda event: said.append(event.text), record=recording
        )
        if found.step.kept and found.step.final.accepted:
            break
    assert len(found.step.kept) == 1, "\n".join(said)
    (trial,) = found.step.kept
    assert trial.proposal.action.kind is StepActionKind.COMPILE_REGION
    assert trial.proposal.saves_us > 0
    assert trial.speedup.low > 1.01
    assert all(one.relative_pct < 0.01 for one in trial.outputs)
    final = found.step.final
    assert final.accepted and final.speedup.low > 1.02 and final.processes == 3
    (entry,) = found.step.entries
    assert entry.program == "small_model.py:step" and "small_model.py" in entry.files
    text = step_study_text(found.recorded)
    assert "Kept, each on top of those before it" in text and "foretold" in text

    table = tmp_path / "compass.json"
    api.apply_study(str(found.folder), table)
    assert read_table(table).steps == (entry,)
    assert entry.gpu == machine_model()  # it is put on where it was measured

    again = replay_step_recording(recording, identifier="again", limits=StudyLimits(trials=1))
    assert again.step.steps == found.step.steps and again.step.final == final
    plan = plan_capture(found.end.capture)
    assert plan.places and canonical(again.recorded) != b""
