"""Tables of kernels on the simulated GPU, whose times are known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from api.fake_kernels import FakeChoices, FakeKernel, FakeOperands, formats

from kernel_compass.api.kernel_cells import Bench
from kernel_compass.api.kernel_requests import Item, TableRequest, mla_items, sweep_items
from kernel_compass.api.kernel_tables import TableRun
from kernel_compass.codec.kernel_table import merged
from kernel_compass.errors import MeasurementError, UsageError
from kernel_compass.measurement.simulated import SimulatedDevice
from kernel_compass.measurement.timing import TimingOptions
from kernel_compass.records.environment import Environment
from kernel_compass.records.kernel_table import Layout, RowStatus
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import Op, Workload

OPTIONS = TimingOptions(samples=3, settle_us=100.0, check=False)


class Lab:
    """A simulated GPU with a baseline, an int4 kernel and an fp8 kernel."""

    def __init__(self, **faults):
        self.device = SimulatedDevice()
        self.operands = FakeOperands()
        self.base = self.kernel("cublas_bf16", "bf16", extra_us=1.0)
        self.int4 = self.kernel("fake_w4", "w4a16_gk", fault=faults.get("w4"))
        self.fp8 = self.kernel("fake_w8", "w8a16_fp8", "w8a16_int8", fault=faults.get("w8"))
        self.told = []

    def kernel(self, name, *names, **more):
        return FakeKernel(name, names, self.device, self.operands, **more)

    def run(self, request, known=(), floor_of=None, device=None):
        choices = FakeChoices(self.int4, self.base, self.fp8)
        bench = Bench(
            device or self.device, self.operands, choices, floor_of=floor_of, options=OPTIONS
        )
        return TableRun(request, bench, known, self.told.append)


def request(tokens=(1,), names=("bf16", "w4a16_gk"), heads=128, n=512, **more):
    return TableRequest(sweep_items(heads, 128, [n], tokens), formats(*names), **more)


def cells(rows):
    return {(r.workload.tokens, r.implementation, r.regime): r for r in rows}


def test_times_are_those_of_the_simulated_machine():
    lab = Lab()
    rows = list(lab.run(request()).rows())
    found = cells(rows)
    assert [r.status for r in rows] == [RowStatus.MEASURED] * 4
    for name, extra, codes in (("cublas_bf16", 1.0, 16 << 20), ("fake_w4", 0.5, 4 << 20)):
        scales = 128 * 512 * 2 if name == "fake_w4" else 0
        beside = 2 * 128 * (128 + 512) / 6.4e6
        warm = 1.0 + extra + (codes + scales) / 6.4e6 + beside
        cold = 1.0 + extra + (codes + scales) / 4.4e6 + beside
        assert found[1, name, Regime.WARM].time_us == pytest.approx(warm, rel=1e-6)
        assert found[1, name, Regime.COLD].time_us == pytest.approx(cold, rel=0.02)


def test_what_a_kernel_notes_of_itself_is_a_warning_of_its_times_alone():
    lab = Lab()
    lab.int4.note = "it ran its plain kernel"
    for row in lab.run(request()).rows():
        assert ("it ran its plain kernel" in row.warnings) == (row.implementation == "fake_w4")


def test_ratios_rates_and_layers_follow_from_the_times():
    lab = Lab()
    rows = list(lab.run(request(), floor_of=lambda w, f, r, n: (2.0, "here")).rows())
    for row in rows:
        base = cells(rows)[1, "cublas_bf16", row.regime]
        assert row.speedup == pytest.approx(base.time_us / row.time_us)
        assert row.headroom == pytest.approx(row.time_us / 2.0)
        assert row.tflops == pytest.approx(2 * 128 * 128 * 512 / row.time_us / 1e6)
        assert row.gb_s == pytest.approx(row.moved_bytes / row.time_us / 1e3)
        assert row.model_us is None
    layered = replace(rows[0], layers=61)
    assert layered.model_us == pytest.approx(61 * rows[0].time_us)


def test_the_number_of_launches_is_the_same_for_all_and_covers_every_set():
    rows = list(Lab().run(request()).rows())
    for regime in (Regime.WARM, Regime.COLD):
        assert len({r.launches for r in rows if r.regime is regime}) == 1
    cold = [r.launches for r in rows if r.regime is Regime.COLD]
    assert cold[0] >= (1 << 30) / (4 << 20)


def test_the_baseline_is_measured_with_a_format_that_was_asked_for_alone():
    lab = Lab()
    rows = list(lab.run(request(names=("w4a16_gk",), implementations=("fake_w4",))).rows())
    assert {r.implementation for r in rows} == {"cublas_bf16", "fake_w4"}
    assert all(r.speedup for r in rows)
    assert rows[0].implementation == "cublas_bf16"


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("wrong", "frobenius"),
        ("raises", "no kernel image"),
        ("exits", "SystemExit: no license"),
        ("odd text", r"no file /tmp/\udcff"),
    ],
)
def test_a_kernel_that_is_wrong_or_fails_has_no_time_and_the_others_have(fault, words):
    lab = Lab(w4=fault)
    rows = list(lab.run(request(names=("bf16", "w4a16_gk", "w8a16_fp8"))).rows())
    bad = [r for r in rows if r.implementation == "fake_w4"]
    assert [r.status for r in bad] == [RowStatus.FAILED] * 2
    assert all(r.time_us is None and words in r.reason and "\n" not in r.reason for r in bad)
    assert sum(r.status is RowStatus.MEASURED for r in rows) == 4


def test_a_kernel_is_checked_before_it_is_timed():
    lab = Lab(w4="wrong")
    list(lab.run(request()).rows())
    assert lab.int4.runs == 1  # the check's own launch and no other


def test_a_named_kernel_that_cannot_is_refused_with_its_reason():
    lab = Lab(w4="refuses M=16")
    wanted = request(tokens=(1, 16), implementations=("fake_w4",))
    rows = list(lab.run(wanted).rows())
    refused = [r for r in rows if r.status is RowStatus.UNSUPPORTED]
    reasons = {(r.workload.tokens, r.format.name): r.reason for r in refused}
    assert reasons[16, "w4a16_gk"] == "M = 16 is too many"
    assert "not bf16" in reasons[1, "bf16"]
    assert (1, "fake_w4", Regime.COLD) in cells(r for r in rows if r.time_us)


def test_an_unknown_implementation_is_refused_before_anything_runs():
    lab = Lab()
    with pytest.raises(UsageError, match="nosuch"):
        lab.run(request(implementations=("nosuch",)))
    assert lab.base.runs == 0


def test_what_was_measured_is_not_measured_again():
    lab = Lab()
    first = list(lab.run(request()).rows())
    again = lab.run(request(), known=first)
    assert list(again.rows()) == []
    assert again.total == 0
    assert len(again.kept) == 4


def test_only_what_is_missing_is_measured_with_a_baseline_of_its_own():
    lab = Lab()
    first = list(lab.run(request(tokens=(1, 16))).rows())
    kept = [r for r in first if (r.workload.tokens, r.implementation) != (16, "fake_w4")]
    rows = list(lab.run(request(tokens=(1, 16)), known=kept).rows())
    assert {(r.workload.tokens, r.implementation) for r in rows} == {
        (16, "cublas_bf16"),
        (16, "fake_w4"),
    }
    assert len(merged(kept, rows)) == len(first)


@pytest.mark.parametrize("change", ["driver", "torch", "kernel_compass"])
def test_rows_of_another_environment_are_measured_again(change):
    lab = Lab()
    first = list(lab.run(request()).rows())
    other = [replace(r, environment=replace(r.environment, **{change: "1"})) for r in first]
    rows = list(lab.run(request(), known=other).rows())
    assert len(rows) == 4
    assert len(merged(other, rows)) == 8


def test_failed_rows_are_tried_again():
    lab = Lab(w4="raises")
    first = list(lab.run(request()).rows())
    lab.int4.fault = None
    rows = list(lab.run(request(), known=first).rows())
    assert all(r.status is RowStatus.MEASURED for r in rows)
    assert len(merged(first, rows)) == 4


def test_an_interrupted_table_goes_on_where_it_stopped():
    lab = Lab()
    kept = []
    rows = lab.run(request(tokens=(1, 16))).rows()
    for _ in range(5):
        kept.append(next(rows))
    rows.close()
    rest = list(lab.run(request(tokens=(1, 16)), known=kept).rows())
    assert len(merged(kept, rest)) == 8


def test_a_gpu_that_died_ends_the_table_after_the_rows_that_there_are():
    class Dying(SimulatedDevice):
        dead = False

        def run(self, call):
            if self.dead:
                raise MeasurementError("callable_failed", "The GPU failed.", "Start another.")
            super().run(call)

    device = Dying()
    lab = Lab()
    lab.device = device
    lab.base.device = lab.int4.device = device

    def illegal(*args, **more):
        device.dead = True
        raise RuntimeError("an illegal memory access was encountered")

    lab.int4.run = illegal
    rows = []
    with pytest.raises(MeasurementError, match="The GPU failed"):
        for row in lab.run(request(), device=device).rows():
            rows.append(row)
    assert [r.status for r in rows[:2]] == [RowStatus.MEASURED] * 2
    assert [r.status for r in rows[2:]] == [RowStatus.FAILED] * 2


def test_rotated_copies_are_shared_by_batch_sizes_and_given_up_where_memory_is_short():
    def clones(memory):
        lab = Lab()
        lab.device.memory_bytes = memory
        made = []
        whole = lab.device.clone
        lab.device.clone = lambda operand: (made.append(operand.bytes), whole(operand))[1]
        rows = list(lab.run(request(tokens=(1, 4, 16))).rows())
        assert all(r.status is RowStatus.MEASURED for r in rows)
        return len(made)

    assert clones(6 << 30) > 1.5 * clones(128 << 30)


def test_progress_names_each_cell_and_counts_them():
    lab = Lab()
    list(lab.run(request(tokens=(1, 4))).rows())
    assert [(t.done, t.total) for t in lab.told] == [(0, 4), (1, 4), (2, 4), (3, 4)]
    assert lab.told[1].part == "bmm 128x1x128x512 w4a16_gk fake_w4"


def test_ranges_hold_the_launches_asked_for_and_no_warm_up():
    from contextlib import contextmanager

    lab = Lab(w8="wrong")
    inside = []

    @contextmanager
    def mark(name):
        before = lab.base.runs + lab.int4.runs
        yield
        inside.append((name, lab.base.runs + lab.int4.runs - before))

    run = lab.run(request(names=("bf16", "w4a16_gk", "w8a16_fp8")))
    named, failed = run.marked(mark, 3)
    assert inside == [(name, 3) for name in named]
    assert named[1] == "bmm.128x1x128x512.w4a16_gk.fake_w4"
    assert len(failed) == 1 and "frobenius" in failed[0]
    assert lab.base.runs == 4


def test_layout_is_passed_on_and_part_of_the_key():
    lab = Lab()
    rows = list(lab.run(request(layout=Layout.CONTIGUOUS)).rows())
    assert {case[2] for case in lab.operands.cases} == {Layout.CONTIGUOUS}
    assert len(list(lab.run(request(), known=rows).rows())) == 4


def test_weights_too_small_to_be_cold_fail_with_the_reason():
    tiny = TableRequest((Item(Workload(Op.BMM, 1, 1, 16, 16)),), formats("bf16"))
    rows = cells(Lab().run(tiny).rows())
    assert rows[1, "cublas_bf16", Regime.WARM].status is RowStatus.MEASURED
    assert "copies would be needed" in rows[1, "cublas_bf16", Regime.COLD].reason


def test_regimes_that_need_a_program_are_refused():
    with pytest.raises(UsageError, match="in_situ"):
        request(regimes=(Regime.IN_SITU,))


def test_both_products_of_every_model_with_latent_attention():
    items = mla_items("deepseek-v3", [1, 16], 8)
    shapes = [(i.workload.name, i.workload.shape_text, i.layers) for i in items]
    assert shapes == [
        ("q_absorb", "bmm 16x1x128x512", 61),
        ("q_absorb", "bmm 16x16x128x512", 61),
        ("v_up", "bmm 16x1x512x128", 61),
        ("v_up", "bmm 16x16x512x128", 61),
    ]
    assert mla_items("DeepSeek-V2-Lite", [1])[0].workload.heads == 16
    with pytest.raises(UsageError, match="no latent attention"):
        mla_items("llama-3.1-8b", [1])
    with pytest.raises(UsageError, match="cannot be split over 3"):
        mla_items("deepseek-v3", [1], 3)


def test_environment_of_a_row_is_that_of_its_measurement():
    rows = list(Lab().run(request()).rows())
    assert all(isinstance(r.environment, Environment) for r in rows)
    assert rows[0].machine[0] == "simulated GPU"


def test_a_format_that_nobody_can_is_a_row_with_the_reasons():
    rows = list(Lab().run(request(names=("bf16", "w4a16_g32"))).rows())
    refused = [row for row in rows if row.status is RowStatus.UNSUPPORTED]
    assert [row.regime for row in refused] == [Regime.WARM, Regime.COLD]
    assert {(row.format.name, row.implementation) for row in refused} == {("w4a16_g32", None)}
    assert "no implementation known here can; fake_w4: computes w4a16_gk" in refused[0].reason
    assert {row.format.name for row in rows if row.time_us is not None} == {"bf16"}


def test_names_of_formats_are_not_taken_for_formats():
    with pytest.raises(UsageError, match=r"NumberFormat\.parse\('bf16'\)"):
        TableRequest(sweep_items(1, 128, [64], [1]), ("bf16",))
