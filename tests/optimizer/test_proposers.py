"""Proposers by themselves: what they propose, why, and what they are told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from optimizer.loop_samples import COLD, WARM, recording

from kernel_compass.api.loop_recordings import recorded_problem, recorded_spaces
from kernel_compass.optimizer.left_out import left_out
from kernel_compass.optimizer.paying import objection
from kernel_compass.optimizer.proposers.findings import Finding, Findings
from kernel_compass.optimizer.proposers.providers import Providers
from kernel_compass.optimizer.proposers.rule_table import RULES
from kernel_compass.optimizer.proposers.rules import Rules
from kernel_compass.optimizer.proposers.search import Search
from kernel_compass.records.comparison import Interval
from kernel_compass.records.loop import Baseline, LoopOptions, RegimeTime
from kernel_compass.records.search_space import CandidateSpace
from kernel_compass.records.trial import (
    Action,
    Candidate,
    Outcome,
    Proposal,
    Reason,
    RegimeResult,
    Trial,
)

RECORDING = recording()
PROBLEM = recorded_problem(RECORDING)
WORKLOAD = PROBLEM.workloads[0]
NAME = WORKLOAD.name
SPACES = {
    name: tuple(
        replace(one, weight_bytes=16 << 20 if "16" in one.format[:4] else 8 << 20) for one in s
    )
    for name, s in recorded_spaces(RECORDING).items()
}
BASELINE = Baseline(NAME, (RegimeTime(COLD, 10.0, 6.0), RegimeTime(WARM, 8.0, 4.8)))
BASELINES = {NAME: BASELINE}
BYTES = {NAME: 16 << 20}
REGIMES = (COLD, WARM)


def trial(number, candidate, gain=1.2, reason=None, timed=True):
    results = tuple(
        RegimeResult(r, t, t / gain, Interval(gain, gain * 0.99, gain * 1.01, 0.95), False)
        for r, t in BASELINE.times_us.items()
    )
    outcome = Outcome.SCREENED if reason is None else Outcome.REJECTED
    proposal = Proposal(candidate, Action.CONFIG, "why", "search")
    return Trial(number, NAME, proposal, outcome, reason, "", results if timed else ())


def ask(proposer, *tried):
    return proposer.propose(PROBLEM, WORKLOAD, REGIMES, tried)


def space(name, number_format="bf16"):
    return next(s for s in SPACES[NAME] if (s.implementation, s.format) == (name, number_format))


def fast(**config):
    default = dict(space("fast", "w8a16_fp8").configs[0])
    return Candidate("fast", {**default, **config}, "w8a16_fp8", "own")


def test_providers_propose_every_default_once_with_what_it_rests_on():
    proposer = Providers(SPACES, BASELINES, BYTES)
    found = ask(proposer)
    assert [p.candidate.implementation for p in found] == [s.implementation for s in SPACES[NAME]]
    assert all(p.candidate.config == s.configs[0] for p, s in zip(found, SPACES[NAME], strict=True))
    precise = next(p for p in found if p.candidate.format == "w8a16_int8")
    assert precise.action is Action.PRECISION
    assert "at most" in " ".join(precise.evidence)
    assert set(precise.prediction.times_us) == set(REGIMES)
    assert ask(proposer) == ()


def test_fewer_bytes_are_expected_to_move_a_counter():
    found = ask(Providers(SPACES, BASELINES, BYTES))
    less = next(p for p in found if p.candidate.format == "w8a8_fp8")
    (movement,) = less.prediction.counters
    assert (movement.metric, movement.expected) == ("dram__bytes_read.sum", 0.5)
    same = next(p for p in found if p.candidate.format == "bf16")
    assert same.prediction.counters == ()


def test_rules_need_something_to_start_from():
    assert ask(Rules(SPACES, BASELINES, BYTES)) == ()


def test_far_from_its_floor_it_counts_as_latency_bound_and_steps_change_one_thing_alone():
    start = fast(BLOCK_N=64, num_warps=4, num_stages=1)
    found = ask(Rules(SPACES, BASELINES, BYTES), trial(7, start, gain=1.2))
    assert found
    for one in found:
        assert "latency_bound" in " ".join(one.evidence)
        assert "from trial 7" in one.evidence
        if one.candidate.implementation == "fast":
            changed = {k for k, v in one.candidate.config.items() if start.config[k] != v}
            assert len(changed) == 1
    by = {p.action: p.candidate.config for p in found if p.candidate.implementation == "fast"}
    assert by[Action.STAGES]["num_stages"] == 2  # the nearest, upwards
    assert by[Action.WARPS]["num_warps"] == 8
    assert by[Action.TILE]["BLOCK_N"] == 32  # smaller tiles make more programs


def test_a_diagnosis_decides_where_there_is_one():
    start = fast(BLOCK_N=64, num_warps=4, num_stages=2)
    found_by = Finding("compute_bound", ("tensor_cores_idle",), ("tensor pipe 82 %",))
    findings = Findings({NAME: found_by}, {NAME: Finding("dram_bound", (), ("DRAM 88 %",))})
    found = ask(Rules(SPACES, BASELINES, BYTES, findings), trial(1, start))
    tiles = [p for p in found if p.action is Action.TILE]
    assert [p.candidate.config["BLOCK_N"] for p in tiles] == [128]  # larger, not smaller
    assert "tensor pipe 82 %" in tiles[0].evidence
    assert "the baseline is dram_bound (DRAM 88 %)" in tiles[0].evidence


def test_a_diagnosis_of_another_family_says_nothing_of_this_one():
    start = fast(BLOCK_N=64, num_warps=4, num_stages=2)
    findings = Findings({NAME: Finding("compute_bound", family="even bf16")})
    found = ask(Rules(SPACES, BASELINES, BYTES, findings), trial(1, start, gain=1.2))
    assert found
    assert all("latency_bound" in " ".join(one.evidence) for one in found)


def test_bytes_that_bound_it_lead_to_a_format_with_fewer():
    start = Candidate("even", dict(space("even").configs[0]), "bf16", "own")
    findings = Findings({NAME: Finding("dram_bound", (), ("DRAM 88 %",))})
    found = ask(Rules(SPACES, BASELINES, BYTES, findings), trial(1, start))
    formats = {p.candidate.format for p in found if p.action is Action.PRECISION}
    assert formats == {"w8a16_fp8", "w8a16_int8", "w8a8_fp8", "w8a8_int8", "w4a16_gk"}


@pytest.mark.parametrize("rule", RULES, ids=lambda r: f"{r.action}-{r.direction.value}")
def test_every_rule_is_against_something_and_says_why(rule):
    assert rule.limiters or rule.flags
    assert rule.why
    assert rule.dimensions or rule.action in (Action.PRECISION, Action.IMPLEMENTATION)


def test_search_asks_one_at_a_time_and_learns_what_others_tried():
    proposer = Search(SPACES, BASELINES, BYTES, "model", 0)
    (first,) = ask(proposer)
    assert not ask(proposer)  # the first still waits
    (second,) = ask(proposer, trial(1, first.candidate))
    assert second.candidate != first.candidate
    tell = proposer.tell_of(WORKLOAD, trial(1, first.candidate, gain=2.0))
    assert tell.stream == f"model {NAME}"
    assert tell.time_us == pytest.approx((10 * 8) ** 0.5 / 2)
    assert proposer.tell_of(WORKLOAD, trial(1, Candidate("other", {}))) is None


def test_equal_configurations_of_two_formats_are_two_points():
    configs = ({"BLOCK_N": 16}, {"BLOCK_N": 32})
    two = {NAME: [CandidateSpace("k", configs, "bf16"), CandidateSpace("k", configs, "w8a16_fp8")]}
    proposer = Search(two, BASELINES, BYTES, "exhaustive", 0)
    tried = []
    while found := ask(proposer, *tried):
        tried.append(trial(len(tried) + 1, found[0].candidate))
    seen = {(t.proposal.candidate.format, t.proposal.candidate.config["BLOCK_N"]) for t in tried}
    assert seen == {(f, b) for f in ("bf16", "w8a16_fp8") for b in (16, 32)}


def test_what_is_over_the_budget_leaves_the_space():
    proposer = Search(SPACES, BASELINES, BYTES, "exhaustive", 0)
    over = trial(1, fast(), reason=Reason.OVER_BUDGET, timed=False)
    tried = [over]
    for number in range(2, 80):
        found = ask(proposer, *tried)
        assert found
        assert found[0].candidate.format != "w8a16_fp8"
        tried.append(trial(number, found[0].candidate, reason=Reason.NOT_FASTER))


def test_broken_is_who_fails_three_times_and_was_never_timed():
    fails = [
        trial(i, fast(num_stages=i), reason=Reason.WRONG_RESULT, timed=False) for i in (1, 2, 3)
    ]
    assert not left_out(fails[:2]).has(fast())
    assert left_out(fails).has(fast())
    assert not left_out([*fails, trial(4, fast())]).has(fast())
    unbuilt = [
        trial(i, fast(num_stages=i), reason=Reason.BUILD_FAILED, timed=False) for i in (1, 2, 3)
    ]
    assert not left_out(unbuilt).has(fast())  # of that configuration alone


@pytest.mark.parametrize(
    ("floors", "guide", "reason"),
    [
        ({COLD: 5.0, WARM: 4.0}, 0.2, None),
        ({COLD: 9.9, WARM: 4.0}, 0.2, Reason.CANNOT_PAY),
        ({COLD: 5.0, WARM: 7.9}, 0.2, Reason.CANNOT_PAY),
        ({WARM: 4.0}, None, None),  # nothing known of cold: it may pay
        ({}, 4.4, None),  # a guide is none beyond doubt
        ({}, 4.6, Reason.OVER_BUDGET),
    ],
)
def test_a_space_is_left_out_where_its_floor_or_format_says_so(floors, guide, reason):
    one = CandidateSpace("k", ({},), "f", floors_us=floors, error_guide_pct=guide)
    found = objection(one, BASELINE, 3.0, LoopOptions())
    assert (found and found[0]) == reason
