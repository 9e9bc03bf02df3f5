"""Damage that leaves a file's form intact and gives itself away by impossible contents."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_compass.errors import AmbiguousCapture, CaptureError, DamagedCapture
from kernel_compass.profiling.capture import read_capture
from kernel_compass.records.profile import Profile

COLUMNS = (
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream",
    "Block Size", "Grid Size", "Device", "CC", "Section Name", "Metric Name", "Metric Unit",
    "Metric Value",
)  # fmt: skip
DURATION = ("gpu__time_duration.sum", "ns", "5760")
SM = ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "%", "12.5")


def rows(
    *metrics: tuple[str, str, str],
    process: str = "7",
    block: str = "(128, 1, 1)",
    launch: int = 0,
) -> str:
    lines = []
    for name, unit, value in metrics:
        cells = (str(launch), process, "p", "h", "k", "1", "7", block, "(8, 1, 1)", "0", "9.0", "S")
        lines.append(",".join(f'"{cell}"' for cell in (*cells, name, unit, value)))
    return "\n".join(lines) + "\n"


HEADER = ",".join(f'"{name}"' for name in COLUMNS) + "\n"


def read(tmp_path: Path, text: str) -> Profile:
    path = tmp_path / "capture.csv"
    path.write_text(text)
    return read_capture(path)


@pytest.mark.parametrize(
    ("metric", "error"),
    [
        (("gpu__time_duration.sum", "ns", "-5000"), DamagedCapture),
        (("smsp__thread_inst_executed_per_inst_executed.ratio", "", "262144"), DamagedCapture),
        (("lts__t_sector_hit_rate.pct", "%", "10000.5"), DamagedCapture),
        (("sm__throughput.avg.pct_of_peak_sustained_elapsed", "%", "5000000.5"), DamagedCapture),
        (("launch__registers_per_thread", "register/thread", "-3"), DamagedCapture),
        (("dram__bytes_read.sum", "byte", "52.576"), AmbiguousCapture),
    ],
    ids=lambda v: v[0] if isinstance(v, tuple) else "",
)
def test_an_impossible_value_is_refused(
    metric: tuple[str, str, str], error: type[CaptureError], tmp_path: Path
) -> None:
    others = [m for m in (DURATION, SM) if m[0] != metric[0]]
    with pytest.raises(error):
        read(tmp_path, HEADER + rows(*others, metric))


def test_what_ncu_does_not_clamp_is_kept(tmp_path: Path) -> None:
    odd = ("l1tex__throughput.avg.pct_of_peak_sustained_active", "%", "811.25")
    hit = ("lts__t_sector_hit_rate.pct", "%", "-0.50")
    difference = ("lts__t_sectors_op_read_lookup_miss.sum", "sector", "-2")
    (kernel,) = read(tmp_path, HEADER + rows(DURATION, SM, odd, hit, difference)).kernels
    assert kernel.metrics["l1_throughput_pct"] == 811.25
    assert kernel.metrics["l2_hit_rate_pct"] == -0.5
    assert kernel.metrics["l2_read_sectors_missed"] == -2.0


def test_a_block_of_too_many_threads_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DamagedCapture):
        read(tmp_path, HEADER + rows(DURATION, SM, block="(2048, 1, 1)"))


def test_two_reports_one_after_the_other_are_not_averaged(tmp_path: Path) -> None:
    first, second = rows(DURATION, SM), rows(DURATION, SM, process="8")
    with pytest.raises(DamagedCapture, match="two reports"):
        read(tmp_path, HEADER + first + HEADER + second)
    read(tmp_path, HEADER + first + HEADER + first)


def test_one_run_of_two_processes_is_one_report(tmp_path: Path) -> None:
    def launch(number: int, process: str) -> str:
        return rows(DURATION, SM, process=process, launch=number)

    text = HEADER + launch(0, "1") + launch(2, "1") + HEADER + launch(1, "2") + launch(3, "2")
    path = tmp_path / "run.csv"
    path.write_text(text)
    assert sum(k.launches for k in read_capture(path).kernels) == 4
    with pytest.raises(DamagedCapture, match="two reports"):
        read(tmp_path, HEADER + HEADER + launch(0, "1") + launch(0, "2"))
