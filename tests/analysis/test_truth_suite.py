"""The diagnosis of kernels whose limiter is known by construction, recorded on an H200."""

from __future__ import annotations

import dataclasses
import functools
import re
from pathlib import Path

import pytest
from cases import CASES, Case

from kernel_compass.analysis.bottleneck import diagnose_kernel
from kernel_compass.analysis.joining import report_one
from kernel_compass.analysis.quantities import quantities
from kernel_compass.profiling.capture import read_capture
from kernel_compass.records.diagnosis import Flag, Limiter, Reuse
from kernel_compass.records.profile import Regime
from kernel_compass.records.report import ReportKernel

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "h200_truth"

OWN = {c.name: c for c in CASES if not c.name.startswith("torch_")}
FULL_SET = ("truth_none_raw", "truth_none_details", "truth_all_raw", "truth_all_details")
OWN_LIST = "profile_warm"
"""The suite under `kernel-compass profile --regime warm`: our metric list, each kernel once."""
PAGES = (*FULL_SET, OWN_LIST)

# A details page carries no atomic, pipe-mix or local-memory counters.
NOT_ON_DETAILS = {Flag.ATOMIC_CONTENTION, Flag.DEQUANT_BOUND}
LOCAL_ARRAYS = re.compile(r"k_local_dynidx")


@functools.cache
def diagnosed(page: str) -> dict[str, ReportKernel]:
    profile = read_capture(GOLDEN / f"{page}.csv.xz")
    if page == OWN_LIST:
        source = dataclasses.replace(
            profile.source, regime=Regime.WARM, cache_control="none", replay_mode="kernel"
        )
        profile = dataclasses.replace(profile, source=source)
    report = report_one(profile)
    return {k.kernel.name: k for k in report.kernels}


def recorded() -> list[tuple[str, Case]]:
    return [
        (page, case)
        for page in PAGES
        for case in OWN.values()
        if case.name in diagnosed(page) and not evicted_by_replay(page, case)
    ]


def required_flags(page: str, case: Case) -> set[Flag]:
    flags = {Flag(f) for f in case.flags}
    if page == "truth_all_details" and case.name == "k_l2_reread_32m":
        flags.discard(Flag.L2_RESIDENT)  # flushed: it hits 87 % as levels go, 94 % as bytes go
    if "details" in page:
        flags -= NOT_ON_DETAILS
        if LOCAL_ARRAYS.search(case.name):
            flags.discard(Flag.REGISTER_SPILLS)
    if "_all_" in page and "between" in case.name:
        flags.discard(Flag.L2_RESIDENT)
    if page == OWN_LIST and case.kind == "divergence":
        flags.discard(Flag.DIVERGENCE)  # recorded before the list had the branch counters
    return flags


def evicted_by_replay(page: str, case: Case) -> bool:
    """Kernels whose operand ncu's own replay evicts, so that warm does not settle."""
    return page == OWN_LIST and case.name in ("k_l2_between_16m", "k_l2_between_32m")


@pytest.mark.parametrize(("page", "case"), recorded(), ids=lambda v: getattr(v, "name", v))
def test_limiter_and_flags_by_construction(page: str, case: Case) -> None:
    diagnosis = diagnosed(page)[case.name].kernel.diagnosis
    assert diagnosis is not None
    flushed = case.limiters_flushed if "_all_" in page else None
    assert diagnosis.limiter.value in (flushed or case.limiters)
    assert required_flags(page, case) <= set(diagnosis.flags)
    assert not {Flag(f) for f in case.forbidden_flags} & set(diagnosis.flags)
    if case.pipes and diagnosis.limiter is Limiter.COMPUTE_BOUND and diagnosis.pipe:
        assert diagnosis.pipe in case.pipes


def test_every_own_case_that_was_recorded_is_checked() -> None:
    assert len({case.name for _, case in recorded()}) >= 115


@pytest.mark.parametrize("mode", ["none", "all"])
def test_the_limiter_is_the_same_from_both_pages(mode: str) -> None:
    raw, details = diagnosed(f"truth_{mode}_raw"), diagnosed(f"truth_{mode}_details")
    assert raw.keys() == details.keys()
    different = {
        name: (a.limiter, b.limiter)
        for name in raw
        if (a := raw[name].kernel.diagnosis)
        and (b := details[name].kernel.diagnosis)
        and a.limiter is not b.limiter
    }
    assert not different


def test_special_functions_name_the_xu_pipe_even_where_ncus_rule_does_not() -> None:
    for page in ("truth_none_raw", "truth_none_details"):
        pipes = {
            name: k.kernel.diagnosis.pipe
            for name, k in diagnosed(page).items()
            if name.startswith(("k_xu_", "t_exp_")) and k.kernel.diagnosis
        }
        assert pipes
        assert set(pipes.values()) == {"xu"}


def test_residency_tells_reuse_within_a_launch() -> None:
    kernels = diagnosed("truth_none_raw")
    for name in ("k_l2_reread_8m", "k_l2_reread_16m", "k_l2_reread_32m", "t_l2_reread"):
        diagnosis = kernels[name].kernel.diagnosis
        assert diagnosis is not None
        assert (diagnosis.limiter, diagnosis.reuse) == (Limiter.L2_BOUND, Reuse.WITHIN)


def test_one_pass_over_an_l2_sized_set_cannot_tell_within_from_between_alone() -> None:
    warm = diagnosed("truth_none_raw")["k_l2_between_16m"].kernel.diagnosis
    flushed = diagnosed("truth_all_raw")["k_l2_between_16m"].kernel.diagnosis
    assert warm is not None
    assert flushed is not None
    assert Flag.L2_RESIDENT in warm.flags
    assert warm.reuse is Reuse.UNKNOWN
    assert Flag.RESIDENCY_UNKNOWN in flushed.flags
    assert Flag.L2_RESIDENT not in flushed.flags


def test_a_warm_capture_that_replay_disturbed_does_not_claim_to_know() -> None:
    large = diagnosed(OWN_LIST)["k_l2_between_32m"].kernel.diagnosis
    assert large is not None
    assert Flag.RESIDENCY_UNKNOWN in large.flags
    assert "replay may have evicted" in next(
        e.meaning for e in large.evidence if e.metric == "dram_bytes_read"
    )


def test_partly_resident_is_said_in_the_evidence_and_not_flagged() -> None:
    medium = diagnosed(OWN_LIST)["k_l2_between_16m"].kernel.diagnosis
    assert medium is not None
    assert not {Flag.L2_RESIDENT, Flag.RESIDENCY_UNKNOWN} & set(medium.flags)
    assert any("part of them" in e.meaning for e in medium.evidence)


@pytest.mark.parametrize("mode", ["none", "all"])
def test_residency_from_levels_never_contradicts_the_bytes(mode: str) -> None:
    raw, details = diagnosed(f"truth_{mode}_raw"), diagnosed(f"truth_{mode}_details")
    flagged = [
        name
        for name, row in details.items()
        if row.kernel.diagnosis and Flag.L2_RESIDENT in row.kernel.diagnosis.flags
    ]
    assert len(flagged) >= 5
    for name in flagged:
        if "spill" in name:  # spilled stores are most of what L2 moves; levels cannot tell
            continue
        assert quantities(raw[name].kernel)["dram_reads_per_l2_read"] <= 0.25, name


@pytest.mark.parametrize("level", ["dram_throughput_pct", "l2_throughput_pct"])
def test_a_missing_level_is_not_an_idle_one(level: str) -> None:
    """Take a level (and ncu's maximum over levels) away from kernels that it limits."""
    profile = read_capture(GOLDEN / "truth_none_raw.csv.xz")
    gone = {level, "memory_throughput_pct"}
    limited = 0
    for kernel in profile.kernels:
        full = diagnose_kernel(kernel, profile.source, profile.device)
        if full.limiter.value != level.replace("_throughput_pct", "_bound"):
            continue
        limited += 1
        kept = {key: v for key, v in kernel.metrics.items() if key not in gone}
        less = diagnose_kernel(
            dataclasses.replace(kernel, metrics=kept), profile.source, profile.device
        )
        assert less.limiter is Limiter.UNCLASSIFIED, kernel.name
        assert any("not collected" in e.meaning for e in less.evidence)
    assert limited >= 5
