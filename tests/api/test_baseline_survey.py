"""A problem's baseline as a whole: what it consists of, when it is fused, what that predicts."""

from __future__ import annotations

import json
import shutil

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from kernel_compass import api  # noqa: E402
from kernel_compass.analysis.floor import Floors  # noqa: E402
from kernel_compass.analysis.whole_baseline import EFFICIENCY  # noqa: E402
from kernel_compass.api.baseline_survey import NO_GPU, survey_task  # noqa: E402
from kernel_compass.api.calibrations import calibration  # noqa: E402
from kernel_compass.api.problem_files import load_problem  # noqa: E402
from kernel_compass.api.problems import problem_source  # noqa: E402
from kernel_compass.api.proving import environment_key  # noqa: E402
from kernel_compass.cli.exit_codes import ExitCode  # noqa: E402
from kernel_compass.cli.main import main  # noqa: E402
from kernel_compass.codec.canonical import plain, reshaped  # noqa: E402
from kernel_compass.errors import UsageError  # noqa: E402
from kernel_compass.optimizer.proposers.findings import Findings  # noqa: E402
from kernel_compass.optimizer.proposers.whole_baseline import WholeBaseline  # noqa: E402
from kernel_compass.records.baseline_survey import COMPILED, BaselineSurvey  # noqa: E402
from kernel_compass.records.counters import L2_SECTORS_READ  # noqa: E402
from kernel_compass.records.loop import Baseline, RegimeTime, Stage  # noqa: E402
from kernel_compass.records.problem import ProblemDescription, ProblemWorkload  # noqa: E402
from kernel_compass.records.profile import Regime  # noqa: E402
from kernel_compass.records.trial import Action  # noqa: E402
from kernel_compass.records.workload import Traffic  # noqa: E402

ROWS, WIDTH = 64, 4096
BYTES = 4 * ROWS * WIDTH
CHAIN = f"""
import torch
WORKLOADS = [{{"rows": {ROWS}, "width": {WIDTH}}}]
ERROR_BUDGET = 0.03

def inputs(workload, generator):
    size = (workload["rows"], workload["width"])
    draw = lambda: torch.randn(size, generator=generator, device=generator.device)
    return {{"x": draw(), "y": draw()}}

def reference(x, y):
    return torch.tanh(x * y + 1)

def baseline(x, y, shift=1):
    return torch.tanh(x * y + shift)

CANDIDATES = {{}}
"""
SINGLE = CHAIN.replace("torch.tanh(x * y + shift)", "(x.t() @ y)").replace(
    "torch.tanh(x * y + 1)", "x.t() @ y"
)
CALLABLE = CHAIN + "\nimport functools\nbaseline = functools.partial(baseline, shift=1)\n"
COMPILER = pytest.mark.skipif(not shutil.which("g++"), reason="Inductor needs a C++ compiler")


def survey(folder, text, **beside):
    path = folder / "problem.py"
    path.write_text(text)
    sizes = ProblemWorkload("w", {"rows": ROWS, "width": WIDTH})
    asked = {"source": plain(problem_source(str(path))), "workload": plain(sizes)}
    asked |= {"device": "simulated", "calibration": "h200", **beside}
    return reshaped(survey_task(asked, lambda _: None)["survey"], BaselineSurvey)


def floor_us(read, written):
    return Floors(calibration("h200")).of(Traffic(0, read, written, 0), Regime.WARM).time_us


@COMPILER
def test_a_chain_of_small_operators_is_counted_and_what_fusing_saves_is_by_floors(tmp_path):
    found = survey(tmp_path, CHAIN)
    assert (found.launches, found.runs, found.fused_launches) == (3, 1, 1)
    assert found.products == 0
    assert found.read_bytes == 4 * BYTES  # x, y; the product; the sum
    assert found.fused_read_bytes == 2 * BYTES
    apart = floor_us(2 * BYTES, BYTES) + 2 * floor_us(BYTES, BYTES)
    assert found.saved_us == pytest.approx(apart - floor_us(2 * BYTES, BYTES))
    assert found.no_fusion is None
    assert found.no_graph == NO_GPU


def test_without_a_calibration_no_time_is_predicted(tmp_path):
    assert survey(tmp_path, CHAIN, calibration=None).saved_us is None


@COMPILER
@pytest.mark.parametrize(
    ("text", "why"), [(SINGLE, "no two small operators"), (CALLABLE, "no plain function")]
)
def test_what_cannot_be_fused_says_why(tmp_path, text, why):
    assert why in survey(tmp_path, text).no_fusion


def proposed(found):
    findings = Findings(surveys={"w": found})
    baseline = Baseline("w", (RegimeTime(Regime.WARM, 20.0, None),))
    rule = WholeBaseline({"w": baseline}, findings)
    problem = ProblemDescription("chain", (), (), 3.0)
    asked = (problem, ProblemWorkload("w", {}), (Regime.WARM,), ())
    return rule.propose(*asked), rule.propose(*asked)


def test_the_rule_predicts_time_and_counter_from_what_was_counted():
    found = BaselineSurvey(3, 1, 1, 4000, 2000, 0, 5.0)
    (one,), later = proposed(found)
    assert later == [] or later == ()
    assert one.action is Action.FUSION
    assert one.candidate.implementation == COMPILED
    assert one.prediction.times_us == {Regime.WARM: pytest.approx(20 - EFFICIENCY * 5)}
    (counter,) = one.prediction.counters
    assert (counter.metric, counter.expected) == (L2_SECTORS_READ, 0.5)
    assert any("needs" in text for text in one.evidence)
    ((uncalibrated,), _) = proposed(BaselineSurvey(3, 1, 1, 4000, 2000, 0))
    assert uncalibrated.prediction.times_us == {}
    ((with_product,), _) = proposed(BaselineSurvey(4, 2, 1, 4000, 2000, 1, 5.0))
    assert with_product.prediction.counters == ()


def test_what_cannot_be_compiled_is_not_proposed():
    assert list(proposed(BaselineSurvey(3, 1, 1, 4, 2, 0, 5.0, "no compiler"))[0]) == []


def test_no_candidate_of_a_file_is_called_so(tmp_path):
    path = tmp_path / "problem.py"
    path.write_text(CHAIN.replace("CANDIDATES = {}", f"CANDIDATES = {{{COMPILED!r}: baseline}}"))
    with pytest.raises(UsageError, match=r"under torch\.compile is called so"):
        load_problem(torch, path)


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A problem's file, where the judge is taken to have proved itself: that takes a minute."""
    for name in ("HOME", "CACHE"):
        monkeypatch.setenv(f"KERNEL_COMPASS_{name}", str(tmp_path / name.lower()))
    proved = tmp_path / "cache" / "self-test"
    proved.mkdir(parents=True)
    (proved / f"{environment_key('cpu')[0]}.json").write_text('{"passed": true}')
    file = tmp_path / "problem.py"
    file.write_text(CHAIN)
    return file


@COMPILER
@pytest.mark.slow
def test_a_study_tries_the_fusion_and_says_why_no_graph_is_captured(path):
    events = []
    request = api.study_request(str(path), regimes=("warm",), trials=3)
    found = api.optimize(request, "simulated", events.append).recorded
    (trial,) = found.trials
    assert trial.proposal.action is Action.FUSION
    # It is judged right on the CPU; the simulated device times all that moves the inputs alike.
    assert trial.reason == "not_faster", (trial.reason, trial.detail)
    assert trial.results
    said = [e.text for e in events if e.stage is Stage.SELECT]
    assert any("graph capture of its baseline is not proposed" in text for text in said)
    assert any(NO_GPU in text for text in said)


@COMPILER
@pytest.mark.parametrize(
    ("config", "code"),
    [(None, ExitCode.OK), ({"mode": "nosuch"}, ExitCode.USAGE), ({"block": 4}, ExitCode.USAGE)],
)
def test_it_is_judged_by_its_name_in_its_modes_alone(path, capsys, config, code):
    words = ["validate", COMPILED, "--problem", str(path), "--device", "cpu", "--yes"]
    given = [] if config is None else ["--config", json.dumps(config)]
    assert main([*words, *given]) == code, capsys.readouterr()
