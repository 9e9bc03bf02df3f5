"""What a smaller weight can win at most, in each regime, and what it cannot."""

from __future__ import annotations

import pytest

from kernel_compass import api
from kernel_compass.optimizer.fewer_bytes import fewer_bytes
from kernel_compass.records.loop import Baseline, RegimeTime
from kernel_compass.records.profile import Regime
from kernel_compass.records.search_space import CandidateSpace
from kernel_compass.report.optimized import optimized_text

MIB = 1 << 20
BASELINE = Baseline("one", (RegimeTime(Regime.COLD, 6.0, 5.0), RegimeTime(Regime.WARM, 4.0, 3.0)))


def space(name, weight_bytes, cold, warm, implementation="own"):
    floors = {Regime.COLD: cold, Regime.WARM: warm}
    bounds = {Regime.COLD: "dram", Regime.WARM: "l2"}
    return CandidateSpace(
        implementation, ({},), name, floors_us=floors, bounds=bounds, weight_bytes=weight_bytes
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """One for all: the judge proves itself once."""
    return tmp_path_factory.mktemp("home")


def test_each_format_by_the_least_of_its_floors():
    spaces = [
        space("bf16", 16 * MIB, 5.0, 3.0),
        space("w8a16_fp8", 8 * MIB, 3.2, 2.5, "slow"),
        space("w8a16_fp8", 8 * MIB, 3.0, 2.0),
    ]
    found = fewer_bytes(spaces, BASELINE, 46 * MIB)
    assert found.weight_bytes == 16 * MIB and found.stays_in_l2 is True
    assert {one.format: dict(one.most) for one in found.formats} == {
        "bf16": {Regime.COLD: pytest.approx(1.2), Regime.WARM: pytest.approx(4 / 3)},
        "w8a16_fp8": {Regime.COLD: pytest.approx(2.0), Regime.WARM: pytest.approx(2.0)},
    }


@pytest.mark.parametrize(
    ("mib", "l2_mib", "stays"),
    [(16, 46, True), (128, 46, False), (44, 46, False), (16, None, None)],
)
def test_whether_the_weight_stays_in_l2(mib, l2_mib, stays):
    l2 = None if l2_mib is None else float(l2_mib * MIB)
    found = fewer_bytes([space("bf16", mib * MIB, 5.0, 3.0)], BASELINE, l2)
    assert found.stays_in_l2 is stays


def test_nothing_is_said_without_floors_or_weights():
    nothing = CandidateSpace("own", ({},), "bf16")
    assert fewer_bytes([nothing], BASELINE, None) is None
    assert fewer_bytes([], BASELINE, 46.0 * MIB) is None


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (512, ("16.0 MiB stays in L2", "L2 traffic alone warm")),
        (4096, ("128 MiB is more than L2 keeps", "DRAM traffic in both regimes")),
    ],
)
def test_a_study_says_both_sides_of_the_gate(columns, said, home, monkeypatch):
    monkeypatch.setenv("KERNEL_COMPASS_HOME", str(home))
    request = api.study_request(f"bmm:128x1x128x{columns}", budget_pct=15.0, trials=1)
    found = api.optimize(request, "simulated")
    text = optimized_text(found.recorded, found.end)
    assert all(words in text for words in said)
    (rows,) = [room.formats for room in found.end.fewer_bytes.values()]
    by_bytes = sorted(rows, key=lambda one: one.weight_bytes)
    for regime in Regime.COLD, Regime.WARM:
        most = [one.most[regime] for one in by_bytes if one.bounds[regime] in ("dram", "l2")]
        assert most == sorted(most, reverse=True)
