"""Comparisons from end to end on the simulated device, fresh processes and a fake ncu included."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

import pytest

from kernel_compass import api
from kernel_compass.errors import UsageError
from kernel_compass.records.comparison import Decision, Rejection, Rule
from kernel_compass.records.profile import Regime

RECIPES = Path(__file__).parent.parent / "measurement" / "recipes.py"


def recipe(**arguments):
    return api.Recipe(f"{RECIPES}:read", arguments)


def subject(device, **arguments):
    return recipe(**arguments).build(device)


@pytest.mark.parametrize(
    ("extra_us", "decision"),
    [(0.0, Decision.EQUIVALENT), (0.11, Decision.SLOWER), (-0.11, Decision.FASTER)],
)
def test_compare_finds_three_percent_and_nothing_in_nothing(extra_us, decision):
    device = api.open_device("simulated")
    found = api.compare(subject(device), subject(device, extra_us=extra_us), device)
    assert found.decision is decision
    truth = 3.6214 / (3.6214 + extra_us)
    assert found.speedup.low <= truth <= found.speedup.high


def test_a_hold_out_runs_in_fresh_processes_and_confirms():
    told = []
    verdict = api.hold_out(
        recipe(),
        recipe(mib=8),
        device="simulated",
        pairs=20,
        on_progress=lambda done, total: told.append((done, total)),
    )
    assert verdict.accepted
    assert {result.regime for result in verdict.results} == {Regime.WARM, Regime.COLD}
    assert all(result.processes == 5 for result in verdict.results)
    assert told == [(i, 5) for i in range(5)]


def test_a_hold_out_rejects_what_is_not_faster():
    verdict = api.hold_out(
        recipe(), recipe(), [Regime.WARM], device="simulated", pairs=20, rule=Rule()
    )
    assert verdict.rejection is Rejection.NOT_FASTER


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("no_such_package.module:read", "no module"),
        (f"{RECIPES}:missing", "no function"),
        (f"{RECIPES.parent}/none.py:read", "no file"),
        ("just_a_name", "names no function"),
        (f"{RECIPES}:number", "returned a int"),
    ],
)
def test_a_recipe_that_cannot_be_built_says_why(name, found):
    with pytest.raises(UsageError, match=found):
        api.hold_out(api.Recipe(name), recipe(), device="simulated", pairs=20)


OPTIONS = ["csv", "page", "target-processes", "print-units", "metrics", "import", "graph-profiling"]
HELP = "".join(f"  --{option} arg  what it does\n" for option in OPTIONS)


def fake_ncu(folder, monkeypatch, body):
    """An ncu that answers `--version`, and otherwise does what the test says."""
    path = folder / "ncu"
    path.write_text(
        f"#!{sys.executable}\nimport subprocess, sys\n"
        "if '--version' in sys.argv:\n"
        "    print('NVIDIA (R) Nsight Compute Command Line Profiler')\n"
        "    print('Version 2025.3.1.0 (build 1) (public-release)')\n"
        "    sys.exit(0)\n"
        f"if {sys.executable!r} not in sys.argv:\n    sys.exit(print({HELP!r}))\n"
        f"target = sys.argv[sys.argv.index({sys.executable!r}):]\n" + body
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("KERNEL_COMPASS_NCU", str(path))


ROWS = """
done = subprocess.run(target, capture_output=True, text=True)
print('==PROF== Connected to process 1')
print(done.stdout)
print('"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"')
print('"0","fill","dram__bytes_read.sum","byte","5"')
print('"1","graph","dram__bytes_read.sum","byte","1"')
print('"2","graph","dram__bytes_read.sum","byte","{read}"')
"""


@pytest.mark.parametrize(("share", "cold"), [(0.99, True), (0.5, False)])
def test_cold_is_verified_by_the_dram_bytes_of_the_second_replay(
    tmp_path, monkeypatch, share, cold
):
    launches, streamed = 64, 16 << 20
    fake_ncu(tmp_path, monkeypatch, ROWS.format(read=int(share * launches * streamed)))
    found = api.verify_cold(recipe(), device="simulated")
    assert found.cold is cold
    assert found.dram_share == pytest.approx(share, rel=1e-3)


@pytest.mark.parametrize(
    ("function", "found"),
    [("waits", "cannot be captured"), ("missing", "no function"), ("number", "returned a int")],
)
def test_what_cannot_be_watched_is_unknown_with_the_reason(tmp_path, monkeypatch, function, found):
    fake_ncu(tmp_path, monkeypatch, "sys.exit(subprocess.run(target).returncode)\n")
    check = api.verify_cold(api.Recipe(f"{RECIPES}:{function}"), device="simulated")
    assert check.cold is None
    assert found in check.reason


def test_without_permission_for_counters_cold_is_unknown(tmp_path, monkeypatch):
    fake_ncu(tmp_path, monkeypatch, "print('==ERROR== ERR_NVGPUCTRPERM - no permission')\n")
    found = api.verify_cold(recipe(), device="simulated")
    assert (found.cold, found.dram_share) == (None, None)
    assert "ERR_NVGPUCTRPERM" in found.reason


def test_the_recipe_survives_json():
    document = json.loads(json.dumps(recipe(mib=3).document()))
    assert api.Recipe.of(document).build(api.open_device("simulated")).streamed[0].bytes == 3 << 20
