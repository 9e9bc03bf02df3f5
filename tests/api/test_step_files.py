"""Files and packages that a step goes through, wherever they lie: kept, and checked later."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import sysconfig
from dataclasses import replace
from importlib import metadata
from itertools import count

import pytest

pytest.importorskip("torch")

from api import applied_program
from api.test_applied_table import region, run, table_of
from optimizer.step_samples import FakeBench, decode_capture

import kernel_compass
from kernel_compass.api.step_capturing import capture_program
from kernel_compass.api.step_optimizing import resume_step
from kernel_compass.api.step_planning import setup_of
from kernel_compass.api.step_program import Program, ProgramKind
from kernel_compass.api.step_replaying import replay_step
from kernel_compass.api.step_requests import StepAsked, request_of
from kernel_compass.api.studies import apply_study
from kernel_compass.errors import StudyError
from kernel_compass.optimizer.dispatch_file import read_table
from kernel_compass.optimizer.ledger import Ledger
from kernel_compass.optimizer.step_loop import StepLoop
from kernel_compass.records.study import Study

PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parent.parent / "library"))
import torch
from flat import norm
from lib.gated import Gated
import lib.untouched
import helper

def step():
    gate = Gated()
    x = torch.ones(4, 4)
    return lambda: helper.halved(gate(norm(x)))
"""
FILES = {
    "program/step.py": PROGRAM,
    "program/helper.py": "def halved(x):\n    return x / 2\n",
    "library/flat.py": "def norm(x):\n    return x.tanh() * x.sigmoid()\n",
    "library/lib/__init__.py": "",
    "library/lib/gated.py": "from torch import nn\nfrom lib.deep import double\n"
    "class Gated(nn.Module):\n    def forward(self, x):\n        return double(x)\n",
    "library/lib/deep.py": "def double(x):\n    return x * 2\n",
    "library/lib/untouched.py": "def never(x):\n    return x + 1\n",
}
OUTSIDE = {"flat.py", "lib/deep.py", "lib/gated.py"}


@pytest.fixture
def folder(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.fixture
def program(folder):
    return Program(ProgramKind.ENTRY, f"{folder / 'program/step.py'}:step")


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_files_elsewhere_that_the_step_goes_through_are_kept(folder, program):
    found = capture_program(program)
    assert set(found.files) == {"step.py", "helper.py", *OUTSIDE}
    for name in OUTSIDE:
        assert found.files[name] == sha256(folder / "library" / name)
    assert found.files["helper.py"] == sha256(folder / "program/helper.py")
    assert found.packages == {}


def test_a_file_that_is_called_like_the_programs_own_keeps_its_own_hash(folder, program):
    (folder / "library/lib/helper.py").write_text(FILES["library/lib/deep.py"])
    (folder / "library/lib/__init__.py").unlink()  # a file of a namespace is called by its name
    gated = folder / "library/lib/gated.py"
    gated.write_text(gated.read_text().replace("lib.deep", "lib.helper"))
    found = capture_program(program)
    assert found.files["helper.py"] == sha256(folder / "program/helper.py")
    assert found.files["lib/helper.py"] == sha256(folder / "library/lib/helper.py")


def test_installed_packages_are_kept_by_their_versions(folder, program, monkeypatch):
    version = "python" + sysconfig.get_python_version()
    site = folder / "user" / "lib" / version / "site-packages"
    (site / "fused_ops-1.2.dist-info").mkdir(parents=True)
    (site / "fused_ops-1.2.dist-info/METADATA").write_text("Name: fused-ops\nVersion: 1.2\n")
    (site / "fused_ops-1.2.dist-info/top_level.txt").write_text("flat\n")
    (site / "flat.py").write_text(FILES["library/flat.py"])
    (folder / "library/flat.py").unlink()
    monkeypatch.setenv("PYTHONUSERBASE", str(folder / "user"))
    monkeypatch.setenv("PYTHONPATH", f"{site}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    found = capture_program(program)
    assert found.packages == {"fused-ops": "1.2"}
    assert set(found.files) == {"step.py", "helper.py", "lib/deep.py", "lib/gated.py"}


@pytest.fixture
def study(folder, program, monkeypatch):
    """A study of the program that accepted something, as far as it says."""
    monkeypatch.setenv("KERNEL_COMPASS_HOME", str(folder / "home"))
    asked = StepAsked(device="cpu", calibration="none")
    real = capture_program(program)
    capture = replace(decode_capture(), files=real.files, environment=real.environment)

    class Bench(FakeBench):
        def capture(self, accepted):
            found = super().capture(accepted)
            return replace(found, files=real.files, environment=real.environment)

    place = folder / "home/studies/of-files"
    made = Study("of-files", request_of(program, asked), real.environment)
    with Ledger.create(made, place) as ledger:
        setup = setup_of(capture, asked, "of-files")
        StepLoop(setup, Bench(), ledger, count().__next__).run()
        assert ledger.recorded.step.entries
    return place


@pytest.mark.parametrize("changed", ["library/lib/deep.py", "program/helper.py"])
def test_a_study_of_changed_files_is_neither_resumed_nor_replayed(study, folder, changed):
    assert not replay_step(str(study)).claims[0].holds  # it runs, and what was made up does not
    path = folder / changed
    path.write_text(path.read_text() + "\n")
    name = "lib/deep.py" if "deep" in changed else "helper.py"
    for door in (replay_step, resume_step):
        with pytest.raises(StudyError, match=f"{name} was changed since the study was begun"):
            door(str(study))


@pytest.mark.parametrize("changed", ["library/flat.py", "program/helper.py"])
def test_what_a_study_of_changed_files_accepted_is_not_applied(study, folder, changed, monkeypatch):
    monkeypatch.syspath_prepend(str(folder / "library"))
    table = folder / "compass.json"
    assert apply_study(str(study), table).steps
    kept = [set(o.files) for o in read_table(table).steps if o.action.kind.value != "product"]
    assert kept and all(one == {"step.py", "helper.py", *OUTSIDE} for one in kept)
    path = folder / changed
    path.write_text(path.read_text() + "\n")
    with pytest.raises(StudyError, match=f"{path.name} is not the file that was measured"):
        apply_study(str(study), table)


def test_run_looks_at_files_that_are_found_while_the_program_runs(folder):
    script = folder / "program/script.py"
    script.write_text(PROGRAM + "\ncall = step()\nprint(float(call().sum()))\n")
    files = {name: sha256(folder / "library" / name) for name in OUTSIDE}
    plain = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    path = table_of(folder / "same.json", region("flat.py:norm"), files=files)
    found = run(path, script)
    assert found.returncode == 0 and found.stdout == plain.stdout, found.stderr
    assert "function flat.py:norm backend=eager: on" in found.stderr
    path = table_of(
        folder / "other.json", region("flat.py:norm"), files={**files, "flat.py": "0" * 64}
    )
    found = run(path, script)
    assert found.returncode == 0 and found.stdout == plain.stdout, found.stderr
    assert "not on: flat.py is not the file that was measured" in found.stderr


@pytest.mark.parametrize(
    ("package", "version", "said"),
    [
        ("numpy", metadata.version("numpy"), ""),
        ("numpy", "0.1", f"numpy was 0.1 and is {metadata.version('numpy')}"),
        ("no-such-package", "1", "no-such-package 1 is not installed here"),
    ],
)
def test_another_version_of_a_package_is_not_what_was_measured(folder, package, version, said):
    assert applied_program.plain  # loaded
    table = folder / "compass.json"
    table_of(table, region("api/applied_program.py:plain"), packages={package: version})
    with kernel_compass.applied(table) as on:
        assert (on.applications[0].objection or "") == said
