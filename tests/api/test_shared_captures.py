"""The H200 captures that lie beside a checkout: every page form gives the same, right answer."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from kernel_compass.api.diagnosing import diagnose_files
from kernel_compass.records.diagnosis import Diagnosis, Flag, Limiter, Reuse
from kernel_compass.records.profile import Regime
from kernel_compass.records.report import Report, ReportKernel

CAPTURES = Path(__file__).resolve().parents[3] / "shared" / "data" / "h200_captures"
pytestmark = pytest.mark.skipif(
    not CAPTURES.is_dir(), reason=f"the shared captures are not here: {CAPTURES}"
)

AS_LEFT = ("truth_raw", "truth_raw_base", "truth_details")
FLUSHED = ("truth_default_raw", "truth_default_details")

LIMITERS: dict[str, tuple[Limiter, set[Flag]]] = {
    "k_dram_copy": (Limiter.DRAM_BOUND, set()),
    "k_l2_reread": (Limiter.L2_BOUND, {Flag.L2_RESIDENT}),
    "k_fma_peak": (Limiter.COMPUTE_BOUND, set()),
    "k_tiny": (Limiter.LAUNCH_BOUND, set()),
    "k_smem_hog": (
        Limiter.LATENCY_BOUND,
        {Flag.LOW_OCCUPANCY, Flag.OCCUPANCY_LIMITED_BY_SHARED_MEMORY},
    ),
    "k_uncoalesced": (Limiter.DRAM_BOUND, {Flag.UNCOALESCED}),
    "k_tail": (Limiter.COMPUTE_BOUND, set()),
    "nvjet_sm90_tst_320x128": (Limiter.COMPUTE_BOUND, set()),
    "nvjet_sm90_tst_512x8_": (Limiter.DRAM_BOUND, set()),
    "triton_softmax_rows": (Limiter.DRAM_BOUND, set()),
    "void at::native::reduce_kernel": (Limiter.DRAM_BOUND, set()),
    "void at::reduce_kernel": (Limiter.DRAM_BOUND, set()),
    "void at::vectorized_elementwise_kernel": (Limiter.LAUNCH_BOUND, set()),
}


@functools.cache
def report(name: str) -> Report:
    return diagnose_files([CAPTURES / f"{name}.csv"])[0]


def find(name: str, prefix: str) -> ReportKernel | None:
    return next((k for k in report(name).kernels if k.kernel.name.startswith(prefix)), None)


def diagnosis(name: str, prefix: str) -> Diagnosis:
    row = find(name, prefix)
    assert row is not None
    assert row.kernel.diagnosis is not None
    return row.kernel.diagnosis


@pytest.mark.parametrize("page", [*AS_LEFT, *FLUSHED])
def test_limiters_are_those_of_the_construction(page: str) -> None:
    seen = 0
    for prefix, (limiter, flags) in LIMITERS.items():
        if find(page, prefix) is None:
            continue
        seen += 1
        found = diagnosis(page, prefix)
        assert found.limiter is limiter, prefix
        assert flags <= set(found.flags), prefix
    assert seen == 12


@pytest.mark.parametrize("page", [*AS_LEFT, *FLUSHED])
def test_the_gemm_names_the_tensor_pipe(page: str) -> None:
    assert diagnosis(page, "nvjet_sm90_tst_320x128").pipe == "tensor"


def test_the_small_bmm_is_latency_bound_and_resident_unless_the_capture_flushed() -> None:
    for page in AS_LEFT:
        found = diagnosis(page, "nvjet_sm90_tst_256x8_")
        assert found.limiter is Limiter.LATENCY_BOUND
        assert Flag.L2_RESIDENT in found.flags
    for page in FLUSHED:
        found = diagnosis(page, "nvjet_sm90_tst_256x8_")
        assert found.limiter is Limiter.LATENCY_BOUND
        assert Flag.RESIDENCY_UNKNOWN in found.flags
        assert Flag.L2_RESIDENT not in found.flags


def test_the_reread_within_one_launch_is_told_where_bytes_are_on_the_page() -> None:
    for page in ("truth_raw", "truth_raw_base", "truth_default_raw"):
        assert diagnosis(page, "k_l2_reread").reuse is Reuse.WITHIN


@pytest.mark.parametrize("page", ["decode_raw", "decode_details", "decode_metrics"])
def test_the_decode_block_is_mostly_launch_bound(page: str) -> None:
    kernels = report(page).kernels
    assert sum(k.kernel.launches for k in kernels) == 49
    count: dict[Limiter, int] = dict.fromkeys(Limiter, 0)
    for k in kernels:
        assert k.kernel.diagnosis is not None
        count[k.kernel.diagnosis.limiter] += k.kernel.launches
    assert count[Limiter.LAUNCH_BOUND] >= 38
    assert diagnosis(page, "cudnn_generated_fort_native_sdpa").limiter is Limiter.DRAM_BOUND
    mlp = [
        k
        for k in kernels
        if k.kernel.name.startswith(
            ("nvjet_sm90_tst_64x16_64x16_2x1_v_bz_TNT", "nvjet_sm90_tst_128x16_64x11")
        )
    ]
    assert sum(k.kernel.launches for k in mlp) == 3
    assert {k.kernel.bottleneck for k in mlp} == {"dram_bound"}


def test_joining_a_cold_and_a_warm_capture_answers_the_residency_question() -> None:
    files = {
        Regime.COLD: CAPTURES / "bmm_n512_cold_metrics.csv",
        Regime.WARM: CAPTURES / "bmm_n512_warm_metrics.csv",
    }
    joined = diagnose_files([], files)[0]
    row = joined.kernels[0]
    assert row.regimes is not None
    warm, cold = row.regimes[Regime.WARM], row.regimes[Regime.COLD]
    assert warm is not None
    assert cold is not None
    assert Flag.L2_RESIDENT in warm.diagnosis.flags
    assert not {Flag.L2_RESIDENT, Flag.RESIDENCY_UNKNOWN} & set(cold.diagnosis.flags)
    assert row.kernel.launches == 3
