"""Advice on an H200 against what kernels reached there, and on published machines."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import pytest
from analysis.machines import ABSENT, COLD, MIB, WARM, curve, h200

from kernel_compass.api.advising import advise, advise_model
from kernel_compass.errors import UsageError
from kernel_compass.records.advice import CacheFit, FormatAdvice, Verdict
from kernel_compass.records.calibration import Access, Basis, Quantity
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import Op, Precision, Workload

H200 = h200()
REACHED = {  # N, M: times cuBLAS bf16 at H = K = 128, (int4 warm, cold), (fp8 warm, cold)
    (512, 1): ((1.68, 2.00), (1.48, 1.63)),
    (512, 16): ((1.45, 1.86), (1.37, 1.59)),
    (512, 64): ((1.39, 1.65), (1.25, 1.48)),
    (1024, 1): ((1.92, 2.56), (1.61, 1.81)),
    (1024, 16): ((1.69, 2.29), (1.40, 1.63)),
    (1024, 64): ((1.99, 2.10), (1.81, 1.68)),
    (4096, 1): ((4.71, 3.20), (1.93, 1.94)),
    (4096, 16): ((2.95, 2.73), (1.77, 1.77)),
    (4096, 64): ((1.76, 1.78), (1.48, 1.49)),
}
"""Triton kernels on one H200, re-measured after their choice; plain cache policy, no PDL."""
CUBLAS = {  # N, M: us warm, rotated, same card
    (256, 1): (3.82, 4.84),
    (512, 1): (4.75, 6.89),
    (512, 64): (6.52, 8.35),
    (1024, 1): (6.94, 10.86),
    (1536, 1): (16.14, 16.98),
    (2048, 16): (22.61, 22.67),
    (4096, 1): (36.49, 36.43),
    (4096, 64): (55.25, 55.40),
}


SWEEP = Path(__file__).resolve().parents[3] / "shared/data/cache_barrier/gate_sweep.csv"
MACHINES = {"A100-40GB": "a100", "H100-80GB": "h100", "B200": "b200", "B300": "b300"}


@pytest.mark.skipif(not SWEEP.is_file(), reason=f"the published sweep is not here: {SWEEP}")
@pytest.mark.parametrize("gpu", MACHINES)
def test_no_verdict_contradicts_the_published_sweep(gpu: str) -> None:
    """Kernels of another project: what won is not ruled out, what lost not promised."""
    cells: dict[Workload, dict[str, float]] = {}
    with SWEEP.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["gpu"] == gpu:
                h, m, k, n = (int(row[key]) for key in "hmkn")
                times = cells.setdefault(Workload(Op.BMM, h, m, k, n), {})
                times[row["precision"]] = float(row["latency_us"])
    assert len(cells) >= 15
    for workload, times in cells.items():
        for precision, row in formats(workload, Regime.WARM, MACHINES[gpu]).items():
            if precision in times and precision is not Precision.BF16:
                won = times[Precision.BF16] / times[precision]
                assert not (row.verdict is Verdict.CANNOT_PAY and won > 1.02), (workload, precision)
                assert not (row.verdict is Verdict.PAYS and won < 1.0), (workload, precision)


def bmm(tokens: int, columns: int) -> Workload:
    return Workload(Op.BMM, 128, tokens, 128, columns)


def formats(workload: Workload, regime: Regime, machine=H200) -> dict[Precision, FormatAdvice]:
    (row,) = advise([workload], machine, (regime,)).workloads[0].regimes
    return {f.precision: f for f in row.formats}


@pytest.mark.parametrize("cell", REACHED)
@pytest.mark.parametrize("regime", [Regime.WARM, Regime.COLD])
@pytest.mark.parametrize("machine", [H200, "h200"], ids=["table", "shipped"])
def test_what_was_reached_is_never_ruled_out(cell, regime, machine) -> None:
    found = formats(bmm(cell[1], cell[0]), regime, machine)
    int4, fp8 = (pair[regime is Regime.COLD] for pair in REACHED[cell])
    for precision, reached in ((Precision.W4A16, int4), (Precision.W8A16, fp8)):
        assert found[precision].verdict is not Verdict.CANNOT_PAY
        assert found[precision].at_most >= reached


@pytest.mark.parametrize("cell", CUBLAS)
@pytest.mark.parametrize("machine", [H200, "h200"], ids=["table", "shipped"])
def test_the_band_of_bf16_holds_cublas(cell, machine) -> None:
    for regime, us in zip((Regime.WARM, Regime.COLD), CUBLAS[cell], strict=True):
        row = formats(bmm(cell[1], cell[0]), regime, machine)[Precision.BF16]
        assert row.estimate.low_us <= us <= row.estimate.high_us
        assert row.floor.time_us <= us * 1.02


def test_weight_only_cannot_pay_where_arithmetic_bounds_it() -> None:
    found = formats(Workload(Op.LINEAR, 1, 8192, 8192, 8192), Regime.COLD)
    assert found[Precision.W4A16].verdict is Verdict.CANNOT_PAY
    assert found[Precision.W8A16].verdict is Verdict.CANNOT_PAY
    assert (
        found[Precision.W8A8].verdict is not Verdict.CANNOT_PAY
    )  # 8 bits have a peak of their own
    assert "arithmetic" in found[Precision.W4A16].reason


def test_nothing_can_pay_where_the_launch_is_all() -> None:
    found = formats(Workload(Op.LINEAR, 1, 1, 64, 64), Regime.WARM)
    assert all(f.verdict in (None, Verdict.CANNOT_PAY) for f in found.values())
    assert "launch" in found[Precision.W4A16].reason


def test_residency_knows_how_well_the_capacity_is_known() -> None:
    def fit(tokens: int, columns: int, precision: Precision) -> CacheFit:
        return formats(bmm(tokens, columns), Regime.WARM)[precision].fit

    assert fit(1, 512, Precision.BF16) is CacheFit.FITS
    assert fit(1, 4096, Precision.BF16) is CacheFit.SPILLS
    assert fit(1, 4096, Precision.W4A16) is CacheFit.FITS
    assert fit(1, 1440, Precision.BF16) is CacheFit.EDGE  # 45.4 MiB between 44 and 48
    # A re-read of 0.9 capacities already reads from DRAM, one of 1.1 still hits: 37.5 to 56.3 MiB.
    for columns, expected in ((1184, CacheFit.FITS), (1220, CacheFit.EDGE)):
        assert fit(1, columns, Precision.BF16) is expected
    for columns, expected in ((1760, CacheFit.EDGE), (1800, CacheFit.SPILLS)):
        assert fit(1, columns, Precision.BF16) is expected
    unknown = formats(bmm(1, 512), Regime.WARM, h200(c_eff_bytes=ABSENT))
    assert unknown[Precision.BF16].fit is CacheFit.UNKNOWN


def test_bands_do_not_reach_below_a_measured_floor() -> None:
    writes = curve(Regime.WARM, [(1, 1.9), (64, 20.0), (512, 130.0)], Access.READ_WRITE)
    machine = h200(curves=(WARM, COLD, writes))
    for regime in (Regime.WARM, Regime.COLD):
        for row in formats(bmm(16, 1024), regime, machine).values():
            assert row.floor.time_us <= row.estimate.low_us <= row.estimate.time_us
            assert row.estimate.time_us <= row.estimate.high_us


def test_in_situ_spans_warm_and_cold() -> None:
    warm, cold = (formats(bmm(1, 512), r)[Precision.BF16] for r in (Regime.WARM, Regime.COLD))
    row = formats(bmm(1, 512), Regime.IN_SITU)[Precision.BF16]
    assert row.floor.time_us == warm.floor.time_us
    assert row.floor.high_us == cold.floor.time_us
    assert row.estimate.low_us == pytest.approx(min(warm.estimate.low_us, cold.estimate.low_us))
    assert row.estimate.high_us == pytest.approx(max(warm.estimate.high_us, cold.estimate.high_us))
    assert warm.estimate.time_us < row.estimate.time_us < cold.estimate.time_us


def test_bf16_is_the_baseline_and_comes_first() -> None:
    (row,) = advise([bmm(1, 512)], H200, (Regime.WARM,)).workloads[0].regimes
    assert [f.precision for f in row.formats] == list(Precision)
    assert row.formats[0].verdict is None
    assert row.formats[0].at_most >= 1.0


def test_the_budget_marks_and_hides_nothing() -> None:
    (row,) = advise([bmm(1, 512)], H200, (Regime.WARM,), 3.0).workloads[0].regimes
    assert [f.within_budget for f in row.formats] == [True, True, True, False]
    (row,) = advise([bmm(1, 512)], H200, (Regime.WARM,), 1.0).workloads[0].regimes
    assert [f.within_budget for f in row.formats] == [True, True, False, False]


@pytest.mark.parametrize(("machine", "guided"), [("a100", False), ("h100", True), (H200, True)])
def test_fp8_is_no_choice_where_the_device_has_none(machine, guided: bool) -> None:
    for row in formats(bmm(1, 512), Regime.WARM, machine).values():
        named = [guide.format for guide in row.errors]
        assert ("fp8" in named) is (guided and row.precision in (Precision.W8A16, Precision.W8A8))
        assert named


def test_a_card_that_calibrates_without_fp8_has_none() -> None:
    none = Quantity(None, Basis.ABSENT, "this card or PyTorch has no such product")
    old = h200(peak_tflops={"bf16": H200.peak_tflops["bf16"], "fp8": none})
    assert [g.format for g in formats(bmm(1, 512), Regime.WARM, old)[Precision.W8A8].errors] == [
        "int8"
    ]
    listed = replace(old, datasheet={"fp8_tflops": Quantity(1979.0, Basis.DATASHEET, "a sheet")})
    assert len(formats(bmm(1, 512), Regime.WARM, listed)[Precision.W8A8].errors) == 2


def test_no_win_is_promised_beyond_the_datasheet() -> None:
    """16384 x 8192 x 8192 on an H100, whose 8-bit peaks nobody published: not 26 times."""
    row = formats(Workload(Op.LINEAR, 1, 16384, 8192, 8192), Regime.WARM, "h100")[Precision.W8A8]
    assert row.floor.bound == "compute"
    assert row.floor.basis is Basis.EXTRAPOLATED
    assert row.at_most < 6
    assert row.floor.time_us >= 2 * 16384 * 8192 * 8192 / 1979e6


def test_in_situ_says_one_number() -> None:
    found = formats(Workload(Op.LINEAR, 1, 16, 4096, 4096), Regime.IN_SITU, "h100")
    for row in found.values():
        if row.verdict is Verdict.CANNOT_TELL and "alike" in row.reason:
            assert f"at most {row.at_most:.2f}x" in row.reason
    assert "alike" in found[Precision.W8A16].reason


def test_what_the_model_was_never_compared_with_is_said() -> None:
    def notes(tokens: int) -> list[str]:
        return [n for n in advise([bmm(tokens, 512)], H200).notes if "was compared with" in n]

    assert notes(512) == []
    assert len(notes(513)) == 1
    assert notes(4096)[0].startswith("4,096 tokens")


def test_notes_have_a_subject() -> None:
    advice = advise([bmm(1, 512)], replace(H200, notes=("the SM clock moved",)))
    assert advice.notes == ("calibration h200: the SM clock moved",)


def test_what_a_step_reads_names_its_tokens() -> None:
    def note(*tokens: int) -> str:
        notes = advise_model("deepseek-v3", tokens, 8, H200).notes
        return next(n for n in notes if n.startswith("a step reads"))

    assert "10.2 GiB (1 token) of bf16 weights" in note(1)
    assert "10.2 GiB (1 token) to 137 GiB (64 tokens) of bf16 weights" in note(64, 1, 16)
    assumed = {w.assumption for w in advise_model("deepseek-v3", (1,), 8, H200).workloads}
    assert "tokens choose 8 of 256 experts evenly: 8 are hit, 1 row each" in assumed


def test_a_poor_calibration_gives_what_it_can() -> None:
    advice = advise([bmm(1, 512)], h200(c_eff_bytes=ABSENT), (Regime.WARM,))
    row = advice.workloads[0].regimes[0].formats[1]
    assert row.floor is not None
    assert row.estimate is None
    assert row.verdict is Verdict.CANNOT_TELL
    assert any("no estimates" in note for note in advice.notes)


def test_a_models_step_adds_up() -> None:
    advice = advise_model("deepseek-v3", (1, 64), 8, H200, (Regime.COLD,))
    rows = [w for w in advice.workloads if w.workload.name == "q_absorb"]
    assert [w.workload.shape_text for w in rows] == ["bmm 16x1x128x512", "bmm 16x64x128x512"]
    assert len(advice.totals) == 2 * 1 * 4
    one = advice.workloads[: len(advice.workloads) // 2]
    total = sum(w.layers * w.regimes[0].formats[0].estimate.time_us for w in one)
    assert advice.totals[0].estimate_us == pytest.approx(total)
    assert advice.totals[0].tokens == 1
    assert advice.totals[0].precision is Precision.BF16


def test_every_number_is_finite_for_extreme_shapes() -> None:
    shapes = [(1, 1, 1, 1), (1, 1, 1, 10**7), (1024, 4096, 64, 64), (1, 1 << 20, 16, 16)]
    for heads, tokens, reduction, columns in shapes:
        workload = Workload(Op.BMM, heads, tokens, reduction, columns)
        for regime in (Regime.WARM, Regime.COLD, Regime.IN_SITU):
            for row in formats(workload, regime).values():
                values = (row.floor.time_us, row.estimate.low_us, row.estimate.high_us, row.at_most)
                assert all(math.isfinite(v) and v > 0 for v in values)


def test_impossible_models_and_dimensions_are_refused() -> None:
    with pytest.raises(UsageError, match="no model"):
        advise_model("gpt-2", (1,), 1, H200)
    with pytest.raises(UsageError, match="cannot be split"):
        advise_model("llama-3.1-8b", (1,), 3, H200)
    with pytest.raises(UsageError, match="tokens is 0"):
        advise([bmm(0, 512)], H200)


def test_working_sets_are_those_of_the_stored_formats() -> None:
    found = formats(bmm(1, 512), Regime.WARM)
    beside = 2 * 128 * (128 + 512)
    assert found[Precision.BF16].working_set_bytes == 16 * MIB + beside
    assert found[Precision.W8A16].weight_bytes == 8 * MIB + 4 * 128 * 512
