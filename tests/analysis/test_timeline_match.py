"""Kernels of captures found again in timelines, by names that two tools spell differently."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_compass.analysis.launch_verdict import LaunchEvidence
from kernel_compass.analysis.timeline_match import alike, base_name, seen_in
from kernel_compass.api import diagnose_profiles, diagnose_timeline
from kernel_compass.profiling.recorded import recorded_profiles
from kernel_compass.records.diagnosis import Limiter
from kernel_compass.records.profile import DurationStats, KernelProfile
from kernel_compass.records.report import Report, ReportKernel
from kernel_compass.records.timeline import KernelTimeline

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "kineto"
MUL = "void at::elementwise_kernel<128, 4, void at::gpu_kernel_impl<at::AUnaryFunctor<float>>>(int)"
NEG = "void at::native::elementwise_kernel<128, 2, at::native::neg_kernel_cuda(int)::{lambda()#1}>"


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("void at::native::f<4, g<h>, (x)1>(int, h<int>)", "f"),
        ("void at::<unnamed>::f<at::<unnamed>::g, 1>(int)", "f"),
        ("at::native::(anonymous namespace)::f<g>", "f"),
        ("std::enable_if<(a<b>), int>::type ns::f<a>(int)", "f"),
        ("nvjet_sm90_tst_64x16", "nvjet_sm90_tst_64x16"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("", ""),
    ],
)
def test_base_names(name: str, base: str) -> None:
    assert base_name(name) == base


def test_spellings_of_one_kernel_and_of_two() -> None:
    cupti = MUL.replace("at::", "at::native::").replace("void at::native::gpu", "at::native::gpu")
    assert alike(MUL, cupti)
    assert alike("elementwise_kernel", MUL)
    assert not alike(MUL, NEG)


def kernel(name: str, duration: float = 3.0, grid: int = 64) -> KernelProfile:
    stats = DurationStats(duration, duration, duration, duration, 10 * duration)
    return KernelProfile(name, (grid, 1, 1), (128, 1, 1), 0, 10, stats, {})


def timeline(*kernels: KernelProfile) -> Report:
    seen = KernelTimeline(0.1, 9.0, 7.0, 2.0, launches_in_graph=0, launches_in_runs=0)
    return Report(None, None, (), tuple(ReportKernel(k, 0.5, timeline=seen) for k in kernels))


def test_one_kernel_of_the_same_name_grid_and_block() -> None:
    mine = kernel(MUL)
    seen = seen_in(timeline(kernel(MUL.replace("at::", "at::native::"), 4.0)), [mine])
    assert seen(mine) == LaunchEvidence(4.0, 9.0, 7.0, in_graph=False)
    assert seen(kernel(MUL, grid=32)) is None
    assert seen(kernel("other")) is None


def test_what_fits_several_is_not_told() -> None:
    bare, mine = kernel("elementwise_kernel"), kernel(MUL)
    assert seen_in(timeline(kernel(MUL), kernel(NEG)), [bare])(bare) is None
    other = kernel(MUL.replace("128, 4", "128, 8"))
    theirs = timeline(kernel(MUL.replace("at::", "at::native::")))
    assert seen_in(theirs, [mine, other])(mine) is None
    assert seen_in(timeline(mine, other), [mine, other])(mine) is not None  # the very names
    assert seen_in(timeline(kernel(NEG)), [mine])(mine) is None


def test_a_recorded_block_under_ncu_and_on_a_timeline() -> None:
    """The two were recorded from different code for one and the same decoder block: what matches
    must be of one shape, and no multiplication must be taken for a negation."""
    (trace,) = diagnose_timeline(FOLDER / "decoder_block_decode_eager.json.gz")
    counters = diagnose_profiles(recorded_profiles("decode_block"))
    both = diagnose_profiles(recorded_profiles("decode_block"), timeline=trace)
    before = {k.kernel.identity: k.kernel.diagnosis for k in counters.kernels}
    told = {}
    for item in both.kernels:
        old, new = before[item.kernel.identity], item.kernel.diagnosis
        assert old is not None
        assert new is not None
        if old.limiter is not Limiter.LAUNCH_BOUND:
            assert new == old
        elif new != old:
            told[item.kernel.identity] = new
            assert new.confidence >= old.confidence
    assert len(told) >= 10
    assert not [name for name, *_ in told if "AUnaryFunctor" in name]  # on the timeline it is `neg`
    gaps = [new for new in told.values() if new.evidence[0].metric == "gap_before_us"]
    assert all(new.confidence > 0.8 for new in gaps)
    assert len(gaps) >= 8
    silent = sum(d.limiter is Limiter.LAUNCH_BOUND for d in before.values() if d) - len(told)
    assert both.warnings[-1].startswith(f"{silent} of ")
