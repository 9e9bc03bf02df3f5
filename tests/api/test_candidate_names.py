"""A name or a configuration that a user's file does not have: said before anything is judged."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from api.problem_samples import MODEL, PLAIN, written  # noqa: E402

from kernel_compass.api.problem_files import load_problem  # noqa: E402
from kernel_compass.api.problems import judged, problem_source, product_description  # noqa: E402
from kernel_compass.api.validating import candidate_named  # noqa: E402
from kernel_compass.errors import UsageError  # noqa: E402
from kernel_compass.records.problem import ProblemWorkload  # noqa: E402

BESIDE = """
import torch
from functools import partial
LIMIT = 3

def soft(x, w):
    return torch.softmax(x @ w, -1)

def tiled(x, w, *, block=64):
    return soft(x, w)

named = partial(soft)
if LIMIT > 2:
    def branch(x, w):
        return soft(x, w)
else:
    branch = None
"""
SIZES = ProblemWorkload("small", {"rows": 4, "width": 8})


def asked(folder, name, problem=PLAIN, config=None, beside=BESIDE):
    """What `validate NAME --problem P` does before the judge begins; the runner it would judge."""
    path = written(folder, problem)
    (folder / "mine.py").write_text(beside)
    text = name if name.isidentifier() else str(folder / name)
    source = problem_source(str(path))
    candidate = candidate_named(text, source, config).candidate
    _, build, _ = judged(torch, source, SIZES, candidate, "cpu")
    return build


@pytest.mark.parametrize(
    ("name", "config", "said"),
    [
        ("nosuch", None, ["no candidate 'nosuch'", "by_parts, wrong, baseline"]),
        ("mine.py:nosuch", None, ["mine.py has no function 'nosuch'", "soft, tiled", "x, w"]),
        ("mine.py:LIMIT", None, ["no function 'LIMIT'", "soft, tiled"]),
        ("mine.py", None, ["no function 'ModelNew'", "mine.py:FUNCTION"]),
        ("by_parts", None, ["by_parts cannot be called", "'parts'", '{"parts": 1}']),
        ("by_parts", '{"prats": 4}', ["by_parts cannot be called", "takes parts"]),
        ("by_parts", '{"parts": 4, "x": 1}', ["'x'", "input of the problem"]),
        ("by_parts", '{"parts": 4, "kernel.BLOCK": 1}', ["no autotuned kernel 'kernel'"]),
        ("baseline", '{"parts": 4}', ["baseline takes no configuration"]),
        ("mine.py:tiled", '{"blokc": 4}', ["tiled cannot be called", "takes block"]),
        ("mine.py:soft", '{"w": 4}', ["'w'", "input of the problem"]),
    ],
)
def test_what_a_file_does_not_have_is_named_with_what_it_has(tmp_path, name, config, said):
    with pytest.raises(UsageError) as wrong:
        asked(tmp_path, name, config=config)
    for text in said:
        assert text in str(wrong.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mine.py", ["mine.py has no ModelNew"]),
        ("mine.py:soft", ["soft is no ModelNew", "FILE.py"]),
        ("nosuch", ["nosuch is no ModelNew"]),
    ],
)
def test_a_model_takes_a_model(tmp_path, name, said):
    with pytest.raises(UsageError) as wrong:
        asked(tmp_path, name, MODEL)
    for text in said:
        assert text in str(wrong.value)
    with pytest.raises(UsageError, match="takes no configuration"):
        asked(tmp_path, "mine.py", MODEL, '{"block": 4}', "class ModelNew: ...\n")


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("by_parts", '{"parts": 4}'),
        ("mine.py:soft", None),
        ("mine.py:tiled", None),
        ("mine.py:tiled", '{"block": 32}'),
        ("mine.py:named", None),
        ("mine.py:branch", None),
    ],
)
def test_what_is_there_is_built(tmp_path, name, config):
    runner = asked(tmp_path, name, config=config)()
    x, w = torch.randn(3, 8), torch.randn(8, 48)
    found = runner.run(runner.prepare({"w": w}), {"x": x})
    torch.testing.assert_close(found, torch.softmax(x @ w, -1))


@pytest.mark.parametrize(
    "text",
    [
        "from os.path import *\n",
        "globals()['nosuch'] = print\n",
        "def f():\n    global nosuch\n    nosuch = print\nf()\n",
    ],
)
def test_a_name_that_the_source_may_not_show_is_not_refused_unseen(tmp_path, text):
    assert callable(asked(tmp_path, "mine.py:nosuch", beside=text))


def test_a_candidate_goes_by_what_the_dictionary_calls_it(tmp_path):
    other = PLAIN.replace('"wrong": wrong', '"another name": wrong, "baseline_2": wrong')
    path = written(tmp_path, other)
    source = problem_source(str(path))
    named = candidate_named("baseline_2", source).candidate
    runner = judged(torch, source, SIZES, named, "cpu")[1]()
    x, w = torch.randn(3, 8), torch.randn(8, 48)
    found = runner.run(runner.prepare({"w": w}), {"x": x})
    torch.testing.assert_close(found, torch.softmax(x @ w * 1.01, -1))


def test_no_candidate_is_called_as_what_is_to_be_beaten(tmp_path):
    path = written(tmp_path, PLAIN.replace('"wrong": wrong', '"baseline": wrong'))
    with pytest.raises(UsageError, match="to be beaten is called so"):
        load_problem(torch, path)


def test_a_products_configuration_is_of_names_it_has(tmp_path):
    source = problem_source("bmm:2x4x64x64")
    candidate = candidate_named("cublas_bf16", source, '{"nosuch": 1}').candidate
    (workload,) = product_description(source).workloads
    with pytest.raises(UsageError, match=r"no 'nosuch' in its configurations.*layout"):
        judged(torch, source, workload, candidate, "cpu")
