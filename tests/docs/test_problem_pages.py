"""The example of docs/problems.md runs and is judged; docs/validation.md lists every reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernel_compass.records.trial import Reason

DOCS = Path(__file__).resolve().parents[2] / "docs"


def example() -> str:
    text = (DOCS / "problems.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return found


@pytest.mark.parametrize(
    ("name", "config", "reasons"),
    [
        ("scale_after", {"parts": 1}, {None}),
        ("scale_after", {"parts": 2}, {None}),
        ("forgotten_scale", {}, {Reason.WRONG_RESULT, Reason.LOW_PRECISION}),
    ],
)
def test_the_example_is_a_problem_and_its_candidates_are_judged(tmp_path, name, config, reasons):
    torch = pytest.importorskip("torch", reason="needs torch")

    from kernel_compass.api.problem_candidates import judged, load_source
    from kernel_compass.api.problems import problem_source
    from kernel_compass.records.trial import Candidate
    from kernel_compass.validation.judge import judge
    from kernel_compass.validation.judge_contracts import Effort
    from kernel_compass.validation.machines import CpuMachine
    from kernel_compass.validation.watch import Watch

    path = tmp_path / "problem.py"
    path.write_text(example())
    source = problem_source(str(path))
    for workload in load_source(torch, source, "cpu").description.workloads:
        watch = Watch(torch)
        problem, build, _ = judged(torch, source, workload, Candidate(name, config), "cpu")
        effort = Effort(seeds=1, repeats=3, repeat_s=0.1, settle_s=0.001)
        said = judge(torch, problem, workload, build, CpuMachine(torch), watch, effort)
        assert said.reason in reasons, said.detail


def test_every_reason_is_listed_and_no_other():
    text = (DOCS / "validation.md").read_text(encoding="utf-8")
    rows = [line.split("|")[3] for line in text.splitlines() if line.startswith("| ")]
    named = [word for row in rows for word in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(reason.value for reason in Reason)
