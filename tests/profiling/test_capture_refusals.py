"""Files that are no captures: each is refused by name, with the next command."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from ncu_files import GOLDEN, golden_bytes, golden_table, read_text

from kernel_compass.errors import DamagedCapture, KernelCompassError, NotAMetricTable
from kernel_compass.profiling.capture import read_capture

EXPORT = "ncu --import X.ncu-rep --page raw --csv --print-units base"


@pytest.mark.parametrize(
    ("name", "found", "remedy"),
    [
        ("h200_text_page.txt.xz", "text page", EXPORT),
        ("h200_session_page.csv", "session page", EXPORT),
        ("h200_summary_page.csv", "--print-summary", EXPORT),
        ("no_kernels.log", "profiled no kernel", "--target-processes all"),
        ("no_such_target.log", "does not exist or is not an executable", "that exists"),
    ],
)
def test_other_outputs_of_ncu(name: str, found: str, remedy: str) -> None:
    with pytest.raises(NotAMetricTable) as refusal:
        read_capture(GOLDEN / name)
    assert found in refusal.value.found
    assert remedy in refusal.value.remedy


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('"Kernel Name","add(int *)",\n"Address","Source","# Samples"\n', "source page"),
        ('"#","Source","Warp Stall Sampling (All Samples)"\n', "source page"),
        ("==PROF== Connected to process 7 (/bin/a)\nhello\n", "no metric table"),
        ("step 1\nstep 2\n", "no Nsight Compute file"),
        ("\n", "no Nsight Compute file"),
        ("\x01\x02\x03\x04\x05" * 50, "binary file"),
        (
            "==PROF== x\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n",
            "ERR_NVGPUCTRPERM",
        ),
        (golden_table("h200_bmm_warm.csv").text().split("\n")[4] + "\n", "no launch"),
    ],
)
def test_text_without_a_table(tmp_path: Path, text: str, found: str) -> None:
    with pytest.raises(NotAMetricTable, match=found) as refusal:
        read_text(tmp_path, text)
    assert refusal.value.remedy


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").touch()
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "link.csv").symlink_to(tmp_path / "nowhere.csv")
    for name, found in [
        ("missing.csv", "No such file"),
        ("link.csv", "No such file"),
        ("", "is a directory"),
        ("empty.csv", "is empty"),
        ("pipe.csv", "not a regular file"),
        ("nul\0.csv", "cannot be read"),
        ("x" * 5000, "cannot be read"),
    ]:
        with pytest.raises(NotAMetricTable, match=found):
            read_capture(tmp_path / name)


def test_broken_compression(tmp_path: Path) -> None:
    packed = gzip.compress(golden_bytes("h200_bmm_warm.csv"))
    for data in (packed[:-20], packed[:40] + b"\xff" * 40 + packed[80:], packed[:12]):
        with pytest.raises(KernelCompassError):
            read_text(tmp_path, data)


def test_nul_bytes_and_a_huge_line(tmp_path: Path) -> None:
    text = golden_bytes("h200_bmm_warm.csv")
    with pytest.raises(DamagedCapture, match="NUL"):
        read_text(tmp_path, text + bytes(4096))
    with pytest.raises(DamagedCapture, match="MiB"):
        read_text(tmp_path, text + b"a" * (34 << 20))


def test_two_tables_of_different_columns(tmp_path: Path) -> None:
    long, wide = golden_bytes("h200_bmm_warm.csv"), golden_bytes("h200_truth_raw.csv.xz")
    for data in (long + wide, wide + long, long + golden_bytes("h200_nvtx.csv")):
        with pytest.raises(DamagedCapture, match="two tables"):
            read_text(tmp_path, data)


def test_the_same_launch_with_other_values_or_another_name(tmp_path: Path) -> None:
    text = golden_bytes("h200_bmm_warm.csv").decode()
    header = text.index('"ID"')
    with pytest.raises(DamagedCapture, match="two values"):
        read_text(tmp_path, text + text[header:].replace('"5,', '"6,'))
    with pytest.raises(DamagedCapture, match="another kernel"):
        read_text(tmp_path, text + text[header:].replace("nvjet", "njvet"))


def test_rows_without_their_header(tmp_path: Path) -> None:
    lines = golden_table("h200_bmm_warm.csv").lines()
    rows = [line for line in lines if line.startswith('"0"')]
    with pytest.raises(DamagedCapture, match="before the header"):
        read_text(tmp_path, "\n".join(rows))


def test_quotes_that_ncu_left_open() -> None:
    with pytest.raises(DamagedCapture, match="lost cells"):
        read_capture(GOLDEN / "h200_nvtx_rename_broken.csv.xz")


@pytest.mark.parametrize(
    ("said", "next_step"),
    [
        ("ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance "
         "Counters on the target device 0.", "SYS_ADMIN"),
        ("Nsight Compute failed to connect to the CUDA driver.", "driver"),
        ("The application returned an error code (1).", "target alone"),
    ],
)  # fmt: skip
def test_the_log_of_a_failed_run_names_the_remedy_of_its_cause(
    said: str, next_step: str, tmp_path: Path
) -> None:
    log = tmp_path / "run.csv"
    log.write_text(f"==ERROR== {said}\n==WARNING== No kernels were profiled.\n")
    with pytest.raises(NotAMetricTable) as caught:
        read_capture(log)
    assert said[:30] in caught.value.found
    assert next_step in caught.value.remedy
