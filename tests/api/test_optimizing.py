"""The whole loop on a recording, through the public door."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from optimizer.loop_samples import (
    COLD,
    ENVIRONMENT,
    TARGET,
    WARM,
    everything,
    factor,
    family,
    recording,
    workload,
)

from kernel_compass import api
from kernel_compass.api import dispatch_sources, loop_entries
from kernel_compass.api.loop_place import Place
from kernel_compass.codec import loop_recording
from kernel_compass.codec.study_document import canonical
from kernel_compass.errors import MeasurementError, StudyError, UsageError
from kernel_compass.execution.recorded_executor import RecordedExecutor
from kernel_compass.optimizer.dispatch_file import read_table
from kernel_compass.optimizer.ledger import read_study
from kernel_compass.optimizer.ledger_memory import RejectionMemory, idea_key
from kernel_compass.records.execution import TaskEnd, TaskFailure
from kernel_compass.records.loop import LoopOptions, Stage, Why
from kernel_compass.records.problem import ProblemDescription, ProblemWorkload
from kernel_compass.records.study import StudyState
from kernel_compass.records.trial import Action, Candidate, Outcome, Proposal, Reason, Trial

__all__ = ["dispatch_sources"]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNEL_COMPASS_HOME", str(tmp_path / "home"))


@pytest.fixture
def run(tmp_path):
    """Optimize on a recording; keyword arguments of the request beside it."""

    def optimize(recorded=None, tell=lambda _: None, options=None, name="r", **asked):
        path = tmp_path / f"{name}.json.gz"
        path.write_bytes(loop_recording.encode(recorded or recording()))
        request = api.study_request(TARGET, **{"trials": 60, **asked})
        return api.optimize(request, f"recorded:{path}", tell, options)

    return optimize


def of(found, **fields):
    """Trials with these attributes of the candidate or the trial."""

    def fits(trial):
        c = trial.proposal.candidate
        return all(
            getattr(trial, key, None) == value or getattr(c, key, None) == value
            for key, value in fields.items()
        )

    return [trial for trial in found.recorded.trials if fits(trial)]


def test_the_best_of_what_was_recorded_is_accepted_for_each_workload(run):
    found = run()
    assert found.end.why is Why.TRIALS
    assert found.recorded.study.state is StudyState.FINISHED
    accepted = found.recorded.accepted
    assert {one.workload for one in accepted} == {"bmm 128x1x128x512", "bmm 128x16x128x256"}
    for trial in accepted:
        candidate = trial.proposal.candidate
        assert (candidate.implementation, candidate.format) == ("fast", "w8a16_fp8")
        assert factor(candidate.config) <= 1.03  # within 3 % of the best there is
        assert all(one.hold_out for one in trial.results)
    first = next(t for t in accepted if t.workload == "bmm 128x1x128x512")
    gains = {one.regime: one.speedup for one in first.results}
    assert gains[COLD].low < 1.6 < gains[COLD].high
    assert gains[WARM].low < 1.5 < gains[WARM].high


def test_each_accepted_trial_is_one_entry_that_says_where_it_won(run):
    found = run()
    entries = {one.pattern.text: one for one in found.recorded.entries}
    assert set(entries) == {"bmm 128xMx128x512, M = 1", "bmm 128xMx128x256, M = 16"}
    entry = entries["bmm 128xMx128x512, M = 1"]
    assert [win.regime for win in entry.wins] == [COLD, WARM]
    assert entry.gpu.name == "recorded GPU"
    assert entry.added_bytes == 1 << 20


def test_what_cannot_pay_is_said_once_and_never_tried(run):
    slow = of(run(), implementation="slow")
    assert [one.reason for one in slow] == [Reason.CANNOT_PAY, Reason.CANNOT_PAY]
    assert "the floor for 16.0 MiB is 13.3 us" in slow[0].detail
    assert not slow[0].results


def test_one_candidate_over_the_budget_speaks_for_its_format(run):
    coarse = of(run(), format="w4a16_gk")
    assert [one.reason for one in coarse] == [Reason.OVER_BUDGET] * 2  # one a workload


def test_an_implementation_that_crashes_is_blamed_and_left_and_nothing_else_is_touched(run):
    with_faults, without = (
        run(),
        run(
            recording(workload(1, [c for c in everything() if c.implementation != "crash"])),
            name="w",
        ),
    )
    crashed = of(with_faults, implementation="crash")
    assert 1 <= len(crashed) <= 2 * 3
    assert {(one.outcome, one.reason) for one in crashed} == {(Outcome.FAILED, Reason.CRASHED)}
    best = {t.workload: t.proposal.candidate for t in with_faults.recorded.accepted}
    alone = without.recorded.accepted[0]
    assert best[alone.workload] == alone.proposal.candidate


def test_trials_are_a_limit_and_finals_come_on_top(run):
    found = run(trials=10)
    tried = [t for t in found.recorded.trials if t.proposal.proposer != "finals"]
    assert sum(t.reason is not Reason.CANNOT_PAY for t in tried) == 10


def test_the_same_study_exports_to_the_same_bytes(run):
    assert canonical(run().recorded) == canonical(run().recorded)
    assert canonical(run(seed=1).recorded) != canonical(run().recorded)


def test_width_changes_what_is_asked_at_once_and_not_what_is_found(run):
    wide = run(options=LoopOptions(width=4), trials=120)
    best = {t.proposal.candidate.implementation for t in wide.recorded.accepted}
    assert best == {"fast"}


@pytest.mark.parametrize("strategy", ["exhaustive", "random"])
def test_other_strategies_find_it_where_there_are_trials_enough(run, strategy):
    found = run(
        recording(workload(1)), strategy=strategy, trials=400, options=LoopOptions(patience=400)
    )
    assert found.end.why is Why.FINISHED
    assert factor(found.recorded.accepted[0].proposal.candidate.config) == 1.0


def test_a_workload_at_its_floor_is_passed_over_with_its_reason(run):
    near = workload(1, family("even", "bf16", 9.9, 7.9, floors=1.0))
    near = replace(near, floors_us={COLD: 9.95, WARM: 7.95})
    found = run(recording(near, workload(16, columns=256)))
    passed = {one.workload: one.passed_over for one in found.end.selected}
    assert passed["bmm 128x1x128x512"] == "at_its_floor"
    assert passed["bmm 128x16x128x256"] is None
    assert not [t for t in found.recorded.trials if t.workload == near.workload.name and t.results]


def test_one_regime_lost_is_no_win(run):
    mixed = workload(1, family("mixed", "w8a16_fp8", 6.0, 9.0))
    found = run(recording(mixed))
    assert not found.recorded.accepted
    assert {one.reason for one in found.recorded.trials} == {Reason.NOT_FASTER}


def test_a_regime_that_was_not_asked_for_may_not_lose(run):
    mixed = workload(1, family("mixed", "w8a16_fp8", 6.0, 9.0))
    found = run(recording(mixed), regimes=("cold",))
    finals = of(found, reason=Reason.INFERIOR_ELSEWHERE)
    assert finals
    assert not found.recorded.accepted
    even = workload(1, family("mixed", "w8a16_fp8", 6.0, 7.99))
    accepted = run(recording(even), regimes=("cold",), name="even").recorded
    assert [w.regime for w in accepted.entries[0].wins] == [COLD]


def test_what_one_process_saw_and_fresh_ones_do_not_is_rejected(run):
    """Under the minimum effect by a hair, so that a screen's noise passes some."""
    hair = workload(1, family("hair", "w8a16_fp8", 10 / 1.0195, 8 / 1.0195))
    found = run(recording(hair, noise_pct=3.0), trials=36)
    screened = of(found, outcome=Outcome.SCREENED)
    assert screened  # noise did pass some
    finals = [t for t in found.recorded.trials if t.proposal.proposer == "finals"]
    assert {one.reason for one in finals} == {Reason.HOLD_OUT}


@pytest.mark.parametrize(("rounds", "finalists"), [(1, 1), (2, 1), (2, 3)])
def test_a_workload_is_wrongly_accepted_once_in_twenty_over_all_its_looks(run, rounds, finalists):
    near = workload(1, [*family("a", "w8a16_fp8", 6.0, 5.0), *family("b", "bf16", 6.05, 5.05)])
    options = LoopOptions(rounds=rounds, finalists=finalists, patience=100)
    found = run(recording(near), options=options)
    looked = [t for t in found.recorded.trials if t.proposal.proposer == "finals"]
    assert (len(looked) > 1) is (finalists > 1)
    levels = [one.speedup.confidence for t in looked for one in t.results]
    assert levels == pytest.approx([1 - 0.05 / (rounds * len(looked))] * len(levels))
    reasons = {t.reason for t in looked}
    assert reasons <= {None, Reason.OUTDONE}
    assert (Reason.OUTDONE in reasons) is (finalists > 1)


def test_proposals_say_why_and_what_they_predict(run):
    found = run()
    by = {t.proposal.proposer for t in found.recorded.trials}
    assert by == {"providers", "rules", "search", "finals"}
    for trial in found.recorded.trials:
        assert trial.proposal.why
    rules = [t.proposal for t in found.recorded.trials if t.proposal.proposer == "rules"]
    assert all(one.evidence for one in rules)
    named = {one.action for one in rules}
    assert named & {Action.TILE, Action.WARPS, Action.STAGES}
    predicted = [t.proposal.prediction for t in found.recorded.trials if t.results]
    assert all(one is not None and one.times_us for one in predicted)


def test_stopped_by_the_user_it_says_so_and_a_resumed_one_ends_as_if_it_had_not_been(run):
    whole = canonical(run().recorded)

    def stop(event):
        if event.trial is not None and event.trial.number == 20:
            raise KeyboardInterrupt

    found = run(tell=stop)
    assert found.end.why is Why.STOPPED
    assert found.exit_code == 130
    assert found.recorded.study.state is StudyState.STOPPED
    assert not found.recorded.accepted
    assert found.end.best  # what passed the screen is offered
    resumed = api.resume_study(found.folder.name)
    assert canonical(resumed.recorded) == whole
    assert not resumed.recorded.interruptions or not any(
        one.blamed for one in resumed.recorded.interruptions
    )


def test_a_finished_study_is_told_again_and_nothing_is_tried(run, monkeypatch):
    found = run()
    asked = []
    monkeypatch.setattr(RecordedExecutor, "submit", lambda self, task: asked.append(task))
    again = api.resume_study(found.folder.name)
    assert not asked
    assert canonical(again.recorded) == canonical(found.recorded)


def test_a_finalist_that_fails_in_the_hold_out_is_blamed_alone(run, monkeypatch):
    two = workload(
        1,
        [
            *family("fast", "w8a16_fp8", 6.0, 5.0),
            *family("near", "w8a16_int8", 6.05, 5.05),
        ],
    )
    answered = RecordedExecutor._end

    def end(self, task):
        names = {final["candidate"]["implementation"] for final in task.arguments.get("finals", ())}
        if "fast" in names:
            failure = TaskFailure(Reason.ILLEGAL_ACCESS, "an illegal memory access")
            return TaskEnd(task.identifier, None, failure, 0.1, "recorded/0")
        return answered(self, task)

    monkeypatch.setattr(RecordedExecutor, "_end", end)
    found = run(recording(two), options=LoopOptions(finalists=6, rounds=1))
    finals = {
        (t.proposal.candidate.implementation, t.outcome)
        for t in found.recorded.trials
        if t.proposal.proposer == "finals"
    }
    assert ("fast", Outcome.FAILED) in finals
    assert ("near", Outcome.ACCEPTED) in finals


def test_a_baseline_that_cannot_be_timed_ends_the_run_with_its_reason(run, monkeypatch):
    def end(self, task):
        failure = TaskFailure(Reason.RAISED, "no kernel image")
        return TaskEnd(task.identifier, None, failure, 0.1, "recorded/0")

    monkeypatch.setattr(RecordedExecutor, "_end", end)
    with pytest.raises(MeasurementError, match="no kernel image"):
        run()


def test_another_recording_cannot_go_on_with_a_study(run, tmp_path):
    found = run()
    (tmp_path / "r.json.gz").write_bytes(loop_recording.encode(recording(noise_pct=1.0)))
    with pytest.raises(StudyError, match="not the recording"):
        api.resume_study(found.folder.name)


def test_every_stage_says_how_far_the_run_is(run):
    events = []
    found = run(tell=events.append, trials=20, minutes=60)
    names = {one.workload for one in found.recorded.accepted}
    late = [e for e in events if e.stage in (Stage.FINALS, Stage.ENDED)]
    assert {e.stage for e in late} == {Stage.FINALS, Stage.ENDED}
    for event in late:
        assert (event.done, event.planned) == (20, 20)
        assert event.left_s is not None and event.left_s > 0
        assert set(event.best) == names
    assert {one.outcome for one in late[0].best.values()} == {Outcome.SCREENED}
    assert dict(late[-1].best) == {one.workload: one for one in found.recorded.accepted}
    dones = [event.done for event in events]
    assert dones == sorted(dones)


def test_accepted_entries_go_into_a_table_and_out_again(run, tmp_path):
    found, table = run(), tmp_path / "compass.json"
    name = found.recorded.study.identifier
    applied = api.apply_study("last", table)
    assert applied.study == name
    assert len(applied.entries) == len(read_table(table).entries) == 2
    once = table.read_bytes()
    assert api.apply_study(str(found.folder), table).table == read_table(table)
    assert table.read_bytes() == once
    api.revert_study(name, table)
    assert not table.exists()


def test_minutes_leave_room_for_the_hold_out(run, monkeypatch):
    """Each look at the clock costs a second: the minutes end long before the trials do."""
    now = iter(range(100_000))
    monkeypatch.setattr("kernel_compass.api.optimizing.time.monotonic", lambda: float(next(now)))
    found = run(minutes=2.0, trials=None)
    assert found.end.why is Why.MINUTES
    assert [t for t in found.recorded.trials if t.proposal.proposer == "finals"]
    again = api.resume_study(found.folder.name)  # does not screen on, as the hold-out was made
    assert canonical(again.recorded) == canonical(found.recorded)


def test_recordings_are_the_same_bytes_and_what_is_none_is_refused(tmp_path):
    data = loop_recording.encode(recording())
    assert loop_recording.decode(data) == recording()
    assert loop_recording.encode(loop_recording.decode(data)) == data
    for wrong in (b"", b"{}", data[:100], b"\x1f\x8b" + b"x" * 40):
        with pytest.raises(StudyError):
            loop_recording.decode(wrong)
    twice = loop_recording.encode(recording(workload(1), workload(1)))
    with pytest.raises(StudyError, match="a workload twice"):
        loop_recording.decode(twice)
    fast = loop_recording.encode(recording(workload(1, cold_us=1e-300)))
    with pytest.raises(StudyError, match=r"a time under 0\.001 us"):
        loop_recording.decode(fast)
    document = json.dumps({"schema": loop_recording.SCHEMA, "target": "x", "workloads": []})
    with pytest.raises(StudyError):
        loop_recording.decode(document.encode())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"strategy": "best"}, "no strategy"),
        ({"regimes": ("hot",)}, "no regime"),
        ({"formats": ("w3",)}, "not a number format"),
        ({"minutes": -1.0}, "cannot be spent"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(words, said):
    with pytest.raises(UsageError, match=said):
        api.study_request(TARGET, **words)


@pytest.mark.parametrize("target", ["bmm:1x2", "linear:0x1x2", "mla:gpt-2", "x"])
def test_a_target_that_names_nothing_is_refused(target):
    with pytest.raises(UsageError):
        api.optimize(api.study_request(target), "simulated")


def test_a_device_that_is_none_is_refused():
    with pytest.raises(UsageError, match="is no device"):
        api.optimize(api.study_request("bmm:1x1x16x16"), "tpu")


def test_the_ledger_says_what_was_measured_of_the_baseline(run):
    found = run()
    tells = {(t.stream, t.index): t.time_us for t in read_study(found.folder).tells}
    assert tells["baseline bmm 128x1x128x512 cold", 0] == 10.0
    assert tells["baseline bmm 128x1x128x512 cold", 1] == 6.0


def idea_of(request, candidate, budget_pct=3.0, environment=ENVIRONMENT):
    """What is looked up of a candidate of a study."""
    described = ProblemDescription("problem", (), (), budget_pct)
    place = Place(RecordedExecutor(recording()), "cuda:0", environment, described, None)
    workload = ProblemWorkload("rows=33", {"rows": 33})
    return loop_entries.idea_of(place, request, workload, candidate)


def test_a_rejection_is_not_remembered_of_another_file_with_the_same_name(tmp_path):
    """Someone changes a kernel and runs the file again: it is another idea."""
    found = {}
    for folder, text in (("a", "x = 1"), ("b", "x = 2"), ("c", "x = 1")):
        path = tmp_path / folder / "problem.py"
        path.parent.mkdir()
        path.write_text(text)
        request = api.study_request(str(path))
        found[folder] = idea_of(request, Candidate("mine", {}, None, "problem"))
    memory = RejectionMemory()
    proposal = Proposal(found["a"].candidate, Action.IMPLEMENTATION, "why", "providers")
    rejected = Trial(1, "rows=33", proposal, Outcome.REJECTED, Reason.WRONG_RESULT, "off")
    memory.remember(found["a"], rejected, "first")
    assert memory.recall(found["b"]) is None
    assert memory.recall(found["c"]).reason is Reason.WRONG_RESULT  # the same file, moved


def test_another_demand_or_library_is_another_idea(monkeypatch):
    own = Candidate("own_decode", {}, "w8a16_fp8", "own")
    request = api.study_request("bmm:1x1x16x16", budget_pct=3.0)
    least = replace(request, options={"minimum_effect": 0.05})
    ideas = [
        idea_of(request, own),
        idea_of(replace(request, error_budget_pct=9.0), own),
        idea_of(replace(request, error_budget_pct=None), own, budget_pct=5.0),
        idea_of(least, own),
        idea_of(request, own, environment=replace(ENVIRONMENT, triton="3.7.0")),
    ]
    assert len({idea_key(one) for one in ideas}) == len(ideas)
    same = replace(request, error_budget_pct=None)  # the problem's own is what was asked for
    assert idea_key(idea_of(same, own, budget_pct=3.0)) == idea_key(ideas[0])
    installed = {"gemlite": "0.5.0"}
    monkeypatch.setattr("kernel_compass.kernels.providers.base.installed", installed.get)
    name = next(
        one.name
        for p in loop_entries.all_providers()
        if p.name == "gemlite"
        for one in p.implementations()
    )
    before = idea_of(request, Candidate(name, {}, "w8a16_fp8", "gemlite"))
    installed["gemlite"] = "0.5.1"
    after = idea_of(request, Candidate(name, {}, "w8a16_fp8", "gemlite"))
    assert (before.versions["library"], after.versions["library"]) == ("0.5.0", "0.5.1")
    assert idea_key(before) != idea_key(after)
