"""The documents say what is true: commands run, links lead somewhere, tables match the code."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kernel_compass import api
from kernel_compass.analysis.rules import FLAG_RULES, LIMITER_RULES
from kernel_compass.cli.exit_codes import MEANINGS
from kernel_compass.records.diagnosis import Limiter
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import Op, Workload

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [line.strip() for line in README.splitlines() if line.startswith("    kernel-compass ")]
HOME = tempfile.mkdtemp(prefix="kernel-compass-readme-")
"""Where studies of the commands go."""
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


def run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "KERNEL_COMPASS_HOME": HOME},
        timeout=120,
    )


def needs_a_gpu(command: str) -> bool:
    tries = " optimize " in command and "recorded:" not in command
    return " profile " in command or command.endswith(" calibrate") or tries


def runs_a_program(command: str) -> bool:
    return " --script " in command or " run " in command


def test_the_readme_has_ten_examples() -> None:
    assert len(re.findall(r"^\*\*\d+\. ", README, re.MULTILINE)) == 10
    assert len(COMMANDS) >= 10


def test_commands_that_run_a_program_are_understood_and_name_one_that_runs() -> None:
    """The first asks before it runs a file, the second needs what the first accepts."""
    optimizing, running = [c for c in COMMANDS if runs_a_program(c)]
    program, table = "examples/text_classifier.py", "compass.json"
    assert f"--script {program}" in optimizing and f"--table {table}" in optimizing
    assert f"--with {table} {program}" in running
    words = shlex.split(optimizing)[1:]
    done = run([sys.executable, "-m", "kernel_compass.cli.main", *words])
    assert "was never run here" in done.stderr
    words = [f"{HOME}/none.json" if one == table else one for one in shlex.split(running)[1:]]
    done = run([sys.executable, "-m", "kernel_compass.cli.main", *words])
    assert "none.json" in done.stderr and done.returncode != 0
    done = run([sys.executable, program])
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"\[\d, \d, \d, \d\]\n", done.stdout)


@pytest.mark.parametrize(
    "command", [c for c in COMMANDS if not needs_a_gpu(c) and not runs_a_program(c)]
)
def test_commands_run(command: str) -> None:
    words = shlex.split(command)[1:]
    done = run([sys.executable, "-m", "kernel_compass.cli.main", *words])
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize(
    "command", [c for c in COMMANDS if needs_a_gpu(c) and not runs_a_program(c)]
)
def test_commands_that_need_a_gpu_are_understood(command: str) -> None:
    """Without a GPU they must fail for that reason, not for a misspelt option.

    6: with a PyTorch that has no GPU the program runs, and none of its work is on one.
    """
    words = shlex.split(command)[1:]
    done = run([sys.executable, "-m", "kernel_compass.cli.main", *words])
    assert done.returncode in (0, 4, 5, 6, 8, 9), done.stderr


def test_the_python_example_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    done = run([sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr
    assert "dram_bound" in done.stdout


def test_the_models_example_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/model.md").read_text(), re.DOTALL)
    done = run([sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr
    assert "dram_efficiency" in done.stdout
    assert "Bound.DRAM" in done.stdout


def test_the_figures_of_the_advice_page_reproduce() -> None:
    """`at most` as the page's table says it, from the shipped calibration that it names."""
    page = (ROOT / "docs/advice.md").read_text()
    rows = re.findall(r"\((w\w+)\) \| (\d+) \| (\d+) \| (\w+) \| [\d.]+ \| ([\d.]+) \|", page)
    assert len(rows) == 4
    for precision, columns, tokens, regime, at_most in rows:
        workload = Workload(Op.BMM, 128, int(tokens), 128, int(columns))
        (found,) = api.advise([workload], "h200", (Regime(regime),)).workloads[0].regimes
        row = next(f for f in found.formats if f.precision == precision)
        assert row.at_most == pytest.approx(float(at_most), abs=0.006), (precision, columns)


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"^    make (\w+)", README, re.MULTILINE)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", document.read_text(encoding="utf-8")):
        if not target.startswith(("http", "mailto")):
            assert (document.parent / target).exists(), target


def test_documented_scripts_exist() -> None:
    for document in DOCUMENTS:
        for script in re.findall(r"python (benchmarks/[\w/]+\.py)", document.read_text()):
            assert (ROOT / script).is_file(), (document.name, script)


def test_exit_codes_are_documented() -> None:
    text = (ROOT / "docs" / "captures.md").read_text(encoding="utf-8")
    for code in MEANINGS:
        assert re.search(rf"^\| {int(code)} \|", text, re.MULTILINE), code


def test_rules_and_limiters_are_documented() -> None:
    text = (ROOT / "docs" / "diagnosis.md").read_text(encoding="utf-8")
    for limiter in Limiter:
        assert f"| `{limiter.value}` |" in text
    for rule in (*LIMITER_RULES, *FLAG_RULES):
        for condition in rule.conditions:
            assert f"| {rule.name} |" in text
            wanted = f"| {condition.quantity} {condition.op} {condition.threshold:g}"
            assert wanted in text, wanted
