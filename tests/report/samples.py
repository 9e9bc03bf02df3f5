"""Hand-made reports that look like real ones; the numbers are those of an H200."""

from __future__ import annotations

from collections.abc import Mapping

from kernel_compass.records.device import Device
from kernel_compass.records.diagnosis import Diagnosis, Evidence, Flag, Headroom, Limiter, Reuse
from kernel_compass.records.profile import (
    Dim3,
    DurationStats,
    KernelProfile,
    Regime,
    Source,
    SourceFormat,
)
from kernel_compass.records.report import RegimeView, Report, ReportKernel

MIB = 1 << 20
H200 = Device("NVIDIA H200", "9.0", 132, 50 * MIB)
BMM = "nvjet_sm90_tst_256x8_64x6_2x1_v_bz_NNT"
BMM_LARGE = "nvjet_sm90_tst_512x8_64x3_2x1_v_bz_NNT"
GEMM = "nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NNT"


def elementwise(vector: int, functor: str) -> str:
    """A name as torch's elementwise kernels have it."""
    return (
        f"void at::native::vectorized_elementwise_kernel<(int){vector}, {functor}, "
        "std::array<char *, (unsigned long)3>>(int, T2, T3)"
    )


ADD_4 = elementwise(4, "at::native::CUDAFunctor_add<float>")
ADD_8 = elementwise(8, "at::native::CUDAFunctor_add<float>")


def stats(mean: float, launches: int = 1) -> DurationStats:
    return DurationStats(mean, mean, mean * 0.98, mean * 1.03, mean * launches)


def capture(regime: Regime, path: str | None = None, cache: str = "none") -> Source:
    return Source(
        path or f"captures/{regime.value}.csv",
        SourceFormat.NCU_CSV_WIDE,
        regime,
        cache_control=cache,
        clock_control="none",
        replay_mode="kernel",
        ncu_version="2025.3.1",
    )


RUN = Source("captures/truth_raw.csv", SourceFormat.NCU_CSV_WIDE)

DRAM = Diagnosis(
    Limiter.DRAM_BOUND,
    0.91,
    (
        Evidence("dram_throughput_pct", 83.2, "%", "DRAM bandwidth in use, at least 60 %", 60.0),
        Evidence("dram_bytes_read", 128 * MIB, "bytes", "most of what the SMs read"),
    ),
    headroom=Headroom(1.08, "compulsory"),
    advice=("Read fewer bytes: quantize the weights to 8 or 4 bits.", "Fuse with its consumer."),
)
RESIDENT = Diagnosis(
    Limiter.LATENCY_BOUND,
    0.72,
    (
        Evidence(
            "dram_bytes_read", 1.34 * MIB, "bytes", "under a tenth of the L2 reads", 1.6 * MIB
        ),
        Evidence("waves_per_sm", 0.5, "waves", "the grid does not fill the GPU", 1.0),
    ),
    flags=(Flag.L2_RESIDENT, Flag.SMALL_GRID),
    reuse=Reuse.BETWEEN,
    advice=("Split K so that more blocks are in flight.",),
)
COMPUTE = Diagnosis(
    Limiter.COMPUTE_BOUND,
    0.95,
    (Evidence("tensor_pipe_pct", 93.7, "%", "tensor pipe in use, at least 80 %", 80.0),),
    pipe="tensor",
    flags=(Flag.OCCUPANCY_LIMITED_BY_SHARED_MEMORY,),
    advice=("Near its roof: fewer bits per operand.",),
)
LAUNCH = Diagnosis(
    Limiter.LAUNCH_BOUND,
    0.64,
    (Evidence("duration_us", 1.9, "us", "near the fixed cost of a launch", 4.0),),
    flags=(Flag.SMALL_GRID,),
    advice=("Fuse it with its neighbours or replay the step as a CUDA graph.",),
)
NOTHING = Diagnosis(Limiter.UNCLASSIFIED, 0.0, ())


def kernel(
    name: str,
    diagnosis: Diagnosis,
    mean: float | None = 2.0,
    launches: int = 1,
    grid: Dim3 | None = (2, 66, 1),
    block: Dim3 | None = (384, 1, 1),
    metrics: Mapping[str, float] | None = None,
    device: int | None = None,
) -> KernelProfile:
    return KernelProfile(
        name,
        grid,
        block,
        device,
        launches,
        None if mean is None else stats(mean, launches),
        metrics or {},
        diagnosis=diagnosis,
    )


def ranked(*kernels: KernelProfile) -> tuple[ReportKernel, ...]:
    """Kernels with their shares, largest first; no shares where a duration is missing."""
    totals = [k.duration_us for k in kernels]
    known = [t for t in totals if t is not None]
    whole = sum(known) if len(known) == len(totals) else None
    items = [
        ReportKernel(k, k.duration_us / whole if whole and k.duration_us else None) for k in kernels
    ]
    return tuple(sorted(items, key=lambda item: -(item.share_of_time or 0.0)))


def decode() -> Report:
    """One capture of a decode step."""
    kernels = ranked(
        kernel(GEMM, COMPUTE, 1394.6, metrics={"sm_throughput_pct": 93.7, "tensor_pipe_pct": 93.7}),
        kernel(
            BMM_LARGE,
            DRAM,
            36.8,
            launches=4,
            metrics={
                "dram_throughput_pct": 83.2,
                "dram_bytes_read": 134_217_728.0,
                "l2_bytes_read": 134_479_872.0,
                "stall_long_scoreboard": 4.5,
            },
        ),
        kernel("triton_softmax_rows", DRAM, 131.5, grid=(16384, 1, 1), block=(256, 1, 1)),
        kernel(ADD_4, LAUNCH, 1.86, launches=20, grid=(8, 1, 1), block=(128, 1, 1)),
        kernel(ADD_8, LAUNCH, 1.95, launches=12, grid=(8, 1, 1), block=(128, 1, 1)),
        kernel(ADD_8, LAUNCH, 1.98, launches=9, grid=(64, 1, 1), block=(128, 1, 1)),
    )
    return Report("decode step, batch 1", H200, (RUN,), kernels)


def bmm_regimes() -> Report:
    """Both bmm sizes in three regimes; a third kernel is missing from one."""
    l2 = {"l2_bytes_read": 16.1 * MIB}
    warm = RegimeView(2, stats(5.76, 2), {**l2, "dram_bytes_read": 1.34 * MIB}, RESIDENT)
    cold_diagnosis = Diagnosis(Limiter.DRAM_BOUND, 0.7, DRAM.evidence, flags=(Flag.SMALL_GRID,))
    cold = RegimeView(2, stats(9.12, 2), {**l2, "dram_bytes_read": 16.0 * MIB}, cold_diagnosis)
    in_situ = RegimeView(
        2,
        stats(8.01, 2),
        {**l2, "dram_bytes_read": 12.9 * MIB},
        Diagnosis(Limiter.LATENCY_BOUND, 0.41, (), flags=(Flag.SMALL_GRID,)),
    )
    small = ReportKernel(
        kernel(BMM, RESIDENT, 5.76, launches=2, metrics=warm.metrics),
        11.52 / 50.32,
        {Regime.WARM: warm, Regime.IN_SITU: in_situ, Regime.COLD: cold},
    )
    metrics = {"dram_bytes_read": 128.0 * MIB, "l2_bytes_read": 128.3 * MIB}
    large_view = RegimeView(1, stats(36.8), metrics, DRAM)
    large = ReportKernel(
        kernel(BMM_LARGE, DRAM, 36.8, metrics=metrics),
        36.8 / 50.32,
        {
            Regime.WARM: large_view,
            Regime.IN_SITU: RegimeView(1, stats(37.0), metrics, DRAM),
            Regime.COLD: RegimeView(1, stats(38.2), metrics, DRAM),
        },
    )
    tiny_view = RegimeView(1, stats(2.0), {}, LAUNCH)
    tiny = ReportKernel(
        kernel(ADD_4, LAUNCH, 2.0, grid=(8, 1, 1), block=(128, 1, 1)),
        2.0 / 50.32,
        {Regime.WARM: tiny_view, Regime.IN_SITU: None, Regime.COLD: None},
    )
    sources = (
        capture(Regime.WARM),
        capture(Regime.IN_SITU),
        capture(Regime.COLD, cache="all"),
    )
    warnings = ("1 kernel is in the warm capture only.",)
    return Report("two bmm, one on each side of L2", H200, sources, (large, small, tiny), warnings)


def sparse() -> Report:
    """What foreign files bring: no durations, no grids, no device, a huge and an odd name."""
    huge = "void ns::deep::" + "<unnamed>::" + "wrapper<" * 40 + "int" + ">" * 40 + "(int, float)"
    kernels = ranked(
        kernel(huge, NOTHING, None, grid=None, block=None),
        kernel("matmul|naive<float>", LAUNCH, None, grid=None, block=None),
        kernel("Ядро_умножения", DRAM, None, grid=None, block=None),
    )
    warning = "The file states no grid, block or duration: launches are grouped by name alone."
    return Report("Größe 行列 λ|1 *bold*", None, (RUN,), kernels, (warning,))


def empty() -> Report:
    """Nothing to show."""
    return Report(None, None, (RUN,), ())


ALL = {"decode": decode, "bmm_regimes": bmm_regimes, "sparse": sparse, "empty": empty}
