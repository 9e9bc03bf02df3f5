"""What the loop asks tools for beside its screens: compilers, counters, compute-sanitizer.

Their answers are staged on a recording; that the tools give such answers is tested by themselves.
"""

from __future__ import annotations

import csv
import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from optimizer.loop_samples import TARGET, family, recording, workload

from kernel_compass import api, profiling
from kernel_compass.api import loop_compiling, loop_diagnosing
from kernel_compass.codec import loop_recording
from kernel_compass.codec.canonical import plain
from kernel_compass.codec.study_document import canonical
from kernel_compass.errors import (
    MissingDependency,
    ProfilingCause,
    ProfilingError,
    UsageError,
)
from kernel_compass.execution.recorded_executor import RecordedExecutor
from kernel_compass.optimizer.ledger_memory import RejectionMemory
from kernel_compass.optimizer.loop_sanitizing import sanitized
from kernel_compass.records.dispatch import GpuModel
from kernel_compass.records.execution import TaskEnd, TaskFailure
from kernel_compass.records.loop import LoopOptions, Stage
from kernel_compass.records.problem import ProblemWorkload
from kernel_compass.records.profile import Profile, Regime, Source, SourceFormat
from kernel_compass.records.rejected import Idea
from kernel_compass.records.study import StudyState
from kernel_compass.records.trial import Action, Candidate, Outcome, Proposal, Reason, Trial
from kernel_compass.records.workload import Op, Workload

GOOD = {"registers": 64.0, "threads": 128.0, "shared_bytes": 4096.0, "loop_spills": 0.0}
STATIC = LoopOptions(static=6)
COUNTED = LoopOptions(counters_share=0.1)
SANITIZED = LoopOptions(sanitize=True)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNEL_COMPASS_HOME", str(tmp_path / "home"))


@pytest.fixture
def stage(monkeypatch):
    """Let a recording answer a task; the list of what it was asked."""

    def staged(name, answer):
        asked = []

        def answered(_self, arguments):
            asked.append(arguments)
            return answer(arguments)

        monkeypatch.setattr(RecordedExecutor, f"_{name}_task", answered, raising=False)
        return asked

    return staged


@pytest.fixture
def run(tmp_path):
    def optimize(options, recorded=None, events=None, tell=None, **asked):
        path = tmp_path / "r.json.gz"
        path.write_bytes(loop_recording.encode(recorded or recording()))
        request = api.study_request(TARGET, **{"trials": 40, **asked})
        told = tell or (events.append if events is not None else lambda _: None)
        return api.optimize(request, f"recorded:{path}", told, options)

    return optimize


def compiled(config):
    """Two stages spill, 8 warps do not fit, and of BLOCK 32 it is not known."""
    if config["BLOCK_N"] == 32:
        return {"figures": None, "failure": "no end after 9 s", "lost": True}
    if config["num_stages"] == 2:
        return {"figures": {**GOOD, "loop_spills": 40.0}, "failure": None, "lost": False}
    if config["num_warps"] == 8:
        return {"figures": {**GOOD, "shared_bytes": 1e6}, "failure": None, "lost": False}
    return {"figures": GOOD, "failure": None, "lost": False}


def answered(arguments):
    rows = [[compiled(config) for config in one["configs"]] for one in arguments["spaces"]]
    return {"capability": [9, 0], "compiled": rows, "wall_s": 1.0}


def static_trials(found):
    return [t for t in found.recorded.trials if t.proposal.proposer == "static"]


def test_what_a_compilation_rules_out_is_recorded_with_its_reason_and_never_run(stage, run):
    asked, events = stage("compile", answered), []
    found = run(STATIC, events=events)
    assert len(asked) == 1  # all workloads and spaces in one task
    configs = [config for one in asked[0]["spaces"] for config in one["configs"]]
    assert all(len(one["configs"]) <= STATIC.static for one in asked[0]["spaces"])
    assert {"slow"}.isdisjoint(one["implementation"] for one in asked[0]["spaces"])  # cannot pay
    dropped = static_trials(found)
    assert {t.reason for t in dropped} == {Reason.REGISTER_SPILLS, Reason.DOES_NOT_FIT}
    assert all(t.outcome is Outcome.REJECTED and t.detail for t in dropped)
    assert len(dropped) < len(configs)
    gone = {(t.workload, str(t.proposal.candidate)) for t in dropped}
    others = [t for t in found.recorded.trials if t.proposal.proposer != "static"]
    assert gone.isdisjoint((t.workload, str(t.proposal.candidate)) for t in others)
    lines = [e.text for e in events if e.stage is Stage.STATIC and e.trial is None]
    assert any("compiling" in line and "none is run" in line for line in lines)
    assert any("register_spills" in line for line in lines)
    stages = [e.stage for e in events]
    assert stages.index(Stage.STATIC) < stages.index(Stage.SCREEN)


def test_the_default_of_a_space_is_tried_whatever_the_compiler_says(stage, run):
    bad = {"figures": {**GOOD, "loop_spills": 99.0}, "failure": None, "lost": False}
    rows = stage("compile", lambda a: {**answered(a), "compiled": _all(a, bad)})
    found = run(STATIC)
    assert rows
    tried = [t for t in found.recorded.trials if t.proposal.proposer not in ("static", "finals")]
    assert {t.proposal.candidate.implementation for t in tried} >= {"fast", "good", "even"}


def _all(arguments, answer):
    return [[answer for _ in one["configs"]] for one in arguments["spaces"]]


@pytest.mark.parametrize(
    "failure", ["RuntimeError: Cannot copy out of meta tensor", "no end after 90 s"]
)
def test_what_fails_on_the_way_to_the_compiler_says_nothing(stage, run, failure):
    lost = {"figures": None, "failure": failure, "lost": failure.startswith("no end")}
    stage("compile", lambda a: {**answered(a), "compiled": _all(a, lost)})
    assert static_trials(run(STATIC)) == []


def test_what_does_not_compile_is_no_candidate(stage, run):
    error = {"figures": None, "failure": "CompilationError: at 3:1", "lost": False}
    good = {"figures": GOOD, "failure": None, "lost": False}

    def rows(a):
        return [[good, *[error for _ in one["configs"][1:]]] for one in a["spaces"]]

    stage("compile", lambda a: {**answered(a), "compiled": rows(a)})
    dropped = static_trials(run(STATIC))
    assert {t.reason for t in dropped} == {Reason.BUILD_FAILED}
    assert "at 3:1" in dropped[0].detail


@pytest.mark.parametrize("kernels", [{"unavailable": "no triton"}, None])
def test_without_a_compiler_the_search_goes_on_and_says_why(stage, run, kernels):
    none = {"capability": [9, 0], "wall_s": 0.0}
    stage("compile", lambda a: kernels or {**none, "compiled": [None] * len(a["spaces"])})
    events = []
    found = run(STATIC, events=events)
    assert found.recorded.accepted
    assert static_trials(found) == []
    if kernels:
        assert any("no triton" in e.text for e in events if e.stage is Stage.STATIC)


def test_a_few_seconds_compile_nothing(stage, run):
    asked, events = stage("compile", answered), []
    run(STATIC, events=events, minutes=0.5)
    assert not asked
    assert any("nothing is compiled" in e.text for e in events)


SAYS_NOTHING = {"unavailable": "no triton"}
LATER = [answered, lambda _: SAYS_NOTHING, lambda a: {**answered(a), "compiled": _all(a, SPILT)}]
SPILT = {"figures": {**GOOD, "loop_spills": 99.0}, "failure": None, "lost": False}


@pytest.mark.parametrize("first", [answered, lambda _: SAYS_NOTHING])
@pytest.mark.parametrize("later", LATER)
def test_a_resumed_run_asks_no_compiler_and_ends_alike(stage, run, first, later):
    """Whatever the compiler said, and would say now."""
    asked = stage("compile", first)
    whole = canonical(run(STATIC).recorded)

    def stop(event):
        if event.stage is Stage.SCREEN and event.trial is not None:
            raise KeyboardInterrupt

    stopped = run(STATIC, tell=stop)
    assert stopped.recorded.study.state is StudyState.STOPPED
    again = stage("compile", later)
    resumed = api.resume_study(stopped.folder.name)
    assert canonical(resumed.recorded) == whole
    assert (len(asked), again) == (2, [])


def test_broken_off_between_two_verdicts_of_the_compiler_it_ends_alike(stage, run):
    stage("compile", answered)
    whole = canonical(run(STATIC).recorded)
    seen = []

    def stop(event):
        if event.stage is Stage.STATIC and event.trial is not None:
            seen.append(event)
            if len(seen) == 3:
                raise KeyboardInterrupt

    stopped = run(STATIC, tell=stop)
    assert len(static_trials(stopped)) == 3
    again = stage("compile", lambda _: SAYS_NOTHING)
    assert canonical(api.resume_study(stopped.folder.name).recorded) == whole
    assert not again


def test_a_recording_compiles_and_counts_nothing_unasked(stage, run):
    asked = [stage(name, lambda _: {}) for name in ("compile", "diagnose", "sanitize")]
    found = run(None)
    assert asked == [[], [], []]
    kept = found.recorded.study.request.options
    assert kept["static"] == 0
    assert {"sanitize", "counters_share", "static_share"}.isdisjoint(kept)


def test_a_candidate_without_a_format_is_not_compiled(stage, run):
    asked = stage("compile", answered)
    found = run(STATIC, recording(workload(1, family("fast", None, 6.0, 5.0))))
    assert not asked
    assert found.recorded.accepted


def diagnosed(arguments):
    rows = [
        {"limiter": "dram_bound", "flags": [], "evidence": ["DRAM is busy (88 %)"]}
        if side["candidate"] is None
        else {"limiter": "compute_bound", "flags": ["tensor_cores_idle"], "evidence": ["x (1)"]}
        for side in arguments["sides"]
    ]
    return {"found": rows}


def test_rules_start_from_what_counters_say_of_the_best_so_far(stage, run):
    asked, events = stage("diagnose", diagnosed), []
    found = run(COUNTED, events=events, minutes=60, trials=60)
    (arguments,) = asked  # one process for all workloads
    assert [side["candidate"] is None for side in arguments["sides"]] == [True, False] * 2
    said = [e.text for e in events if e.stage is Stage.DIAGNOSE]
    words = f"the baseline is dram_bound ({arguments['regime']}, by counters: DRAM is busy (88 %))"
    assert sum(words in one for one in said) == 2
    rules = [t.proposal for t in found.recorded.trials if t.proposal.proposer == "rules"]
    by_counters = [p for p in rules if "so it counts as compute_bound" in p.evidence]
    assert by_counters
    assert any("the baseline is dram_bound" in one for one in by_counters[0].evidence)


def test_without_counters_the_floor_speaks(stage, run):
    stage("diagnose", lambda _: {"unavailable": "ERR_NVGPUCTRPERM"})
    events = []
    found = run(COUNTED, events=events)
    plain_run = run(LoopOptions())
    assert any("ERR_NVGPUCTRPERM" in e.text for e in events if e.stage is Stage.DIAGNOSE)
    proposals = [[t.proposal for t in one.recorded.trials] for one in (found, plain_run)]
    assert proposals[0] == proposals[1]


def test_a_side_that_could_not_be_counted_leaves_the_others(stage, run):
    def one_lost(arguments):
        found = diagnosed(arguments)["found"]
        return {"found": [{"unavailable": "ncu saw no launch of it"}, *found[1:]]}

    stage("diagnose", one_lost)
    events = []
    run(COUNTED, events=events)
    said = [e.text for e in events if e.stage is Stage.DIAGNOSE]
    assert sum("ncu saw no launch of it" in s for s in said) == 1
    assert sum("is compute_bound" in s for s in said) == 2


def test_counting_gets_no_more_than_its_share(stage, run):
    asked, events = stage("diagnose", diagnosed), []
    run(COUNTED, events=events, minutes=2.5)  # 15 s: room for one workload
    assert [len(one["sides"]) for one in asked] == [2]
    assert asked[0]["timeout_s"] <= 15
    asked.clear()
    run(COUNTED, events=events, minutes=1.5)
    assert not asked
    assert any("9 s would be all there is" in e.text for e in events)


def test_a_resumed_run_has_the_diagnosis_of_the_first(stage, run):
    asked = stage("diagnose", diagnosed)
    whole = canonical(run(COUNTED).recorded)
    seen = []

    def stop(event):
        seen.append(event)
        after = any(e.stage is Stage.DIAGNOSE for e in seen)
        if after and event.stage is Stage.SCREEN and event.trial is not None:
            raise KeyboardInterrupt

    stopped = run(COUNTED, tell=stop)
    before = len(asked)
    assert canonical(api.resume_study(stopped.folder.name).recorded) == whole
    assert len(asked) == before


def report(tool="memcheck", **fields):
    clean = {"tool": tool, "errors": 0, "findings": [], "application_failed": False}
    return {**clean, "is_clean": True, **fields}


CLEAN = {"reports": [report(), report("racecheck")]}


def finals(found):
    return [t for t in found.recorded.trials if t.proposal.proposer == "finals"]


def test_a_finalist_that_the_sanitizer_finds_fault_with_is_rejected(stage, run):
    bad = report(errors=1, findings=["Invalid __global__ read of size 2; at k()"], is_clean=False)
    asked = stage("sanitize", lambda _: {"reports": [bad, report("racecheck")]})
    found = run(SANITIZED)
    assert asked
    assert not found.recorded.accepted
    assert {(t.outcome, t.reason) for t in finals(found)} == {(Outcome.REJECTED, Reason.SANITIZER)}
    assert "memcheck: Invalid __global__ read" in finals(found)[0].detail


def test_only_judged_finalists_are_looked_at_and_clean_ones_go_on(stage, run):
    asked = stage("sanitize", lambda _: CLEAN)
    found = run(SANITIZED)
    assert len(asked) == len(finals(found)) == len(found.recorded.accepted) == 2
    assert any("memcheck and racecheck found nothing" in n for n in finals(found)[0].notes)


def test_a_sanitizer_that_does_not_come_to_its_end_accepts_nothing(stage, run):
    stage("sanitize", lambda _: {"unavailable": "memcheck did not end within 300 s."})
    found = run(SANITIZED)
    assert not found.recorded.accepted
    ends = {(t.outcome, t.reason) for t in finals(found)}
    assert ends == {(Outcome.FAILED, Reason.TOOL_FAILED)}


@pytest.mark.parametrize(
    ("answer", "is_kept"),
    [
        ({"unavailable": "memcheck did not end within 300 s."}, False),
        (None, False),
        ({"reports": [{"tool": "memcheck", "findings": ["race"], "is_clean": False}]}, True),
    ],
)
def test_only_what_the_sanitizer_found_is_remembered(answer, is_kept):
    candidate = Candidate("fast", {}, "w8a16_fp8")
    idea = Idea(candidate, "w", GpuModel("H200", "9.0", 132), (Regime.COLD,), {})
    proposal = Proposal(candidate, Action.CONFIG, "why", "finals")
    judged = Trial(1, "w", proposal, Outcome.SCREENED, None, "nothing was found")
    failure = None if answer else TaskFailure(Reason.RUN_TIMEOUT, "It ran too long.")
    found = sanitized(judged, TaskEnd("sanitize 1", answer, failure, 1.0, "local/0"))
    assert found.outcome is not Outcome.SCREENED
    memory = RejectionMemory()
    assert memory.remember(idea, found, "first") is is_kept
    assert (memory.recall(idea) is not None) is is_kept


def test_options_of_a_device(monkeypatch):
    on_gpu = api.loop_options("cuda:0")
    assert on_gpu.static > 0 < on_gpu.counters_share
    assert not on_gpu.sanitize
    assert api.loop_options("cuda", static=0).static == 0
    assert api.loop_options("simulated") == api.loop_options("recorded:x") == LoopOptions()
    with pytest.raises(UsageError, match="compiles nothing"):
        api.loop_options("recorded:x", static=4)
    for device in ("simulated", "recorded:x"):
        with pytest.raises(UsageError, match="a GPU's memory"):
            api.loop_options(device, sanitize=True)
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with pytest.raises(MissingDependency, match="compute-sanitizer"):
        api.loop_options("cuda", sanitize=True)


# the tools' own side

CAPTURE = Path(profiling.__file__).parent / "captures/h200/two_bmms/two_bmms_cold.csv"


@pytest.fixture
def marked(tmp_path):
    """A capture of two sides, one kernel each, and a third that launched nothing."""
    with CAPTURE.open(newline="") as file:
        header, units, *rows = list(csv.reader(file))
    marker = list(rows[0])
    marker[header.index("Kernel Name")] = "at::cuda::<unnamed>::spin_kernel(long)"
    path = tmp_path / "marked.csv"
    with path.open("w", newline="") as file:
        table = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        table.writerows([header, units, rows[0], marker, rows[1], marker, marker])
    return path


def diagnose_arguments(count):
    product = ProblemWorkload("w", {"tokens": 1}, Workload(Op.BMM, 2, 1, 64, 32))
    return {
        "source": {"target": "bmm:2x1x64x32", "arguments": {}, "sha256": None},
        "sides": [{"workload": plain(product), "candidate": None}] * count,
        "regime": "cold",
        "timeout_s": 20.0,
        "calibration": "h200",
        "device": "cuda:0",
    }


def test_a_capture_is_cut_at_its_markers_and_each_side_diagnosed(marked, monkeypatch):
    requests = []

    def profiled(request, target_stdout=None):
        requests.append(request)
        told = json.loads(request.command[-1])["told"]
        Path(told).write_text(json.dumps([None, None, "ValueError: it will not do"]))
        source = Source(str(marked), SourceFormat.NCU_RUN, Regime.COLD)
        return (Profile(source, (), None),)

    monkeypatch.setattr(loop_diagnosing, "run_profile", profiled)
    found = loop_diagnosing.diagnose_task(diagnose_arguments(4), lambda _: None)["found"]
    assert [one.get("limiter") for one in found] == ["latency_bound", "dram_bound", None, None]
    assert "low_occupancy" in found[0]["flags"]
    assert any("DRAM" in text for text in found[1]["evidence"])
    assert found[2]["unavailable"] == "ValueError: it will not do"
    assert "in time" in found[3]["unavailable"]
    (request,) = requests
    assert request.regimes == (Regime.COLD,)
    assert request.nvtx == f"{loop_diagnosing.RANGE}/"


def test_what_is_no_table_is_said_to_be_none(tmp_path):
    path = tmp_path / "none.csv"
    for text in ("", "==WARNING== a, b\n", '"ID","Kernel Name"\n'):
        path.write_text(text)
        with pytest.raises(ValueError, match="no header"):
            loop_diagnosing.sides_of(path, 1)


def test_without_ncu_it_says_so(monkeypatch):
    def missing(*_args, **_named):
        raise ProfilingError(ProfilingCause.NCU_FAILED, "ncu is not here.", "Install it.")

    monkeypatch.setattr(loop_diagnosing, "run_profile", missing)
    found = loop_diagnosing.diagnose_task(diagnose_arguments(1), lambda _: None)
    assert found == {"unavailable": "ncu is not here."}


@pytest.mark.skipif(
    not (find_spec("torch") and find_spec("triton")), reason="compiling needs torch and triton"
)
def test_heads_are_compiled_in_a_program_that_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    product = ProblemWorkload("w", {"tokens": 16}, Workload(Op.BMM, 4, 16, 128, 512))
    own = loop_compiling.implementation("own_decode")
    target = loop_compiling.target_named("simulated")
    number_format = loop_compiling.NumberFormat.parse("w8a16_fp8")
    configs = [dict(c) for c in own.space(product.product, number_format, target)[:2]]
    row = {"workload": plain(product), "format": "w8a16_fp8", "configs": configs}
    spaces = [{**row, "implementation": name} for name in ("own_decode", "torch_compile_bf16")]
    arguments = {"spaces": spaces, "budget_s": 120.0, "timeout_s": 90.0, "device": "simulated"}
    found = loop_compiling.compile_task(arguments, lambda _: None)
    assert found["capability"] == [9, 0]
    mine, others = found["compiled"]
    assert others is None
    assert [one["figures"]["threads"] > 0 for one in mine] == [True, True]
    assert len(list((tmp_path / "cache").rglob("*.json"))) == 2
    again = {**arguments, "budget_s": 0.0}  # what is remembered takes no time
    assert loop_compiling.compile_task(again, lambda _: None)["compiled"] == found["compiled"]
    other = {**again, "spaces": [{**spaces[0], "format": "w8a16_int8", "configs": configs[:1]}]}
    (row,) = loop_compiling.compile_task(other, lambda _: None)["compiled"]
    assert (row[0]["lost"], row[0]["figures"]) == (True, None)
