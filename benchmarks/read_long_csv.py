"""Time and memory of reading a long ncu CSV: `python benchmarks/read_long_csv.py`.

Writes a file with the row shapes of a decoder block's capture (17 metrics a launch, demangled
PyTorch names, en_US thousands) to a temporary directory, reads it in a child process, prints
seconds and peak RSS as JSON, and exits 1 when either is over its limit.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from reading_cost import Launched, cost_of, tell_cost

HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",'
    '"Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"'
)
METRICS = (
    ("dram__bytes_read.sum", "byte", 2e6, 0),
    ("dram__bytes_write.sum", "byte", 3e5, 0),
    ("dram__throughput.avg.pct_of_peak_sustained_elapsed", "%", 60, 2),
    ("gpu__time_duration.sum", "ns", 20000, 0),
    ("l1tex__throughput.avg.pct_of_peak_sustained_elapsed", "%", 50, 2),
    ("launch__block_size", "", 256, 0),
    ("launch__grid_size", "", 2000, 0),
    ("launch__occupancy_limit_registers", "block", 16, 0),
    ("launch__registers_per_thread", "register/thread", 128, 0),
    ("launch__shared_mem_per_block_static", "byte/block", 30000, 0),
    ("launch__waves_per_multiprocessor", "", 2, 2),
    ("lts__t_sector_hit_rate.pct", "%", 90, 2),
    ("lts__throughput.avg.pct_of_peak_sustained_elapsed", "%", 40, 2),
    ("sm__inst_executed_pipe_tensor.sum", "inst", 40000, 0),
    ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "%", 50, 2),
    ("sm__warps_active.avg.pct_of_peak_sustained_active", "%", 70, 2),
    ("smsp__cycles_active.avg", "cycle", 9000, 2),
)
_LAMBDAS = (
    "at::direct_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda() (instance 3)]::operator ()() "
    "const::[lambda() (instance 7)]::operator ()() const::[lambda(float) (instance 1)]"
)
KERNELS = (
    f"void at::unrolled_elementwise_kernel<{_LAMBDAS}, std::array<char *, 2>, 4, "
    "TrivialOffsetCalculator<1, unsigned int>, TrivialOffsetCalculator<1, unsigned int>, "
    "memory::LoadWithCast<1>, memory::StoreWithCast<1>>(int, T1, T2, T4, T5, T6, T7)",
    "void at::vectorized_elementwise_kernel<8, at::CUDAFunctor_add<c10::BFloat16>, "
    "std::array<char *, 3>>(int, T2, T3)",
    "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_splitK_TNT",
    "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, __nv_bfloat16, "
    "(bool)1, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, (bool)1, (bool)1, (bool)0>("
    "cublasLt::cublasSplitKParams<T6>, const T4 *, const T9 *, T8 *, T5 *, const T6 *, ...)",
)


def rows(launches: int, comma: bool, interleaved: bool) -> Iterator[str]:
    """The lines of the capture; `comma` writes numbers as de_DE does."""
    draw = random.Random(1)
    swap = str.maketrans(",.", ".,")
    yield "==PROF== Connected to process 7890 (/usr/bin/python3.12)"
    yield "==PROF== Disconnected from process 7890"
    yield HEADER
    for launch in range(launches):
        kernel = KERNELS[launch % len(KERNELS)]
        grid = f"({(64, 128, 2112)[launch % 3]}, 1, 1)"
        head = (
            f'"{launch}","7890","python3.12","127.0.0.1","{kernel}","1","7","(128, 1, 1)",'
            f'"{grid}","0","9.0","Command line profiler metrics",'
        )
        for name, unit, scale, digits in METRICS:
            number = f"{draw.random() * scale:,.{digits}f}"
            yield f'{head}"{name}","{unit}","{number.translate(swap) if comma else number}"'
            if interleaved and draw.random() < 0.25:
                yield f"step {launch}, loss {draw.random():.4f}"


def write(path: Path, megabytes: float, comma: bool, interleaved: bool) -> int:
    """Write a capture of about that size; returns its number of launches."""
    sample = sum(len(line) + 1 for line in rows(60, False, False)) / 60
    launches = max(1, round(megabytes * 1e6 / sample))
    with path.open("w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in rows(launches, comma, interleaved))
    return launches


def kernels(path: str) -> Iterable[Launched]:
    """Read one capture."""
    from kernel_compass.profiling.capture import read_capture

    return read_capture(path).kernels


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=float, default=200.0)
    parser.add_argument("--comma", action="store_true", help="numbers as de_DE writes them")
    parser.add_argument("--interleaved", action="store_true", help="program output between rows")
    parser.add_argument("--limit-s", type=float, default=4.0, help="for the plain file")
    parser.add_argument("--limit-mib", type=float, default=150.0)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        tell_cost(lambda: kernels(options.child))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "long.csv"
        launches = write(path, options.megabytes, options.comma, options.interleaved)
        figures = cost_of(__file__, str(path))
        figures = {"megabytes": round(path.stat().st_size / 1e6, 1), **figures}
    print(json.dumps(figures))
    fast = figures["seconds"] <= options.limit_s and figures["peak_rss_mib"] <= options.limit_mib
    return 0 if fast and figures["launches"] == launches else 1


if __name__ == "__main__":
    sys.exit(main())
