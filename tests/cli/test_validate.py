"""`kernel-compass validate --self-test`: as text, as JSON, and what it refuses."""

from __future__ import annotations

import hashlib
import json
import re

import pytest

pytest.importorskip("torch", reason="needs torch")

from api.problem_samples import MODEL, NEW, PLAIN, written

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


@pytest.fixture(scope="module")
def proven(tmp_path_factory):
    """The judge has proved itself in this environment, as far as a file says so."""
    from kernel_compass.api.proving import environment_key

    cache = tmp_path_factory.mktemp("cache")
    folder = cache / "self-test"
    folder.mkdir()
    (folder / f"{environment_key('cpu')[0]}.json").write_text('{"passed": true}')
    return cache


@pytest.fixture
def home(monkeypatch, tmp_path, proven):
    monkeypatch.setenv("KERNEL_COMPASS_CACHE", str(proven))
    monkeypatch.setenv("KERNEL_COMPASS_HOME", str(tmp_path / "home"))
    return tmp_path


def test_a_file_asks_once_and_is_then_judged_with_the_reason(home, capsys):
    path = written(home, PLAIN)
    words = ["validate", "wrong", "--problem", str(path), "--device", "cpu", "--workload", "2"]
    assert main(words) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert hashlib.sha256(path.read_bytes()).hexdigest() in said
    assert "--yes" in said
    assert main([*words, "--yes", "--json"]) == ExitCode.DOES_NOT_HOLD
    told = capsys.readouterr()
    assert "First run of" in told.err
    (found,) = json.loads(told.out)["results"]
    assert found["reason"] in ("wrong_result", "low_precision")
    assert found["workload"] == "rows 1, width 100"
    assert main([*words, "--sanitize"]) == ExitCode.USAGE
    assert "a GPU's memory" in capsys.readouterr().err, "it was asked once"
    path.write_text(PLAIN + "# another\n")
    assert main(words) == ExitCode.USAGE, "another content is another file"


@pytest.fixture
def rejected(home, capsys):
    """What is said of the candidate `other` of a file: its reason and the sentences."""

    def run(other, text=PLAIN):
        functions = f"def other(x, w):\n    return {other}\n\nCANDIDATES ="
        text = text.replace('"wrong": wrong', '"other": other').replace("CANDIDATES =", functions)
        words = ["validate", "other", "--problem", str(written(home, text)), "--device", "cpu"]
        assert main([*words, "--workload", "1", "--yes", "--json"]) == ExitCode.DOES_NOT_HOLD
        (found,) = json.loads(capsys.readouterr().out)["results"]
        return found["reason"], found["detail"]

    return run


def test_a_limit_far_below_the_files_own_budget_says_where_it_comes_from(rejected):
    reason, said = rejected("torch.softmax(x.bfloat16().float() @ w, -1)")
    assert reason == "low_precision"
    assert "more than 0.005%: what rounding in float32 explains" in said
    assert "error budget (3 %) is for candidates that declare a coarser number format" in said
    _, said = rejected("torch.softmax(x @ w * 1.5, -1)")
    assert "what rounding in float32 explains" in said
    assert "budget" not in said, "it is over that, too"


def test_a_limit_that_the_baseline_sets_is_four_times_its_own_error(rejected):
    import torch

    def draw(*shape):
        return torch.randn(shape, generator=generator)

    generator = torch.Generator().manual_seed(3)
    x, w = draw(33, 64), draw(64, 48)
    exact = torch.softmax(x.double() @ w.double(), -1)
    rounded = torch.softmax((x.bfloat16() @ w.bfloat16()).float(), -1)
    own = float((rounded - exact).norm() / exact.norm())
    head = "def baseline(x, w):\n    return torch.softmax("
    assert head in PLAIN
    coarse = PLAIN.replace(f"{head}x @ w,", f"{head}(x.bfloat16() @ w.bfloat16()).float(),")
    _, said = rejected("torch.softmax(x @ w * 1.5, -1)", coarse)
    source = "4 times the error of the baseline itself"
    found = re.search(rf"more than (\S+)%: {source} \((\S+)%\)", said)
    assert found, said
    limit, of_baseline = map(float, found.groups())
    assert limit == pytest.approx(4 * of_baseline, rel=1e-2)
    assert of_baseline == pytest.approx(100 * own, rel=0.5)


def test_the_baseline_in_disguise_on_a_cpu_is_said_to_be_of_a_cpu(rejected):
    for same in ("(x @ w).softmax(-1)", "baseline(x, w)"):
        reason, said = rejected(same)
        assert reason == "baseline_in_disguise"
        assert "A CPU judged" in said
        assert "--device cuda:0" in said


def test_candidates_that_end_their_process_are_blamed(home, capsys):
    text = PLAIN.replace('"wrong": wrong', '"dies": dies').replace(
        "CANDIDATES =", "def dies(x, w):\n    import os\n    os._exit(3)\n\nCANDIDATES ="
    )
    path = written(home, text)
    words = ["validate", "dies", "--problem", str(path), "--device", "cpu", "--yes", "--json"]
    assert main([*words, "--workload", "1"]) == ExitCode.DOES_NOT_HOLD
    (found,) = json.loads(capsys.readouterr().out)["results"]
    assert found["reason"] == "exited"


def test_who_patches_the_judge_patches_it_for_no_workload_after(home, capsys):
    poison = """
def poisons(x, w):
    import kernel_compass.validation.output_gate as gate
    gate.check_outputs.__defaults__ = (True,)
    return torch.softmax(x @ w * 1.01, -1)

CANDIDATES ="""
    text = PLAIN.replace('"wrong": wrong', '"poisons": poisons').replace("CANDIDATES =", poison)
    path = written(home, text)
    words = ["validate", "poisons", "--problem", str(path), "--device", "cpu", "--yes", "--json"]
    assert main(words) == ExitCode.DOES_NOT_HOLD
    found = json.loads(capsys.readouterr().out)["results"]
    assert len(found) == 2
    assert {one["reason"] for one in found} == {"patched"}
    assert all("renewed" in " ".join(one["notes"]) for one in found)


def test_a_model_and_a_candidate_in_a_file_of_its_own(home, capsys):
    problem, new = written(home, MODEL), written(home, NEW, "new.py")
    words = ["validate", str(new), "--problem", str(problem), "--device", "cpu", "--yes"]
    assert main(words) == ExitCode.OK
    told = capsys.readouterr()
    assert told.err.count("First run of") == 2
    assert "as it is: passed" in told.out


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["own_decode"], "--problem"),
        (["no_such", "--problem", "bmm:2x3x64x32"], "no implementation 'no_such'"),
        (["own_decode", "--problem", "bmm:2x3"], "no shape"),
        (["own_decode", "--problem", "bmm:2x3x64x32", "--config", "{"], "no JSON"),
        (["own_decode", "--problem", "bmm:2x3x64x32", "--config", "[1]"], "no object"),
        (["own_decode", "--problem", "bmm:2x3x64x32", "--regime", "hot"], "no regime 'hot'"),
        (["new.py", "--problem", "bmm:2x3x64x32"], "is a file"),
        (["x", "--problem", "none.py"], "no file"),
        (["--self-test", "--problem", "bmm:2x3x64x32"], "built-in cheats alone"),
        (["cublas_bf16", "--problem", "bmm:2x3x64x32", "--device", "tpu"], "cuda:0"),
        (
            ["cublas_bf16", "--problem", "bmm:2x3x64x32", "--device", "cpu", "--sanitize"],
            "a GPU's memory",
        ),
    ],
)
def test_what_cannot_be_judged_says_so(home, capsys, words, found):
    assert main(["validate", *words]) == ExitCode.USAGE
    assert found in capsys.readouterr().err


def test_nothing_is_judged_before_the_judge_has_proved_itself(home, monkeypatch, capsys):
    from kernel_compass.api import proving

    monkeypatch.setenv("KERNEL_COMPASS_CACHE", str(home / "new"))
    missed = CheatResult("races", (Reason.NOT_REPEATABLE,), None, "fine")
    caught = CheatResult("zeros", (Reason.WRONG_RESULT,), Reason.WRONG_RESULT, "off")
    asked = []

    def answers(*outcomes):
        left = list(outcomes)
        monkeypatch.setattr(proving, "run_self_test", lambda *_: asked.append(1) or left.pop(0))

    words = ["validate", "cublas_bf16", "--problem", "bmm:2x3x64x32", "--device", "cpu"]
    answers(SelfTest((caught, missed), (), None), SelfTest((caught,), (), None))
    assert main(words) == ExitCode.JUDGE
    assert "missed 1 of 2 cheats: races" in capsys.readouterr().err
    assert main(words) == ExitCode.OK
    assert not proving.ensure_self_test("cpu")
    assert len(asked) == 2, "what passed is remembered, what failed is not"
    (kept,) = (home / "new" / "self-test").iterdir()
    kept.write_text("{damaged")
    answers(SelfTest((caught, missed), (), None))
    assert main(words) == ExitCode.JUDGE, "a damaged note proves nothing"


def test_a_name_that_is_none_is_wrong_usage_and_no_verdict(home, capsys):
    path, mine = written(home, PLAIN), home / "mine.py"
    mine.write_text("def soft(x, w):\n    return x\n")
    given = ["--problem", str(path), "--device", "cpu", "--yes", "--workload", "1"]
    assert main(["validate", f"{mine}:nosuch", *given]) == ExitCode.USAGE
    told = capsys.readouterr()
    assert "mine.py has no function 'nosuch'" in told.err
    assert "It has soft" in told.err
    assert "rejected" not in told.out


DECORATED = """
import functools
import torch

def silent(function):
    def inner(*args, **kwargs):
        return function(*args, **kwargs)
    return inner

def wrapped(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        return function(*args, **kwargs)
    return inner

def scaled(function):
    def inner(*args, scale=1, **kwargs):
        return function(*args, **kwargs) * scale
    return functools.wraps(function)(inner)

def soft(x, w, parts=2):
    return sum(a @ b for a, b in zip(x.chunk(parts, 1), w.chunk(parts, 0))).softmax(-1)

plain = lambda x, w, *, parts: soft(x, w, parts)
by_silent = silent(soft)

@silent
def under_silent(x, w, *, parts):
    return soft(x, w, parts)

@wrapped
def under_wrapped(x, w, *, parts):
    return soft(x, w, parts)

@torch.no_grad()
def under_no_grad(x, w, *, parts):
    return soft(x, w, parts)

@scaled
def under_scaled(x, w, *, parts):
    return soft(x, w, parts)

@wrapped
def fails_itself(x, w, *, parts):
    return soft(x, w, blocks=parts)
"""
WRAPPED = ["plain", "by_silent", "under_silent", "under_wrapped", "under_no_grad", "under_scaled"]


@pytest.fixture
def beside(home, capsys):
    """Validate a function of a file beside the problem: exit code, standard output and error."""
    path, mine = written(home, PLAIN), home / "decorated.py"
    mine.write_text(DECORATED)
    given = ["--problem", str(path), "--device", "cpu", "--yes", "--workload", "1"]

    def run(name, config):
        words = [] if config is None else ["--config", json.dumps(config)]
        code = main(["validate", f"{mine}:{name}", *given, *words])
        return code, capsys.readouterr()

    return run


@pytest.mark.parametrize("name", WRAPPED)
def test_a_key_that_a_decorated_function_does_not_take_is_wrong_usage(beside, name):
    code, told = beside(name, {"prats": 4, "parts": 4})
    assert code == ExitCode.USAGE, told
    assert "prats" in told.err
    assert "Inputs are w, x" in told.err
    assert "raised" not in told.out + told.err


@pytest.mark.parametrize("name", ["under_silent", "under_wrapped", "under_no_grad"])
def test_so_is_one_that_it_needs_and_does_not_get(beside, name):
    code, told = beside(name, None)
    assert code == ExitCode.USAGE, told
    assert "parts" in told.err


@pytest.mark.parametrize(
    ("name", "config"),
    [("by_silent", {"parts": 4}), ("under_wrapped", {"parts": 4}), ("under_scaled", {"scale": 1})],
)
def test_what_a_decorator_takes_or_passes_on_is_tried(beside, name, config):
    code, told = beside(name, {"parts": 4, **config})
    assert code == ExitCode.OK, told


def test_a_call_of_its_own_that_goes_wrong_is_its_own_fault(beside):
    code, told = beside("fails_itself", {"parts": 4})
    assert code == ExitCode.DOES_NOT_HOLD, told
    assert "raised" in told.out
