"""compute-sanitizer's text, in the form of its manual, with a program's own lines between."""

from __future__ import annotations

from kernel_compass.validation.sanitizer_report import parsed

CLEAN = """========= COMPUTE-SANITIZER
kernel-compass: the candidate was called
========= ERROR SUMMARY: 0 errors
"""
OUT_OF_BOUNDS = """========= COMPUTE-SANITIZER
loading ...
========= Invalid __global__ write of size 4 bytes
=========     at out_of_bounds_function():0x40 in memcheck_demo.cu:39
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x87654320 is out of bounds
=========     Saved host backtrace up to driver entry point at kernel launch time
=========     Host Frame: [0x2667bb] in libcuda.so.1
=========
========= Invalid __shared__ read of size 2 bytes
=========     at other():0x10
=========     Address 0x1 is misaligned
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure" on CUDA API call to cudaDeviceSynchronize.
=========     Saved host backtrace up to driver entry point at error
Traceback (most recent call last):
RuntimeError: ========= ERROR SUMMARY: 0 errors
========= Target application returned an error
========= ERROR SUMMARY: 3 errors
"""  # noqa: E501
RACE = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at sumKernel(int *, int *)+0x90 in block_error.cu:27
=========     and Read access at sumKernel(int *, int *)+0xf0 in block_error.cu:32 [508 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""  # noqa: E501


def test_nothing_found():
    report = parsed(CLEAN, "memcheck")
    assert (report.errors, report.findings, report.is_clean) == (0, (), True)


def test_what_was_found_and_where():
    report = parsed(OUT_OF_BOUNDS, "memcheck")
    assert report.errors == 3, "the program's own line is no summary"
    first, second, third = report.findings
    assert first.startswith("Invalid __global__ write of size 4 bytes; at out_of_bounds_function()")
    assert "by thread (0,0,0)" in first
    assert "out of bounds" in first
    assert "Host Frame" not in first
    assert "misaligned" in second
    assert third.startswith("Program hit cudaErrorLaunchFailure")
    assert report.application_failed
    assert not report.is_clean


def test_a_race_on_shared_memory():
    report = parsed(RACE, "racecheck")
    assert (report.errors, report.is_clean) == (1, False)
    (found,) = report.findings
    assert "Write access at sumKernel" in found
    assert "[508 hazards]" in found


def test_a_run_that_did_not_come_to_its_end_is_not_clean():
    for text in ("", CLEAN.rpartition("=========")[0], "ERROR SUMMARY: 0 errors\n"):
        report = parsed(text, "memcheck")
        assert report.errors is None
        assert not report.is_clean


def test_a_program_that_fails_under_it_is_not_clean():
    text = (
        CLEAN.replace("=========  ERROR", "") + "========= Target application returned an error\n"
    )
    assert not parsed(text, "memcheck").is_clean
