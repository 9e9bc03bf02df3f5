"""Problems as files: good ones are judged, damaged ones say what is wrong with them."""

from __future__ import annotations

import hashlib
import importlib

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from api.problem_samples import MODEL, NEW, PLAIN, written  # noqa: E402

from kernel_compass.api.problem_candidates import MODEL_NEW, file_runner  # noqa: E402
from kernel_compass.api.problem_files import load_problem  # noqa: E402
from kernel_compass.errors import UsageError  # noqa: E402
from kernel_compass.records.trial import Candidate, Reason  # noqa: E402
from kernel_compass.validation.judge import judge  # noqa: E402
from kernel_compass.validation.judge_contracts import Effort  # noqa: E402
from kernel_compass.validation.machines import CpuMachine  # noqa: E402
from kernel_compass.validation.watch import Watch  # noqa: E402

EFFORT = Effort(seeds=2, repeats=5, repeat_s=0.1, settle_s=0.001)


def judged(loaded, build, index=0):
    watch = Watch(torch)
    workload = loaded.description.workloads[index]
    return judge(torch, loaded.problem, workload, build, CpuMachine(torch), watch, EFFORT)


def test_a_plain_file_is_described_and_judged(tmp_path):
    path = written(tmp_path, PLAIN)
    loaded = load_problem(torch, path)
    assert loaded.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    said = loaded.description
    assert [one.values for one in said.workloads][1] == {"rows": 1, "width": 100}
    assert said.streamed == ("w",) and said.error_budget_pct == pytest.approx(3.0)
    assert {one.name: len(one.space) for one in said.candidates} == {"by_parts": 2, "wrong": 1}
    assert loaded.problem.held == {"w"}
    good = judged(loaded, lambda: loaded.build("by_parts", {"parts": 4}))
    assert good.reason is None, good.detail
    assert judged(loaded, lambda: loaded.build("wrong", {})).reason is Reason.WRONG_RESULT
    with pytest.raises(UsageError, match=r"no candidate 'other'.*by_parts, wrong"):
        loaded.build("other", {})


def model_candidate(loaded, path):
    """`ModelNew` of another file."""
    return file_runner(torch, loaded, Candidate(MODEL_NEW, source=str(path)), "cpu")


def test_the_file_that_was_agreed_to_and_no_other(tmp_path):
    path = written(tmp_path, PLAIN)
    digest = load_problem(torch, path).sha256
    assert load_problem(torch, path, sha256=digest).sha256 == digest
    path.write_text(PLAIN + "\n# more\n")
    with pytest.raises(UsageError, match="another file"):
        load_problem(torch, path, sha256=digest)


COARSE = {Reason.WRONG_RESULT, Reason.LOW_PRECISION}


def test_a_model_as_it_is(tmp_path):
    loaded = load_problem(torch, written(tmp_path, MODEL))
    before = torch.initial_seed()
    new = written(tmp_path, NEW, "new.py")
    said = judged(loaded, lambda: model_candidate(loaded, new))
    assert said.reason is None, said.detail
    assert torch.initial_seed() == before
    assert torch.get_default_dtype() is torch.float32


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("self.scale)", "self.scale * 1.1)"), COARSE),
        (("class ModelNew", "class ModelOld"), {Reason.NOT_SUPPORTED}),
        (("hidden @", "hidden.half().float() @"), {Reason.WRONG_ELSEWHERE, *COARSE}),
        (("hidden @", "hidden.double().float() @"), {None}),
        (("torch.ones(10)", "torch.zeros(10)"), {Reason.WRONG_RESULT}),
    ],
)
def test_other_models(tmp_path, change, reason):
    loaded = load_problem(torch, written(tmp_path, MODEL))
    new = written(tmp_path, NEW.replace(*change), "new.py")
    assert judged(loaded, lambda: model_candidate(loaded, new)).reason in reason


def test_the_model_itself_is_no_candidate(tmp_path):
    loaded = load_problem(torch, written(tmp_path, MODEL))
    new = written(tmp_path, MODEL + "\nModelNew = Model\n", "new.py")
    said = judged(loaded, lambda: model_candidate(loaded, new))
    assert said.reason is Reason.BASELINE_IN_DISGUISE


DAMAGED = [
    ("WORKLOADS =", "SIZES =", "there is no WORKLOADS"),
    ('[{"rows": 33, "width": 64}, {"rows": 1, "width": 100}]', "[]", "WORKLOADS is no list"),
    ('[{"rows": 33, "width": 64}', "[33", r"WORKLOADS\[0\] is no dictionary"),
    ('"rows": 33', '"rows": [33]', r"WORKLOADS\[0\] is no dictionary"),
    ('{"rows": 1, "width": 100}', '{"rows": 33, "width": 64}', "there twice"),
    ("def inputs(", "def outputs(", "there is no inputs"),
    ("def reference(", "def exact(", "there is no reference"),
    ("def baseline(", "def other(", "there is no baseline"),
    ("ERROR_BUDGET = 0.03", "", "there is no ERROR_BUDGET"),
    ("ERROR_BUDGET = 0.03", "ERROR_BUDGET = 3", "ERROR_BUDGET is 3"),
    ("ERROR_BUDGET = 0.03", "ERROR_BUDGET = '3%'", "ERROR_BUDGET is '3%'"),
    ('HELD = ["w"]', 'HELD = ["weight"]', "HELD has 'weight'"),
    ('HELD = ["w"]', 'HELD = "w"', "HELD is 'w'"),
    ('STREAMED = ["w"]', 'STREAMED = ["v"]', "STREAMED has 'v'"),
    ("generator=generator", "", "another 'x' for the same seed"),
    ("def reference(x, w)", "def reference(x, v)", "reference cannot be called"),
    ("def baseline(x, w)", "def baseline(x)", "baseline cannot be called"),
    ('return {"x"', 'raise ValueError("no")\n    return {"x"', "inputs fails for rows 33"),
    ('return {"x": normal(', 'return {"x": normal(2.5, ', "inputs fails for rows 33"),
    (
        "def reference(x, w):",
        "def reference(x, w):\n    x, w = x.float(), w.float()",
        "not float64",
    ),
    ("def reference(x, w):", "def reference(x, w):\n    w = w[:, :4]", "its baseline"),
    ("def reference(x, w):", "def reference(x, w):\n    return 3.0", "returned a float"),
    (
        "def reference(x, w):",
        "def reference(x, w):\n    return x @ x",
        "reference or baseline fails",
    ),
    ('"wrong": wrong', '"wrong": 3', r"CANDIDATES\['wrong'\] is a int"),
    ('[{"parts": 1}, {"parts": 4}]', "[]", "no list of dictionaries"),
    ('{"parts": 1}', '{"pieces": 1}', "cannot be called with x, w, pieces"),
    ("import torch", "import torch, no_such_module", "fails when it is run"),
    ("def by_parts", "def by parts", "line"),
]


@pytest.mark.parametrize(("old", "new", "said"), DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_file_says_what_is_wrong(tmp_path, old, new, said):
    text = PLAIN.replace(old, new, 1)
    assert text != PLAIN
    with pytest.raises(UsageError, match=said):
        load_problem(torch, written(tmp_path, text))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("def get_inputs", "def inputs", "has no get_inputs"),
        ("def get_init_inputs", "def init", "has no get_init_inputs"),
        ("[32, 10]", "[32]", "does not run"),
        ("torch.randn(16, 32)", "torch.randn(16, 31)", "does not run"),
    ],
)
def test_a_damaged_model_says_what_is_wrong(tmp_path, old, new, said):
    with pytest.raises(UsageError, match=said):
        load_problem(torch, written(tmp_path, MODEL.replace(old, new)))


def test_no_file(tmp_path):
    with pytest.raises(UsageError, match="Cannot read the problem"):
        load_problem(torch, tmp_path / "none.py")


def test_importing_it_needs_no_torch():
    importlib.import_module("kernel_compass.api.problem_files")
