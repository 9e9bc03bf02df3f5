"""Step 5 through the public door: what ncu counts of the finalists, and what follows from it."""

from __future__ import annotations

import pytest
from api.test_comparing import fake_ncu, recipe
from optimizer.loop_samples import TARGET, family, recording, workload

from kernel_compass import api
from kernel_compass.codec import loop_recording
from kernel_compass.execution.recorded_executor import RecordedExecutor
from kernel_compass.optimizer.loop_budget import LoopBudget
from kernel_compass.optimizer.loop_tasks import TaskMaker
from kernel_compass.records.counters import DRAM_BYTES_READ, L2_SECTORS_READ
from kernel_compass.records.profile import Regime
from kernel_compass.records.trial import Outcome, Reason

WEIGHTS = 128 * 128 * 512


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Optimize on a recording whose counters are these; what became of the finalists."""
    monkeypatch.setenv("KERNEL_COMPASS_HOME", str(tmp_path / "home"))

    def optimize(counted):
        def answer(_self, arguments):
            return {"counted": [counted for _ in arguments["finals"]]}

        monkeypatch.setattr(RecordedExecutor, "_explain_task", answer)
        fast = family("fast", "w8a16_fp8", 10 / 1.6, 8 / 1.5)
        path = tmp_path / "r.json.gz"
        path.write_bytes(loop_recording.encode(recording(workload(1, fast))))
        found = api.optimize(api.study_request(TARGET, trials=40), f"recorded:{path}")
        return [t for t in found.recorded.trials if t.proposal.proposer == "finals"]

    return optimize


def counters(dram, l2_bytes):
    return {DRAM_BYTES_READ: dram, L2_SECTORS_READ: l2_bytes / 32}


def counted(dram_ratio, l2_bytes=1.02 * WEIGHTS):
    before = counters(2.0 * WEIGHTS, 2.0 * WEIGHTS)
    after = counters(dram_ratio * 2.0 * WEIGHTS, l2_bytes)
    return {"baseline": before, "candidate": after, "compulsory_bytes": WEIGHTS}


def test_a_counter_that_moved_as_predicted_explains_the_gain(run):
    (final,) = run(counted(0.51))
    assert (final.outcome, final.explained) == (Outcome.ACCEPTED, True)
    assert any("0.51 of the baseline's" in note for note in final.notes)
    assert "not for the predicted reason" not in final.detail


def test_the_bytes_of_both_regimes_are_said(run):
    warm = {"baseline": counters(1024.0, 2.0 * WEIGHTS), "candidate": counters(512.0, WEIGHTS)}
    (final,) = run({**counted(0.5), "warm": warm})
    said = [note for note in final.notes if "launch reads" in note]
    assert said == [
        "a cold launch reads 16.0 MiB -> 8.00 MiB from DRAM, 16.0 MiB -> 8.16 MiB from L2",
        "a warm launch reads 1.00 KiB -> 512 B from DRAM, 16.0 MiB -> 8.00 MiB from L2",
    ]


def test_a_gain_without_it_is_accepted_and_said_to_be_unexplained(run):
    (final,) = run(counted(0.97))
    assert (final.outcome, final.explained) == (Outcome.ACCEPTED, False)
    assert final.detail.startswith("faster, not for the predicted reason")


def test_who_reads_fewer_bytes_than_the_operands_have_is_rejected(run):
    finals = run(counted(0.1, l2_bytes=0.5 * WEIGHTS))
    assert finals
    assert {final.reason for final in finals} == {Reason.TOO_FEW_BYTES}


def test_without_counters_nothing_is_claimed(run):
    (final,) = run({"unavailable": "ERR_NVGPUCTRPERM"})
    assert (final.outcome, final.explained) == (Outcome.ACCEPTED, None)
    assert any("ERR_NVGPUCTRPERM" in note for note in final.notes)


@pytest.mark.parametrize("fitting", [0, 1])
def test_what_there_is_no_time_to_count_is_said_and_not_waited_for(run, monkeypatch, fitting):
    asked = []
    explain = TaskMaker.explain

    def seen(self, finals, regimes, left_s=None):
        asked.append((tuple(regimes), explain(self, finals, regimes, left_s).run_timeout_s))
        return explain(self, finals, regimes, left_s)

    monkeypatch.setattr(TaskMaker, "explain", seen)
    monkeypatch.setattr(LoopBudget, "counts", lambda *_: fitting)
    monkeypatch.setattr(LoopBudget, "left_s", 40.0)
    (final,) = run(counted(0.51))
    assert final.outcome is Outcome.ACCEPTED
    if fitting:
        assert asked == [((Regime.COLD,), 40.0)] and final.explained is True
    else:
        assert not asked and final.explained is None
        assert any("the minutes were over" in note for note in final.notes)


GRAPHS = """
done = subprocess.run(target, capture_output=True, text=True)
print(done.stdout)
print('"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"')
for number, (dram, sectors) in enumerate([(1, 2), (64, 4), (3, 5), (640, 8)]):
    print(f'"{number}","graph","dram__bytes_read.sum","byte","{dram}"')
    print(f'"{number}","graph","lts__t_sectors_srcunit_tex_op_read.sum","sector","{sectors}"')
"""


def test_several_recipes_are_watched_in_one_process(tmp_path, monkeypatch):
    fake_ncu(tmp_path, monkeypatch, GRAPHS)
    missing = api.Recipe("no_such_package.module:read")
    first, failed, second = api.watch([recipe(), missing, recipe(mib=32)], "simulated", l2=True)
    assert "no module" in failed
    launches = 64 / first.dram_bytes  # of a graph: sets that exceed L2 by far
    assert first.l2_bytes == pytest.approx(4 * 32 / launches)
    assert second.streamed_bytes == 2 * first.streamed_bytes
    assert second.l2_bytes / second.dram_bytes == pytest.approx(8 * 32 / 640)


def test_warm_launches_read_one_set_again_and_again(tmp_path, monkeypatch):
    fake_ncu(tmp_path, monkeypatch, GRAPHS)
    asked = [Regime.COLD, Regime.WARM]
    cold, warm = api.watch([recipe(), recipe()], "simulated", l2=True, regimes=asked)
    assert warm.streamed_bytes == cold.streamed_bytes
    assert (warm.dram_bytes, warm.l2_bytes) == (640 / 64, 8 * 32 / 64)
    assert cold.dram_bytes < 64 / 8  # of more launches than 8: sets that exceed L2 by far
