"""The figures of docs/optimize.md are those of the kept study, and its recording gives the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernel_compass import api
from kernel_compass.codec import recorded_space
from kernel_compass.units import percent_text

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "benchmarks/results/h200/optimize"
TEXT = (ROOT / "docs/optimize.md").read_text()
STUDY = json.loads((KEPT / "mla.study.json").read_text())
COMPARED = json.loads((KEPT / "compare.json").read_text())
RUN = json.loads((KEPT / "run.json").read_text())
REPLAY = json.loads((KEPT / "replay.json").read_text())
ACCEPTED = {t["workload"]: t for t in STUDY["trials"] if t["outcome"] == "accepted"}


@pytest.mark.parametrize("name", sorted(ACCEPTED))
def test_each_row_is_an_accepted_trial(name):
    trial = ACCEPTED[name]
    candidate = trial["proposal"]["candidate"]
    shape = " x ".join(name.partition(" ")[2].split("x")[1:])
    parts = []
    for regime in ("cold", "warm"):
        (found,) = [r["speedup"] for r in trial["results"] if r["regime"] == regime]
        parts.append(f"{found['estimate']:.3f}x ({found['low']:.3f} to {found['high']:.3f})")
    chosen = f"{candidate['implementation']} {candidate['format']}"
    error = f"{trial['format_error_pct']:.1f} %"
    (compared,) = [r for r in COMPARED if r["workload"] == name]
    (note,) = [n for n in trial["notes"] if n.startswith("bytes read from DRAM")]
    behind = f"{note.split()[8]}, as predicted | {compared['behind']:.3f}"
    assert f"| {shape} | {chosen} | {parts[0]} | {parts[1]} | {error} | {behind} |" in TEXT
    assert trial["explained"] is True


def test_how_many_were_tried():
    screened = [
        t
        for t in STUDY["trials"]
        if t["proposal"]["proposer"] != "finals" and "Gaussian" not in t["detail"]
    ]
    before = [t for t in STUDY["trials"] if "Gaussian" in t["detail"]]
    assert f"It screened {len(screened)} candidates" in TEXT
    assert f"; {len(before)} spaces were passed over" in TEXT


def test_the_rest_of_the_run():
    assert RUN["in_time"] and f"{RUN['optimize_s']:.0f} s in all" in TEXT
    claims = REPLAY["claims"]
    assert all(claim["holds"] for claim in claims)
    assert f"found all {len(claims)} accepted entries to hold" in TEXT
    unaccepted = [r for r in COMPARED if r["workload"] not in ACCEPTED]
    assert all(r["chosen"] is None and r["best"] == "baseline" for r in unaccepted)


@pytest.mark.parametrize(
    ("name", "weight"), [("gate_16mib", "16.0 MiB"), ("gate_128mib", "128 MiB")]
)
def test_both_sides_of_the_gate(name, weight):
    study = json.loads((KEPT / f"{name}.study.json").read_text())
    (trial,) = [t for t in study["trials"] if t["outcome"] == "accepted"]
    gains = {r["regime"]: f"{r['speedup']['estimate']:.3f}x" for r in trial["results"]}
    read = {n.split()[1]: n.partition("reads ")[2] for n in trial["notes"] if "launch reads" in n}
    places = {regime: dict(_places(text)) for regime, text in read.items()}
    chosen = trial["proposal"]["candidate"]["format"]
    cells = [
        weight,
        f"{chosen}, error {percent_text(trial['format_error_pct'])}",
        gains["cold"],
        gains["warm"],
        places["cold"]["DRAM"],
        places["warm"]["DRAM"],
        places["warm"]["L2"],
    ]
    assert f"| {' | '.join(cells)} |" in TEXT
    assert trial["explained"] is True


def _places(text):
    for part in text.split(", "):
        amount, _, place = part.rpartition(" from ")
        yield place, amount


def test_the_spaces_that_it_is_compared_with():
    files = sorted((KEPT.parent / "spaces").glob("bmm_128x*.json.gz"))
    spaces = [recorded_space.read(file) for file in files]
    assert len(spaces) == len(COMPARED) and all(space.complete for space in spaces)
    assert f"{sum(len(space.points) for space in spaces):,} configurations" in TEXT


def test_the_loop_on_its_recording_comes_to_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNEL_COMPASS_HOME", str(tmp_path))
    request = api.study_request("mla:deepseek-v3", tokens=[1, 16, 64], budget_pct=3.0)
    found = api.optimize(request, f"recorded:{KEPT / 'mla.recording.json.gz'}")
    chosen = {t.workload: dict(t.proposal.candidate.config) for t in found.recorded.accepted}
    assert chosen == {n: t["proposal"]["candidate"]["config"] for n, t in ACCEPTED.items()}
    for trial in found.recorded.accepted:
        kept = {r["regime"]: r["speedup"]["estimate"] for r in ACCEPTED[trial.workload]["results"]}
        for result in trial.results:
            assert result.speedup.estimate == pytest.approx(
                kept[result.regime.value], rel=0.05
            )  # a screen is one process


def test_the_readme_says_what_was_won():
    won = [r["speedup"]["estimate"] for t in ACCEPTED.values() for r in t["results"]]
    assert f"{min(won):.2f} to {max(won):.2f} times cuBLAS" in (ROOT / "README.md").read_text()


def test_the_second_run_chose_what_is_near_the_best_of_the_recorded_spaces():
    study = json.loads((KEPT / "again.study.json").read_text())
    run, replay = (
        json.loads((KEPT / f"again.{name}.json").read_text()) for name in ("run", "replay")
    )
    accepted = {t["workload"]: t for t in study["trials"] if t["outcome"] == "accepted"}
    behind, elsewhere = {}, []
    for name, trial in accepted.items():
        sizes = name.partition(" ")[2]
        space = recorded_space.read(KEPT.parent / "spaces" / f"bmm_{sizes}_w8a16_fp8.json.gz")
        times = [p.time_us(None) for p in space.points]
        config = trial["proposal"]["candidate"]["config"]
        mine = [p.time_us(None) for p in space.points if dict(p.config) == config]
        if mine:
            behind[name] = mine[0] / min(time for time in times if time is not None)
        else:
            elsewhere.append(name)
    assert max(behind.values()) <= 1.03 and elsewhere == ["bmm 128x16x128x512"]
    assert f"are {min(behind.values()):.3f} to {max(behind.values()):.3f} times the best" in TEXT
    assert len(accepted) == len(replay["claims"]) == run["accepted"] == 5
    assert all(claim["holds"] for claim in replay["claims"])
    assert run["in_time"] and f"{run['optimize_s']:.0f} s in all, 5 entries accepted" in TEXT
    beside = [r["behind"] for r in json.loads((KEPT / "again.compare.json").read_text())]
    assert f"{min(beside):.3f} to {max(beside):.3f} behind the best" in TEXT
    assert max(beside) <= 1.03
    gains = [r["speedup"]["estimate"] for r in accepted["bmm 128x1x512x128"]["results"]]
    assert "{:.3f}x cold and {:.3f}x warm".format(*gains) in TEXT
