"""The accuracy benchmark on the shared sweep: its shape, its thresholds, and its honesty."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gate_sweep
import model_accuracy
import pytest

from kernel_compass.analysis.kernel_terms import PRIOR
from kernel_compass.records.workload import Precision

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data" / "cache_barrier"
pytestmark = pytest.mark.skipif(
    not DATA.is_dir(), reason=f"the shared gate sweep is not here: {DATA}"
)
MOST_MAPE_PCT = {"H100-80GB": 8.0, "A100-40GB": 8.0, "B200": 12.0, "B300": 9.0}
THREE = ("mape_pct", "decision_accuracy_pct", "mean_regret_pct")


@functools.cache
def result() -> dict[str, Any]:
    script = ROOT / "benchmarks" / "model_accuracy.py"
    command = [sys.executable, str(script), "--data", str(DATA), "--probes", "6", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_every_gpu_is_within_its_error() -> None:
    assert set(result()["gpus"]) == set(MOST_MAPE_PCT)
    for gpu, row in result()["gpus"].items():
        assert 0 < row["mape_pct"] <= MOST_MAPE_PCT[gpu], gpu
        assert row["band_coverage_pct"] >= 85, gpu
        assert all(row[name] is not None for name in THREE)
        assert row["parameters"]["count"] == 17


def test_decisions_beat_every_baseline() -> None:
    pooled = result()["pooled"]
    assert pooled["decision_accuracy_pct"] >= 95
    assert pooled["mean_regret_pct"] <= 1
    for name, row in pooled["baselines"].items():
        assert pooled["mean_regret_pct"] < row["mean_regret_pct"], name
        assert row["mape_pct"] is None or row["mape_pct"] > 2 * pooled["mape_pct"], name


def test_no_gpu_is_far_behind_its_best_constant_policy() -> None:
    for gpu, row in result()["gpus"].items():
        constant = min(
            row["baselines"][name]["mean_regret_pct"] for name in ("always_bf16", "always_w8a8")
        )
        assert row["mean_regret_pct"] <= constant + 1, gpu


def test_a_gpu_never_seen_is_reported_with_and_without_probes() -> None:
    for gpu, row in result()["leave_one_gpu_out"].items():
        assert set(row) == {"0_probes", "6_probes"}, gpu
        assert row["6_probes"]["mape_pct"] < row["0_probes"]["mape_pct"], gpu


def test_our_hard_gate_is_the_studys() -> None:
    sweep = gate_sweep.read(DATA)
    for gpu in ("A100-40GB", "B200", "B300"):
        ours, theirs = (
            gate_sweep.hard_gate_lumped(sweep, gpu),
            gate_sweep.study_predictions(sweep, gpu),
        )
        for precision in (Precision.BF16, Precision.W4A16):
            assert ours[precision] == pytest.approx(theirs[precision], rel=1e-3)


def test_six_probes_a_precision_that_seeds_change_and_no_score_on_them() -> None:
    sweep = gate_sweep.read(DATA)
    priors = {p: PRIOR[p] for p in gate_sweep.PRECISIONS}
    runs = [model_accuracy.predict_sweep(sweep, "B200", 6, seed, priors) for seed in range(4)]
    for run in runs:
        assert all(len(cells) == 6 for cells in run.probed.values())
        open_cells = model_accuracy.decidable(sweep, "B200", run.probed, gate_sweep.TWO_WAY)
        assert not set(open_cells) & (run.probed[Precision.BF16] | run.probed[Precision.W8A8])
    assert len({frozenset(run.probed[Precision.BF16]) for run in runs}) == 4


def test_the_times_of_cells_not_probed_change_no_prediction() -> None:
    """Every time but the probes' is spoilt; the predictions stay."""
    sweep = gate_sweep.read(DATA)
    priors = {Precision.BF16: PRIOR[Precision.BF16]}
    before = model_accuracy.predict_sweep(sweep, "A100-40GB", 6, 0, priors)
    rows = sweep.rows["A100-40GB", Precision.BF16]
    for cell in set(rows) - before.probed[Precision.BF16]:
        rows[cell] = {**rows[cell], "latency_us": "1e6", "study_pred_us": "1e6"}
    after = model_accuracy.predict_sweep(sweep, "A100-40GB", 6, 0, priors)
    assert after.predicted == before.predicted
    assert after.probed == before.probed


def test_the_documentation_shows_these_figures() -> None:
    text = (ROOT / "docs" / "model.md").read_text(encoding="utf-8")
    shown = {
        cells[1].strip(): [float(c) for c in cells[2:9] if c.strip()]
        for line in text.splitlines()
        if len(cells := line.split("|")) == 10 and cells[2].strip()[:1].isdigit()
    }
    for gpu, row in result()["gpus"].items():
        figures = [
            row["mape_pct"],
            *row["mape_by_precision_pct"].values(),
            *(row[n] for n in THREE[1:]),
        ]
        assert shown[gpu] == pytest.approx([*figures, row["band_coverage_pct"]], rel=0.02, abs=0.2)
    pooled = result()["pooled"]
    assert shown["pooled"] == pytest.approx([pooled[name] for name in THREE], rel=0.02, abs=0.2)
