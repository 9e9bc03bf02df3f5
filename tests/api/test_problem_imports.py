"""What a file imports from its own folder is agreed to with it."""

from __future__ import annotations

import hashlib

import pytest

from kernel_compass.api.problem_imports import digest_of, local_imports


def written(folder, **texts):
    for name, text in texts.items():
        path = folder / (name.replace("__in__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "problem.py"


FILES = {
    "helper": "import json\nfrom deeper import thing\n",
    "deeper": "thing = 1\n",
    "beside": "not_imported = True\n",
    "package__in____init__": "from .inner import value\n",
    "package__in__inner": "from . import other\nfrom ..helper import thing\nvalue = 2\n",
    "package__in__other": "",
    "package__in__unused": "",
    "late": "",
    "named": "",
}
PROBLEM = """
import os, torch
import helper
from package import inner
from importlib import import_module

def reference():
    import late
    import_module("named")
"""


def names(path):
    return [one.relative_to(path.parent).as_posix() for one in local_imports(path)]


def test_imports_are_followed_wherever_they_stand(tmp_path):
    path = written(tmp_path, problem=PROBLEM, **FILES)
    assert names(path) == [
        "deeper.py",
        "helper.py",
        "late.py",
        "named.py",
        "package/__init__.py",
        "package/inner.py",
        "package/other.py",
    ]


@pytest.mark.parametrize("name", ["helper", "deeper", "package__in__other", "late", "named"])
def test_another_content_of_one_is_another_hash(tmp_path, name):
    path = written(tmp_path, problem=PROBLEM, **FILES)
    before = digest_of(path)
    assert digest_of(path, path.read_bytes()) == before
    written(tmp_path, **{name: FILES[name] + "changed = True\n"})
    assert digest_of(path) != before
    written(tmp_path, **{name: FILES[name]})
    assert digest_of(path) == before
    written(tmp_path, beside="changed = True\n")
    assert digest_of(path) == before


def test_a_file_by_itself_has_its_own_hash(tmp_path):
    path = written(tmp_path, problem="import torch\nimport os.path\n")
    assert digest_of(path) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_what_cannot_be_read_as_python_imports_nothing(tmp_path):
    path = written(tmp_path, problem="import helper\n", helper="def (:\n")
    assert names(path) == ["helper.py"]
    assert names(written(tmp_path, problem="from .. import helper\nimport\n")) == []


def test_files_that_import_each_other_end(tmp_path):
    path = written(tmp_path, problem="import helper\n", helper="import problem, helper\n")
    assert names(path) == ["helper.py"]


def test_a_package_and_an_extension_of_its_name_count(tmp_path):
    path = written(tmp_path, problem="import fast\nfrom fast.deep import one\n")
    (tmp_path / "fast.cpython-311-x86_64-linux-gnu.so").write_bytes(b"\x7fELF")
    written(tmp_path, fast__in__deep="one = 1\n")
    assert names(path) == ["fast/deep.py", "fast.cpython-311-x86_64-linux-gnu.so"]


def test_a_worker_refuses_another_content_of_an_import(tmp_path, monkeypatch):
    from kernel_compass.api.problem_files import run_file
    from kernel_compass.api.problems import problem_source
    from kernel_compass.errors import UsageError

    path = written(tmp_path, problem="import a_helper_of_mine\n", a_helper_of_mine="x = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    agreed = problem_source(str(path)).sha256
    assert run_file(path, agreed)[1] == agreed
    written(tmp_path, a_helper_of_mine="x = 2\n")
    with pytest.raises(UsageError, match="imports beside it"):
        run_file(path, agreed)


def test_the_question_names_them(tmp_path, monkeypatch, capsys):
    from kernel_compass.cli.agreeing import agree_to_run

    monkeypatch.setenv("KERNEL_COMPASS_HOME", str(tmp_path / "home"))
    path = written(tmp_path, problem="import helper\n", **FILES)
    agree_to_run([(path, digest_of(path))], yes=True)
    said = capsys.readouterr().err
    assert "with helper.py" in said and "with deeper.py" in said and digest_of(path) in said
    agree_to_run([(path, digest_of(path))], yes=False)  # remembered
    written(tmp_path, deeper="thing = 3\n")
    from kernel_compass.errors import UsageError

    with pytest.raises(UsageError):
        agree_to_run([(path, digest_of(path))], yes=False)
